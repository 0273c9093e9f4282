// SPDX-License-Identifier: GPL-2.0-only
//! The virtual machines' programs beside programs that others measured on real CPUs: how much a fast
//! core gains, and what the programs are like. `--nocapture` prints the tables of docs/testbed-calibration.md,
//! "Beside real CPUs", which says where the model does not reach.

use std::collections::BTreeMap;
use std::path::Path;

use crate::fixtures::real_hardware;
use crate::tables::{Row, rows, spread};

/// What a program did on the fast core type, and on the slow one.
pub(crate) type Pair = [Row; 2];

/// `None` where the cell is empty.
pub(crate) fn number(row: &Row, column: &str) -> Option<f64> {
    let cell = row.get(column).unwrap_or_else(|| panic!("no {column}"));
    (!cell.is_empty()).then(|| cell.parse().unwrap())
}

fn ratio(row: &Row, column: &str, per: &str) -> Option<f64> {
    Some(number(row, column)? / number(row, per)?)
}

/// Of the data for a model, whole runs on both core types.
pub(crate) fn of_whole_runs(mut rows: Vec<Row>) -> Vec<Pair> {
    rows.retain(|row| row["window"].is_empty());
    pairs(rows, ["program", "variant"], "core-type", "P")
}

/// Programs that were measured on both core types.
fn pairs(rows: Vec<Row>, names: [&str; 2], core_type: &str, fast: &str) -> Vec<Pair> {
    let mut pairs: BTreeMap<[String; 2], [Option<Row>; 2]> = BTreeMap::new();
    for row in rows {
        let of = pairs
            .entry(names.map(|name| row[name].clone()))
            .or_default();
        let side = usize::from(row[core_type] != fast);
        of[side] = Some(row);
    }
    let both = pairs.into_values().filter_map(|[a, b]| Some([a?, b?]));
    both.collect()
}

/// Real programs or the virtual machine's: what each figure is of, by name.
struct Set {
    figures: BTreeMap<&'static str, [f64; 3]>,
}

impl Set {
    /// What was not measured has no figure.
    fn new<const N: usize>(figures: [(&'static str, Vec<f64>); N]) -> Self {
        let some = figures.into_iter().filter(|(_, values)| !values.is_empty());
        Self {
            figures: some.map(|(name, values)| (name, spread(values))).collect(),
        }
    }

    /// Of the data for a model; `mhz` are the machine's clocks.
    fn of_virtual(machine: &str, mhz: [f64; 2]) -> Self {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
        let pairs = of_whole_runs(rows(&models.join(format!("{machine}.csv"))));
        let sf = |[fast, slow]: &Pair| {
            let time = |row| ratio(row, "run-ns", "instructions");
            Some(time(slow)? / time(fast)?)
        };
        let at_one_clock = |pair: &Pair| Some(sf(pair)? * mhz[1] / mhz[0]);
        // Slow cores may not count them.
        let floats = |[fast, _]: &Pair| ratio(fast, "fp-ops", "instructions") >= Some(FLOATS);
        Self::of_pairs(&pairs, sf, at_one_clock, floats, |row, what| match what {
            What::Ipc => ratio(row, "instructions", "cycles"),
            What::Branches => Some(100.0 * ratio(row, "branches", "instructions")?),
            What::Misses => Some(1000.0 * ratio(row, "branch-misses", "instructions")?),
            What::Accesses => {
                let accesses = number(row, "loads")? + number(row, "stores")?;
                Some(1000.0 * accesses / number(row, "instructions")?)
            }
            What::L1Misses => Some(1000.0 * ratio(row, "l1-misses", "instructions")?),
        })
    }

    /// SPEC's programs on an Intel CPU, of all suites or of those of a year.
    fn of_spec(folder: &Path, cpu: &str, year: &str) -> Self {
        let mut rows = rows(&folder.join(format!("spec-intel-core-{cpu}.csv")));
        rows.retain(|row| row["suite"].ends_with(year));
        let pairs = pairs(rows, ["suite", "program"], "core_type", "P");
        let sf = |[fast, slow]: &Pair| Some(number(slow, "time_s")? / number(fast, "time_s")?);
        let at_one_clock = |pair: &Pair| {
            let [fast, slow] = pair;
            Some(sf(pair)? * number(slow, "mhz")? / number(fast, "mhz")?)
        };
        let floats = |[fast, _]: &Pair| fast["suite"].starts_with("fp");
        Self::of_pairs(&pairs, sf, at_one_clock, floats, |row, what| match what {
            What::Ipc => number(row, "ipc"),
            What::Branches => Some(100.0 * ratio(row, "branches", "instructions")?),
            What::Misses => number(row, "branch_mpki"),
            What::Accesses | What::L1Misses => None,
        })
    }

    /// cBench on an ODROID-XU3, the programs that the CPU bounds. The A7 was counted for the first half second of
    /// each run alone, without cycles: those are of its busy part.
    fn of_xu3(folder: &Path) -> Self {
        const A7_HZ: f64 = 1.4e9;
        let mut speedups = rows(&folder.join("xu3-cbench-speedup.csv"));
        speedups.retain(|row| row["cpu_bound"] == "1");
        let bound = |row: &Row| speedups.iter().any(|s| s["program"] == row["program"]);
        let mut events = rows(&folder.join("xu3-cbench-a15-events.csv"));
        events.retain(|row| row["mhz"] == "2000");
        let (events, others): (Vec<_>, Vec<_>) = events.into_iter().partition(bound);
        let mut first: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for row in rows(&folder.join("xu3-cbench-a7-first-sample.csv")) {
            if bound(&row) {
                first.entry(row["program"].clone()).or_default().push(row);
            }
        }
        let sf = || speedups.iter().filter_map(|row| number(row, "sf_cset"));
        let rates = |rows: &[Row], what: &str, per: &str, times: f64| -> Vec<f64> {
            let each = rows.iter().filter_map(|row| ratio(row, what, per));
            each.map(|x| x * times).collect()
        };
        let of = |what: &str, per: &str, times: f64| rates(&events, what, per, times);
        let sum = |runs: &[Row], of: &dyn Fn(&Row) -> Option<f64>| -> f64 {
            runs.iter().filter_map(of).sum()
        };
        let cycles = |row: &Row| {
            let busy = number(row, "user_pct")? + number(row, "sys_pct")?;
            Some(A7_HZ * number(row, "seconds")? * busy / 100.0)
        };
        let of_a7 = |what: &dyn Fn(&Row) -> Option<f64>, per: &dyn Fn(&Row) -> Option<f64>| {
            let each = first.values().map(|runs| sum(runs, what) / sum(runs, per));
            each.collect::<Vec<_>>()
        };
        let instructions = |row: &Row| number(row, "instructions");
        let thousands = |row: &Row| Some(instructions(row)? / 1000.0);
        let per = "inst_retired";
        Self::new([
            (SF, sf().collect()),
            (
                SF_AT_ONE_CLOCK,
                sf().map(|sf| sf * 1400.0 / 2000.0).collect(),
            ),
            (IPC[0], of(per, "cpu_cycles", 1.0)),
            (IPC[1], of_a7(&instructions, &cycles)),
            (BRANCHES, of("branch_pred", per, 100.0)),
            (MISSES[0], of("branch_mispred", per, 1000.0)),
            (ACCESSES[0], of("l1d_cache_access", per, 1000.0)),
            (
                ACCESSES[1],
                of_a7(&|row| number(row, "l1d_access"), &thousands),
            ),
            (L1_MISSES[0], of("l1d_cache_refill", per, 1000.0)),
            (
                L1_MISSES[1],
                rates(&others, "l1d_cache_refill", per, 1000.0),
            ),
        ])
    }

    fn of_pairs(
        pairs: &[Pair],
        sf: impl Fn(&Pair) -> Option<f64>,
        at_one_clock: impl Fn(&Pair) -> Option<f64>,
        floats: impl Fn(&Pair) -> bool,
        of: impl Fn(&Row, What) -> Option<f64>,
    ) -> Self {
        let all = |what, side: usize| {
            pairs
                .iter()
                .filter_map(|pair| of(&pair[side], what))
                .collect()
        };
        let some = |kind: bool, of: &dyn Fn(&Pair) -> Option<f64>| {
            let some = pairs.iter().filter(|pair| floats(pair) == kind);
            some.filter_map(of).collect()
        };
        Self::new([
            (SF, pairs.iter().filter_map(&sf).collect()),
            (
                SF_AT_ONE_CLOCK,
                pairs.iter().filter_map(&at_one_clock).collect(),
            ),
            (SF_OF[0], some(false, &sf)),
            (SF_OF[1], some(true, &sf)),
            (SF_OF_AT_ONE_CLOCK[0], some(false, &at_one_clock)),
            (SF_OF_AT_ONE_CLOCK[1], some(true, &at_one_clock)),
            (IPC[0], all(What::Ipc, 0)),
            (IPC[1], all(What::Ipc, 1)),
            (BRANCHES, all(What::Branches, 0)),
            (MISSES[0], all(What::Misses, 0)),
            (MISSES[1], all(What::Misses, 1)),
            (ACCESSES[0], all(What::Accesses, 0)),
            (ACCESSES[1], all(What::Accesses, 1)),
            (L1_MISSES[0], all(What::L1Misses, 0)),
            (L1_MISSES[1], all(What::L1Misses, 0)),
        ])
    }

    /// A row of the table for each figure that both have.
    fn beside(&self, real: &Self) -> String {
        let shown =
            |[least, median, most]: &[f64; 3]| format!("{least:.2} / {median:.2} / {most:.2}");
        let row = |name: &str, real: &[f64; 3], ours: &[f64; 3]| {
            let apart = 100.0 * (ours[1] / real[1] - 1.0);
            format!(
                "| {name} | {} | {} | {apart:+.0} % |\n",
                shown(real),
                shown(ours)
            )
        };
        let both = real.figures.iter().filter_map(|(name, real)| {
            let ours = self.figures.get(name)?;
            Some(row(name, real, ours))
        });
        both.collect()
    }

    /// The medians must be no farther apart than `percent`.
    #[track_caller]
    fn assert_medians(&self, real: &Self, within: &[(&str, f64)]) {
        for (name, percent) in within {
            let apart = 100.0 * (self.figures[name][1] / real.figures[name][1] - 1.0);
            assert!(apart.abs() <= *percent, "{name}: {apart:.1} % apart");
        }
    }
}

/// What is counted on each core type.
#[derive(Clone, Copy)]
enum What {
    Ipc,
    Branches,
    Misses,
    Accesses,
    L1Misses,
}

const SF: &str = "SF";
const SF_AT_ONE_CLOCK: &str = "SF at one clock";
const SF_OF: [&str; 2] = ["SF, integer", "SF, floating point"];
const SF_OF_AT_ONE_CLOCK: [&str; 2] = [
    "SF at one clock, integer",
    "SF at one clock, floating point",
];
/// So much of a program's instructions is floating point where it counts as such.
const FLOATS: f64 = 0.05;
const IPC: [&str; 2] = ["IPC, fast core", "IPC, slow core"];
const BRANCHES: &str = "branches, % of instructions";
const MISSES: [&str; 2] = [
    "branch misses per 1000 instructions, fast core",
    "branch misses per 1000 instructions, slow core",
];
const ACCESSES: [&str; 2] = [
    "accesses of the L1D per 1000 instructions, fast core",
    "accesses of the L1D per 1000 instructions, slow core",
];
const L1_MISSES: [&str; 2] = [
    "refills of the L1D per 1000 instructions, fast core",
    "the same, beside real programs that the CPU does not bound",
];

#[test]
fn alder_lake_is_beside_two_real_ones() {
    let Some(folder) = real_hardware("SPEC on real CPUs") else {
        return;
    };
    let ours = Set::of_virtual("alder-lake-4p4e", [4400.0, 3300.0]);
    let [real, other] = ["i9-12900ks", "i7-13700k"].map(|cpu| Set::of_spec(&folder, cpu, ""));
    println!(
        "i9-12900KS\n{}i7-13700K\n{}",
        ours.beside(&real),
        ours.beside(&other)
    );
    // As the README of the tables has it.
    assert_eq!(
        real.figures[SF].map(|sf| (100.0 * sf).round()),
        [136.0, 184.0, 403.0]
    );

    // The clocks' ratio is the same, so that SFs need no correction.
    ours.assert_medians(
        &real,
        &[(SF, 10.0), (SF_AT_ONE_CLOCK, 10.0), (BRANCHES, 15.0)],
    );
    ours.assert_medians(
        &other,
        &[(SF, 10.0), (SF_AT_ONE_CLOCK, 10.0), (BRANCHES, 15.0)],
    );
    // `fp` and what is like it gain too much, and the rest spreads less than real programs do.
    ours.assert_medians(&real, &[(SF_OF[0], 10.0), (SF_OF[1], 30.0)]);
    ours.assert_medians(&other, &[(SF_OF[0], 15.0), (SF_OF[1], 30.0)]);
    let at_one_clock = SF_OF_AT_ONE_CLOCK;
    ours.assert_medians(&real, &[(at_one_clock[0], 10.0), (at_one_clock[1], 30.0)]);
    ours.assert_medians(&other, &[(at_one_clock[0], 10.0), (at_one_clock[1], 30.0)]);
    let [least, _, most] = ours.figures[SF];
    assert!((1.16..=1.56).contains(&least), "15 % about the least SF");
    // Without 521.wrf_r, which gains 4.03, the most is 2.81.
    assert!((2.53..=3.09).contains(&most), "10 % about the second most");

    // Not reached: an instruction costs at least what its class does, so that IPC ends at 2.5.
    assert!(ours.figures[IPC[0]][2] < 2.5 && real.figures[IPC[0]][2] > 5.0);
    ours.assert_medians(&real, &[(IPC[0], 45.0), (IPC[1], 45.0)]);
    ours.assert_medians(&real, &[(MISSES[0], 75.0), (MISSES[1], 30.0)]);
    ours.assert_medians(&other, &[(MISSES[0], 55.0), (MISSES[1], 35.0)]);
}

/// Each year's suites alone: the tables above have both in one.
#[test]
fn alder_lake_is_beside_each_suite_of_a_real_one() {
    let Some(folder) = real_hardware("SPEC on real CPUs") else {
        return;
    };
    let hundredths = |spread: [f64; 3]| spread.map(|x| (100.0 * x).round());
    let [plain, pipeline] = ["alder-lake-4p4e", "alder-lake-pipeline"]
        .map(|machine| Set::of_virtual(machine, [4400.0, 3300.0]));
    // As the README of the tables has them: integer, floating point, and both at one clock.
    for (year, figures, tolerances) in [
        (
            "2017",
            [
                [136.0, 160.0, 188.0],
                [154.0, 189.0, 403.0],
                [104.0, 120.0, 143.0],
                [114.0, 143.0, 304.0],
            ],
            [[10.0, 30.0], [15.0, 15.0]],
        ),
        (
            "2026",
            [
                [148.0, 170.0, 244.0],
                [161.0, 190.0, 252.0],
                [109.0, 126.0, 184.0],
                [120.0, 143.0, 189.0],
            ],
            [[10.0, 30.0], [10.0, 15.0]],
        ),
    ] {
        let real = Set::of_spec(&folder, "i9-12900ks", year);
        let names = [SF_OF, SF_OF_AT_ONE_CLOCK].concat();
        for (name, figures) in names.iter().zip(figures) {
            assert_eq!(hundredths(real.figures[name]), figures, "{year}, {name}");
        }
        for (ours, [integer, floats]) in [&plain, &pipeline].into_iter().zip(tolerances) {
            println!("i9-12900KS, {year}\n{}", ours.beside(&real));
            for of in [SF_OF, SF_OF_AT_ONE_CLOCK] {
                ours.assert_medians(&real, &[(of[0], integer), (of[1], floats)]);
            }
        }
    }
}

#[test]
fn alder_lake_with_a_pipeline_is_nearer_to_real_ones() {
    let Some(folder) = real_hardware("SPEC on real CPUs") else {
        return;
    };
    let ours = Set::of_virtual("alder-lake-pipeline", [4400.0, 3300.0]);
    let [real, other] = ["i9-12900ks", "i7-13700k"].map(|cpu| Set::of_spec(&folder, cpu, ""));
    println!(
        "i9-12900KS\n{}i7-13700K\n{}",
        ours.beside(&real),
        ours.beside(&other)
    );
    let medians = [
        (SF, 10.0),
        (SF_OF[0], 10.0),
        (SF_OF[1], 15.0),
        (SF_AT_ONE_CLOCK, 10.0),
        (SF_OF_AT_ONE_CLOCK[0], 10.0),
        (SF_OF_AT_ONE_CLOCK[1], 15.0),
        (BRANCHES, 30.0),
        (IPC[0], 30.0),
        (IPC[1], 30.0),
    ];
    ours.assert_medians(&real, &medians);
    // Not reached, and farther away than without a pipeline: programs ran 25 million instructions here, not 50, of
    // which their starts have most misses.
    ours.assert_medians(&real, &[(MISSES[0], 175.0), (MISSES[1], 100.0)]);
    // IPC reaches as far as theirs: each instruction alone has no price.
    assert!((4.5..=6.0).contains(&ours.figures[IPC[0]][2]));
    assert!((3.0..=4.25).contains(&ours.figures[IPC[1]][2]));
}

#[test]
fn odroid_xu4_is_beside_a_real_xu3() {
    let Some(folder) = real_hardware("cBench on an ODROID-XU3") else {
        return;
    };
    let ours = Set::of_virtual("odroid-xu4", [2000.0, 1400.0]);
    let real = Set::of_xu3(&folder);
    println!("ODROID-XU3\n{}", ours.beside(&real));
    // Not reached: the model is fitted to the range of SPEC in CAMPS, where SFs are greater.
    let [median, most] = [1, 2].map(|i| ours.figures[SF][i] / real.figures[SF][i]);
    assert!((1.4..=1.7).contains(&median), "{median}");
    assert!(most > 2.0, "{most}");
    ours.assert_medians(&real, &[(IPC[0], 30.0), (IPC[1], 20.0)]);
    ours.assert_medians(&real, &[(BRANCHES, 15.0)]);
    ours.assert_medians(&real, &[(ACCESSES[0], 20.0), (ACCESSES[1], 20.0)]);
    ours.assert_medians(&real, &[(L1_MISSES[1], 30.0)]);
    // Not reached: the data of what the CPU bounds fit the L1D, and ours were chosen to fill each cache.
    let [fit, in_the_middle] =
        [real.figures[L1_MISSES[0]], ours.figures[L1_MISSES[0]]].map(|of| of[1]);
    assert!(fit < 0.1 && in_the_middle > 3.0, "{fit} {in_the_middle}");
}

#[test]
fn odroid_xu4_with_a_pipeline_is_nearer_to_a_real_xu3() {
    let Some(folder) = real_hardware("cBench on an ODROID-XU3") else {
        return;
    };
    let ours = Set::of_virtual("odroid-xu4-pipeline", [2000.0, 1400.0]);
    let real = Set::of_xu3(&folder);
    println!("ODROID-XU3\n{}", ours.beside(&real));
    ours.assert_medians(
        &real,
        &[(SF, 25.0), (SF_AT_ONE_CLOCK, 25.0), (IPC[0], 10.0)],
    );
    ours.assert_medians(&real, &[(IPC[1], 10.0), (BRANCHES, 35.0)]);
    ours.assert_medians(&real, &[(ACCESSES[0], 20.0), (ACCESSES[1], 30.0)]);
    // Not reached, and farther away than without a pipeline.
    let [fit, in_the_middle] =
        [real.figures[L1_MISSES[0]], ours.figures[L1_MISSES[0]]].map(|of| of[1]);
    assert!(fit < 0.1 && in_the_middle > 8.0, "{fit} {in_the_middle}");
    // Not reached: the A7 answers loads from its L1 in fewer cycles than the A15, so `chase` is faster there.
    assert!(ours.figures[SF][0] < 1.0 && real.figures[SF][0] > 1.0);
}
