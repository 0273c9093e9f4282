// SPDX-License-Identifier: GPL-2.0-or-later
//! Programs on a machine whose energies are those of `testbed/machines/alder-lake-energy.toml`: the truth is
//! known, and most of what it depends on is not counted.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

mod sure;

use super::*;
use crate::pmu::Meaning;
use crate::pmu::sample::SampleMetrics;
use crate::testing::{MS, machine, task, with_smt};

/// Leakage W, nJ a cycle; nJ of an instruction, load, store, branch, operation in floating point, branch miss, L1
/// miss, L2 miss.
const P: [f64; 10] = [1.2, 1.6, 0.75, 0.5, 0.5, 0.1, 1.0, 25.0, 3.0, 6.0];
const E: [f64; 10] = [0.3, 0.45, 0.35, 0.25, 0.25, 0.05, 0.5, 8.0, 2.0, 6.0];
const CLOCK: [f64; 2] = [4.4e9, 3.3e9];
const IDLE: [f64; 2] = [0.02, 0.005];
const UNCORE: f64 = 3.0;
/// Cores of each core type.
const CORES: u32 = 4;

struct Lcg(Pcg64Mcg);

impl Lcg {
    fn part(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.0.next_u32() as f64 / u32::MAX as f64)
    }

    fn shuffle<T>(&mut self, of: &mut [T]) {
        for i in (1..of.len()).rev() {
            of.swap(i, self.0.next_u32() as usize % (i + 1));
        }
    }
}

/// IPC by core type; loads, stores, branches, fp, branch misses, L1 and L2 misses per instruction.
#[derive(Clone)]
struct Program {
    ipc: [f64; 2],
    per: [f64; 7],
}

impl Program {
    fn new(random: &mut Lcg) -> Self {
        let p = random.part(0.4, 3.0);
        let l1 = random.part(0.0, 0.02);
        let fp = random.part(-0.5, 0.4).max(0.0);
        Self {
            ipc: [p, p / random.part(1.0, 2.4)],
            per: [
                random.part(0.2, 0.35),
                random.part(0.05, 0.15),
                random.part(0.05, 0.2),
                fp,
                // Of some, as with programs that guess badly, many.
                match random.part(0.0, 1.0) < 0.2 {
                    true => random.part(0.03, 0.13),
                    false => random.part(0.0, 0.01),
                },
                l1,
                l1 * random.part(0.0, 0.4),
            ],
        }
    }

    /// Watts while it runs at a clock and pays for so much of its core's leakage and clock.
    fn watts(&self, core_type: usize, clock: f64, share: f64) -> f64 {
        self.watts_by(&[P, E][core_type], core_type, clock, share)
    }

    /// The same with other energies.
    fn watts_by(&self, nj: &[f64; 10], core_type: usize, clock: f64, share: f64) -> f64 {
        let part = clock / CLOCK[core_type];
        let volts = 0.5 + 0.5 * part;
        let instructions = clock * self.ipc[core_type] / 1e9;
        let events: f64 = self.per.iter().zip(&nj[3..]).map(|(n, nj)| n * nj).sum();
        let switching = share * nj[1] * clock / 1e9 + instructions * (nj[2] + events);
        switching * volts * volts + share * nj[0] * volts * volts * volts
    }

    fn counts(&self, core_type: usize, clock: f64, ns: u64) -> Sample {
        let cycles = clock * ns as f64 / 1e9;
        let instructions = cycles * self.ipc[core_type];
        let counts = [
            (Meaning::Instructions, instructions),
            (Meaning::Cycles, cycles),
            (Meaning::Loads, instructions * self.per[0]),
            (Meaning::Branches, instructions * self.per[2]),
            (Meaning::LlcMisses, instructions * self.per[6] * 0.5),
        ];
        let task = task(0, 0, core_type);
        let counts = counts.into_iter().collect();
        Sample {
            task: task.id,
            tid: 0,
            tgid: 0,
            core_type,
            at_ns: 0,
            run_ns: ns,
            last: false,
            metrics: SampleMetrics::of(&counts, ns).unwrap(),
            counts,
            sf: None,
            ef: None,
            watts: None,
        }
    }
}

/// How programs are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// Anew each half second, some of them asleep.
    Moved,
    /// Each has a CPU of its own for good.
    Pinned,
    /// As moved, with two threads on each fast core.
    Smt,
}

/// Errors of programs' joules in the last half of a time, relative, ascending; and how far all are from the package.
fn errors(seed: u64, programs: usize, seconds: u64, way: Way, cores: bool) -> (Vec<f64>, f64) {
    let mut random = Lcg(Pcg64Mcg::new(seed.into()));
    let programs: Vec<Program> = (0..programs).map(|_| Program::new(&mut random)).collect();
    let smt = way == Way::Smt;
    let fast = if smt { 2 * CORES } else { CORES };
    let topology = match smt {
        true => with_smt(machine(&[fast, CORES]), 0),
        false => machine(&[fast, CORES]),
    };
    let mut tasks: Vec<Task> = (0..programs.len()).map(|n| task(n as u32, 0, 0)).collect();
    let mut ledger = EnergyLedger::default();
    let mut reading = EnergyReading {
        package: Some(0.0),
        cores: cores.then_some(0.0),
        ..EnergyReading::default()
    };
    let mut truth = vec![0.0; programs.len()];
    let mut middle = (truth.clone(), truth.clone());
    let half = seconds * 2;
    let mut places: Vec<Option<u32>> = vec![None; programs.len()];
    let step = 250 * MS;
    ledger.update(0, &reading, &tasks, &topology);
    assert_eq!(ledger.watts(tasks[0].id, 0), None);
    for look in 1..=seconds * 4 {
        if look == 1 || (way != Way::Pinned && look % 2 == 0) {
            // CPUs in the order in which they are filled: any.
            let all = (fast + CORES) as usize;
            let mut order: Vec<usize> = (0..programs.len().max(all)).collect();
            if way != Way::Pinned {
                random.shuffle(&mut order);
            }
            let awake = match way {
                Way::Moved | Way::Smt => random.part(0.2, 1.0),
                Way::Pinned => 1.0,
            };
            let awake = (awake * programs.len() as f64) as usize;
            places.fill(None);
            let runs = order
                .iter()
                .enumerate()
                .filter(|&(_, &n)| n < programs.len());
            for (cpu, &program) in runs.take(awake).filter(|&(cpu, _)| cpu < all) {
                places[program] = Some(cpu as u32);
            }
        }
        let clocks = [random.part(0.85, 1.0), random.part(0.9, 1.0)];
        let seconds = step as f64 / 1e9;
        let (mut of_cores, mut idle) = (0.0, [CORES as f64; 2]);
        for (n, place) in places.iter().enumerate() {
            let Some(cpu) = *place else { continue };
            let core_type = usize::from(cpu >= fast);
            let beside = smt && core_type == 0 && places.contains(&Some(cpu ^ 1));
            let share = if beside { 0.5 } else { 1.0 };
            let clock = clocks[core_type] * CLOCK[core_type];
            let joules = seconds * programs[n].watts(core_type, clock, share);
            truth[n] += joules;
            of_cores += joules;
            idle[core_type] -= share;
            (tasks[n].cpu, tasks[n].core_type) = (cpu as i32, core_type);
            // Run time is charged up to a tick late.
            let late = random.part(-2.0, 2.0) * MS as f64;
            tasks[n].run_ns[core_type] += step + late as u64;
            reading.busy_ns[core_type] += step;
            let mut sample = programs[n].counts(core_type, clock, 20 * MS);
            sample.task = tasks[n].id;
            ledger.observe(&sample);
        }
        of_cores += (0..2).map(|t| seconds * idle[t] * IDLE[t]).sum::<f64>();
        if let Some(all) = &mut reading.cores {
            *all += of_cores;
        }
        *reading.package.as_mut().unwrap() += of_cores + UNCORE * seconds;
        ledger.update(look * step, &reading, &tasks, &topology);
        if look == half {
            let told = tasks.iter().map(|task| ledger.joules(task.id).unwrap());
            middle = (truth.clone(), told.collect());
        }
    }
    let mut errors = Vec::new();
    for (n, task) in tasks.iter().enumerate() {
        let really = truth[n] - middle.0[n];
        let told = ledger.joules(task.id).unwrap() - middle.1[n];
        if really > 1.0 {
            errors.push((told / really - 1.0).abs());
        }
        // What policies are told is what is shown.
        let thread = ledger.thread(task.id).unwrap();
        for (core_type, watts) in thread.watts.iter().enumerate() {
            assert_eq!(
                ledger.watts(task.id, core_type),
                watts.map(|(watts, _)| watts)
            );
            let told = ledger.sample_watts(task.id, 2).unwrap().on[core_type];
            assert_eq!(told.map(|on| on.watts), watts.map(|(watts, _)| watts));
        }
    }
    errors.sort_by(f64::total_cmp);
    let sums = ledger.sums().unwrap();
    let all = sums.threads.iter().sum::<f64>() + sums.untold + sums.idle + sums.uncore;
    (errors, (all / reading.package.unwrap() - 1.0).abs())
}

fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

#[test]
fn programs_get_the_joules_that_they_took() {
    // With all cores' sensor, and with the package's alone; and at its worst: what never moves nor sleeps is told from
    // others only by what is counted.
    for (way, cores, programs, median, most) in [
        (Way::Moved, true, 12, 0.02, 0.05),
        (Way::Moved, false, 12, 0.03, 0.07),
        (Way::Pinned, true, 8, 0.25, 0.6),
        (Way::Smt, true, 14, 0.03, 0.08),
    ] {
        let mut all = Vec::new();
        for seed in 1..=8 {
            let (errors, apart) = errors(seed, programs, 120, way, cores);
            assert!(apart < 1e-6, "{apart}");
            all.extend(errors);
        }
        all.sort_by(f64::total_cmp);
        let found = [at(&all, 0.5), at(&all, 0.95)];
        assert!(found[0] < median && found[1] < most, "{found:?}");
    }
}

#[test]
fn a_new_thread_a_gone_one_and_a_lost_interval_cost_no_joule() {
    let topology = machine(&[1, 1]);
    let mut ledger = EnergyLedger::default();
    let mut tasks = vec![task(0, 0, 0), task(1, 1, 1)];
    let mut reading = EnergyReading {
        package: Some(0.0),
        ..EnergyReading::default()
    };
    let mut joules = 0.0;
    for look in 0..40_u64 {
        let lost = look == 20;
        let read = EnergyReading {
            package: reading.package.filter(|_| !lost),
            ..reading
        };
        ledger.update(look * 100 * MS, &read, &tasks, &topology);
        if look == 10 {
            tasks[1] = task(1, 1, 1);
            tasks[1].id.generation = 7;
            tasks[1].tgid = 500;
        }
        // The second slot runs all the time, whichever thread has it; what is lost is of no interval.
        for (core_type, task) in tasks.iter_mut().enumerate() {
            task.run_ns[core_type] += 100 * MS;
            reading.busy_ns[core_type] += 100 * MS;
        }
        if look < 39 && !(19..=20).contains(&look) {
            joules += 1.0;
        }
        reading.package = reading.package.map(|sum| sum + 1.0);
    }
    let sums = ledger.sums().unwrap();
    assert!((sums.total - joules).abs() < 1e-9, "{sums:?}, {joules}");
    let all = sums.threads.iter().sum::<f64>() + sums.untold + sums.idle + sums.uncore;
    assert!((all - joules).abs() < 1e-6);
    assert!(sums.untold > 0.0 && sums.threads[0] > sums.threads[1]);
    // The process of the one that has ended is kept until it is forgotten.
    assert!(ledger.process(101).is_some() && ledger.process(500).is_some());
    ledger.forget_the_gone(&tasks);
    assert_eq!(ledger.process(101), None);
    assert!(ledger.joules(tasks[0].id).unwrap() > 0.0);
    assert_eq!(ledger.joules(task(1, 1, 1).id), None);
}

#[test]
fn what_has_ended_runs_no_longer() {
    let topology = machine(&[1, 1]);
    let mut ledger = EnergyLedger::default();
    let mut reading = EnergyReading {
        package: Some(0.0),
        ..EnergyReading::default()
    };
    // One compiler after the other, for half a second each.
    for look in 0..200_u64 {
        let mut it = task((look / 5) as u32, 0, 0);
        it.run_ns[0] = (look % 5 + 1) * 100 * MS;
        ledger.update(look * 100 * MS, &reading, &[it], &topology);
        reading.busy_ns[0] += 100 * MS;
        reading.package = reading.package.map(|sum| sum + 1.0);
        let own = own_seconds(&ledger.owners, &ledger.threads, 0..2);
        assert!(
            own.map(|(_, seconds)| seconds).sum::<f64>() < 0.11,
            "{look}"
        );
    }
}
