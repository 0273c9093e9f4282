// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero know`: what is known of programs, for people, for other machines, and to be forgotten.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::ArgGroup;
use glob::Pattern;
use hetero_core::cache::mpki_told;
use hetero_core::interference::InterferenceClass;
use hetero_core::knowledge::{
    KeptBeside, KeptCompany, KeptMean, ProgramKnowledge, Sure, told_points,
};
use serde::Serialize;

use super::service::now;
use super::store::{KnowledgeStore, PATH, StoredMachine, StoredProgram};
use super::{machine_name, transfer};
use crate::files::{check_distinct, named};
use crate::output;
use crate::output::WrongUsage;
use crate::text::{hang_words, plain};
use crate::topology::Topology;

/// Arguments of `scx_hetero know`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        scx_hetero know                    all programs, those seen last first\n  \
        scx_hetero know 'python*'          some, with their phases\n  \
        scx_hetero know forget --all"
)]
pub struct KnowArgs {
    #[command(subcommand)]
    what: Option<KnowCommand>,

    /// Name of a program's executable, a shell's pattern, or the beginning of its id
    program: Option<String>,

    /// Print JSON instead
    #[arg(long)]
    json: bool,

    /// Where it is kept
    #[arg(long, global = true, value_name = "FILE", default_value = PATH)]
    store: PathBuf,
}

#[derive(Debug, clap::Subcommand)]
enum KnowCommand {
    /// Write all that is known to a file, for other machines of the same kind
    #[command(after_help = "Example:\n  scx_hetero know export known.json")]
    Export {
        /// Where to
        file: PathBuf,
    },
    /// Take in what was exported on a machine of the same kind; what both know counts
    /// by how much each has seen
    #[command(after_help = "Example:\n  scx_hetero know import known.json")]
    Import {
        /// What was exported
        file: PathBuf,
    },
    /// Forget programs
    #[command(
        after_help = "Examples:\n  scx_hetero know forget firefox\n  scx_hetero know forget --all",
        group = ArgGroup::new("which").required(true).args(["program", "all"])
    )]
    Forget {
        /// As of `scx_hetero know`
        program: Option<String>,

        /// All programs, also of other machines
        #[arg(long)]
        all: bool,
    },
}

/// Shows, exports, imports or forgets what is known.
///
/// # Errors
/// The store or a file cannot be used, or nothing fits.
pub fn run(args: &KnowArgs) -> Result<()> {
    let topology = Topology::detect(None)?;
    let machine = machine_name(&topology);
    let path = &args.store;
    let existing = |read| {
        let store = KnowledgeStore::open_existing(path, &machine, read)?;
        // The scheduler makes its own; another is there, or its name is wrong.
        ensure!(
            store.is_some() || path == Path::new(PATH),
            "there is no {}: is the name right?",
            path.display()
        );
        Ok(store)
    };
    match &args.what {
        None => {
            let (told, all) = everything(existing(true)?)?;
            let programs = fitting(all, args.program.as_deref())?;
            if args.json {
                let told: Vec<ToldProgram> = programs
                    .iter()
                    .map(|of| ToldProgram::new(of, &topology))
                    .collect();
                return output::json(&told);
            }
            let is_one = args.program.is_some();
            let machine = if is_one { String::new() } else { about(&told) };
            output::print(text(&programs, &topology, is_one) + &machine)
        }
        Some(KnowCommand::Export { file }) => {
            check_distinct(named([path], "the store"), named([file], "FILE"))?;
            let (told, all) = everything(existing(true)?)?;
            transfer::write(file, &machine, told, &all)?;
            output::print(format_args!("{} programs in {}", all.len(), file.display()))
        }
        Some(KnowCommand::Import { file }) => {
            check_distinct(named([file], "what is imported"), named([path], "--store"))?;
            let now = now();
            let (told, theirs) = transfer::read(file, &machine, now)?;
            let mut store = KnowledgeStore::open(path, &machine)?;
            let known = store.machine()?;
            let told = known.clone().or(told);
            if told != known {
                store.tell(&told)?;
            }
            let mut merged = store.load()?;
            let (known, all) = (merged.len(), theirs.len());
            for other in theirs {
                match merged.iter_mut().find(|of| of.key == other.key) {
                    Some(own) => {
                        own.known.merge(&other.known);
                        own.runs = own.runs.saturating_add(other.runs);
                        own.seen.0 = own.seen.0.min(other.seen.0);
                        own.seen.1 = own.seen.1.max(other.seen.1);
                    }
                    None => merged.push(other),
                }
            }
            store.save(&merged.iter().collect::<Vec<_>>(), now)?;
            let new = merged.len() - known;
            output::print(format_args!(
                "{all} programs from {}, of which {new} were not known",
                file.display()
            ))
        }
        Some(KnowCommand::Forget { program, all }) => {
            let Some(mut store) = existing(false)? else {
                return output::print("nothing is known");
            };
            let gone = match program.as_deref().filter(|_| !all) {
                Some(wanted) => forget(&mut store, wanted)?,
                None => store.forget_all()?,
            };
            output::print(format_args!(
                "{gone} programs forgotten; a scheduler that runs forgets them within a minute"
            ))
        }
    }
}

/// Forgets those that are meant, also where others lost time beside them. Returns how many there were.
fn forget(store: &mut KnowledgeStore, wanted: &str) -> Result<usize> {
    let pattern = pattern_of(wanted)?;
    let known = fitting(store.load()?, Some(wanted));
    let programs = known.as_deref().unwrap_or_default();
    let is_known = |name: &str| programs.iter().any(|of| of.name == name);
    let ids: Vec<i64> = programs.iter().filter_map(|of| of.id).collect();
    let gone = store.forget(&ids)?;
    let beside = store.forget_beside(|name| pattern.matches(name) || is_known(name))?;
    // Some are known by what others lost beside them alone.
    let gone = gone + beside.iter().filter(|name| !is_known(name)).count();
    match known {
        Err(why) if gone == 0 => Err(why),
        _ => Ok(gone),
    }
}

/// All that a store has.
fn everything(store: Option<KnowledgeStore>) -> Result<(StoredMachine, Vec<StoredProgram>)> {
    store.map_or(Ok(Default::default()), |store| {
        Ok((store.machine()?, store.load()?))
    })
}

/// Where what is known of the machine begins.
const INDENT: usize = 12;

/// What is known of the machine, in lines of at most 80 columns; nothing where that is nothing.
fn about(machine: &StoredMachine) -> String {
    let parts = [
        ("calibrated", &machine.calibrated),
        ("events", &machine.events),
    ];
    let known = parts.into_iter().filter(|(_, text)| !text.is_empty());
    let line = |(what, text): (_, &String)| {
        let text = hang_words(text.trim_end(), INDENT, INDENT);
        format!("\n{what:<INDENT$}{text}")
    };
    let told: String = known.map(line).collect();
    match told.is_empty() {
        true => told,
        false => format!("\n{told}"),
    }
}

/// Those that are meant.
fn fitting(mut programs: Vec<StoredProgram>, wanted: Option<&str>) -> Result<Vec<StoredProgram>> {
    let Some(wanted) = wanted else {
        return Ok(programs);
    };
    let pattern = pattern_of(wanted)?;
    let is_id = |of: &StoredProgram| wanted.len() >= 6 && of.key.image.contains(wanted);
    programs.retain(|of| pattern.matches(&of.name) || is_id(of));
    ensure!(
        !programs.is_empty(),
        "nothing is known of a program '{wanted}'; 'scx_hetero know' names all"
    );
    Ok(programs)
}

fn pattern_of(wanted: &str) -> Result<Pattern> {
    let pattern = Pattern::new(wanted);
    Ok(pattern.map_err(|_| WrongUsage(format!("'{wanted}' is no pattern of names")))?)
}

/// For JSON.
#[derive(Serialize)]
struct ToldProgram<'p> {
    name: &'p str,
    image: &'p str,
    arguments: u32,
    unit: &'p str,
    uid: u32,
    runs: u64,
    first_seen: i64,
    last_seen: i64,
    /// SF over the slowest core type, and the standard error of its logarithm.
    sf: Option<(f64, f64)>,
    known: &'p ProgramKnowledge,
}

impl<'p> ToldProgram<'p> {
    fn new(of: &'p StoredProgram, topology: &Topology) -> Self {
        let sf = of.known.sf_over_slowest(topology.types.len());
        Self {
            name: &of.name,
            image: &of.key.image,
            arguments: of.key.args,
            unit: &of.key.unit,
            uid: of.key.uid,
            runs: of.runs,
            first_seen: of.seen.0,
            last_seen: of.seen.1,
            sf: sf.map(|sf| (sf.factor(), sf.variance.sqrt())),
            known: &of.known,
        }
    }
}

/// A table of at most 80 columns; with `more` also the phases.
fn text(programs: &[StoredProgram], topology: &Topology, more: bool) -> String {
    if programs.is_empty() {
        return "nothing is known yet: the scheduler learns of programs as they run".into();
    }
    let slowest = topology.types.last().map_or("", |kind| kind.name.as_str());
    let mut lines = vec![format!(
        "{:<16} {:<18} {:>6} {:>6} {:>9} {:>12} {:>6}",
        "PROGRAM",
        "UNIT",
        "UID",
        "RUNS",
        "SEEN",
        format!("SF OVER {slowest:.4}"),
        "PHASES"
    )];
    let now = now();
    for of in programs {
        let sf = of.known.sf_over_slowest(topology.types.len());
        let sf = sf.map_or("-".into(), |sf| {
            let percent = 100.0 * sf.variance.sqrt();
            format!("{:.2} +-{percent:.0}%", sf.factor())
        });
        let cut = |name: &str, most: usize| name.chars().take(most).collect::<String>();
        lines.push(format!(
            "{:<16} {:<18} {:>6} {:>6} {:>9} {:>12} {:>6}",
            cut(&of.name, 16),
            cut(&of.key.unit, 18),
            of.key.uid,
            of.runs,
            ago(now - of.seen.1),
            sf,
            of.known.phases.len()
        ));
        if more {
            lines.extend(details(of, topology));
        }
    }
    lines.join("\n")
}

fn details(of: &StoredProgram, topology: &Topology) -> Vec<String> {
    let known = &of.known;
    let mut lines = vec![format!("  {}", of.key.image)];
    lines.push(format!(
        "  arguments of class {:08x}; {} threads told something, {} behaved unlike before",
        of.key.args, known.threads, known.unlike
    ));
    if let Some(sibling) = known.sibling.next() {
        lines.push(format!(
            "  {:.2} times slower while the other thread of its core is busy",
            sibling.factor()
        ));
    }
    if let Some(aggressiveness) = known.aggressiveness.next() {
        lines.push(format!(
            "  others suffer {:.2} times as much from each byte it transfers as from others'",
            aggressiveness.factor()
        ));
    }
    for (kind, watts) in topology.types.iter().zip(&known.watts) {
        if let Some(watts) = watts.next() {
            lines.push(format!(
                "  {:.4}: takes {:.2} times the watts that its counts say, +-{:.0}%",
                kind.name,
                watts.factor(),
                100.0 * watts.variance.sqrt()
            ));
        }
    }
    lines.extend(company(&known.company));
    lines.extend(curves(known, topology));
    for phase in &known.phases {
        let number = |of: Option<f64>| of.map_or("-".into(), |of| format!("{of:.1}"));
        let alone = phase.alone.next().map(|ipc| ipc.factor());
        let sf = phase.sf.next().map(|sf| sf.factor());
        let two = |of: Option<f64>| of.map_or("-".into(), |of| format!("{of:.2}"));
        lines.push(format!(
            "  phase: {} loads/kilo-instruction, {} % branches; IPC alone {}, SF {}",
            number(phase.phase.l1_per_kilo),
            number(phase.phase.branch_percent),
            two(alone),
            two(sf)
        ));
    }
    lines
}

/// What it misses by how much of the last-level cache it has, by core type.
fn curves(known: &ProgramKnowledge, topology: &Topology) -> Vec<String> {
    let mut lines = Vec::new();
    for (core_type, kind) in topology.types.iter().enumerate() {
        let curve = known.curve(core_type);
        let sure: Vec<f64> = curve
            .iter()
            .flatten()
            .map(|of| of.variance.sqrt())
            .collect();
        if sure.is_empty() {
            continue;
        }
        let mpki = told_points(&curve).map(|point| Some(point?.mpki));
        let percent = 100.0 * sure.iter().sum::<f64>() / sure.len() as f64;
        let size = match topology.llc_of_type(core_type) / f64::from(1 << 20) {
            mib if mib > 0.0 => format!("{mib:.0} MiB"),
            _ => "cache".into(),
        };
        lines.push(format!(
            "  {:.4}: {} by 1/8 of {size}, +-{percent:.0}%",
            kind.name,
            mpki_told(mpki.into_iter())
        ));
    }
    lines
}

/// Beside which programs it lost time, and what it suffers and does.
fn company(known: &KeptCompany) -> Vec<String> {
    let mut lines = Vec::new();
    for (&class, (suffers, harms)) in InterferenceClass::ALL
        .iter()
        .zip(known.suffers.iter().zip(&known.harms))
    {
        let [own, others] = [suffers, harms].map(KeptMean::next);
        if own.is_none() && others.is_none() {
            continue;
        }
        let times = |of: Option<Sure>| of.map_or("-".into(), |of| format!("{:.2}x", of.factor()));
        lines.push(format!(
            "  {}: slowed down {}; others beside it {}",
            class.told(),
            times(own),
            times(others)
        ));
    }
    let mut beside: Vec<&KeptBeside> = known.beside.iter().collect();
    beside.sort_by(|a, b| b.lost_s.total_cmp(&a.lost_s));
    for of in beside {
        let program: String = plain(&of.program).chars().take(16).collect();
        lines.push(format!(
            "  beside {program}: lost {:.1} s of {:.1} s to {}",
            of.lost_s,
            of.lost_s + of.alone_s,
            of.class
        ));
    }
    lines
}

/// In the largest unit that fits.
fn ago(seconds: i64) -> String {
    match seconds {
        ..60 => "just now".into(),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hetero_core::knowledge::{ThreadLoss, ThreadProfile};
    use hetero_core::testing::board;

    #[test]
    fn the_machine_is_told_in_80_columns() {
        assert_eq!(about(&StoredMachine::default()), "");
        let machine = StoredMachine {
            calibrated: "contention is low below 15 MB/s".into(),
            events: "P: instructions, cycles, llc-misses, ".repeat(8),
        };
        let told = about(&machine);
        assert!(told.contains("\ncalibrated  contention is low"), "{told}");
        let lines: Vec<&str> = told.lines().collect();
        assert!(
            lines.len() > 6 && lines.iter().all(|line| line.chars().count() <= 80),
            "{told}"
        );
    }

    #[test]
    fn the_table_fits_a_terminal_and_programs_are_found_by_name_and_id() {
        let mut of = StoredProgram {
            name: "a-very-long-name-of-a-program".into(),
            runs: 123_456,
            seen: (0, now() - 4000),
            ..StoredProgram::default()
        };
        of.key.image = "build:0123456789abcdef".into();
        of.key.unit = "a-very-long-name-of-a.service".into();
        let mut found = ThreadProfile::default();
        found.sf[1] = Sure::of_factor(2.5, 0.005);
        found.sibling = Sure::of_factor(1.5, 0.01);
        found.watts[1] = Sure::of_factor(0.8, 0.01);
        found.curves[0] = [Sure::of_factor(999.0, 0.09); 8];
        found.curves[1] = [12.0, 12.0, 4.56]
            .map(|mpki| Sure::of_factor(mpki, 0.0025))
            .into_iter()
            .chain([None; 5])
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        of.known.take(&found, false);
        let loss = |class| ThreadLoss {
            by: 1,
            class,
            alone_s: 1e8,
            lost_s: 5e7,
        };
        for class in [InterferenceClass::L2, InterferenceClass::Bandwidth] {
            of.known.company.lose(&"stream".repeat(20), &loss(class));
        }
        of.known.company.harm(&loss(InterferenceClass::L2));
        let mut topology = board(2, 4);
        topology.llc_bytes = vec![256 << 20, 0];
        let told = text(&[of.clone()], &topology, true);
        assert!(
            told.contains("  big: 999 999 999 999 999 999 999 999 MPKI by 1/8 of 256 MiB, +-32%\n")
                && told.contains("  LITT: 12 12 4.6 - - - - - MPKI by 1/8 of cache, +-11%"),
            "{told}"
        );
        assert!(
            told.lines().all(|line| line.chars().count() <= 80),
            "{told}"
        );
        assert!(
            told.contains("2.50 +-12%")
                && told.contains("1 h")
                && told.contains("1.50 times slower")
                && told.contains("  LITT: takes 0.80 times the watts that its counts say, +-14%")
                && told
                    .contains("L2 cache of its cluster: slowed down 1.50x; others beside it 1.50x")
                && told.contains("memory bandwidth: slowed down 1.50x; others beside it -")
                && told.contains("s to bandwidth"),
            "{told}"
        );
        for wanted in ["a-very*", "456789abc"] {
            assert_eq!(fitting(vec![of.clone()], Some(wanted)).unwrap().len(), 1);
        }
        for wanted in ["other", "[", "b"] {
            assert!(fitting(vec![of.clone()], Some(wanted)).is_err());
        }
    }
}
