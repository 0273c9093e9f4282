// SPDX-License-Identifier: GPL-2.0-only
//! An example: the policies of scx_hetero in a scheduler that decides every dispatch in user space.
//!
//! The BPF half is that of `scx_rustland_core`, and decides nothing: it enqueues tasks to this program by a
//! ring buffer, and dispatches what comes back by another. `docs/userland.md` compares that with
//! scx_hetero, whose BPF half dispatches by itself.
//!
//! ```text
//!  enqueue ──► half.take_queued() ──► queues ──► half.dispatch_queued() ──► a CPU's DSQ
//!                                       ▲ hints
//!                      agent.decide(): snapshot ──► policy ──► actions
//! ```

mod courier;
mod half;
mod pidfd;
mod queues;
mod thread;

/// What `scx_rustland_core` generates: types of the BPF half, its skeleton, and what talks to it.
mod bpf_intf {
    #![allow(warnings)]
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}
mod bpf_skel {
    #![allow(warnings)]
    include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
}
mod bpf {
    #![allow(warnings)]
    include!(concat!(env!("OUT_DIR"), "/src/bpf.rs"));
}

use std::mem::MaybeUninit;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use hetero_core::agent::{Agent, Backend};
use hetero_core::output;
use hetero_core::policy::{Name, Settings};
use hetero_core::topology::{CoreTypesSpec, Topology};

use half::Half;

/// So often threads that ended are forgotten, where the policy never looks.
const TIDY: Duration = Duration::from_secs(1);

/// Schedules a hybrid CPU from user space, until Ctrl-C.
#[derive(Parser)]
#[command(name = "scx_hetero-userland", version)]
struct Args {
    /// Decides which threads get the fast cores; there are no counters here, so not all do much
    #[arg(long)]
    policy: Option<Name>,

    /// Time between swaps of policies that swap threads, in milliseconds
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    swap_ms: u64,

    /// CPUs by core type, fastest first, instead of what the kernel says; for example P=0-7,E=8-15
    #[arg(long)]
    core_types: Option<CoreTypesSpec>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let topology = Topology::detect(args.core_types.as_ref())?;
    let name = args.policy.unwrap_or(Name::best(&topology, false));
    let policy = name.build(Settings {
        swap_interval: Duration::from_millis(args.swap_ms),
        ..Settings::default()
    });
    output::print(format!("{}; policy {name}", topology.summary()))?;

    let mut object = MaybeUninit::uninit();
    let mut half =
        Half::attach(&mut object, &topology, "hetero_userland").context("it cannot be attached")?;
    let mut agent = Agent::new(topology, name, policy);
    agent.own = Some(std::process::id());
    let mut due = half.now();
    while !half.exited() {
        half.take_queued();
        if half.now() >= due {
            let Ok(()) = agent.decide(&mut half);
            let interval = agent.due_in(half.now()).unwrap_or(TIDY);
            due = half.now() + interval.as_nanos() as u64;
        }
        half.dispatch_queued();
        half.wait();
    }
    let said = half.detach().context("the kernel ended it")?;
    let applied = agent.applied();
    output::print(format!(
        "{said}; actions: {} applied, {} stale, {} refused",
        applied.applied, applied.stale, applied.refused
    ))
}
