// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero calibrate`: what contention costs on this machine, and what its core types are
//! worth, by synthetic loads (CAMPS 2018, section 4.2, leaves the thresholds to such).
//!
//! In each contention domain a pointer chase on a CPU of the fastest type is disturbed by streams
//! on all others. `high_btr` is the greatest BTR of all together at which the chase, doing nothing
//! else, still has less than 5 % of slowdown. `low_btr` is the greatest BTR of a chase that also
//! computes at which it has less than that however much the others move.

mod domain;
pub(crate) mod idle;
mod loads;
mod measure;
pub(crate) mod render;
pub mod search;
pub mod store;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Result, bail};
use log::{info, warn};

use crate::files::read_trimmed;
use crate::output;
use crate::pmu::MachinePmus;
use crate::topology::{CoreTypesSpec, Identity, Topology, cpu_name};
use measure::{PlacedLoad, together};
use store::{Calibration, Compute};

/// How often each measurement is repeated; the middle one counts.
const REPEATS: usize = 3;

/// Options of `scx_hetero calibrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero calibrate                 as root, while the machine is idle\n  \
    scx_hetero calibrate -o /tmp/c.json  only to see what comes of it")]
pub struct Args {
    /// Write here instead, where the scheduler does not look
    #[arg(short, long, value_name = "FILE", default_value = store::PATH)]
    output: PathBuf,

    /// Print what is written, as JSON, instead of a table
    #[arg(long)]
    json: bool,

    /// Measure even if the machine is not idle
    #[arg(long)]
    force: bool,

    /// Core types by hand, fastest first; as given to the scheduler
    #[arg(long, value_name = "NAME=CPUS,...")]
    core_types: Option<CoreTypesSpec>,
}

/// Measures, writes and prints.
///
/// # Errors
/// In words for people: the machine is not idle, the file cannot be written, a CPU cannot be used.
pub fn run(args: &Args) -> Result<()> {
    let topology = Topology::detect(args.core_types.as_ref())?;
    store::check_writable(&args.output)?;
    let busy = idle::busy_percent();
    if busy > idle::MOST_PERCENT {
        let most = idle::MOST_PERCENT;
        if !args.force {
            bail!(
                "the CPUs are {busy:.0} % busy, and what else runs would be measured, too: stop it \
                 (more than {most:.0} % is too much), or say --force"
            );
        }
        warn!("the CPUs are {busy:.0} % busy: the results will not be exact");
    }
    if let Some(scheduler) = idle::attached_scheduler(Path::new("/sys/kernel/sched_ext")) {
        warn!("scheduler {scheduler} is attached; its own work is measured along");
    }

    let calibration = measure_all(&topology)?;
    calibration.write(&args.output)?;
    if args.json {
        return output::json(&calibration);
    }
    let table = render::table(&calibration);
    output::print(format_args!(
        "{table}\n\nWritten to {}.",
        args.output.display()
    ))
}

fn measure_all(topology: &Topology) -> Result<Calibration> {
    let compute = compute(topology)?;
    let rates: Vec<Vec<f64>> = compute.iter().map(|of| of.rates.clone()).collect();
    let capacities = search::capacities(&rates);

    let machine = MachinePmus::detect();
    let (domains, no_thresholds) = match domain::sensors(&machine, topology) {
        Ok(sensors) => {
            let domains = domain::measure_all(topology, &sensors)?;
            let none = "no CPUs share a last-level cache with others".to_string();
            let why = domains.is_empty().then_some(none);
            (domains, why)
        }
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    if let Some(why) = &no_thresholds {
        warn!("no thresholds: {why}");
    }
    let found: Vec<(f64, f64)> = domains.iter().map(|d| (d.low_btr, d.high_btr)).collect();
    Ok(Calibration {
        schema: store::SCHEMA,
        date: render::date(SystemTime::now()),
        kernel: kernel(),
        machine: Identity::of(topology, cpu_name()),
        capacities,
        thresholds: search::thresholds(&found),
        no_thresholds,
        compute,
        domains,
    })
}

/// Each load that only computes, alone on a CPU of each core type.
fn compute(topology: &Topology) -> Result<Vec<Compute>> {
    let of_type = |kind: &crate::topology::CoreType| {
        let cpu = kind.cpus[0];
        info!("computing on CPU {cpu} ({})", kind.name);
        let rate = |load: usize| {
            let runs = (0..REPEATS).map(|_| {
                let load = loads::compute(load);
                Ok(together(vec![PlacedLoad { cpu, load }], |_| None)?[0].rate)
            });
            Ok(search::median(runs.collect::<Result<_>>()?))
        };
        Ok(Compute {
            core_type: kind.name.clone(),
            cpu,
            rates: (0..loads::COMPUTE.len()).map(rate).collect::<Result<_>>()?,
        })
    };
    topology.types.iter().map(of_type).collect()
}

/// The running kernel's release.
pub(crate) fn kernel() -> String {
    read_trimmed("/proc/sys/kernel/osrelease").unwrap_or_default()
}
