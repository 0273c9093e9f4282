// SPDX-License-Identifier: GPL-2.0-or-later
//! Which sessions' threads are kept on the fastest core type all together.
//!
//! Threads of one program wait for each other: an encoder's for a part of the picture before, a team's at a barrier. One
//! that is on a slow core for a while holds all of them up, and the rate swings though what they are given stays the same.
//! Threads that are fast enough on a slow core one by one are so only if none waits for another. What this is worth is in
//! `docs/decisions/goal-together.md`.

/// A session that is there stays until it needs so many times what there is room for.
const STAYS: f64 = 1.2;

/// What is left of the CPUs of the fastest type, in fast cores.
#[derive(Clone, Copy, Debug)]
pub struct FastRoom {
    left: f64,
}

impl FastRoom {
    /// So many fast cores are there for them.
    pub fn new(fast_cores: f64) -> Self {
        Self { left: fast_cores }
    }

    /// Whether a session that is allotted so many fast cores is to be there, and takes that room then.
    pub fn take(&mut self, fast_cores: f64, is_there: bool) -> bool {
        let fits = self.fits(fast_cores, is_there);
        if fits {
            self.fill(fast_cores);
        }
        fits
    }

    /// Whether it would.
    pub fn fits(&self, fast_cores: f64, is_there: bool) -> bool {
        let times = if is_there { STAYS } else { 1.0 };
        fast_cores <= times * self.left
    }

    /// So many fast cores of it are taken, whether they fit or not.
    pub fn fill(&mut self, fast_cores: f64) {
        self.left -= fast_cores;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_come_first_have_room_and_stay_while_they_need_little_more() {
        let taken = |others: f64, is_there: bool| {
            let mut room = FastRoom::new(4.0 - others);
            [2.5, 1.7, 1.0].map(|fast_cores| room.take(fast_cores, is_there))
        };
        assert_eq!(taken(0.0, false), [true, false, true]);
        assert_eq!(taken(0.0, true), [true, true, false]);
        assert_eq!(taken(2.0, false), [false, true, false]);
        assert_eq!(taken(5.0, true), [false; 3]);
    }
}
