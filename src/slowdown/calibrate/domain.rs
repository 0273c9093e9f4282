// SPDX-License-Identifier: GPL-2.0-only
//! Measures what contention costs in a contention domain.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use log::{info, warn};

use super::REPEATS;
use super::loads::{Chase, LINE, PointerRing, Stream, words};
use super::measure::{LoadOutcome, MissCounter, PlacedLoad, together};
use super::search::{self, Point};
use super::store;
use crate::pmu::{MachinePmus, availability};
use crate::topology::{Topology, cpulist};

/// The most domains that are measured: those of other machines are as these.
const MOST_DOMAINS: usize = 4;

/// Of a last-level cache whose size nobody knows, bytes.
const ASSUMED_LLC: usize = 32 << 20;

/// Rounds of computation of a chase by which the time of one is measured.
const PROBE_SPINS: u64 = 500;

/// Sensors by CPU.
pub(super) type Sensors<'m> = BTreeMap<u32, MissCounter<'m>>;

/// Sensors for all CPUs.
///
/// # Errors
/// Why misses cannot be counted on one of them.
pub(super) fn sensors<'m>(machine: &'m MachinePmus, topology: &Topology) -> Result<Sensors<'m>> {
    if machine.pmus.is_empty() {
        availability(machine).map_err(anyhow::Error::msg)?;
    }
    let cpus = topology.cpus.iter();
    cpus.map(|cpu| Ok((cpu.id, MissCounter::new(machine, cpu.id)?)))
        .collect()
}

/// CPUs that share a last-level cache, one a core, those of the fastest type first.
struct Site {
    cpus: Vec<u32>,
    llc_bytes: usize,
}

/// Measures each kind of domain once, but for such as have one core only.
pub(super) fn measure_all(
    topology: &Topology,
    sensors: &Sensors,
) -> Result<Vec<store::ContentionDomain>> {
    let sites = sites(topology);
    if sites.len() > MOST_DOMAINS {
        warn!("the first {MOST_DOMAINS} kinds of contention domain are measured, no others");
    }
    let sites = sites.iter().take(MOST_DOMAINS);
    sites.map(|site| measure(site, sensors)).collect()
}

fn sites(topology: &Topology) -> Vec<Site> {
    let mut by_llc: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
    for cpu in topology.cpus.iter().filter(|cpu| cpu.id == cpu.core) {
        let cpus = by_llc.entry(cpu.llc).or_default();
        cpus.push((cpu.core_type, cpu.id));
    }
    let mut domains: Vec<_> = by_llc.into_values().filter(|c| c.len() > 1).collect();
    domains.iter_mut().for_each(|cpus| cpus.sort_unstable());
    domains.sort_unstable();
    let mut seen = Vec::new();
    let mut sites = Vec::new();
    for cpus in domains {
        let llc_bytes = llc_bytes(cpus[0].1);
        let types: Vec<usize> = cpus.iter().map(|cpu| cpu.0).collect();
        let shape = (types, llc_bytes);
        if !seen.contains(&shape) {
            seen.push(shape);
            let cpus = cpus.into_iter().map(|cpu| cpu.1).collect();
            sites.push(Site { cpus, llc_bytes });
        }
    }
    sites
}

/// Size of the last level of the cache of a CPU, bytes.
fn llc_bytes(cpu: u32) -> usize {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let of_index = |index: usize| {
        let read = |file: &str| fs::read_to_string(format!("{folder}/index{index}/{file}")).ok();
        let level: u32 = read("level")?.trim().parse().ok()?;
        let kib: usize = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
        Some((level, kib << 10))
    };
    let last = (0..10).filter_map(of_index).max();
    last.map_or(ASSUMED_LLC, |(_, bytes)| bytes)
}

/// Memory for the loads of a site.
struct Memory {
    ring: Vec<u64>,
    streams: Vec<Vec<u64>>,
}

impl Memory {
    /// The streams together have four times what the cache has, and each no less than it. The chase
    /// has 8 to 16 times as much, for caches that are not strictly least recently used keep some of
    /// it, which others would take from it, and the bus has no part in that. Both get less where
    /// half of the free memory is not enough.
    fn new(site: &Site) -> Self {
        let llc = site.llc_bytes;
        let mut lines = (8 * llc / LINE).next_power_of_two();
        let mut each = (4 * llc / site.cpus.len()).max(llc);
        let free = available().unwrap_or(usize::MAX) / 2;
        while lines * LINE + site.cpus.len() * each > free && lines > 64 {
            lines /= 2;
            each /= 2;
        }
        if lines * LINE < 4 * llc {
            warn!("little memory is free: the loads partly fit into the cache, and tell less");
        }
        let streams = site.cpus.iter().map(|_| vec![1; each / size_of::<u64>()]);
        Self {
            ring: vec![1; words(lines)],
            streams: streams.collect(),
        }
    }
}

/// Free memory, bytes.
fn available() -> Option<usize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The victim alone and among others.
struct Trial {
    alone: LoadOutcome,
    slowdown: f64,
    /// BTR of the others, bytes/s.
    others: f64,
}

struct Bench<'a> {
    site: &'a Site,
    sensors: &'a Sensors<'a>,
    ring: PointerRing<'a>,
    streams: Vec<Vec<u64>>,
}

impl Bench<'_> {
    fn run(&self, jobs: Vec<PlacedLoad>) -> Result<Vec<LoadOutcome>> {
        together(jobs, |cpu| self.sensors.get(&cpu))
    }

    /// The chase on the victim's CPU.
    fn victim(&self, spins: u64) -> PlacedLoad<'_> {
        PlacedLoad {
            cpu: self.site.cpus[0],
            load: Box::new(Chase::new(self.ring, spins)),
        }
    }

    fn alone(&self, spins: u64) -> Result<LoadOutcome> {
        Ok(self.run(vec![self.victim(spins)])?[0])
    }

    /// All but the first `skipped` CPUs stream, each at `pace` bytes/s; what leads comes first.
    fn streaming(
        &mut self,
        lead: Option<u64>,
        skipped: usize,
        pace: f64,
    ) -> Result<Vec<LoadOutcome>> {
        let mut streams = std::mem::take(&mut self.streams);
        let mut jobs: Vec<PlacedLoad> = lead.map(|spins| self.victim(spins)).into_iter().collect();
        let pairs = self.site.cpus.iter().zip(&mut streams).skip(skipped);
        jobs.extend(pairs.map(|(&cpu, memory)| PlacedLoad {
            cpu,
            load: Box::new(Stream::new(memory, pace)),
        }));
        let outcomes = self.run(jobs);
        self.streams = streams;
        outcomes
    }

    /// A chase with so many rounds of computation, among streams of `pace` bytes/s each.
    fn trial(&mut self, spins: u64, pace: f64) -> Result<Trial> {
        let mut trials = Vec::new();
        for _ in 0..REPEATS {
            let alone = self.alone(spins)?;
            let all = self.streaming(Some(spins), 1, pace)?;
            trials.push(Trial {
                alone,
                slowdown: alone.rate / all[0].rate,
                others: all[1..].iter().map(|outcome| outcome.btr).sum(),
            });
        }
        trials.sort_by(|a, b| a.slowdown.total_cmp(&b.slowdown));
        Ok(trials.swap_remove(REPEATS / 2))
    }
}

fn measure(site: &Site, sensors: &Sensors) -> Result<store::ContentionDomain> {
    let Memory { mut ring, streams } = Memory::new(site);
    let mut bench = Bench {
        site,
        sensors,
        ring: PointerRing::new(&mut ring),
        streams,
    };
    let (cpus, victim) = (cpulist::format(&sorted(&site.cpus)), site.cpus[0]);
    info!(
        "streaming on CPUs {cpus}, which share {} KiB",
        site.llc_bytes >> 10
    );
    let mut runs = Vec::new();
    for _ in 0..REPEATS {
        let all = bench.streaming(None, 0, f64::INFINITY)?;
        runs.push(all.iter().map(|outcome| outcome.btr).sum());
    }
    let bandwidth = search::median(runs);

    let others = (site.cpus.len() - 1) as f64;
    let high = search::search(bandwidth, |btr| {
        let pace = if btr < bandwidth {
            btr / others
        } else {
            f64::INFINITY
        };
        let trial = bench.trial(0, pace)?;
        let point = Point {
            btr: trial.alone.btr + trial.others,
            slowdown: trial.slowdown,
        };
        say(victim, "among others, together", point);
        anyhow::Ok(point)
    })?;

    // Time of a miss, and of a round of computation after it.
    let chase = bench.alone(0)?;
    let probe = bench.alone(PROBE_SPINS)?;
    let miss = 1.0 / chase.rate;
    let round = ((1.0 / probe.rate - miss) / PROBE_SPINS as f64).max(1e-12);
    let low = search::search(chase.btr, |btr| {
        let spins = ((chase.btr / btr - 1.0) * miss / round) as u64;
        let trial = bench.trial(spins, f64::INFINITY)?;
        let point = Point {
            btr: trial.alone.btr,
            slowdown: trial.slowdown,
        };
        say(victim, "among full streams, alone", point);
        anyhow::Ok(point)
    })?;
    let found = |points| {
        search::crossing(points).with_context(|| {
            format!("CPU {victim} counts no misses of its last-level cache, so there is no BTR")
        })
    };
    Ok(store::ContentionDomain {
        cpus,
        victim,
        bandwidth,
        low_btr: found(&low)?,
        high_btr: found(&high)?,
        low,
        high,
    })
}

fn say(victim: u32, how: &str, point: Point) {
    let (btr, slowdown) = (point.btr / 1e6, point.slowdown);
    info!("CPU {victim} {how} {btr:.2} MB/s: slowdown {slowdown:.3}");
}

fn sorted(cpus: &[u32]) -> Vec<u32> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus
}
