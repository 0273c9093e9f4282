// SPDX-License-Identifier: GPL-2.0-only
//! Advice to programs: what they may expect of the machine, and how many threads finish soonest. `docs/advice.md` tells
//! the whole story; `heartbeats/scx_hetero_advice.h` is the client for C, and the crate
//! `hetero-heartbeats` has that for Rust.
//!
//! A program subscribes by a connection to a socket, and gets a page that it can read and the scheduler alone can
//! write ([`page`]). One word of it changes when something else there does. The program may tell in return what
//! it has measured, in frames of 32 bytes ([`frame`]). [`server`] takes subscribers in; what they are told
//! follows from [`hetero_core::advice`].

mod frame;
mod page;
mod pages;
pub(crate) mod server;
mod subscribers;

pub use frame::Greeting;
pub use server::AdviceServer;
pub use subscribers::Subscribers;

/// Where programs subscribe.
pub const SOCKET: &str = "/run/scx_hetero/advice.sock";

/// Names another place, for the clients.
pub const SOCKET_VARIABLE: &str = "SCX_HETERO_ADVICE_SOCKET";

/// Subscribers at a time, on the whole machine; each has a page.
pub const MAX_SUBSCRIBERS: usize = 512;

/// Of one user that is not root.
pub const MAX_OF_USER: usize = 128;

/// Of one process: a library and the program itself, say.
pub const MAX_OF_PROCESS: usize = 4;
