// SPDX-License-Identifier: GPL-2.0-or-later
//! Parts of the scheduler that can be left out (`--without`, hidden), so that each one's test can
//! be seen to fail: `tests/can-fail` does that.

use clap::ValueEnum;

/// A part that has a test of its own. Those of the BPF half come first, in the order of `enum
/// mechanism` in `src/bpf/intf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mechanism {
    /// Waking CPUs by an interrupt; a timer stands in, as on kernels that offer no other way
    Kick,
    /// Keeping CPUs from ordinary tasks in NWC mode
    Park,
    /// Spin notifications; no thread's word is looked at
    Spin,
    /// Believing a stretch only if every event counted all through it
    Validity,
    /// Reading the counters anew where another task has run in between
    Chain,
    /// Sampling a task that runs on and on from the tick
    Tick,
    /// Not counting tasks that use little CPU
    CutOff,
    /// A last sample of a task that ends
    Flush,
    /// The cgroups' `cpu.weight`; all tasks compete by nice alone
    CgroupWeight,
    /// Sharing the fastest cores while the agent is silent
    Heartbeat,
    /// Sending what waits on a CPU elsewhere when a real-time task takes it
    Release,
    /// Asking for each CPU's performance by how busy it is; all are asked for the most
    Cpuperf,
    /// Letting a brief task that wakes up take the CPU of one that computes
    Preempt,
    /// Keeping a task near one that wakes it and is about to sleep
    Sync,
    /// Looking into queues; what waits is queued anew, as on the kernel that offers no other way
    Iterate,
    /// Letting a task with an open RCU read-side section go on soon, however little it weighs
    Rcu,
    /// Telling a thread that had a slot then from another one that has its id since
    Identity,
    /// Putting the agent before the tasks that it looks at
    AgentFirst,
    /// Keeping a task that a brief one puts aside on its CPU
    Stay,
    /// A turn soon for a task that has never run
    Newcomer,
    /// Holding threads whose session has used up what its goal was allotted
    Goals,
    /// Giving a thread that wakes up its last CPU back from one that the policy wants elsewhere
    TakeBack,
    /// While energy is saved, letting a frame that would be late on a slow core go on on a fast one
    Frames,
    /// Queueing tasks that end as all others are; the kernel leaves them on their CPU
    Exiting,
    /// Attaching at real-time priority
    RealTime,
    /// Letting the agent sleep while hardly anything runs
    Rest,
    /// Going on with what is known of each thread after CPUs came or went
    Carry,
    /// The history tables of `camps`; every phase is a new one
    History,
    /// Swaps of `camps` of threads that are far apart, though neither gains
    Escape,
    /// NWC mode
    Nwc,
    /// Giving sets of events their turns
    Rotation,
    /// Throwing a round away when the IPC jumps within it
    Jump,
    /// Short visits of `rank` to another core type, where it is not sure
    Visits,
}
