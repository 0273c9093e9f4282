// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether what is told as the error of threads' watts is what they err by: on many machines, whose energies are
//! those of `super` times factors drawn by lot, with programs drawn by lot.

use super::*;
use crate::pmu::sample::{SampleWatts, SureWatts};

/// Natural logarithms of the factors have this standard deviation.
const SPREAD: f64 = 0.4;

/// How threads are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    /// All CPUs are busy all the time; two threads change places each second.
    Turning,
    /// The same, but each thread is on the other core type for 250 ms in 20 s.
    Visiting,
    /// Anew each half second, some of them asleep.
    Moved,
}

/// What is told of a thread errs by so much, W, against the mean of all; and the error that is told.
type Told = (f64, f64);

/// Of how much more each takes on a fast core than on a slow one.
struct Found {
    /// With the error that is told of that.
    apart: Vec<Told>,
    /// With that which would follow from the errors on both core types, were they independent of each other.
    independent: Vec<Told>,
}

fn normal(random: &mut Lcg) -> f64 {
    (0..12).map(|_| random.part(0.0, 1.0)).sum::<f64>() - 6.0
}

fn found(seed: u64, life: Life, seconds: u64, noise: f64) -> Found {
    let mut random = Lcg(Pcg64Mcg::new(u128::from(seed) << 1 | 1));
    for _ in 0..8 {
        random.0.next_u32();
    }
    let energies = [P, E].map(|nj| nj.map(|nj| nj * (SPREAD * normal(&mut random)).exp()));
    let programs: Vec<Program> = (0..8).map(|_| Program::new(&mut random)).collect();
    let topology = machine(&[CORES, CORES]);
    let mut tasks: Vec<Task> = (0..8).map(|n| task(n, n, 0)).collect();
    let mut ledger = EnergyLedger::default();
    let mut reading = EnergyReading {
        package: Some(0.0),
        ..EnergyReading::default()
    };
    ledger.update(0, &reading, &tasks, &topology);
    let step = 0.25;
    let mut truth = [[0.0; 2]; 8];
    let mut places: Vec<usize> = (0..8).collect();
    for look in 0..seconds as usize * 4 {
        match life {
            Life::Turning => {
                if look % 4 == 0 {
                    let second = look / 4;
                    let on = |cpu: usize| places.iter().position(|&place| place == cpu).unwrap();
                    let (a, b) = (on(second % 4), on(4 + (second + second / 4) % 4));
                    places.swap(a, b);
                }
            }
            // Thread n of the fast ones and another change places for one look of 80.
            Life::Visiting => {
                places = (0..8).collect();
                let (round, at) = (look / 80, look % 80);
                if at % 20 == 0 {
                    let n = at / 20;
                    places.swap(n, 4 + (n + round) % 4);
                }
            }
            Life::Moved => {
                if look % 2 == 0 {
                    for i in (1..8).rev() {
                        places.swap(i, random.0.next_u32() as usize % (i + 1));
                    }
                    for place in &mut places {
                        if random.part(0.0, 1.0) < 0.3 {
                            *place += 8;
                        }
                    }
                }
            }
        }
        let clocks = [random.part(0.9, 1.0), random.part(0.9, 1.0)];
        let mut joules = UNCORE * step;
        let mut idle = [CORES as f64; 2];
        for (n, program) in programs.iter().enumerate() {
            if places[n] >= 8 {
                // Asleep for this look.
                places[n] %= 8;
                continue;
            }
            let core_type = places[n] / CORES as usize;
            let clock = clocks[core_type] * CLOCK[core_type];
            let watts = program.watts_by(&energies[core_type], core_type, clock, 1.0);
            truth[n][core_type] = watts;
            joules += step * watts;
            idle[core_type] -= 1.0;
            (tasks[n].cpu, tasks[n].core_type) = (places[n] as i32, core_type);
            let late = random.part(-2.0, 2.0) * MS as f64;
            tasks[n].run_ns[core_type] += 250 * MS + late as u64;
            reading.busy_ns[core_type] += 250 * MS;
            let mut sample = program.counts(core_type, clock, 20 * MS);
            sample.task = tasks[n].id;
            ledger.observe(&sample);
        }
        joules += (0..2).map(|t| step * idle[t] * IDLE[t]).sum::<f64>();
        joules *= 1.0 + noise * normal(&mut random);
        *reading.package.as_mut().unwrap() += joules;
        ledger.update((look as u64 + 1) * 250 * MS, &reading, &tasks, &topology);
    }
    let told: Vec<SampleWatts> = tasks
        .iter()
        .map(|task| ledger.sample_watts(task.id, 2).unwrap())
        .collect();
    let by = |sigma: &dyn Fn(&SampleWatts, [SureWatts; 2]) -> f64| {
        let all = told.iter().zip(&truth).map(|(told, [fast, slow])| {
            let on = [0, 1].map(|core_type| told.on[core_type].unwrap());
            let off = on[0].watts - on[1].watts - (fast - slow);
            (off, sigma(told, on))
        });
        let all: Vec<Told> = all.collect();
        let n = all.len() as f64;
        let mean = all.iter().map(|(off, _)| off).sum::<f64>() / n;
        // As much as if threads erred independently of each other.
        let more = (n / (n - 1.0)).sqrt();
        let beside = all.iter().map(|(off, sigma)| ((off - mean) * more, *sigma));
        beside.collect::<Vec<_>>()
    };
    Found {
        apart: by(&|told, _| told.apart[1].unwrap().into()),
        independent: by(&|_, [fast, slow]| fast.sigma.hypot(slow.sigma)),
    }
}

/// RMS of errors, each over what is told of it, and what part of errors is within that, and within twice that.
fn summary(found: &[Told]) -> [f64; 3] {
    let n = found.len() as f64;
    let over: Vec<f64> = found.iter().map(|(off, sigma)| off / sigma).collect();
    let within = |times: f64| over.iter().filter(|over| over.abs() < times).count() as f64 / n;
    let squares: f64 = over.iter().map(|over| over * over).sum();
    [(squares / n).sqrt(), within(1.0), within(2.0)]
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "`experiments/results/energy.md` has these numbers"
)]
fn what_is_told_as_the_error_of_a_difference_is_what_it_errs_by() {
    for (life, seconds, noise) in [
        (Life::Turning, 30, 0.01),
        (Life::Turning, 120, 0.01),
        (Life::Turning, 120, 0.05),
        (Life::Visiting, 60, 0.01),
        (Life::Visiting, 240, 0.01),
        (Life::Visiting, 240, 0.05),
        (Life::Moved, 60, 0.01),
        (Life::Moved, 120, 0.05),
    ] {
        let all: Vec<Found> = (1..=20)
            .map(|seed| found(seed, life, seconds, noise))
            .collect();
        let apart: Vec<Told> = all.iter().flat_map(|of| of.apart.iter().copied()).collect();
        let [ratio, one, two] = summary(&apart);
        let independent: Vec<Told> = all
            .iter()
            .flat_map(|of| of.independent.iter().copied())
            .collect();
        let [before, ..] = summary(&independent);
        let what =
            format!("{life:?} {seconds} s {noise}: {ratio:.2}, {one:.2}, {two:.2}; {before:.2}");
        println!("{what}");
        assert!((0.6..1.5).contains(&ratio), "{what}");
        assert!((0.5..0.95).contains(&one) && two > 0.8, "{what}");
        // What each takes is known worse than what it takes more on a fast core.
        assert!(before < ratio, "{what}");
    }
}
