// SPDX-License-Identifier: GPL-2.0-or-later
//! `scx_hetero train --discover`: which of all events that a machine counts are worth a counter, without
//! knowing what they mean (Zellweger, Lin and Roscoe 2016, section 5: correlation and principal components
//! leave few, of which those are selected that answer the question).

mod choose;
pub(crate) mod classes;
mod held_out;
mod reduce;
mod show;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use log::info;

use crate::select;
use crate::trial::HeldOutTrial;
use choose::{EventChoice, EventQuestion};
use hetero_core::ml::args::Train;
use hetero_core::ml::boosting::{Boosting, Loss};
use hetero_core::ml::data::{Data, INSTRUCTIONS};
use hetero_core::ml::header::{CountedBy, EventCounted};
use hetero_core::ml::learn::View;
use hetero_core::ml::model::events;
use hetero_core::ml::scores::Confusion;
use hetero_core::ml::validate::{by_estimate, groups, pairs};
use hetero_core::pmu::Meaning;
use hetero_core::pmu::candidates::EventSource;
use reduce::{EventRank, Reduced, reduce};

/// Trees while events are chosen: few show which events matter, and many take long.
const TREES: usize = 10;
/// Pairs, groups of programs and the seed, as `train` has them.
const MOST_PAIRS: usize = 10_000;
const GROUPS: usize = 8;
const SEED: u64 = 1;

/// Which events may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Among {
    /// All that were measured.
    All,
    /// Those in the table of the microarchitecture.
    Table,
    /// Those that something else names, too, as if there were no table.
    NoTable,
}

impl Among {
    /// What there is to compare where this was counted: the table's events where others were measured, too, and
    /// events without it where it names some alone.
    fn of(pmus: &[&CountedBy]) -> Vec<Self> {
        let base = [Meaning::Instructions, Meaning::Cycles].map(Meaning::name);
        let events: Vec<&EventCounted> = pmus
            .iter()
            .flat_map(|pmu| &pmu.events)
            .filter(|(name, _)| !base.contains(&name.as_str()))
            .map(|(_, event)| event)
            .collect();
        let (table, others) = events
            .iter()
            .partition::<Vec<&EventCounted>, _>(|event| Self::Table.has(event));
        let mut all = vec![Self::All];
        if !table.is_empty() && !others.is_empty() {
            all.push(Self::Table);
            all.extend(
                table
                    .iter()
                    .any(|of| !Self::NoTable.has(of))
                    .then_some(Self::NoTable),
            );
        }
        all
    }

    fn has(self, event: &EventCounted) -> bool {
        // What was measured without --discover is of the table.
        let of_table = event.sources.is_empty() || event.sources.contains(&EventSource::Table);
        let elsewhere = event
            .sources
            .iter()
            .any(|source| *source != EventSource::Table);
        match self {
            Self::All => true,
            Self::Table => of_table,
            Self::NoTable => elsewhere,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::All => "all events",
            Self::Table => "the table's",
            Self::NoTable => "without it",
        }
    }
}

/// What was found for SF, or for EF.
struct Answer {
    /// Which of the two.
    what: &'static str,
    /// What was allowed, in the order of choices.
    among: Vec<Among>,
    core_types: Vec<FromType>,
    /// By what was allowed: how many pairs are right, on all core types alike.
    pairs: Vec<Confusion>,
    /// By what was allowed: the same of programs that had no part in the choice.
    held_out: Vec<HeldOutTrial>,
}

/// What was found from one core type.
struct FromType {
    pmu: CountedBy,
    /// Of all events.
    reduced: Reduced,
    /// The mean absolute error of guessing the mean.
    mean: f64,
    /// By what was allowed, and how many pairs of this core type's rows are right.
    choices: Vec<(EventChoice, Confusion)>,
}

/// Chooses events for SF from each core type, and for EF where joules were measured. `data` is left with what was
/// chosen. A report.
///
/// # Errors
/// In words: the table says too little, or nothing can be learnt.
pub fn discover(data: &mut Data, args: &Train) -> Result<String> {
    let of_speed = answer(data, args, "SF")?;
    let of_energy = match data.efficiency().filter(|of| of.programs().len() >= 3) {
        Some(of) => Some(answer(&of, args, "EF")?),
        None => None,
    };
    let answers: Vec<Answer> = std::iter::once(of_speed).chain(of_energy).collect();
    let text = show::text(data, &answers);
    keep(data, &answers);
    Ok(text)
}

fn answer(data: &Data, args: &Train, what: &'static str) -> Result<Answer> {
    let programs = data.programs().len();
    ensure!(
        programs >= 3,
        "{programs} are too few programs: some must be left out to see what is learnt from the others"
    );
    let header = data.header.as_ref().context(
        "the table has no header, which says what counted: copy the .json beside it, too",
    )?;
    let of_type = |kind: &String| {
        let mut pmus = header.machine.pmus.iter();
        pmus.find(|pmu| pmu.core_type == *kind)
            .with_context(|| format!("the table's header does not say what counted on {kind}"))
    };
    let pmus: Vec<&CountedBy> = data.core_types.iter().map(of_type).collect::<Result<_>>()?;
    let few = groups(data, GROUPS.min(programs), SEED);
    let boosting = Boosting {
        trees: usize::from(args.trees).min(TREES),
        depth: args.depth.into(),
        shrinkage: args.shrinkage,
        seed: SEED,
        ..Boosting::new(Loss::Squared)
    };
    let among = Among::of(&pmus);
    let mut core_types = Vec::new();
    for (core_type, pmu) in pmus.into_iter().enumerate() {
        info!("{what} from {}: choosing events", pmu.core_type);
        core_types.push(from_type(data, core_type, pmu, &among, boosting)?);
    }
    let all = pairs(data, MOST_PAIRS, SEED);
    let mut right = Vec::new();
    for n in 0..among.len() {
        let chosen = core_types.iter().map(|of| &of.choices[n].0);
        let views: Vec<View> = chosen.clone().map(EventChoice::view).collect();
        let by: Vec<Boosting> = chosen.map(|choice| choice.boosting).collect();
        right.push(by_estimate(data, &all, &views, &by, &few)?);
    }
    info!("{what}: choosing events anew, with each of some groups of programs left out");
    let held_out = among.iter().map(|&among| {
        let chosen = |part: &Data, core_type: usize| {
            let pmu = &core_types[core_type].pmu;
            choose(part, core_type, pmu, among, boosting).map(|(_, choice)| choice)
        };
        held_out::try_choices(data, &chosen, &all, &few)
    });
    let held_out = held_out.collect::<Result<_>>()?;
    Ok(Answer {
        what,
        among,
        core_types,
        pairs: right,
        held_out,
    })
}

fn from_type(
    all: &Data,
    core_type: usize,
    pmu: &CountedBy,
    among: &[Among],
    boosting: Boosting,
) -> Result<FromType> {
    let data = &all.part(&all.rows_of(core_type));
    let few = groups(data, GROUPS.min(data.programs().len()), SEED);
    let pairs = pairs(data, MOST_PAIRS, SEED);
    let (mut choices, mut first) = (Vec::new(), None);
    for &among in among {
        let (reduced, choice) = choose(data, core_type, pmu, among, boosting)?;
        let mut views = vec![choice.view(); all.core_types.len()];
        views[core_type] = choice.view();
        let by = vec![choice.boosting; all.core_types.len()];
        let right = by_estimate(data, &pairs, &views, &by, &few)?;
        choices.push((choice, right));
        first.get_or_insert(reduced);
    }
    Ok(FromType {
        pmu: pmu.clone(),
        reduced: first.context("nothing may be chosen")?,
        mean: choose::error_of_the_mean(data, core_type),
        choices,
    })
}

/// Chooses among the events that were counted in a core type's rows.
fn choose(
    data: &Data,
    core_type: usize,
    pmu: &CountedBy,
    among: Among,
    boosting: Boosting,
) -> Result<(Reduced, EventChoice)> {
    let programs = data.programs().len();
    let few = groups(data, GROUPS.min(programs), SEED);
    let each = groups(data, programs.min(100), SEED);
    let name = |feature: usize| data.features[feature].as_str();
    let rank = |feature: usize| EventRank::of(name(feature), pmu.events.get(name(feature)));
    let may = |feature: usize| {
        let event = pmu.events.get(name(feature));
        name(feature) == INSTRUCTIONS || event.is_some_and(|event| among.has(event))
    };
    // Which of two twins is left out may depend on which there are.
    let reduced = reduce(data, core_type, &may, &rank)?;
    ensure!(
        !reduced.kept.is_empty(),
        "the rows of core type {} have no event in common that is not the same in all",
        pmu.core_type
    );
    let question = EventQuestion {
        data,
        core_type,
        boosting,
        groups: [&few, &each],
        at_once: &|features| at_once(data, pmu, features),
    };
    let choice = question.choose(&reduced.kept)?;
    Ok((reduced, choice))
}

/// Whether a PMU counts features at once; what the header says nothing of does not count.
fn at_once(data: &Data, pmu: &CountedBy, features: &[usize]) -> bool {
    let names = features
        .iter()
        .map(|&feature| data.features[feature].as_str());
    select::at_once(pmu, &events(names)).unwrap_or(false)
}

/// Leaves `data` what was chosen on each core type, for any question, among all events.
fn keep(data: &mut Data, answers: &[Answer]) {
    for core_type in 0..data.core_types.len() {
        let chosen: BTreeSet<usize> = answers
            .iter()
            .flat_map(|of| &of.core_types[core_type].choices[0].0.features)
            .copied()
            .collect();
        let rows = data.rows.iter_mut();
        for row in rows.filter(|row| row.core_type == core_type) {
            for (feature, value) in row.features.iter_mut().enumerate() {
                if !chosen.contains(&feature) && data.features[feature] != INSTRUCTIONS {
                    *value = f64::NAN;
                }
            }
        }
        let kind = &data.core_types[core_type];
        let pmus = data.header.iter_mut().flat_map(|of| &mut of.machine.pmus);
        for pmu in pmus.filter(|pmu| pmu.core_type == *kind) {
            let names: Vec<&String> = chosen.iter().map(|&n| &data.features[n]).collect();
            let base = [Meaning::Instructions, Meaning::Cycles].map(Meaning::name);
            pmu.events
                .retain(|name, _| base.contains(&name.as_str()) || names.contains(&name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hetero_core::ml::data::Row;
    use hetero_core::ml::header::{MeasuredMachine, SCHEMA, TableHeader};
    use hetero_core::topology::Identity;

    use super::*;

    fn header(pmus: Vec<CountedBy>) -> TableHeader {
        TableHeader {
            schema: SCHEMA,
            written_by: "a test".into(),
            date: "2026-11-26T00:00:00Z".into(),
            machine: MeasuredMachine {
                name: "this".into(),
                identity: Identity {
                    cpu: "this".into(),
                    core_types: Vec::new(),
                },
                microcode: None,
                kernel: "6.18".into(),
                pmus,
            },
            window: 1000,
            user_only: false,
            commands: Default::default(),
        }
    }

    fn pmu(core_type: &str, general: u32, events: &[(&str, &[EventSource])]) -> CountedBy {
        let event = |(name, sources): &(&str, &[EventSource])| {
            let counted = EventCounted {
                name: format!("VENDORS.{}", name.replace('/', "_")),
                general: u64::MAX,
                fixed: None,
                sources: sources.iter().copied().collect(),
            };
            (name.to_string(), counted)
        };
        let fixed = |(n, name): (usize, &str)| {
            let counted = EventCounted {
                name: name.into(),
                general: u64::MAX,
                fixed: Some(n as u8),
                sources: BTreeSet::new(),
            };
            (name.to_string(), counted)
        };
        let base = ["instructions", "cycles"]
            .into_iter()
            .enumerate()
            .map(fixed);
        CountedBy {
            core_type: core_type.into(),
            microarchitecture: "some".into(),
            counters: [general, 2],
            events: events
                .iter()
                .map(event)
                .chain(base)
                .collect::<BTreeMap<_, _>>(),
        }
    }

    /// SF is 1 + 2 `r1` + 0.5 `r2`; `r3` goes with loads, and `r5` never changes.
    pub(super) fn invented() -> Data {
        use EventSource::{List, Table};
        let mut rows = Vec::new();
        for program in 0..24_u32 {
            for window in 0..3_u32 {
                let of = |a: u32, b: u32| f64::from((program * a + window) % b) / f64::from(b);
                let (loads, r1, r2) = (of(3, 23), of(7, 19), of(11, 17));
                let values = vec![
                    0.5 + of(5, 13),
                    loads,
                    of(13, 11),
                    r1,
                    r2,
                    2.0 * loads,
                    0.25,
                ];
                let sf = 1.0 + 2.0 * r1 + 0.5 * r2;
                rows.push(Row::labelled(format!("p{program}"), 0, values, sf));
            }
        }
        let features = [
            "instructions",
            "loads",
            "branches",
            "cpu/r1/",
            "cpu/r2/",
            "cpu/r3/",
            "cpu/r5/",
        ];
        let pmu = pmu(
            "P",
            4,
            &[
                ("loads", &[Table]),
                ("branches", &[Table, List]),
                ("cpu/r1/", &[List]),
                ("cpu/r2/", &[List]),
                ("cpu/r3/", &[List]),
                ("cpu/r5/", &[List]),
            ],
        );
        Data {
            features: features.map(String::from).to_vec(),
            core_types: vec!["P".into()],
            rows,
            header: Some(header(vec![pmu])),
            ..Data::default()
        }
    }

    fn args() -> Train {
        use clap::Parser;
        #[derive(Parser)]
        struct Cli {
            #[command(flatten)]
            train: Train,
        }
        Cli::parse_from(["train", "table.csv", "--discover"]).train
    }

    #[test]
    fn what_matters_is_chosen_and_said_beside_what_the_table_would_have() {
        let mut data = invented();
        let text = discover(&mut data, &args()).unwrap();
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        for expected in [
            "cpu/r1/ (VENDORS.cpu_r1_)",
            "the table's",
            "without it",
            "Chosen anew without an eighth",
            "--events",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let left: BTreeSet<&str> = data
            .usable(&[0])
            .into_iter()
            .map(|n| data.features[n].as_str())
            .collect();
        assert!(left.is_superset(&["cpu/r1/", "cpu/r2/"].into()), "{left:?}");
        assert!(left.len() <= 5);
        let pmu = &data.header.as_ref().unwrap().machine.pmus[0];
        assert!(pmu.events.contains_key("cycles") && !pmu.events.contains_key("cpu/r5/"));
    }

    #[test]
    fn a_table_that_says_too_little_is_refused() {
        let error = |data: &mut Data| format!("{:#}", discover(data, &args()).unwrap_err());
        let mut data = invented();
        data.header = None;
        assert!(error(&mut data).contains("no header"));
        let mut data = invented();
        data.header = Some(header(Vec::new()));
        assert!(error(&mut data).contains("does not say what counted on P"));
        let mut data = invented();
        data.rows
            .retain(|row| ["p0", "p1"].contains(&row.program.as_str()));
        assert!(error(&mut data).contains("2 are too few programs"));
        let mut data = invented();
        for row in &mut data.rows {
            row.features.fill(0.5);
        }
        assert!(error(&mut data).contains("no event in common"));
    }

    #[test]
    fn what_is_compared_depends_on_what_names_the_events() {
        use EventSource::{List, Sysfs, Table};
        let among = |events: &[(&str, &[EventSource])]| Among::of(&[&pmu("P", 4, events)]);
        use Among::{All, NoTable};
        assert_eq!(among(&[("loads", &[])]), [All]);
        assert_eq!(among(&[("loads", &[Table])]), [All]);
        assert_eq!(among(&[("cpu/r1/", &[List])]), [All]);
        assert_eq!(
            among(&[("loads", &[Table]), ("cpu/r1/", &[List])]),
            [All, Among::Table, NoTable]
        );
        assert_eq!(
            among(&[("loads", &[Table, Sysfs]), ("cpu/r1/", &[List])]),
            [All, Among::Table]
        );
    }

    #[test]
    fn pmus_that_share_counters_are_asked() {
        let data = invented();
        let pmu = &data.header.as_ref().unwrap().machine.pmus[0];
        assert!(at_once(&data, pmu, &[0, 1, 2, 3]));
        // Four general counters, of which the watchdog takes one.
        assert!(!at_once(&data, pmu, &[0, 1, 2, 3, 4, 5]));
    }
}
