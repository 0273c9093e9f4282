// SPDX-License-Identifier: GPL-2.0-only
//! What is known of the CPUs, and from where: core types, capacities, counters, energy.

use std::path::Path;

use hetero_core::interference::InterferenceClass;

use super::Check;
use crate::agent::counted::CountedFor;
use crate::energy::{Energy, EnergyDomain, EnergySensor, SensorStatus};
use crate::ml::model::{self, Model};
use crate::pmu::{MachinePmus, availability};
use crate::power;
use crate::preflight::Permissions;
use crate::slowdown::calibrate::store::{self, Calibration};
use crate::topology::{Identity, Sysfs, Topology, cpu_name_below, cpulist};

const CALIBRATE: &str = "sudo scx_hetero calibrate";

pub(super) fn core_types(root: &Path) -> Vec<Check> {
    const NAME: &str = "core-types";
    let topology = match Topology::read(&Sysfs::new(root), None) {
        Ok(topology) => topology,
        Err(error) => {
            let remedy = "mount sysfs at /sys; if it is, this is a bug: please report it";
            return vec![Check::failed(NAME, format!("{error:#}"), remedy)];
        }
    };
    if topology.types.len() == 1 {
        let found = format!(
            "{}; tasks share them fairly, and no policy has anything to choose",
            topology.summary()
        );
        let mut checks = vec![Check::note(NAME, found)];
        checks.extend(remarks(&topology));
        return checks;
    }
    let mut checks = vec![Check::ok(NAME, topology.summary())];
    checks.extend(remarks(&topology));
    if topology.disagreements.is_empty() {
        checks.push(Check::ok("agreement", "no source sees it otherwise"));
    }
    checks.push(capacities(&topology));
    checks.push(calibration(root, &topology));
    checks.push(model(root, &topology));
    checks
}

fn remarks(topology: &Topology) -> impl Iterator<Item = Check> {
    let disagreements = topology.disagreements.iter().map(|sentence| {
        let remedy = "nothing, if 'scx_hetero topology' is right; else --core-types";
        Check::warning("agreement", sentence, remedy)
    });
    let notes = topology.notes.iter();
    disagreements.chain(notes.map(|note| Check::note("topology", note)))
}

fn capacities(topology: &Topology) -> Check {
    const NAME: &str = "capacities";
    let types = topology.types.iter();
    let each: Vec<_> = types
        .map(|t| format!("{} {}", t.name, t.capacity))
        .collect();
    let each = each.join(", ");
    match topology.capacity_source {
        Some(source) => Check::ok(NAME, format!("capacities {each}, from {source}")),
        None => Check::note(NAME, format!("capacities {each} are assumed")).remedied_by(CALIBRATE),
    }
}

fn calibration(root: &Path, topology: &Topology) -> Check {
    const NAME: &str = "calibration";
    let ignored = |why: String| {
        Check::warning(
            NAME,
            format!("the calibration in {} is ignored: {why}", store::PATH),
            CALIBRATE,
        )
    };
    let path = root.join(store::PATH.trim_start_matches('/'));
    match Calibration::read(&path) {
        Err(error) => ignored(format!("{error:#}")),
        Ok(None) => {
            let text = "not calibrated: what memory transfers at the most is assumed";
            Check::note(NAME, text).remedied_by(CALIBRATE)
        }
        Ok(Some(calibration)) => {
            let now = Identity::of(topology, cpu_name_below(root));
            match calibration.machine.differs(&now) {
                Some(difference) => ignored(difference),
                None => Check::ok(
                    NAME,
                    format!("calibrated {}: {}", calibration.date, calibration.summary()),
                ),
            }
        }
    }
}

fn model(root: &Path, topology: &Topology) -> Check {
    const NAME: &str = "model";
    const TRAIN: &str = "sudo scx_hetero train --here";
    let path = root.join(model::PATH.trim_start_matches('/'));
    if !path.exists() {
        let text = "no model of this machine: what a core type is worth to a thread is measured";
        return Check::note(NAME, text).remedied_by(TRAIN);
    }
    let now = Identity::of(topology, cpu_name_below(root));
    let read = Model::read(&path).and_then(|model| model.check_machine(&now).map(|()| model));
    match read {
        Ok(model) => {
            let programs = model.data.programs.len();
            Check::ok(NAME, format!("a model, learnt from {programs} programs"))
        }
        Err(error) => Check::warning(NAME, format!("its model is ignored: {error:#}"), TRAIN),
    }
}

pub(super) fn counters(root: &Path, permissions: Option<&Permissions>) -> Vec<Check> {
    const NAME: &str = "pmu";
    let machine = MachinePmus::read(root);
    if machine.pmus.is_empty() {
        return vec![Check::warning(
            NAME,
            "the kernel shows no counters of the CPUs: nothing is known of threads but their run \
             time",
            "in a virtual machine, switch on its PMU (QEMU with KVM: -cpu host,pmu=on); else \
             look for the reason in 'dmesg | grep -i pmu'",
        )];
    }
    let known = machine.pmus.iter().map(|pmu| {
        let cpus = cpulist::format(&pmu.cpus);
        match pmu.table {
            Some(table) => Check::ok(
                NAME,
                format!("{} counts on CPUs {cpus} ({})", pmu.name, table.name),
            ),
            None => Check::note(
                NAME,
                format!(
                    "{} counts on CPUs {cpus} (of unknown make: only events that the kernel \
                     knows by itself)",
                    pmu.name
                ),
            ),
        }
    });
    let mut checks: Vec<_> = known.collect();
    checks.extend(uncounted(root, &machine));
    checks.push(interference(root, &machine));
    if machine.pmus.iter().any(|pmu| pmu.watchdog) {
        checks.push(
            Check::note("watchdog", "the NMI watchdog takes one counter of each CPU")
                .remedied_by("sysctl kernel.nmi_watchdog=0, where a hanging kernel is no worry"),
        );
    }
    // Whoever is not root is told that already, and that all is well would be no news.
    if root == Path::new("/") && permissions.is_some_and(|p| p.root) {
        checks.push(match availability(&machine) {
            Ok(()) => Check::ok("counting", "cycles can be counted"),
            Err(why) => {
                let why = why
                    .trim_start_matches("No counters: ")
                    .trim_end_matches('.');
                // Why comes after what, and ends with what to do.
                let (what, remedy) = why.split_once(": ").unwrap_or(("no counters", why));
                Check::warning("counting", what, remedy)
            }
        });
    }
    checks
}

/// What can be told of what slows a thread down, under a policy that counts and asks for no events of its own.
fn interference(root: &Path, machine: &MachinePmus) -> Check {
    let counted = CountedFor {
        policy: Some(&[]),
        ..CountedFor::default()
    };
    let untold = machine.pmus.iter().find_map(|pmu| counted.untold(0, pmu));
    let topology = Topology::read(&Sysfs::new(root), None).ok();
    let has = |what: fn(&Topology) -> bool| topology.as_ref().is_some_and(what);
    let (smt, l2) = (
        has(|it| it.smt),
        has(|it| it.domains.iter().any(|domain| domain.shares_l2)),
    );
    let is_told = |class: InterferenceClass| match class {
        InterferenceClass::None => false,
        InterferenceClass::Sibling => smt,
        InterferenceClass::L2 => l2,
        class => untold.is_none() || !class.takes_misses(),
    };
    let classes = InterferenceClass::ALL.iter().copied();
    let told: Vec<&str> = classes
        .filter(|&of| is_told(of))
        .map(|of| of.told())
        .collect();
    let told = format!("what slows a thread down is told: {}", told.join(", "));
    match untold {
        None => Check::ok("interference", told),
        Some(untold) => Check::note("interference", format!("{told}; {untold}")),
    }
}

/// The CPUs that no PMU serves.
fn uncounted(root: &Path, machine: &MachinePmus) -> Option<Check> {
    let topology = Topology::read(&Sysfs::new(root), None).ok()?;
    let cpus = topology.cpus.iter().map(|cpu| cpu.id);
    let cpus: Vec<u32> = cpus.filter(|&cpu| machine.pmu_of(cpu).is_none()).collect();
    (!cpus.is_empty()).then(|| {
        Check::warning(
            "pmu",
            format!("no PMU counts on CPUs {}", cpulist::format(&cpus)),
            "look for the reason in 'dmesg | grep -i pmu'",
        )
    })
}

/// Whether the profile `auto` saves energy now.
pub(super) fn power(root: &Path) -> Vec<Check> {
    let said = power::FirmwareSigns::read(root);
    let text = match power::saving(root, &said, power::LOW_BATTERY, None) {
        Some(why) => format!("to be saved, for {why}: profile auto does so"),
        None => "not asked to save any: profile auto does not".into(),
    };
    vec![Check::note("power profile", text)]
}

pub(super) fn energy(root: &Path) -> Vec<Check> {
    const NAME: &str = "energy";
    let topology = Topology::read(&Sysfs::new(root), None).ok();
    let energy = Energy::below(root, topology.as_ref());
    let mut checks = Vec::new();
    match energy.missing() {
        None => {
            let (told, unseen) = (energy.told(), energy.unseen());
            let unseen = match unseen.is_empty() {
                true => unseen,
                false => format!("; no sensor of: {unseen}"),
            };
            checks.push(Check::ok(
                NAME,
                format!("energy is counted: {told}{unseen}"),
            ));
        }
        Some(why) => {
            let found = format!("what threads take is not known, and all else works: {why}");
            let check = Check::note(NAME, found);
            let denied = energy.sensors().iter().any(EnergySensor::is_denied);
            checks.push(match denied {
                true => check.remedied_by("sudo scx_hetero doctor; as a service it may read them"),
                false => check,
            });
        }
    }
    for sensor in energy.sensors() {
        let what = format!("{}: {sensor}", sensor.domain_name(topology.as_ref()));
        checks.push(match sensor.status() {
            SensorStatus::Used if sensor.domain == EnergyDomain::Unknown => Check::note(
                "energy-sensor",
                format!("{what}, which is not used: nothing says of what"),
            ),
            SensorStatus::Used => Check::ok("energy-sensor", what),
            SensorStatus::Unreadable(why) => Check::note("energy-sensor", format!("{what}: {why}")),
            SensorStatus::Lies(lie) => Check::note("energy-sensor", format!("{what}: {lie}")),
        });
    }
    checks
}
