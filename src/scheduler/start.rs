// SPDX-License-Identifier: GPL-2.0-only
//! Loads the BPF half, tells it about the machine, and attaches it.

use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use libbpf_rs::{MapHandle, OpenObject};
use log::{info, warn};
use scx_utils::{build_id, scx_ops_attach, scx_ops_load, scx_ops_open, uei_exited};

use super::carry::{self, CarriedState};
use super::counting::OpenEvents;
use super::describe::describe;
use super::explain::{
    check_type_information, explain_attach_error, explain_load_error, report_verifier_cost,
};
use super::half::{BpfHalf, EnergySensors, beat};
use super::rest::Bell;
use super::rules::RulesFile;
use super::saving::Saver;
use super::slots::Sleepers;
use super::{Lasting, NAME, Options, Scheduler, goals, priority, spinning};
use crate::agent::{Agent, AgentGoals};
use crate::bpf::BpfSkelBuilder;
use crate::files::read_trimmed;
use crate::knowledge::{self, Familiar};
use crate::mechanism::Mechanism;
use crate::policy::{self, Knows};
use crate::preflight;
use crate::resctrl::service::ResctrlService;
use crate::slowdown::calibrate;
use crate::stats;
use crate::table;
use crate::topology::Topology;

/// How often CPUs have gone or come, as the kernel counts it.
const HOTPLUGS: &str = "/sys/kernel/sched_ext/hotplug_seq";

impl<'a> Scheduler<'a> {
    pub(super) fn init(
        options: &'a Options,
        object: &'a mut MaybeUninit<OpenObject>,
        lasting: &'a mut Lasting,
    ) -> Result<Self> {
        let Lasting {
            wish,
            model,
            learning,
            recording,
            log,
            cgroup_limits,
            carried: kept_place,
            programs,
            advice,
            familiar,
        } = lasting;
        let carried = kept_place.take();
        let model = match learning {
            Some(learning) => learning.model().cloned(),
            None => model.clone(),
        };
        // Before the CPUs are looked at: one that goes or comes from now on ends the scheduler, which starts anew.
        let hotplugs = read_trimmed(Path::new(HOTPLUGS)).and_then(|count| count.parse().ok());
        let mut topology = Topology::detect(options.core_types.as_ref())
            .context("cannot make out the CPUs' core types")?;
        for note in &topology.notes {
            info!("{note}");
        }
        info!(
            "{NAME} {}",
            build_id::full_version(env!("CARGO_PKG_VERSION"))
        );
        info!("{}", topology.summary());
        let limits = calibrate::store::apply(Path::new(calibrate::store::PATH), &mut topology);
        let rules = RulesFile::find(options.rules.as_deref(), carried.is_none(), &topology)?;
        let settings = policy::Settings {
            limits,
            without: &options.without,
            fairness: wish.fairness,
            ..options.settings
        };

        check_type_information()?;
        let mut builder = BpfSkelBuilder::default();
        builder.obj_builder.debug(options.verbose);
        let mut skel =
            scx_ops_open!(builder, object, hetero_ops, None).map_err(explain_load_error)?;
        if let Some(hotplugs) = hotplugs {
            skel.struct_ops.hetero_ops_mut().hotplug_seq = hotplugs;
        }
        describe(&mut skel, &topology, options, wish.slice)?;
        if let Some(carried) = &carried {
            carried.storage.hand_on(&mut skel)?;
        }
        let mut carried = carried.filter(|carried| carried.fits(&topology));
        let mut make_policy = |name: policy::Name| {
            match &mut carried {
                Some(carried) => carried.take_policy(name),
                None => None,
            }
            .unwrap_or_else(|| name.build(settings))
        };
        let best = |counters| policy::Name::best(&topology, counters);
        let mut policy_name = wish.policy.unwrap_or_else(|| best(true));
        let mut policy = make_policy(policy_name);
        let sensors = EnergySensors::find(&topology);
        let counting = OpenEvents::plan(
            &mut skel,
            &topology,
            policy.as_ref(),
            sensors.energy().is_counted(),
            model.as_ref(),
            learning.as_mut(),
            options,
        )?;

        let mut skel = scx_ops_load!(skel, hetero_ops, uei).map_err(explain_load_error)?;
        if options.verbose {
            report_verifier_cost();
        }
        let counting = match counting {
            Some(planned) => planned.open(&mut skel)?,
            None => None,
        };
        if wish.policy.is_none() && counting.is_none() {
            policy_name = best(false);
            policy = make_policy(policy_name);
        }
        let kept = carried.as_ref().is_some_and(CarriedState::gave_policy);
        // One that got there first while this was loaded keeps its sockets, and a recording that is there stays.
        preflight::nobody_else(Path::new("/"))?;
        info!("policy {policy_name}");
        // Of one that was named, the command line has said so already.
        let is_first = !kept && wish.policy.is_none();
        if is_first
            && options.settings.fairness != policy::camps::FAIRNESS
            && !policy_name.knows(Knows::Fairness)
        {
            let those = policy::Name::all_that_know(Knows::Fairness);
            warn!("--fairness is for --policy {those}");
        }
        recording.begin(&topology, policy_name, &settings, kept)?;
        log.begin()?;
        if let Some(carried) = &carried {
            carried.restore(&mut skel)?;
        }
        programs.listen();
        advice.listen();
        beat(&mut skel);
        let mut attach = || scx_ops_attach!(skel, hetero_ops);
        let link = match options.without.contains(&Mechanism::RealTime) {
            false => priority::at_real_time(attach),
            true => attach(),
        }
        .map_err(explain_attach_error)?;
        let stats_server =
            stats::StatisticsServer::listen(Path::new(stats::SOCKET), options.group)?;

        let bell = MapHandle::try_from(&skel.maps.bell)
            .map_err(Into::into)
            .and_then(Bell::listen)
            .inspect_err(|error| warn!("the agent looks as often on an idle machine: {error:#}"))
            .ok();

        // A page fault in the agent could wait for a thread that waits for it.
        let lock = nix::sys::mman::MlockAllFlags::all();
        if let Err(error) = nix::sys::mman::mlockall(lock) {
            warn!("cannot lock memory ({error}); the agent may be paged out under pressure");
        }
        // If it has been ended meanwhile, no one looked for the tasks: the next one will.
        if carried.is_some() && !uei_exited!(&skel, uei) {
            carry::free_the_rest(&mut skel)?;
        }
        let machine = knowledge::machine_name(&topology);
        if options.knowledge && familiar.as_ref().is_none_or(|of| of.machine != machine) {
            // What the one before has found is written first.
            *familiar = None;
            *familiar = Familiar::start(Path::new(knowledge::store::PATH), machine);
        }
        if let (Some(familiar), true) = (&mut *familiar, options.knowledge) {
            let events = counting
                .as_ref()
                .map(|of| of.describe(&topology).join("; "));
            familiar.tell(knowledge::store::StoredMachine {
                calibrated: knowledge::calibrated(limits, &topology),
                events: events.unwrap_or_else(|| "none are counted".into()),
            });
        }
        let mut agent = Agent::new(topology, policy_name, policy);
        let resctrl = ResctrlService::start(
            Path::new("/"),
            options.partition,
            agent.topology.largest_llc(),
        );
        if resctrl.as_ref().is_some_and(ResctrlService::partitions) {
            agent.caches.follow_processes();
        }
        agent.interference.set_limits(limits);
        agent.goals = AgentGoals::new(options.goals);
        agent.own = Some(std::process::id());
        agent.rules.renew(!rules.is_empty());
        programs.renew_rules();
        // What changed between two of us was not counted.
        cgroup_limits.changed();
        let mut started = Instant::now();
        if let Some(carried) = carried {
            (started, agent.moves) = (carried.started, carried.moves);
            agent.energy = carried.energy;
            agent.energy.rebase();
        }
        Ok(Self {
            agent,
            half: BpfHalf {
                skel,
                counting,
                rules,
                recording,
                log,
                reader: table::TableReader::default(),
                programs,
                familiar,
                sensors,
                began_ns: goals::monotonic_ns(started),
                started,
            },
            link: Some(link),
            settings,
            saver: Saver::new(wish.profile, &options.power, Path::new("/")).listening(),
            wish,
            learning,
            carried: kept_place,
            sleepers: Sleepers::default(),
            nr_slots: options.slots as usize,
            stats_server,
            spin_server: spinning::listen(),
            advice,
            resctrl,
            limits: cgroup_limits,
            may_rest: bell.is_some() && !options.without.contains(&Mechanism::Rest),
            bell,
            cgroups_seen: (0, 0),
        })
    }
}
