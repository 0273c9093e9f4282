// SPDX-License-Identifier: GPL-2.0-or-later
//! For experiments/real-hardware: what each way to learn SF is worth on the tables in a folder.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use hetero_core::ml::boosting::{Boosting, Loss};
use hetero_core::ml::data::Data;
use hetero_core::ml::learn::{self, Pair, View, fixed};
use hetero_core::ml::linear;
use hetero_core::ml::validate::{groups, two_left_out};
use scx_hetero_learn::fit::{By, FeatureKind, Fit, LearntTarget, trees};
use scx_hetero_learn::kinds::LinfaKind;
use scx_hetero_learn::resample::Interval;
use scx_hetero_learn::trial::{HeldOutTrial, RowEstimator, Setting};
use scx_hetero_learn::ways::Way;

const SEED: u64 = 1;
/// Of such groups of programs every two are left out for pairs.
const FEW: usize = 8;
/// Tables, and what they are called.
const TABLES: [(&str, &str); 6] = [
    ("i9-12900ks", "12900KS"),
    ("i7-13700k", "13700K"),
    ("apple-m1", "M1"),
    ("8cx-gen3", "8cx"),
    ("xu3", "XU3, 14"),
    ("xu3-all", "XU3, 30"),
];
const EF: [(&str, &str); 2] = [("xu3-ef", "XU3, 14"), ("xu3-all-ef", "XU3, 30")];
/// Columns of the board's tables that `train` has no name for.
const BOARD: [&str; 3] = ["l1d-access", "l1i-tlb-refill", "l1i-access"];
/// Of these the first tables are of SPEC CPU.
const SPEC: usize = 4;

type Programs = BTreeMap<String, usize>;
type Sets = Vec<(&'static str, Data)>;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).context("name the folder")?;
    let folder = Path::new(&folder);
    let sets = |tables: &[(&'static str, &'static str)]| -> Result<Sets> {
        let one = |&(file, name)| Ok((name, read(folder, &[file])?));
        tables.iter().map(one).collect()
    };
    let all = sets(&TABLES)?;
    let mut programs = Programs::new();
    for name in all.iter().flat_map(|(_, data)| data.programs()) {
        let next = programs.len();
        programs.entry(name.to_string()).or_insert(next);
    }
    println!("One program left out:\n");
    detailed(&all, &programs, &one_program)?;
    println!("\nOne suite left out, pairs within it:\n");
    detailed(&all[..SPEC], &programs, &one_suite)?;
    println!("\nEF, one program left out:\n");
    detailed(&sets(&EF)?, &programs, &one_program)?;
    println!("\nA classifier of pairs (100 boosted trees), pairs right in %:\n");
    as_the_thesis(&all, &programs)?;
    println!("\nAll that was tried, one program left out; pairs right in %, and the error:\n");
    matrix(&all, &programs)?;
    println!(
        "\nLearnt on one CPU (row), tried on another (column); pairs right in %, and the error:\n"
    );
    transfer(folder, &programs)
}

fn read(folder: &Path, names: &[&str]) -> Result<Data> {
    let path = |name: &&str| folder.join(format!("{name}.csv"));
    let paths: Vec<_> = names.iter().map(path).collect();
    let wished: Vec<String> = BOARD.map(String::from).to_vec();
    let board = names.iter().all(|name| name.starts_with("xu3"));
    Data::read(&paths, if board { &wished } else { &[] })
}

/// Plain guesses, and what `train` does.
fn plain() -> Vec<(&'static str, Way)> {
    let line = Fit {
        seen: FeatureKind::Ipc,
        ..Fit::squares(0.01)
    };
    vec![
        ("the mean of all", Way::Mean),
        ("the median of all", Way::Median),
        ("more IPC, more SF", Way::Ipc),
        ("a line on IPC", Way::Fit(line)),
        ("`train`", Way::Train(trees(100, 3, 1))),
        ("linear, all features", Way::Kind(LinfaKind::Linear)),
    ]
}

fn log(ridge: f64) -> Fit {
    Fit {
        seen: FeatureKind::Log,
        target: LearntTarget::Log,
        ..Fit::squares(ridge)
    }
}

/// What else was tried.
fn further() -> Vec<(&'static str, Way)> {
    let ridges = |by: &dyn Fn(f64) -> Fit| [0.01, 0.1, 0.3, 1.0, 3.0, 10.0].map(by).to_vec();
    let ridge = |by: &dyn Fn(f64) -> Fit| Way::Best(ridges(by));
    let stumps = Fit::new(By::Trees(trees(20, 1, 3)));
    let depths = [1, 2].into_iter();
    let shallow: Vec<Fit> = depths
        .flat_map(|deep| [5, 10, 20, 40, 80].map(|n| Fit::new(By::Trees(trees(n, deep, 3)))))
        .collect();
    let sum = Fit::deviations(0.01);
    let three = vec![sum.clone(), log(0.1), stumps.clone()];
    let sums = [
        ridges(&Fit::squares),
        ridges(&log),
        ridges(&Fit::deviations),
    ]
    .concat();
    let seen = |seen| {
        move |ridge| Fit {
            seen,
            ..Fit::squares(ridge)
        }
    };
    let clocks = |ridge| Fit {
        clocks: true,
        ..Fit::squares(ridge)
    };
    let clocks_of_sum = Fit {
        clocks: true,
        ..sum.clone()
    };
    let inverse = Fit {
        target: LearntTarget::Inverse,
        ..sum.clone()
    };
    let near = |seen| {
        Way::Fit(Fit {
            seen,
            ..Fit::new(By::Near(5))
        })
    };
    vec![
        ("`train --depth 1`", Way::Train(trees(100, 1, 1))),
        ("`train`, leaves of 5 rows", Way::Train(trees(100, 2, 5))),
        (
            "sum by least deviations, all features",
            Way::Fit(sum.clone()),
        ),
        ("the same, of 1 / SF", Way::Fit(inverse)),
        ("the same, clocks apart", Way::Fit(clocks_of_sum)),
        ("the same, fewer features", Way::Few(sum)),
        (
            "sum by least squares, fewer features",
            Way::Few(Fit::squares(0.01)),
        ),
        ("ridge, least deviations", ridge(&Fit::deviations)),
        ("ridge", ridge(&Fit::squares)),
        ("ridge, clocks apart", ridge(&clocks)),
        (
            "ridge, expected signs",
            ridge(&|ridge| Fit::new(By::Signed { ridge, rounds: 0 })),
        ),
        (
            "ridge, per instruction",
            ridge(&seen(FeatureKind::Instruction)),
        ),
        ("ridge, logarithms", ridge(&log)),
        ("ridge, logarithms, fewer features", Way::Few(log(0.1))),
        (
            "100 trees, 3 deep",
            Way::Fit(Fit::new(By::Trees(trees(100, 3, 1)))),
        ),
        ("20 stumps", Way::Fit(stumps)),
        (
            "trees, depth 1 or 2, number chosen",
            Way::Best(shallow.clone()),
        ),
        ("5 nearest", near(FeatureKind::Cycle)),
        ("5 nearest, logarithms", near(FeatureKind::Log)),
        ("SVM", Way::Kind(LinfaKind::Svm)),
        ("mean of sum, logarithms, stumps", Way::Average(three)),
        (
            "best of sums and trees",
            Way::Best([sums, shallow].concat()),
        ),
        // Fixed before it was scored: see docs/decisions/ways-to-learn.md.
        (
            "sum by least deviations, expected signs",
            Way::Fit(Fit::new(By::Signed {
                ridge: linear::RIDGE,
                rounds: linear::ROUNDS,
            })),
        ),
    ]
}

/// The thesis deals pairs to five folds, so that both programs of a pair were seen in other pairs; here
/// beside folds of programs.
fn as_the_thesis(sets: &[(&str, Data)], programs: &Programs) -> Result<()> {
    println!("| | from | pairs dealt to folds, as in the thesis | programs held out |");
    println!("|---|---|--:|--:|");
    for (set, data) in sets {
        for side in 0..data.core_types.len() {
            let setting = one_program(data, side, programs);
            let view = View {
                features: data.usable(&[side]),
                core_type: false,
            };
            let right = |learnt: &[Pair], out: &[Pair]| -> Result<usize> {
                let boosting = Boosting::new(Loss::Logistic);
                let forest = learn::classifier(data, learnt, &view, &boosting, &[])?
                    .0
                    .forest()?;
                let says = |a, b| forest.score(&fixed(&view.of_pair(data, Pair { a, b })));
                let is = |pair: &&Pair| data.rows[pair.a].sf > data.rows[pair.b].sf;
                let said = |pair: &&Pair| says(pair.a, pair.b) > says(pair.b, pair.a);
                Ok(out.iter().filter(|pair| is(pair) == said(pair)).count())
            };
            let (mut dealt, mut held_out, mut number) = (0, 0, 0);
            for fold in 0..5 {
                // A number without a pattern: neighbours share a program.
                let of = |pair: &Pair| (pair.a * 7919 + pair.b * 104_729) / 13 % 5;
                let (out, learnt): (Vec<Pair>, Vec<Pair>) =
                    setting.pairs.iter().partition(|pair| of(pair) == fold);
                dealt += right(&learnt, &out)?;
            }
            for fold in two_left_out(&setting.pairs, &setting.few) {
                held_out += right(&fold.learnt, &fold.out)?;
                number += fold.out.len();
            }
            let percent = |right: usize, of: usize| 100.0 * right as f64 / of as f64;
            println!(
                "| {set} | {} | {:.0} | {:.0} |",
                data.core_types[side],
                percent(dealt, setting.pairs.len()),
                percent(held_out, number)
            );
        }
    }
    Ok(())
}

type Make = dyn for<'d> Fn(&'d Data, usize, &'d Programs) -> Setting<'d>;

fn one_program<'d>(data: &'d Data, core_type: usize, programs: &'d Programs) -> Setting<'d> {
    let rows = data.rows_of(core_type);
    Setting {
        data,
        pairs: pairs(data, &rows, |_, _| true),
        learnt: rows.clone(),
        tried: rows,
        groups: groups(data, data.programs().len(), SEED),
        few: groups(data, FEW, SEED),
        programs,
    }
}

fn one_suite<'d>(data: &'d Data, core_type: usize, programs: &'d Programs) -> Setting<'d> {
    let rows = data.rows_of(core_type);
    let suite = |row: usize| data.rows[row].program.split('/').next().unwrap_or_default();
    let mut names: Vec<&str> = (0..data.rows.len()).map(suite).collect();
    names.sort_unstable();
    names.dedup();
    let group = |row| {
        names
            .iter()
            .position(|name| *name == suite(row))
            .unwrap_or(0)
    };
    let groups: Vec<usize> = (0..data.rows.len()).map(group).collect();
    Setting {
        data,
        pairs: pairs(data, &rows, |a, b| groups[a] == groups[b]),
        learnt: rows.clone(),
        tried: rows,
        few: groups.clone(),
        groups,
        programs,
    }
}

fn pairs(data: &Data, rows: &[usize], which: impl Fn(usize, usize) -> bool) -> Vec<Pair> {
    let rows = rows.iter().enumerate().map(|(n, &a)| (a, &rows[..n]));
    let twos = rows.flat_map(|(a, others)| others.iter().map(move |&b| Pair { a, b }));
    twos.filter(|pair| {
        let (a, b) = (&data.rows[pair.a], &data.rows[pair.b]);
        a.sf != b.sf && a.program != b.program && which(pair.a, pair.b)
    })
    .collect()
}

/// Plain guesses and `train` with intervals, set by set.
fn detailed(sets: &[(&str, Data)], programs: &Programs, make: &Make) -> Result<()> {
    println!("| | from | | pairs right, % | error | less than the mean's by | correlation |");
    println!("|---|---|---|--:|--:|--:|--:|");
    for (set, data) in sets {
        for core_type in 0..data.core_types.len() {
            let setting = make(data, core_type, programs);
            let features = data.usable(&[core_type]);
            let tried = |way: &Way| setting.of(&|data, rows| way.learn(data, rows, &features));
            let mean = tried(&Way::Mean)?;
            for (name, way) in plain() {
                let trial = tried(&way)?;
                let mut cells = vec![set.to_string(), data.core_types[core_type].clone()];
                cells.extend([name.to_string(), percent(&trial)]);
                if way.estimates() {
                    cells.push(format!("{:.3}", trial.error()));
                    let constant = matches!(way, Way::Mean | Way::Median);
                    let less = format!("{:.3}", trial.nearer_than(&mean));
                    cells.push(if name.contains("mean") {
                        String::new()
                    } else {
                        less
                    });
                    let correlation = format!("{:.2}", trial.correlation());
                    cells.push(if constant { String::new() } else { correlation });
                } else {
                    cells.resize(7, String::new());
                }
                println!("| {} |", cells.join(" | "));
            }
        }
    }
    Ok(())
}

fn percent(trial: &HeldOutTrial) -> String {
    match Interval::of_percent(trial.right()) {
        right if right.low == right.high => format!("{:.0}", right.value),
        right => format!("{right:.0}"),
    }
}

/// All ways on all sets, and all sets together beside `train`.
fn matrix(sets: &[(&str, Data)], programs: &Programs) -> Result<()> {
    let sides: Vec<(&str, &Data, usize)> = sets
        .iter()
        .flat_map(|(set, data)| (0..data.core_types.len()).map(move |side| (*set, data, side)))
        .collect();
    let mut ways = plain();
    ways.extend(further());
    let tried = |way: &Way| -> Result<Vec<HeldOutTrial>> {
        let one = |&(_, data, side): &(&str, &Data, usize)| {
            let features = data.usable(&[side]);
            one_program(data, side, programs).of(&|data, rows| way.learn(data, rows, &features))
        };
        sides.iter().map(one).collect()
    };
    let trials: Vec<Vec<HeldOutTrial>> = ways
        .iter()
        .map(|(_, way)| tried(way))
        .collect::<Result<_>>()?;
    let heads = sides
        .iter()
        .map(|(set, data, side)| format!("{set} {}", data.core_types[*side]));
    println!("| | {} |", heads.collect::<Vec<_>>().join(" | "));
    println!("|---{}|", "|--:".repeat(sides.len()));
    for ((name, way), trials) in ways.iter().zip(&trials) {
        let ones = vec![1.0; programs.len()];
        let cell = |trial: &HeldOutTrial| {
            let right = 100.0 * trial.right_by(&ones);
            match way.estimates() {
                true => format!("{right:.0}, {:.2}", trial.error_by(&ones)),
                false => format!("{right:.0}"),
            }
        };
        let cells: Vec<String> = trials.iter().map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
    println!(
        "\n| all sets together | pairs right, % | more than `train` by | error over the mean's | less than `train`'s by |"
    );
    println!("|---|--:|--:|--:|--:|");
    let of = |name: &str| {
        ways.iter()
            .position(|way| way.0 == name)
            .map(|n| &trials[n])
    };
    let (means, train) = of("the mean of all")
        .zip(of("`train`"))
        .context("both are tried")?;
    let right = |trials: &[HeldOutTrial], weights: &[f64]| {
        let parts = trials.iter().map(|trial| 100.0 * trial.right_by(weights));
        parts.sum::<f64>() / trials.len() as f64
    };
    let error = |trials: &[HeldOutTrial], weights: &[f64]| {
        let both = trials.iter().zip(means);
        let parts = both.map(|(trial, mean)| trial.error_by(weights) / mean.error_by(weights));
        parts.sum::<f64>() / trials.len() as f64
    };
    for ((name, way), trials) in ways.iter().zip(&trials) {
        let number = programs.len();
        let is = Interval::of(number, |weights| right(trials, weights));
        let more = Interval::of(number, |weights| {
            right(trials, weights) - right(train, weights)
        });
        let mut cells = vec![format!("{is:.1}"), format!("{more:.1}")];
        if way.estimates() {
            let is = Interval::of(number, |weights| error(trials, weights));
            let less = Interval::of(number, |weights| {
                error(train, weights) - error(trials, weights)
            });
            cells.extend([format!("{is:.2}"), format!("{less:.2}")]);
        } else {
            cells.resize(4, String::new());
        }
        println!("| {name} | {} |", cells.join(" | "));
    }
    Ok(())
}

/// Learnt on one CPU, tried on another. What is tried is learnt from on neither, except where the
/// program's own SF on the other CPU is what is said.
fn transfer(folder: &Path, programs: &Programs) -> Result<()> {
    let cpus = &TABLES[..SPEC];
    let columns = cpus
        .iter()
        .flat_map(|(_, name)| ["P", "E"].map(|side| format!("{name} {side}")));
    println!("| | on | {} |", columns.collect::<Vec<_>>().join(" | "));
    println!("|---|---{}|", "|--:".repeat(2 * SPEC));
    let every: Vec<&str> = cpus.iter().map(|(file, _)| *file).collect();
    let mut froms: Vec<(&str, Vec<&str>)> = cpus
        .iter()
        .map(|&(file, name)| (name, vec![file]))
        .collect();
    froms.push(("the others", Vec::new()));
    froms.push(("all four", every.clone()));
    let scaled = Fit {
        of_machine: true,
        ..log(0.1)
    };
    let ways = [
        ("`train`", Some(Way::Train(trees(100, 3, 1)))),
        (
            "ridge of logarithms, parts of the CPU's mean",
            Some(Way::Fit(scaled)),
        ),
        ("the program's own SF there", None),
    ];
    for (name, way) in &ways {
        for (from_name, from) in &froms {
            let mut cells = Vec::new();
            for to in &every {
                let mut from = from.clone();
                if from.is_empty() {
                    from = every.iter().copied().filter(|file| file != to).collect();
                }
                for side in 0..2 {
                    cells.push(match way {
                        None if from.len() > 1 || from[0] == *to => String::new(),
                        _ => transferred(folder, programs, (&from, to, side), way.as_ref())?,
                    });
                }
            }
            if cells.iter().any(|cell| !cell.is_empty()) {
                println!("| {name} | {from_name} | {} |", cells.join(" | "));
            }
        }
    }
    Ok(())
}

fn transferred(
    folder: &Path,
    programs: &Programs,
    (from, to, side): (&[&str], &str, usize),
    way: Option<&Way>,
) -> Result<String> {
    let mut both = from.to_vec();
    if !both.contains(&to) {
        both.push(to);
    }
    let data = read(folder, &both)?;
    let rows = data.rows_of(side);
    let of = |cpus: &[&str]| -> Vec<usize> {
        let rows = rows.iter().copied();
        rows.filter(|&row| cpus.contains(&data.rows[row].variant.as_str()))
            .collect()
    };
    let mut tried = of(&[to]);
    if way.is_none() {
        let there = of(from);
        let program = |row: usize| &data.rows[row].program;
        tried.retain(|&row| there.iter().any(|&other| program(other) == program(row)));
    }
    let setting = Setting {
        data: &data,
        learnt: of(from),
        pairs: pairs(&data, &tried, |_, _| true),
        tried,
        groups: groups(&data, data.programs().len(), SEED),
        few: groups(&data, FEW, SEED),
        programs,
    };
    let features = data.usable(&[side]);
    let there = from[0].to_string();
    let trial = setting.of(&|data, rows| match way {
        Some(way) => way.learn(data, rows, &features),
        None => Ok(known(there.clone())),
    })?;
    let error = trial.error().value;
    Ok(format!("{}, {error:.2}", percent(&trial)))
}

/// The SF that the same program has on another CPU.
fn known(there: String) -> RowEstimator {
    Box::new(move |data, row| {
        let program = &data.rows[row].program;
        let same = |other: &&hetero_core::ml::data::Row| {
            other.program == *program && other.variant == there
        };
        data.rows.iter().find(same).map_or(0.0, |other| other.sf)
    })
}
