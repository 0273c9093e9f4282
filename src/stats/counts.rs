// SPDX-License-Identifier: GPL-2.0-only
//! What is counted, each written once: how it is called, what it means, and what the BPF half calls it.

use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};

use crate::bpf::intf;

/// What the BPF half has counted, by `enum stat_id`, on all CPUs together.
pub type OfBpf = [u64; intf::stat_id_NR_HETERO_STATS as usize];

macro_rules! counts {
    (
        bpf { $($bpf:ident, $id:ident: $bpf_means:tt;)* }
        agent { $($agent:ident: $agent_means:tt;)* }
    ) => {
        /// Events since the scheduler began, or in an interval.
        #[stat_doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
        #[stat(desc = "events in the interval", _om_prefix = "n_")]
        pub struct Counts {
            $(#[stat(desc = $bpf_means)] pub $bpf: u64,)*
            $(#[stat(desc = $agent_means)] pub $agent: u64,)*
        }

        impl Counts {
            /// These of the BPF half, and none of the agent.
            pub fn of_bpf(counted: &OfBpf) -> Self {
                Self {
                    $($bpf: counted[intf::$id as usize],)*
                    ..Self::default()
                }
            }

            /// How many came since it was `before`.
            pub fn since(&self, before: &Self) -> Self {
                Self {
                    $($bpf: self.$bpf.saturating_sub(before.$bpf),)*
                    $($agent: self.$agent.saturating_sub(before.$agent),)*
                }
            }
        }

        /// One more, threads that were found again after a restart, is told apart.
        const _: () = assert!([$(intf::$id),*].len() + 1 == intf::stat_id_NR_HETERO_STATS as usize);
    };
}

counts! {
    bpf {
        direct, stat_id_STAT_DIRECT: "tasks put on an idle CPU when they woke up";
        preempted, stat_id_STAT_PREEMPTED: "brief tasks that took over the CPU of one that computes when they woke up";
        sync, stat_id_STAT_SYNC: "tasks placed beside a waker that is about to sleep";
        queued, stat_id_STAT_QUEUED: "tasks queued because no CPU was idle";
        kept, stat_id_STAT_KEPT: "tasks that ran on after a slice because none was ahead of them";
        stolen, stat_id_STAT_STOLEN: "tasks pulled from another queue by a CPU with nothing to do";
        rotated, stat_id_STAT_ROTATED: "tasks pulled from a more crowded queue to even out waiting";
        upgraded, stat_id_STAT_UPGRADED: "running tasks moved to a better CPU that had become idle";
        swapped, stat_id_STAT_SWAPPED: "tasks that arrived on the CPU of their swap partner";
        rescued, stat_id_STAT_RESCUED: "waiting tasks moved to an idle CPU by the rescue timer";
        parked, stat_id_STAT_PARKED: "CPUs kept from ordinary tasks for up to 100 ms, to measure a thread (NWC mode)";
        held, stat_id_STAT_HELD: "tasks held on such a CPU";
        used_up, stat_id_STAT_USED_UP: "times that a thread waited for more of what its goal was allotted";
        stalls, stat_id_STAT_STALLS: "times that the agent was silent for a second, so that its hints were void";
        shared, stat_id_STAT_SHARED: "tasks sent to the other's CPU to share the fastest ones meanwhile";
        slots_full, stat_id_STAT_SLOTS_FULL: "times that a task ran unmeasured because the task table was full";
        samples_lost, stat_id_STAT_SAMPLES_LOST: "samples lost because the agent did not take them in time";
        stretches, stat_id_STAT_STRETCHES: "stretches of tasks' runs that were counted";
        stretches_discarded, stat_id_STAT_STRETCHES_DISCARDED: "stretches not believed, as an event did not count all through them";
    }
    agent {
        samples: "samples of tasks' counters that arrived";
        samples_jumped: "samples thrown away because the IPC jumped while event sets took turns";
        samples_spun: "samples thrown away because the task waited actively, as it said";
        samples_refused: "samples refused because no CPU can have counted so much in that time";
        phase_hits: "samples of phases that their threads' history tables knew";
        phase_misses: "samples of phases that they did not know";
        samples_learned: "of both, samples that went into history tables, for contention was low on a fastest core";
        phases_learned: "of these, samples of phases that the tables did not know";
        forced_swaps: "swaps of threads far apart, though neither gains";
        nwc_episodes: "times that NWC mode was entered";
        nwc_learned: "times that it was left because enough had been learned";
        nwc_ns: "nanoseconds in NWC mode";
        actions_applied: "actions of the policy that were carried out";
        actions_stale: "actions of the policy that came too late and were dropped";
    }
}
