// SPDX-License-Identifier: GPL-2.0-only
//! A model at work: what it has counted on each core type, and what it says of counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::fixtures::alder_lake;
use hetero_core::agent::counted::CountedFor;
use scx_hetero::ml::fixed::feature;
use scx_hetero::ml::forest::to_number;
use scx_hetero::ml::live::LiveEstimator;
use scx_hetero::ml::model::{Feature, Model};
use scx_hetero::pmu::sample::EventCounts;
use scx_hetero::pmu::{Event, MachinePmus, Meaning, Pmu, plan};
use scx_hetero::topology::Topology;

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models")
}

fn model() -> Model {
    Model::read(&models().join("virtual-alder-lake-4p4e.model.json")).unwrap()
}

fn live(model: &Model, topology: &Topology, machine: &MachinePmus) -> LiveEstimator {
    let pmu_of = |core_type: usize| machine.pmu_of(topology.types[core_type].cpus[0]);
    LiveEstimator::new(model, topology, pmu_of).unwrap()
}

/// What is counted on a core type for a policy that goes by the model alone.
fn counted(live: &LiveEstimator, core_type: usize, pmu: &Pmu) -> Vec<Event> {
    let needs = |core_type| live.needs(core_type);
    let counted = CountedFor {
        policy: Some(&[]),
        model: Some(&needs),
        ..CountedFor::default()
    };
    counted.events(core_type, pmu)
}

#[test]
fn what_it_asks_is_counted_at_once_and_what_tells_phases_apart_where_there_is_room() {
    let (_tree, topology, machine) = alder_lake();
    let live = live(&model(), &topology, &machine);
    let (mut sets, mut wished) = (Vec::new(), Vec::new());
    for core_type in 0..2 {
        let pmu = machine.pmu_of(topology.types[core_type].cpus[0]).unwrap();
        let wishes = counted(&live, core_type, pmu);
        let plan = plan(&wishes, pmu);
        assert_eq!(plan.absent, []);
        sets.push(plan.sets.len());
        let names = wishes.iter().map(Event::to_string);
        wished.push(names.collect::<Vec<_>>().join(" "));
    }
    assert_eq!(sets, [1, 1]);
    assert_eq!(
        wished,
        [
            "instructions branches branch-misses stores l1-misses llc-references fp-ops stalled-mem loads",
            // Its six general counters are all taken.
            "instructions branch-misses stores llc-misses divider stalled-mem loads",
        ]
    );
}

#[test]
fn ef_is_said_where_the_model_was_learnt_with_energy_and_its_events_are_counted_too() {
    let (_tree, topology, machine) = alder_lake();
    let mut model = model();
    let counts: EventCounts = model.speedup[0]
        .trees
        .events()
        .into_iter()
        .map(|name| (Event::from(name.to_string()), 1e5))
        .chain([Meaning::Instructions, Meaning::Cycles].map(|of| (of.into(), 1e6)))
        .collect();
    assert_eq!(live(&model, &topology, &machine).ef(0, &counts), None);
    let mut efficiency = model.speedup[0].clone();
    (efficiency.trees.base, efficiency.trees.range) = (0.75, Some([0.5, 0.75]));
    efficiency.trees.weights.clear();
    efficiency.trees.trees.clear();
    efficiency.trees.features.push(Feature {
        name: "divider".into(),
        min: 0.0,
        max: 1.0,
    });
    model.efficiency = vec![efficiency];
    let live = live(&model, &topology, &machine);
    assert_eq!(live.ef(0, &counts), None, "the divider was not counted");
    let with: Vec<_> = counts
        .iter()
        .map(|(event, count)| (event.clone(), count))
        .collect();
    let with = with
        .into_iter()
        .chain([(Event::from("divider".to_string()), 3.0)]);
    let said = live.ef(0, &with.collect()).unwrap();
    assert!((said - 0.75).abs() < 1e-5, "{said}");
    let pmu = machine.pmu_of(topology.types[0].cpus[0]).unwrap();
    let wishes = counted(&live, 0, pmu)
        .iter()
        .map(Event::to_string)
        .collect::<Vec<_>>();
    assert!(wishes.contains(&"divider".to_string()), "{wishes:?}");
}

#[test]
fn what_there_is_to_learn_from_is_counted_at_once() {
    let (tree, topology, _) = alder_lake();
    for watchdog in ["0", "1"] {
        tree.set("proc/sys/kernel/nmi_watchdog", watchdog);
        let machine = MachinePmus::read(tree.root());
        for (core_type, least) in [(0, 7), (1, 5)] {
            let pmu = machine.pmu_of(topology.types[core_type].cpus[0]).unwrap();
            let learns = CountedFor {
                learns: true,
                ..CountedFor::default()
            };
            let wishes = learns.events(core_type, pmu);
            let plan = plan(&wishes, pmu);
            assert_eq!((plan.sets.len(), &plan.absent[..]), (1, &[][..]));
            assert!(
                wishes.len() >= least && plan.sets[0].counters.len() <= 12,
                "{wishes:?}"
            );
            assert_eq!(
                wishes[..2],
                [Meaning::Loads, Meaning::Branches].map(Event::from)
            );
        }
    }
}

#[test]
fn beside_the_watchdog_it_is_counted_at_once_too() {
    let (tree, topology, _) = alder_lake();
    tree.set("proc/sys/kernel/nmi_watchdog", "1");
    let machine = MachinePmus::read(tree.root());
    let live = live(&model(), &topology, &machine);
    let sets = [0, 1].map(|core_type| {
        let pmu = machine.pmu_of(topology.types[core_type].cpus[0]).unwrap();
        plan(&counted(&live, core_type, pmu), pmu).sets.len()
    });
    assert_eq!(sets, [1, 1]);
}

/// Rows of the table that the model was learnt from, by what they measure and core type.
fn table() -> HashMap<(String, String), HashMap<String, f64>> {
    let mut reader = csv::Reader::from_path(models().join("alder-lake-4p4e.csv")).unwrap();
    let names: Vec<String> = reader.headers().unwrap().iter().map(String::from).collect();
    let row = |record: csv::StringRecord| {
        let cell = |name: &str| {
            let place = names.iter().position(|n| n == name).unwrap();
            record[place].to_string()
        };
        let what = [cell("program"), cell("variant"), cell("window")].join(" ");
        let numbers = names.iter().zip(&record);
        let numbers = numbers.filter_map(|(n, value)| Some((n.clone(), value.parse().ok()?)));
        ((what, cell("core-type")), numbers.collect())
    };
    reader
        .records()
        .map(|record| row(record.unwrap()))
        .collect()
}

/// What some window counted on a P core.
fn some_counts() -> EventCounts {
    let table = table();
    let (_, row) = table.iter().find(|((_, kind), _)| kind == "P").unwrap();
    counts(row)
}

fn counts(row: &HashMap<String, f64>) -> EventCounts {
    let known = |(name, value): (&String, &f64)| Some((name.parse::<Meaning>().ok()?, *value));
    row.iter().filter_map(known).collect()
}

#[test]
fn it_says_of_counts_what_its_trees_say_and_that_is_near_the_truth() {
    let (_tree, topology, machine) = alder_lake();
    let model = model();
    let live = live(&model, &topology, &machine);
    let table = table();
    let speed = |row: &HashMap<String, f64>| row["instructions"] / row["run-ns"];
    let (mut errors, mut number) = ([0.0; 2], [0; 2]);
    for ((what, kind), row) in &table {
        let of = |kind: &str| table.get(&(what.clone(), kind.to_string()));
        let (Some(fast), Some(slow)) = (of("P"), of("E")) else {
            continue;
        };
        let core_type = usize::from(kind == "E");
        let said = live.sf(core_type, &counts(row)).unwrap();
        errors[core_type] += (said - speed(fast) / speed(slow)).abs();
        number[core_type] += 1;

        let trees = &model.speedup[core_type].trees;
        let mut features = [0; 64];
        for (to, Feature { name, .. }) in features.iter_mut().zip(&trees.features) {
            *to = feature(row[name].round() as u64, row["cycles"].round() as u64);
        }
        assert_eq!(said, to_number(trees.forest().unwrap().score(&features)));
    }
    let mean = |core_type: usize| errors[core_type] / f64::from(number[core_type]);
    println!("mean absolute errors {:.3} {:.3}", mean(0), mean(1));
    assert!(number[0] > 300 && number[1] > 300);
    assert!(mean(0) < 0.05 && mean(1) < 0.08);
}

#[test]
fn the_farther_counts_are_from_what_it_learnt_the_less_sure_it_is() {
    let (_tree, topology, machine) = alder_lake();
    let (model, table) = (model(), table());
    let live = live(&model, &topology, &machine);
    let (mut squares, mut stated, mut number) = (0.0, 0.0, 0.0);
    let speed = |row: &HashMap<String, f64>| row["instructions"] / row["run-ns"];
    for ((what, kind), row) in &table {
        let other = table.get(&(what.clone(), "E".to_string()));
        let (true, Some(slow)) = (kind == "P", other) else {
            continue;
        };
        let said = live.estimate(0, &counts(row)).unwrap();
        assert_eq!(Some(said.sf), live.sf(0, &counts(row)));
        squares += (said.sf * speed(slow) / speed(row)).ln().powi(2);
        stated += said.sigma * said.sigma;
        number += 1.0;
    }
    let (erred, stated) = (f64::sqrt(squares / number), f64::sqrt(stated / number));
    println!("errs by {erred:.3}, and says by {stated:.3}");
    assert!((0.5..2.5).contains(&(erred / stated)));

    // The same with more and more of something.
    let sigma = |times: f64| {
        // The same one each time: of some the quotient is not 1 to the last bit.
        let on_p = table.iter().filter(|((_, kind), _)| kind == "P");
        let (_, row) = on_p.min_by(|a, b| a.0.cmp(b.0)).unwrap();
        let mut row = row.clone();
        *row.get_mut("branches").unwrap() = times * row["cycles"];
        live.estimate(0, &counts(&row)).unwrap().sigma
    };
    let [learnt, more, most, all] = [1.0, 2.0, 4.0, 40.0].map(sigma);
    assert_eq!(learnt, model.speedup[0].sigma());
    assert!(
        learnt < more && more < most && most == all,
        "{learnt} {more} {most} {all}"
    );
    assert!(all > model.speedup[0].spread());
}

#[test]
fn without_one_of_its_counts_it_says_nothing() {
    let (_tree, topology, machine) = alder_lake();
    let mut model = model();
    let counts = some_counts();
    let with = |model: &Model| live(model, &topology, &machine).sf(0, &counts);
    assert!(with(&model).is_some());
    model.speedup[0].trees.features[1].name = "topdown-bad-spec".into();
    assert_eq!(with(&model), None);
    model.speedup[0].core_type = "LP-E".into();
    assert_eq!(with(&model), None);
    assert_eq!(live(&model, &topology, &machine).sf(7, &counts), None);
}

#[test]
fn events_without_a_meaning_are_counted_by_their_code() {
    let (_tree, topology, machine) = alder_lake();
    let mut model = model();
    model.speedup[0].trees.features[1].name = "topdown-bad-spec".into();
    let live = live(&model, &topology, &machine);
    let code = Event::from("event=0xa4,umask=0x04".to_string());
    assert_eq!(live.events(0).unwrap()[1], code);
    let counts = some_counts();
    let counts = counts.iter().map(|(event, count)| (event.clone(), count));
    let counts: EventCounts = counts.chain([(code, 0.0)]).collect();
    assert!(live.sf(0, &counts).is_some());
}
