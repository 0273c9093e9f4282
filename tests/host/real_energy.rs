// SPDX-License-Identifier: GPL-2.0-only
//! What programs take on both clusters of the virtual board beside what a real one's sensors measured:
//! watts, and how many times the energy the fast one takes. `--nocapture` prints the table of
//! docs/testbed-energy.md, "The boards".

use std::path::Path;
use std::process::Command;

use crate::fixtures::real_hardware;
use crate::machines::settings;
use crate::real_figures::{Pair, number, of_whole_runs};
use crate::tables::{Row, rows, spread};

/// Programs of a virtual machine with what they take by the terms of one with energy (experiments/joules).
fn priced(machine: &str, energies: &str) -> Vec<Pair> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("joules.csv");
    let status = Command::new(root.join("experiments/joules"))
        .arg(root.join(format!("models/{machine}.csv")))
        .arg(energies)
        .arg(&out)
        .status()
        .unwrap();
    assert!(status.success());
    of_whole_runs(rows(&out))
}

/// Watts of a core while a program runs: time is stretched by so much there, and a line of memory, which is no core's, takes so many nJ.
fn of_core(row: &Row, time: f64, line_nj: f64) -> f64 {
    let [joules, lines, ns] =
        ["joules", "llc-misses", "run-ns"].map(|key| number(row, key).unwrap());
    (joules * 1e9 - lines * line_nj) / (ns / time)
}

/// Least, median and most of programs.
struct Energies {
    /// Of the fast cluster and of the slow one, W.
    watts: [[f64; 3]; 2],
    /// The fast one's energy over the slow one's.
    over: [f64; 3],
}

impl Energies {
    /// Of programs, what they take on the fast cluster, what on the slow one, and their SF.
    fn new(programs: &[[f64; 3]]) -> Self {
        let all = |of: &dyn Fn(&[f64; 3]) -> f64| spread(programs.iter().map(of).collect());
        Self {
            watts: [all(&|of| of[0]), all(&|of| of[1])],
            over: all(&|of| of[0] / of[1] / of[2]),
        }
    }

    /// Of a virtual machine's programs, by the terms of `odroid-xu4-energy`.
    fn of_virtual(machine: &str) -> Self {
        /// By how much time is stretched there: `[scale]` of testbed/machines/odroid-xu4.toml.
        const TIME: f64 = 8.0;
        let ns = |row: &Row| number(row, "run-ns").unwrap() / TIME;
        let watts = |row| of_core(row, TIME, 0.0);
        let speed = |row| number(row, "instructions").unwrap() / ns(row);
        let programs: Vec<_> = priced(machine, "odroid-xu4-energy")
            .iter()
            .map(|[fast, slow]| [watts(fast), watts(slow), speed(fast) / speed(slow)])
            .collect();
        Self::new(&programs)
    }

    /// The programs of cBench that the CPU bounds, on an ODROID-XU3: power, the mean of a whole run
    /// where it was taken, and the shielded runs' SF.
    fn of_xu3(folder: &Path) -> Self {
        let times = rows(&folder.join("xu3-cbench-runtime.csv"));
        let watts = |program: &str, core_type: &str, mhz: &str, sources: &[&str]| {
            let mut found = sources.iter().filter_map(|source| {
                let row = times.iter().find(|row| {
                    let key =
                        ["program", "core_type", "mhz", "source"].map(|key| row[key].as_str());
                    key == [program, core_type, mhz, source]
                })?;
                number(row, "power_w")
            });
            found.next()
        };
        let speedups = rows(&folder.join("xu3-cbench-speedup.csv"));
        let bound = speedups.iter().filter(|row| row["cpu_bound"] == "1");
        let programs = bound.filter_map(|row| {
            Some([
                watts(&row["program"], "A15", "2000", &["emmc"])?,
                watts(&row["program"], "A7", "1400", &["cset-board1", "full-freq"])?,
                number(row, "sf_cset")?,
            ])
        });
        Self::new(&programs.collect::<Vec<_>>())
    }

    /// The medians must be no farther apart than so many percent, of either cluster's watts and of energy.
    #[track_caller]
    fn assert_medians(&self, real: &Self, percent: [f64; 3]) {
        let each = |of: &Self| [of.watts[0], of.watts[1], of.over];
        for ((ours, real), most) in each(self).iter().zip(each(real)).zip(percent) {
            let apart = 100.0 * (ours[1] / real[1] - 1.0);
            println!("{ours:.2?} | {real:.2?} | {apart:+.0} %");
            assert!(apart.abs() <= most, "{apart:.1} % apart");
        }
    }
}

#[test]
fn what_programs_take_is_beside_a_real_xu3() {
    let Some(folder) = real_hardware("cBench's power on an ODROID-XU3") else {
        return;
    };
    let real = Energies::of_xu3(&folder);
    // As the README of the tables has it.
    assert_eq!(real.over.map(|x| (10.0 * x).round()), [29.0, 46.0, 72.0]);
    // Energies of A15 over A7 are too low, for our programs gain too much there: less with a pipeline.
    Energies::of_virtual("odroid-xu4").assert_medians(&real, [10.0, 10.0, 45.0]);
    Energies::of_virtual("odroid-xu4-pipeline").assert_medians(&real, [10.0, 15.0, 35.0]);
}

/// 530 and 140 uW/MHz/V2 by Arm, at 1 V, of sysbench, which looks for primes. No table is needed for that.
#[test]
fn what_a_core_of_a_juno_takes_is_beside_arms_figures() {
    const ARM_W: [f64; 2] = [530e-6 * 1150.0, 140e-6 * 850.0];
    /// Of testbed/machines/juno-r1.toml, and what a line of memory takes there, which is no core's.
    const TIME: f64 = 5.0;
    const LINE_NJ: f64 = 36.0;
    let pairs = priced("juno-r1", "juno-r1-energy");
    for (side, [of_primes, of_all]) in [[10.0, 20.0], [10.0, 15.0]].into_iter().enumerate() {
        let watts = |pair: &Pair| of_core(&pair[side], TIME, LINE_NJ);
        let primes = pairs
            .iter()
            .filter(|pair| pair[side]["program"] == "cpu-prime");
        let primes = spread(primes.map(watts).collect());
        let all = spread(pairs.iter().map(watts).collect());
        println!("{primes:.3?} | {all:.3?} | {:.3}", ARM_W[side]);
        for (ours, most) in [(primes, of_primes), (all, of_all)] {
            let apart = 100.0 * (ours[1] / ARM_W[side] - 1.0);
            assert!(apart.abs() <= most, "{apart:.1} % apart");
        }
    }
}

/// Two jobs of which RAPL told what an Alder Lake with 8 P and 4 E took, on P cores and on E cores alone; docs/testbed-energy.md has the
/// sources, and what else is like them. No table is needed for that.
#[test]
fn what_an_alder_lake_takes_is_beside_two_measured_jobs() {
    /// Of testbed/machines/alder-lake-4p4e.toml and alder-lake-energy.toml, and what package and memory take beside the cores, W.
    const TIME: f64 = 20.0;
    const LINE_NJ: f64 = 12.0;
    const BESIDE_CORES: f64 = 3.6;
    /// What two threads on a P core take over one, by testbed/calibrate-energy.
    const BOTH_THREADS: f64 = 1.12;
    let pairs = priced("alder-lake-4p4e", "alder-lake-energy");
    let watts = [0, 1].map(|side| {
        let of = |pair: &Pair| of_core(&pair[side], TIME, LINE_NJ);
        spread(pairs.iter().map(of).collect())[1]
    });
    // W by RAPL, how many cores' worth of watts ours are, how many times as long it took on E.
    for (job, measured, cores, sf) in [
        ("Vivado", [31.6, 10.4], [1.55, 1.55], 2.06),
        ("Linux", [152.2, 22.3], [8.0 * BOTH_THREADS, 4.0], 4.67),
    ] {
        let ours = [0, 1].map(|side| cores[side] * watts[side] + BESIDE_CORES);
        let over = |[fast, slow]: [f64; 2]| fast / slow / sf;
        let each = |of: [f64; 2]| [of[0], of[1], over(of)];
        for (ours, real) in each(ours).into_iter().zip(each(measured)) {
            let apart = 100.0 * (ours / real - 1.0);
            println!("{job}: {ours:.2} | {real:.2} | {apart:+.0} %");
            assert!(apart.abs() <= 15.0, "{apart:.1} % apart");
        }
    }
}

/// An i7-1260P takes 1.25 to 1.28 W idle (docs/testbed-energy.md). Ours is of the deepest states, 0.1 W below what is measured while Linux
/// is idle. No table is needed for that.
#[test]
fn an_idle_package_takes_what_a_real_one_does() {
    for machine in ["i7-1260p-energy", "alder-lake-energy"] {
        let settings = settings(machine);
        let number = |key: &str| -> f64 {
            let mut found = settings.lines().filter_map(|line| line.split_once(" = "));
            let (_, value) = found.find(|(name, _)| *name == key).expect(key);
            value.parse().unwrap()
        };
        let core_w = |cluster: usize| {
            let of = |key: &str| number(&format!("cluster.{cluster}.{key}"));
            let energy = format!("type.{}.energy", of("type"));
            let deepest = number(&format!("{energy}.idle")) - 1.0;
            of("cpus") / of("threads") * number(&format!("{energy}.idle.{deepest}.watts"))
        };
        let clusters = number("clusters") as usize;
        let ours = number("energy.idle_w") + (0..clusters).map(core_w).sum::<f64>();
        for real in [1.25, 1.28] {
            let apart = 100.0 * (ours / real - 1.0);
            println!("{machine}, idle: {ours:.2} W | {real} W | {apart:+.0} %");
            assert!(apart.abs() <= 10.0, "{apart:.1} % apart");
        }
    }
}
