// SPDX-License-Identifier: GPL-2.0-only
//! How many connections there are in all, and of each user. A few are kept for root.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::CountedUsers;

/// One in so many, of all that there may be, is root's alone.
const FOR_ROOT: usize = 16;

/// How many have connections, by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats {
    users: CountedUsers,
    taken: Rc<RefCell<BTreeMap<u32, usize>>>,
}

/// A connection's; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    uid: u32,
    seats: Seats,
}

impl Seats {
    /// All free, of these users.
    pub(crate) fn new(users: CountedUsers) -> Self {
        Self {
            users,
            ..Self::default()
        }
    }

    /// One for a user, where there are to be `most` in all, and `of_user` of one that is not root. They are
    /// called `what`.
    ///
    /// # Errors
    /// There is none, in words.
    pub(crate) fn take(
        &self,
        uid: u32,
        most: usize,
        of_user: usize,
        what: &str,
    ) -> Result<Seat, String> {
        let uid = self.users.of(uid);
        let mut users = self.taken.borrow_mut();
        let all: usize = users.values().sum();
        let taken = |uid| users.get(&uid).copied().unwrap_or(0);
        let (own, roots) = (taken(uid), taken(0));
        let for_others = most - most / FOR_ROOT;
        if all >= most || (uid != 0 && all - roots >= for_others) {
            return Err(format!("there are {all} {what} already"));
        }
        if own >= of_user && uid != 0 {
            return Err(format!("user {uid} has {of_user} {what} already"));
        }
        *users.entry(uid).or_default() += 1;
        Ok(Seat {
            uid,
            seats: self.clone(),
        })
    }
}

impl Seat {
    /// Which user it counts for.
    pub(crate) fn user(&self) -> u32 {
        self.uid
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut users = self.seats.taken.borrow_mut();
        if let Some(taken) = users.get_mut(&self.uid) {
            *taken -= 1;
            if *taken == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_few_and_become_free_again() {
        let seats = Seats::new(CountedUsers::default());
        let first = seats.take(1000, 3, 1, "seats").unwrap();
        let why = seats.take(1000, 3, 1, "seats").unwrap_err();
        assert_eq!(why, "user 1000 has 1 seats already");
        let _root = [
            seats.take(0, 3, 1, "seats").unwrap(),
            seats.take(0, 3, 1, "seats").unwrap(),
        ];
        let why = seats.take(1001, 3, 1, "seats").unwrap_err();
        assert_eq!(why, "there are 3 seats already");
        drop(first);
        assert!(seats.take(1001, 3, 1, "seats").is_ok());
    }

    #[test]
    fn some_are_roots_and_a_range_of_subordinate_users_counts_as_one() {
        let seats = Seats::new(CountedUsers::of_lines("a:100000:65536\n"));
        let mut taken: Vec<Seat> = (0..20)
            .map_while(|nth| seats.take(100_000 + nth, 32, 20, "seats").ok())
            .collect();
        assert_eq!(taken.len(), 20);
        let why = seats.take(165_535, 32, 20, "seats").unwrap_err();
        assert_eq!(why, "user 100000 has 20 seats already");
        for nth in 0..10 {
            taken.push(seats.take(1000 + nth, 32, 20, "seats").unwrap());
        }
        let why = seats.take(165_536, 32, 20, "seats").unwrap_err();
        assert_eq!(why, "there are 30 seats already");
        let _root = [(); 2].map(|()| seats.take(0, 32, 1, "seats").unwrap());
        assert!(seats.take(0, 32, 1, "seats").is_err());
    }
}
