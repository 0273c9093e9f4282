// SPDX-License-Identifier: GPL-2.0-or-later
//! CPUs to which sessions are confined, by affinity or by their cgroup: what the machine has beyond these is of no use to them.

/// Rooms at once, at most: what is confined elsewhere counts as if it were not.
pub const MAX_ROOMS: usize = 16;

/// Some CPUs, not all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GoalRoom {
    /// What they are for the sessions that are confined there, fast cores.
    pub fast_cores: f64,
    /// Bit n is set if all CPUs of the nth room are among these, as it is for their own.
    pub holds: u16,
}

impl GoalRoom {
    /// Whether what is confined to that room can use no other CPUs than these.
    pub fn has(&self, room: Option<u8>) -> bool {
        room.is_some_and(|room| self.holds >> (room & 15) & 1 == 1)
    }
}
