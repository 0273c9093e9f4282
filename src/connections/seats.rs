// SPDX-License-Identifier: GPL-2.0-only
//! How many connections there are in all, and of each user.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How many have connections, by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Rc<RefCell<BTreeMap<u32, usize>>>);

/// A connection's; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    uid: u32,
    seats: Seats,
}

impl Seats {
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
        let mut users = self.0.borrow_mut();
        let all: usize = users.values().sum();
        let own = users.get(&uid).copied().unwrap_or(0);
        if all >= most {
            return Err(format!("there are {most} {what} already"));
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
        let mut users = self.seats.0.borrow_mut();
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
}
