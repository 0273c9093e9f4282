// SPDX-License-Identifier: GPL-2.0-only
//! Loads the BPF half, runs the loop between it and the policy, and lets go.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crossbeam::channel::Receiver;
use crossbeam::select;
use libbpf_rs::{OpenObject, ProgramInput};
use log::{debug, info, warn};
use scx_stats::prelude::*;
use scx_utils::{
    UserExitInfo, build_id, compat, scx_ops_attach, scx_ops_load, scx_ops_open,
    try_set_rlimit_infinity, uei_exited, uei_report,
};

use crate::bpf::{BpfSkel, BpfSkelBuilder, OpenBpfSkel, intf, types};
use crate::exit::{Failure, Reason};
use crate::placement::{self, Tier};
use crate::policy::{self, Action, Policy, Seen, Snapshot};
use crate::stats::{self, CoreTypeTotals, Counts, Totals};
use crate::table::{self, State, Task};
use crate::topology::{CoreTypesSpec, Topology};

/// The scheduler's name, as the kernel and people see it.
pub const NAME: &str = "scx_hetero";

/// How long the agent sleeps when nothing is due.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// How the scheduler is to run.
pub struct Options {
    /// Which policy.
    pub policy: policy::Name,
    /// Time between decisions of a policy that swaps threads.
    pub swap_interval: Duration,
    /// How long a task runs before others get their turn.
    pub slice: Duration,
    /// The user's own list of core types.
    pub core_types: Option<CoreTypesSpec>,
    /// Take only the tasks of class SCHED_EXT.
    pub partial: bool,
    /// Size of the kernel's debug dump, bytes; 0 is the kernel's default.
    pub exit_dump_len: u32,
    /// Let libbpf talk.
    pub verbose: bool,
    /// Use the rescue timer where the kernel could wake CPUs (for tests).
    pub avoid_kick: bool,
}

/// A loaded and attached scheduler. It lets go when dropped.
pub struct Scheduler<'a> {
    skel: BpfSkel<'a>,
    link: Option<libbpf_rs::Link>,
    topology: Topology,
    policy_name: policy::Name,
    policy: Box<dyn Policy>,
    reader: table::Reader,
    actions: Vec<Action>,
    applied: u64,
    stale: u64,
    started: Instant,
    stats_server: StatsServer<(), Totals>,
}

/// Runs the scheduler until something arrives on `stop` or the kernel ends it.
/// Starts it anew when the kernel asks for that, as it does on CPU hotplug.
/// Calls `attached` once, when it schedules for the first time.
///
/// # Errors
/// What kept it from starting, or why the kernel threw it out, as a [`Failure`]
/// where scripts may want to tell.
pub fn run(options: &Options, stop: &Receiver<()>, attached: impl FnOnce()) -> Result<()> {
    try_set_rlimit_infinity();
    let mut object = MaybeUninit::uninit();
    let mut attached = Some(attached);
    loop {
        let mut scheduler = Scheduler::init(options, &mut object)?;
        if let Some(attached) = attached.take() {
            attached();
        }
        let exit = scheduler.run(stop)?;
        if !exit.should_restart() {
            return Ok(());
        }
        info!("CPUs came or went, starting anew");
    }
}

impl<'a> Scheduler<'a> {
    fn init(options: &Options, object: &'a mut MaybeUninit<OpenObject>) -> Result<Self> {
        let topology = Topology::detect(options.core_types.as_ref())
            .context("cannot make out the CPUs' core types")?;
        for note in &topology.notes {
            info!("{note}");
        }
        info!(
            "{NAME} {}, policy {}",
            build_id::full_version(env!("CARGO_PKG_VERSION")),
            options.policy
        );
        info!("{}", topology.summary());

        let mut builder = BpfSkelBuilder::default();
        builder.obj_builder.debug(options.verbose);
        let mut skel = scx_ops_open!(builder, object, hetero_ops, None)?;
        describe(&mut skel, &topology, options)?;

        let mut skel = scx_ops_load!(skel, hetero_ops, uei).map_err(explain_load_error)?;
        if options.verbose {
            report_verifier_cost();
        }
        let link = scx_ops_attach!(skel, hetero_ops).map_err(explain_attach_error)?;
        let stats_server = StatsServer::new(stats::server_data())
            .launch()
            .context("cannot open the statistics socket")?;

        // A page fault in the agent could wait for a thread that waits for it.
        let lock = nix::sys::mman::MlockAllFlags::all();
        if let Err(error) = nix::sys::mman::mlockall(lock) {
            warn!("cannot lock memory ({error}); the agent may be paged out under pressure");
        }
        Ok(Self {
            skel,
            link: Some(link),
            topology,
            policy_name: options.policy,
            policy: options.policy.build(options.swap_interval),
            reader: table::Reader::default(),
            actions: Vec::new(),
            applied: 0,
            stale: 0,
            started: Instant::now(),
            stats_server,
        })
    }

    fn run(&mut self, stop: &Receiver<()>) -> Result<UserExitInfo> {
        let (answers, requests) = self.stats_server.channels();
        let interval = self.policy.interval();
        let mut due = interval.map(|interval| Instant::now() + interval);

        while !uei_exited!(&self.skel, uei) {
            let wait = due.map_or(IDLE_WAIT, |due| {
                due.saturating_duration_since(Instant::now())
            });
            select! {
                recv(stop) -> _ => break,
                recv(requests) -> request => {
                    request.context("the statistics server is gone")?;
                    let totals = self.totals();
                    answers.send(totals)?;
                }
                default(wait.min(IDLE_WAIT)) => {}
            }
            let now = Instant::now();
            if let (Some(at), Some(interval)) = (due, interval)
                && now >= at
            {
                self.decide()?;
                due = Some(now + interval);
            }
        }

        // Detach first: whatever follows, the kernel has its scheduler back.
        drop(self.link.take());
        uei_report!(&self.skel, uei).map_err(|error| {
            let message = format!("the kernel ended {NAME}: {error:#}");
            Failure {
                reason: Reason::Ejected,
                message,
            }
            .into()
        })
    }

    fn tasks(&mut self) -> Vec<Task> {
        let (Some(bss), Some(slots)) = (&self.skel.maps.bss_data, &self.skel.maps.bss_slots_data)
        else {
            return Vec::new();
        };
        self.reader
            .snapshot(&slots.slots, bss.nr_slots_used as usize)
    }

    fn decide(&mut self) -> Result<()> {
        // The agent itself is nobody's to place.
        let mut tasks = self.tasks();
        tasks.retain(|task| task.tgid != std::process::id());
        let snapshot = Snapshot {
            now_ns: self.started.elapsed().as_nanos() as u64,
            topology: &self.topology,
            tasks: &tasks,
        };
        let mut actions = std::mem::take(&mut self.actions);
        self.policy.decide(&snapshot, &mut actions);
        let outcome = actions
            .chunks(intf::hetero_consts_MAX_ACTIONS as usize)
            .try_for_each(|batch| self.apply(batch));
        actions.clear();
        self.actions = actions;
        outcome
    }

    /// Hands a batch of actions to the BPF half.
    fn apply(&mut self, actions: &[Action]) -> Result<()> {
        let Some(data) = self.skel.maps.bss_actions_data.as_mut() else {
            bail!("the action batch is not mapped");
        };
        let batch = &mut data.action_batch;
        for (entry, action) in batch.actions.iter_mut().zip(actions) {
            *entry = encode(action);
        }
        batch.nr = actions.len() as u32;
        let outcome = self
            .skel
            .progs
            .apply_actions
            .test_run(ProgramInput::default())
            .context("the kernel refused a batch of actions")?;
        if outcome.return_value != 0 {
            bail!(
                "applying actions failed with {}",
                outcome.return_value as i32
            );
        }
        let Some(data) = self.skel.maps.bss_actions_data.as_ref() else {
            return Ok(());
        };
        for (entry, action) in data.action_batch.actions.iter().zip(actions) {
            match entry.result {
                intf::action_result_ACTION_APPLIED => self.applied += 1,
                intf::action_result_ACTION_STALE => self.stale += 1,
                result => debug!("{action:?} was refused ({result})"),
            }
        }
        Ok(())
    }

    fn totals(&mut self) -> Totals {
        let tasks = self.tasks();
        let mut processes: BTreeMap<u32, stats::ProcessTotals> = BTreeMap::new();
        for task in tasks.iter().filter(|task| !task.kthread) {
            let process = processes.entry(task.tgid).or_default();
            if process.name.is_empty() || task.tid == task.tgid {
                process.name.clone_from(&task.comm);
            }
            process.threads += 1;
            process.runnable = task.nr_runnable.into();
            process.big_ns += task.run_ns[0];
            process.total_ns += task.total_ns();
            process.progress_ns += task.amp_progress - task.first_progress;
        }

        let mut core_types: Vec<CoreTypeTotals> = self
            .topology
            .types
            .iter()
            .map(|kind| CoreTypeTotals {
                name: kind.name.clone(),
                cpus: kind.cpus.len() as u64,
                busy_ns: 0,
            })
            .collect();
        let mut counted = [0; intf::stat_id_NR_HETERO_STATS as usize];
        if let Some(bss) = &self.skel.maps.bss_data {
            for cpu in &bss.cpu_ctxs[..self.topology.nr_cpu_ids as usize] {
                for (sum, value) in counted.iter_mut().zip(cpu.stats) {
                    *sum += value;
                }
                for (kind, busy_ns) in core_types.iter_mut().zip(cpu.busy_ns) {
                    kind.busy_ns += busy_ns;
                }
            }
        }
        let count = |id: intf::stat_id| counted[id as usize];
        Totals {
            at_ns: self.started.elapsed().as_nanos() as u64,
            policy: self.policy_name.to_string(),
            core_types,
            processes,
            tasks: tasks.len() as u64,
            runnable: tasks
                .iter()
                .filter(|task| task.state != State::Blocked)
                .count() as u64,
            counts: Counts {
                direct: count(intf::stat_id_STAT_DIRECT),
                queued: count(intf::stat_id_STAT_QUEUED),
                kept: count(intf::stat_id_STAT_KEPT),
                stolen: count(intf::stat_id_STAT_STOLEN),
                rotated: count(intf::stat_id_STAT_ROTATED),
                upgraded: count(intf::stat_id_STAT_UPGRADED),
                swapped: count(intf::stat_id_STAT_SWAPPED),
                rescued: count(intf::stat_id_STAT_RESCUED),
                slots_full: count(intf::stat_id_STAT_SLOTS_FULL),
                actions_applied: self.applied,
                actions_stale: self.stale,
            },
        }
    }
}

impl Drop for Scheduler<'_> {
    fn drop(&mut self) {
        drop(self.link.take());
        info!("{NAME} has let go, the kernel schedules");
    }
}

/// Tells the BPF half what machine it runs on.
fn describe(skel: &mut OpenBpfSkel, topology: &Topology, options: &Options) -> Result<()> {
    const MAX_CPUS: usize = intf::hetero_consts_MAX_CPUS as usize;
    const MAX_DOMAINS: usize = intf::hetero_consts_MAX_DOMAINS as usize;
    const MAX_CORE_TYPES: usize = intf::hetero_consts_MAX_CORE_TYPES as usize;

    let nr_cpu_ids = topology.nr_cpu_ids as usize;
    let nr_types = topology.types.len();
    let nr_domains = topology.domains.len();
    if nr_cpu_ids > MAX_CPUS || nr_domains > MAX_DOMAINS {
        bail!(
            "this machine has {nr_cpu_ids} possible CPUs in {nr_domains} clusters; {NAME} was \
             built for up to {MAX_CPUS} in {MAX_DOMAINS}"
        );
    }
    let Some(rodata) = skel.maps.rodata_data.as_mut() else {
        bail!("the BPF half has no read-only data");
    };
    rodata.nr_cpu_ids = topology.nr_cpu_ids;
    rodata.nr_types = nr_types as u32;
    rodata.nr_domains = nr_domains as u32;
    rodata.slice_ns = options.slice.as_nanos() as u64;
    rodata.agent_tgid = std::process::id();
    rodata.avoid_kick = options.avoid_kick;

    rodata.cpu_domain.fill(MAX_DOMAINS as u32);
    rodata.cpu_sibling.fill(-1);
    for cpu in &topology.cpus {
        let id = cpu.id as usize;
        rodata.cpu_domain[id] = cpu.domain as u32;
        rodata.cpu_type[id] = cpu.core_type as u8;
        // Cores with more than two threads are looked at in pairs.
        let sibling = cpu.siblings.iter().find(|&&sibling| sibling != cpu.id);
        rodata.cpu_sibling[id] = sibling.map_or(-1, |&sibling| sibling as i32);
    }
    for (core_type, kind) in topology.types.iter().enumerate() {
        rodata.static_inv_slowdown[core_type] =
            kind.capacity * intf::hetero_consts_INV_SLOWDOWN_ONE / 1024;
    }
    for (index, domain) in topology.domains.iter().enumerate() {
        rodata.domain_type[index] = domain.core_type as u8;
        rodata.domain_nr_cpus[index] = domain.cpus.len() as u32;
        for (place, other) in steal_order(topology, index).into_iter().enumerate() {
            rodata.steal_order[index][place] = other as u8;
        }
    }
    for hint in 0..=MAX_CORE_TYPES {
        let order = if hint < nr_types {
            placement::tiers_for(topology, hint)
        } else {
            placement::tiers(topology)
        };
        for entry in &mut rodata.tiers[hint] {
            entry.core_type = intf::hetero_consts_NO_TYPE as u8;
        }
        for (
            entry,
            Tier {
                core_type,
                whole_core,
                ..
            },
        ) in rodata.tiers[hint].iter_mut().zip(order)
        {
            entry.core_type = core_type as u8;
            entry.whole_core = whole_core.into();
        }
    }

    let ops = skel.struct_ops.hetero_ops_mut();
    ops.exit_dump_len = options.exit_dump_len;
    if options.partial {
        ops.flags |= *compat::SCX_OPS_SWITCH_PARTIAL;
    }
    Ok(())
}

/// Where a CPU of `domain` looks for work: at home, then in clusters of its own
/// core type, then in those of the next faster and slower types.
fn steal_order(topology: &Topology, domain: usize) -> Vec<usize> {
    let home = topology.domains[domain].core_type;
    let mut order: Vec<usize> = (0..topology.domains.len()).collect();
    order.sort_by_key(|&other| {
        let kind = topology.domains[other].core_type;
        (other != domain, kind.abs_diff(home), kind, other)
    });
    order
}

fn encode(action: &Action) -> types::action {
    let no_type = intf::hetero_consts_NO_TYPE as u8;
    let mut entry = types::action {
        other_slot: intf::hetero_consts_NO_SLOT,
        core_type: no_type,
        other_core_type: no_type,
        ..Default::default()
    };
    let first = |entry: &mut types::action, seen: &Seen, core_type: Option<usize>| {
        entry.slot = seen.task.slot;
        entry.generation = seen.task.generation;
        entry.expected_type = seen.on as u8;
        entry.core_type = core_type.map_or(no_type, |core_type| core_type as u8);
    };
    match action {
        Action::Hint(seen, core_type) => {
            entry.op = intf::action_op_ACTION_HINT;
            first(&mut entry, seen, *core_type);
        }
        Action::Swap([(seen, to), (other, other_to)]) => {
            entry.op = intf::action_op_ACTION_SWAP;
            first(&mut entry, seen, Some(*to));
            entry.other_slot = other.task.slot;
            entry.other_generation = other.task.generation;
            entry.other_expected_type = other.on as u8;
            entry.other_core_type = *other_to as u8;
        }
    }
    entry
}

/// Says how many instructions the verifier went through for each program.
fn report_verifier_cost() {
    for program in libbpf_rs::query::ProgInfoIter::default() {
        let name = program.name.to_string_lossy().into_owned();
        if name.starts_with("hetero_") || name == "apply_actions" {
            debug!("verifier: {name} {} instructions", program.verified_insns);
        }
    }
}

fn explain_load_error(error: anyhow::Error) -> anyhow::Error {
    let failure = |reason, message| Failure { reason, message }.into();
    // EPERM is a ban; the verifier's verdict is EACCES or EINVAL.
    if format!("{error:#}").contains("os error 1)") {
        return failure(
            Reason::NotAllowed,
            format!(
                "the kernel does not let us load BPF programs ({error:#}); kernel lockdown (see \
                 /sys/kernel/security/lockdown), a container or missing capabilities do that"
            ),
        );
    }
    let malformed = compat::malformed_scx_kfuncs();
    if malformed.is_empty() {
        error.context(format!(
            "the kernel rejected {NAME}; -v shows the verifier's reasons"
        ))
    } else {
        failure(
            Reason::BadBtf,
            format!(
                "this kernel's type information is wrong for {}, and {NAME} could not do without: \
                 {error:#}; use another build of the kernel",
                malformed.join(", ")
            ),
        )
    }
}

fn explain_attach_error(error: anyhow::Error) -> anyhow::Error {
    // libbpf-rs has no kind of its own for EBUSY, which the kernel says if
    // somebody attached between our look and our attempt.
    let text = format!("{error:#}");
    if text.contains("already running") || text.contains("os error 16") {
        let message = "another sched_ext scheduler got there first; stop it (for instance: \
                       systemctl stop scx) and try again";
        return Failure {
            reason: Reason::AnotherScheduler,
            message: message.into(),
        }
        .into();
    }
    error.context("the kernel did not accept the scheduler")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TaskId;

    #[test]
    fn actions_carry_what_bpf_checks() {
        let seen = |slot, on| Seen {
            task: TaskId {
                slot,
                generation: slot + 10,
            },
            on,
        };
        let entry = encode(&Action::Swap([(seen(1, 0), 2), (seen(2, 2), 0)]));
        assert_eq!(
            (
                entry.slot,
                entry.generation,
                entry.expected_type,
                entry.core_type
            ),
            (1, 11, 0, 2)
        );
        assert_eq!(
            (
                entry.other_slot,
                entry.other_generation,
                entry.other_expected_type,
                entry.other_core_type
            ),
            (2, 12, 2, 0)
        );
        let entry = encode(&Action::Hint(seen(3, 1), None));
        assert_eq!(u32::from(entry.core_type), intf::hetero_consts_NO_TYPE);
        assert_eq!(entry.other_slot, intf::hetero_consts_NO_SLOT);
    }
}
