// SPDX-License-Identifier: GPL-2.0-only
//! Spin notifications (CAMPS 2018, section 4.5): a thread that waits actively, in a barrier or for
//! a spin lock, retires instructions that are no progress. It says so in a word of its own memory.
//! `docs/spin.md` tells the whole story; `spin/scx_hetero_spin.h` is the same for C.
//!
//! ```
//! # let ready = std::sync::atomic::AtomicBool::new(true);
//! # use std::sync::atomic::Ordering::Acquire;
//! let waiting = scx_hetero::spin::begin();
//! while !ready.load(Acquire) {
//!     std::hint::spin_loop();
//! }
//! drop(waiting);
//! ```
//!
//! # Why a counter, and not a flag
//!
//! The word is the number of waits that the thread is in, so that a wait inside another (a lock
//! taken in a barrier) does not end it. It is looked at when the thread is charged, at each tick
//! and when it leaves its CPU: a thread that spins for a part of the time is found spinning at that part of
//! the looks. So short waits count for what they take, and a program that waits for microseconds
//! at a thousand barriers does not lose all its samples, as it would if each wait were counted.

mod client;
pub(crate) mod server;

pub use client::{Waiting, begin};

/// Where threads register.
pub const SOCKET: &str = "/run/scx_hetero/spin.sock";

/// The first word of every request.
const VERSION: u32 = 1;

/// What a thread sends, as one datagram; who sends it, the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinRequest {
    /// A thread of the sender's process.
    pub tid: u32,
    /// Of a 4-byte word in its memory, which is not 0 while it waits actively; 0 to take the word
    /// back.
    pub address: u64,
}

impl SpinRequest {
    /// Length of a request, bytes.
    pub const LEN: usize = 16;

    /// As it is sent: version, tid, address, each in the machine's own byte order.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&VERSION.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.tid.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }

    /// `None` if it is of another length or version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let (version, rest) = bytes.split_first_chunk()?;
        let (tid, rest) = rest.split_first_chunk()?;
        let (address, _) = rest.split_first_chunk()?;
        (u32::from_ne_bytes(*version) == VERSION).then_some(Self {
            tid: u32::from_ne_bytes(*tid),
            address: u64::from_ne_bytes(*address),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_the_way() {
        let request = SpinRequest {
            tid: 4711,
            address: 0x7fff_1234_5678_9abc,
        };
        assert_eq!(SpinRequest::decode(&request.encode()), Some(request));
    }

    #[test]
    fn other_lengths_and_versions_are_no_requests() {
        let good = SpinRequest { tid: 1, address: 2 }.encode();
        assert_eq!(SpinRequest::decode(&good[..15]), None);
        assert_eq!(SpinRequest::decode(&[&good[..], &[0]].concat()), None);
        assert_eq!(SpinRequest::decode(&[]), None);
        let mut newer = good;
        newer[0] ^= 3;
        assert_eq!(SpinRequest::decode(&newer), None);
    }
}
