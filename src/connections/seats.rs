// SPDX-License-Identifier: GPL-2.0-only
//! How many connections there are in all, and of each user. A range of subordinate user ids (`subuid(5)`), which one
//! user may take on one after another, counts as one more user, and a few connections are kept for root.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::rc::Rc;

const SUBORDINATE: &str = "/etc/subuid";

/// Of that file, bytes.
const LARGEST: u64 = 1 << 20;

/// One in so many, of all that there may be, is root's alone.
const FOR_ROOT: usize = 16;

/// How many have connections, by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Rc<Users>);

#[derive(Debug, Default)]
struct Users {
    taken: RefCell<BTreeMap<u32, usize>>,
    subordinate: Vec<Range<u32>>,
}

/// A connection's; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    uid: u32,
    seats: Seats,
}

impl Seats {
    /// All free, on this machine.
    pub(crate) fn new() -> Self {
        let mut text = String::new();
        let file = File::open(SUBORDINATE);
        let _ = file.and_then(|file| file.take(LARGEST).read_to_string(&mut text));
        Self::with_subordinate(&text)
    }

    /// Lines of `NAME:FIRST:COUNT`; others are passed over.
    fn with_subordinate(lines: &str) -> Self {
        let range = |line: &str| {
            let mut parts = line.trim().split(':').skip(1).map(str::parse::<u32>);
            let (first, count) = (parts.next()?.ok()?, parts.next()?.ok()?);
            // A range that root is in would count it with others.
            (first > 0).then(|| first..first.saturating_add(count))
        };
        Self(Rc::new(Users {
            subordinate: lines.lines().filter_map(range).collect(),
            taken: RefCell::default(),
        }))
    }

    /// Which user one counts as.
    fn counts_as(&self, uid: u32) -> u32 {
        let mut ranges = self.0.subordinate.iter();
        let range = ranges.find(|range| range.contains(&uid));
        range.map_or(uid, |range| range.start)
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
        let uid = self.counts_as(uid);
        let mut users = self.0.taken.borrow_mut();
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

impl Drop for Seat {
    fn drop(&mut self) {
        let mut users = self.seats.0.taken.borrow_mut();
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
        let seats = Seats::default();
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
        let seats =
            Seats::with_subordinate("a:100000:65536\nnonsense\nb:0:70000\nc:4294967295:9\n");
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
