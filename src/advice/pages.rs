// SPDX-License-Identifier: GPL-2.0-only
//! Pages are lent. Whoever has the descriptor of one keeps it in memory, for as long as they like and at the scheduler's
//! cost; so the next program of the same user gets it when its subscription has ended, and each user has as many
//! as it may have subscriptions at a time.

use std::collections::{BTreeMap, VecDeque};

use super::MAX_SUBSCRIBERS;
use super::page::AdvicePage;

/// Those that no program has now.
#[derive(Debug, Default)]
pub(super) struct IdlePages {
    of_users: BTreeMap<u32, VecDeque<AdvicePage>>,
}

impl IdlePages {
    /// One for a program of this user.
    ///
    /// # Errors
    /// The kernel has no memory or no descriptor.
    pub(super) fn take(&mut self, user: u32) -> Result<AdvicePage, rustix::io::Errno> {
        let idle = self.of_users.get_mut(&user);
        // That which was given back first: the program that had it reads it no more.
        match idle.and_then(VecDeque::pop_front) {
            Some(page) => Ok(page),
            None => AdvicePage::new(),
        }
    }

    /// It has ended.
    pub(super) fn give_back(&mut self, user: u32, mut page: AdvicePage) {
        page.clear();
        self.of_users.entry(user).or_default().push_back(page);
        let number: usize = self.of_users.values().map(VecDeque::len).sum();
        if number > MAX_SUBSCRIBERS
            && let Some(most) = self.of_users.values_mut().max_by_key(|of| of.len())
        {
            most.pop_front();
        }
        self.of_users.retain(|_, pages| !pages.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::MetadataExt;

    fn inode(fd: OwnedFd) -> u64 {
        std::fs::File::from(fd).metadata().unwrap().ino()
    }

    #[test]
    fn a_user_who_comes_and_goes_has_one_page() {
        let mut idle = IdlePages::default();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let page = idle.take(1000).unwrap();
            seen.push(inode(page.descriptor().unwrap()));
            idle.give_back(1000, page);
        }
        assert!(seen.iter().all(|inode| *inode == seen[0]), "{seen:?}");
        // Another user's programs read none of that.
        let other = idle.take(1001).unwrap();
        assert_ne!(inode(other.descriptor().unwrap()), seen[0]);
    }

    #[test]
    fn so_many_wait_and_no_more() {
        let mut idle = IdlePages::default();
        let mut pages: Vec<_> = (0..3).map(|_| idle.take(0).unwrap()).collect();
        for nth in 0..MAX_SUBSCRIBERS {
            idle.give_back(nth as u32 % 2, AdvicePage::new().unwrap());
        }
        pages.drain(..).for_each(|page| idle.give_back(7, page));
        let left: Vec<usize> = idle.of_users.values().map(VecDeque::len).collect();
        assert_eq!(left.iter().sum::<usize>(), MAX_SUBSCRIBERS);
        assert_eq!(left[2], 3);
    }
}
