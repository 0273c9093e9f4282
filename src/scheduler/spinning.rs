// SPDX-License-Identifier: GPL-2.0-only
//! Hands the words of threads that wait actively to the BPF half.

use std::path::Path;

use crossbeam::channel::Receiver;
use libbpf_rs::ProgramMut;
use log::{debug, warn};

use super::half::request;
use crate::spin::SOCKET;
use crate::spin::server::{Registration, SpinServer, WAITING};

/// Listens to threads that register. Where that fails, says why once and goes on without.
pub(super) fn listen() -> Option<SpinServer> {
    match SpinServer::start(Path::new(SOCKET)) {
        Ok(server) => Some(server),
        Err(why) => {
            warn!("threads cannot tell that they spin: {why:#}");
            None
        }
    }
}

/// Tells the BPF half of a thread's word, and of those that wait: one round of the loop for all of them.
pub(super) fn register(program: &ProgramMut, first: Registration, more: &Receiver<Registration>) {
    let more = more.try_iter().take(WAITING);
    std::iter::once(first)
        .chain(more)
        .for_each(|spinner| tell(program, &spinner));
}

/// Any user can ask for that, so a failure ends nothing.
fn tell(program: &ProgramMut, spinner: &Registration) {
    // A struct spin_request: tid, tgid, address.
    let mut context = [0; 16];
    context[..4].copy_from_slice(&spinner.request.tid.to_ne_bytes());
    context[4..8].copy_from_slice(&spinner.tgid.to_ne_bytes());
    context[8..].copy_from_slice(&spinner.request.address.to_ne_bytes());
    match request(program, &mut context) {
        Ok(0) => debug!("{spinner:?}"),
        Ok(_) => debug!("{spinner:?} came too late: the thread is gone"),
        Err(error) => debug!("the kernel refused {spinner:?}: {error}"),
    }
}
