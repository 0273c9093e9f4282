// SPDX-License-Identifier: GPL-2.0-or-later
//! What is told to programs that ask: what they may expect of the machine, and how many threads finish soonest
//! (Zellweger, Lin and Roscoe 2016, section 5: feedback to parallel runtimes; `docs/advice.md`).
//!
//! [`watch`] keeps what runs beside what; [`team`] decides how many threads a program should have, [`place`] on which
//! CPUs there is room for them. Plain values throughout: no process is looked up here, and nothing is sent.

pub mod place;
pub mod story;
pub mod team;
pub mod told;
pub mod watch;

use crate::interference::Interference;
use crate::topology::MAX_CORE_TYPES;

/// What there is of a core type, as a program sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TypeRoom {
    /// CPUs that the program may use.
    pub cpus: f64,
    /// Of these, how many others want, on average.
    pub taken: f64,
    /// How fast the program's threads are there, relative to the fastest type.
    pub speed: f64,
}

impl TypeRoom {
    /// CPUs that nothing else wants.
    pub fn free(&self) -> f64 {
        (self.cpus - self.taken).max(0.0)
    }
}

/// What a program is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// By core type, fastest first.
    pub rooms: Vec<TypeRoom>,
    /// Threads with which it finishes soonest, if each gets work by the speed of its core type.
    pub threads: usize,
    /// The same, if all get equal work.
    pub threads_equal: usize,
    /// How many fast cores its threads are worth together then.
    pub fast_cores: f64,
    /// CPUs that others want, on average.
    pub company: f64,
    /// What slows its threads down: of that which is slowed down most.
    pub interference: Option<Interference>,
    /// CPUs on which there is most room for so many threads, best first.
    pub place: Vec<u32>,
}

/// Speeds by core type as they are told: those of a thread, or by capacity.
pub type TypeSpeeds = [f64; MAX_CORE_TYPES];
