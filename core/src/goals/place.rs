// SPDX-License-Identifier: GPL-2.0-or-later
//! Where sessions are while they have an allotment.

use serde::{Deserialize, Serialize};

use super::MAX_SESSIONS;

/// Where a session is in the backend: a place, and how often that had been had before. So what still says
/// that it belongs to one that has ended belongs to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionPlace(u32);

impl SessionPlace {
    /// Of what belongs to no session.
    pub const NONE: Self = Self(0);

    /// The first to have place number `place`, from 1 to [`MAX_SESSIONS`].
    pub const fn first(place: u16) -> Self {
        Self(place as u32)
    }

    /// The next to have the same place. After four million of them names are had again.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(MAX_SESSIONS as u32 + 1))
    }

    /// The number of its place.
    pub fn place(self) -> usize {
        self.0 as usize % (MAX_SESSIONS + 1)
    }

    /// As the backend has it.
    pub fn raw(self) -> u32 {
        self.0
    }
}

impl From<u32> for SessionPlace {
    fn from(raw: u32) -> Self {
        Self(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_has_the_same_place_and_another_name() {
        let mut name = SessionPlace::first(MAX_SESSIONS as u16);
        for _ in 0..10 {
            let next = name.next();
            assert_ne!(next, name);
            assert_eq!(next.place(), MAX_SESSIONS);
            name = next;
        }
        assert_eq!(SessionPlace::NONE.place(), 0);
    }
}
