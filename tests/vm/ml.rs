// SPDX-License-Identifier: GPL-2.0-only
//! Scheduling by a learnt model, in the virtual hybrid machine (`make test`), whose model it is.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::support::*;
use hetero_core::agent::counted::CountedFor;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use scx_hetero::ml::fixed::feature;
use scx_hetero::ml::forest::{Comparison, FeatureScale, Forest, MAX_FEATURES, Sum, to_number};
use scx_hetero::ml::live::LiveEstimator;
use scx_hetero::ml::model::Model;
use scx_hetero::ml::tree::Tree;
use scx_hetero::pmu::open::CounterOptions;
use scx_hetero::pmu::sample::EventCounts;
use scx_hetero::pmu::sampler::Sampler;
use scx_hetero::pmu::{Counter, MachinePmus, Meaning, Pmu, Target};
use scx_hetero::scheduler::EstimateTrial;
use scx_hetero::topology::Topology;

const MODEL: &str = include_str!("../../models/virtual-alder-lake-4p4e.model.json");
const TABLE: &str = include_str!("../../models/alder-lake-4p4e.csv");
const PATH: &str = "/tmp/model.json";

/// Four of a program, for as long as they are let.
fn four(program: &str) -> Vec<Child> {
    let start = |_| {
        let mut command = Command::new("hetero-programs");
        command.args([program, "--seconds", "300"]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    (0..4).map(start).collect()
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn rank_gives_fast_cores_to_who_computes_and_not_to_who_waits_for_memory() {
    fs::write(PATH, MODEL).unwrap();
    // These gain 7 %, those 179 %; the first come is on the fast cores at first.
    let scheduler = Scheduler::start(&["--policy", "rank", "--model", PATH]);
    let waiting = four("chase");
    thread::sleep(ms(500));
    let computing = four("fp");
    let mut statistics = Statistics::from_now();
    thread::sleep(s(2));
    statistics.take();
    thread::sleep(ms(1500));
    let metrics = statistics.take();
    scheduler.stop();
    let on_p = |children: &[Child]| -> Vec<f64> {
        let share = |child: &Child| metrics.processes[&child.id()].big_pct;
        children.iter().map(share).collect()
    };
    let shares = [on_p(&computing), on_p(&waiting)];
    println!("on P: {shares:.1?} percent; {:?}", metrics.counts);
    for mut child in waiting.into_iter().chain(computing) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // In all: something else may have had a fast core for a moment, and sent one of them away.
    assert!(shares[0].iter().sum::<f64>() > 360.0);
    assert!(shares[1].iter().sum::<f64>() < 40.0);
    assert!(metrics.counts.swapped < 8, "they trade places");
}

/// Four that wait for memory and four that compute, under `rank` with this model for a while; their
/// samples.
fn samples_under_rank(model: &str) -> Vec<Sample> {
    fs::write(PATH, model).unwrap();
    let arguments = ["--policy", "rank", "--model", PATH, "--samples", SAMPLES];
    // Before the programs, beside which it would take long.
    let scheduler = Scheduler::start(&arguments);
    let children: Vec<Child> = ["chase", "fp"].map(four).into_iter().flatten().collect();
    thread::sleep(ms(1500));
    scheduler.stop();
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Where no event counted all through, none says anything.
    let mut samples = samples();
    samples.retain(|sample| sample.run_ns > 0.0 && !sample.spun);
    samples
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn the_kernel_estimates_each_sample_as_the_agent_would() {
    fs::write("/proc/sys/kernel/nmi_watchdog", "1").unwrap();
    let mut model: Model = serde_json::from_str(MODEL).unwrap();
    // Of energy it says half as much as of speed.
    model.efficiency = model.speedup.clone();
    for efficiency in &mut model.efficiency {
        efficiency.trees.base /= 2.0;
    }
    let samples = samples_under_rank(&serde_json::to_string(&model).unwrap());
    let model = Model::read(Path::new(PATH)).unwrap();
    let (topology, machine) = (Topology::detect(None).unwrap(), MachinePmus::detect());
    let pmu_of = |core_type: usize| machine.pmu_of(topology.types[core_type].cpus[0]);
    let live = LiveEstimator::new(&model, &topology, pmu_of).unwrap();
    let needs = |core_type| live.needs(core_type);
    let counted = CountedFor {
        policy: Some(&[]),
        model: Some(&needs),
        ..CountedFor::default()
    };
    let events = |core_type, pmu: &Pmu| counted.events(core_type, pmu);
    let sampler = Sampler::plan(&machine, &topology, &events, false, &[]).unwrap();
    let mut compared = [0; 2];
    for sample in &samples {
        let core_type = sample.core_type as usize;
        let asked = live.events(core_type).unwrap().iter().map(|event| {
            let place = sampler.place(core_type, event).unwrap();
            (event.clone(), sample.counts[place])
        });
        let cycles = (Meaning::Cycles.into(), sample.counts[1]);
        let counts: EventCounts = std::iter::once(cycles).chain(asked).collect();
        let expected = live.sf(core_type, &counts).unwrap();
        assert_eq!(to_number(sample.sf), expected, "{:?}", sample.counts);
        let efficiency = live.ef(core_type, &counts).unwrap();
        assert_ne!(efficiency, expected);
        assert_eq!(to_number(sample.ef), efficiency, "{:?}", sample.counts);
        compared[core_type] += 1;
    }
    println!("\ncompared {compared:?} samples");
    assert!(compared.iter().all(|&number| number > 50));
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn where_events_take_turns_the_agent_makes_the_estimates() {
    // With one counter less than the model of E asks for.
    fs::write("/proc/sys/kernel/nmi_watchdog", "1").unwrap();
    let mut model: Model = serde_json::from_str(MODEL).unwrap();
    let trees = &mut model.speedup[1].trees;
    let asked = |name: &&str| trees.features.iter().any(|feature| feature.name == *name);
    let other = ["llc-misses", "llc-references"]
        .into_iter()
        .find(|name| !asked(name));
    let mut useless = trees.features[1].clone();
    useless.name = other.unwrap().into();
    trees.features.push(useless);
    trees.weights.push(0.0);
    let samples = samples_under_rank(&serde_json::to_string(&model).unwrap());
    let estimated = |core_type: u64| -> (usize, usize) {
        let of_type = samples
            .iter()
            .filter(|sample| sample.core_type == core_type);
        let (made, none): (Vec<_>, Vec<_>) = of_type.partition(|sample| sample.sf != 0);
        (made.len(), none.len())
    };
    let ((p, p_none), (e, e_none)) = (estimated(0), estimated(1));
    println!("\nP {p} of {}, E {e} of {}", p + p_none, e + e_none);
    assert!(p > 50 && p_none == 0);
    assert!(e_none > 50 && e == 0);
}

/// A tree of this depth at most.
fn some_tree(rng: &mut Pcg64Mcg, depth: u32) -> Tree {
    let mut number = || (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    if depth == 0 || number() < 0.1 {
        return Tree::Leaf(2.0 * number() - 1.0);
    }
    let (feature, threshold) = ((12.0 * number()) as usize, number());
    Tree::Split {
        feature,
        threshold,
        low: Box::new(some_tree(rng, depth - 1)),
        high: Box::new(some_tree(rng, depth - 1)),
    }
}

#[test]
#[ignore = "native, and here with make test-kernels"]
fn the_kernel_and_the_agent_agree_to_the_last_bit_on_any_forest() {
    let mut object = MaybeUninit::uninit();
    let trial = EstimateTrial::load(&mut object).unwrap();
    println!("\nverifier: {} instructions", trial.verified().unwrap());
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    for number in 0..40 {
        let trees: Vec<Tree> = (0..[0, 1, 17, 256][number % 4])
            .map(|_| some_tree(&mut rng, 6))
            .collect();
        let mut about = |most: f64| most * (rng.next_u64() as f64 / u64::MAX as f64 - 0.5);
        let weights: Vec<f64> = (0..12).map(|_| about(20.0)).collect();
        let forest = Forest::new(&Sum {
            base: about(10.0),
            weights: &weights,
            trees: &trees,
            scales: &[FeatureScale { min: 0.0, max: 2.0 }; 12],
            comparison: Comparison::AtMost,
            inverse: number % 5 == 0,
            range: (number % 3 == 0).then_some([-1.0, 4.0]),
        });
        let forest = forest.unwrap();
        for _ in 0..10 {
            let mut counts = [0; 12];
            for count in &mut counts {
                let bits = rng.next_u64() % 45;
                *count = rng.next_u64() >> (63 - bits);
            }
            counts[1] = counts[1].max(1);
            let mut features = [0; MAX_FEATURES];
            for (to, &count) in features.iter_mut().zip(&counts) {
                *to = feature(count, counts[1]);
            }
            let (said, _) = trial.ask(&forest, &counts, 1).unwrap();
            assert_eq!(said, forest.score(&features), "{counts:?}");
        }
    }
}

/// Asserts nothing of time: prints what docs/ml.md tells.
#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn what_an_estimate_costs() {
    const TIMES: u32 = 1000;
    let (topology, machine) = (Topology::detect(None).unwrap(), MachinePmus::detect());
    fs::write(PATH, MODEL).unwrap();
    let model = Model::read(Path::new(PATH)).unwrap();
    let mut object = MaybeUninit::uninit();
    let trial = EstimateTrial::load(&mut object).unwrap();
    for (core_type, kind) in topology.types.iter().enumerate() {
        let pmu = machine.pmu_of(kind.cpus[0]).unwrap();
        let mut cpus = nix::sched::CpuSet::new();
        cpus.set(kind.cpus[0] as usize).unwrap();
        nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &cpus).unwrap();
        let instructions = pmu.meaning(Meaning::Instructions).unwrap();
        let counter = Counter::open(
            pmu,
            &instructions,
            Target::Thread(0),
            None,
            CounterOptions::default(),
        );
        let counter = counter.unwrap();
        let trees = &model.speedup[core_type].trees;
        let forest = trees.forest().unwrap();
        let counts = [50_000_000; 12];
        let cost = |times| {
            let before = counter.read().unwrap();
            let (_, took) = trial.ask(&forest, &counts, times).unwrap();
            (counter.read().unwrap().since(&before).unwrap(), took)
        };
        // What asking takes besides.
        let (none, _) = cost(0);
        let (all, took) = cost(TIMES);
        let each = (all - none) / u64::from(TIMES);
        println!(
            "\non {}: {} trees, {each} instructions, {:?} an estimate",
            kind.name,
            trees.trees.len(),
            took / TIMES
        );
        assert!(each > 0);
    }
}

/// One of each of these, under its own name: a process's name is that of its file.
fn of_each_kind() -> Vec<Child> {
    let start = |kind: &&str| {
        let path = format!("/tmp/{kind}");
        let _ = std::os::unix::fs::symlink("/bin/hetero-programs", &path);
        let mut command = Command::new(path);
        command.args([kind, "--seconds", "600"]);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    [
        "chase", "integer", "fp", "branchy", "hash", "sort", "compress", "matmul",
    ]
    .iter()
    .map(start)
    .collect()
}

/// How far what a model says is off, on average, over the windows of the table that its machine's own
/// model was learnt from.
fn error_on_the_table(model: &Model) -> f64 {
    let (topology, machine) = (Topology::detect(None).unwrap(), MachinePmus::detect());
    let pmu_of = |core_type: usize| machine.pmu_of(topology.types[core_type].cpus[0]);
    let live = LiveEstimator::new(model, &topology, pmu_of).unwrap();
    let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
    let rows = reader.deserialize().map(Result::unwrap);
    let rows: Vec<HashMap<String, String>> = rows.collect();
    let number = |row: &HashMap<String, String>, name: &str| row[name].parse::<f64>().ok();
    let speed = |row: &HashMap<String, String>| {
        number(row, "instructions").unwrap() / number(row, "run-ns").unwrap()
    };
    let key = |row: &HashMap<String, String>| {
        ["program", "variant", "window"].map(|name| row[name].clone())
    };
    let on = |kind: &str| -> HashMap<_, _> {
        let of_kind = rows.iter().filter(|row| row["core-type"] == kind);
        of_kind.map(|row| (key(row), row)).collect()
    };
    let by_type = ["P", "E"].map(on);
    let mut errors = Vec::new();
    for (what, fast) in &by_type[0] {
        let Some(slow) = by_type[1].get(what) else {
            continue;
        };
        let sf = speed(fast) / speed(slow);
        for (core_type, row) in [fast, slow].into_iter().enumerate() {
            let counts = Meaning::all().iter().filter_map(|&meaning| {
                Some((
                    meaning,
                    number(row, row.keys().find(|name| **name == meaning.name())?)?,
                ))
            });
            if let Some(said) = live.sf(core_type, &counts.collect()) {
                errors.push((said - sf).abs());
            }
        }
    }
    assert!(errors.len() > 300, "{}", errors.len());
    errors.iter().sum::<f64>() / errors.len() as f64
}

#[test]
fn train_here_measures_this_machine_and_the_scheduler_goes_by_it() {
    let one = |kind: &str| {
        format!(
            "[[program]]\nname = '{kind}'\n\
             command = ['hetero-programs', '{kind}', '--warmup', '0', '--seconds', '1000']\n"
        )
    };
    let mut suite: String = ["chase", "integer", "fp", "sort"].map(one).concat();
    // Without it there is enough to learn from.
    suite += "[[program]]\nname = 'broken'\ncommand = ['false']\n";
    fs::write("/tmp/suite.toml", suite).unwrap();
    let train = || {
        let mut command = Command::new(binary());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).args([
            "train",
            "--here",
            "--suite",
            "/tmp/suite.toml",
            "--window",
            "200k",
            // To choose features takes minutes at this machine's speed.
            "--all-features",
            "--trees",
            "10",
        ]);
        command.spawn().unwrap()
    };
    let output = train().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let model = Model::read(Path::new("/var/lib/scx_hetero/model.json")).unwrap();
    assert_eq!(model.data.programs, ["chase", "fp", "integer", "sort"]);
    assert!(said.contains("broken is left out"), "{said}");
    let machine = model.machine.unwrap();
    assert!(machine.pmus.len() == 2 && machine.name.contains("QEMU"));
    // What was measured is not measured again. That is enough: to learn takes long.
    let mut again = train();
    let lines = BufReader::new(again.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("4 programs are in")));
    again.kill().unwrap();
    again.wait().unwrap();
    let scheduler = Scheduler::start(&["--policy", "rank"]);
    assert_eq!(state(), "enabled");
    scheduler.stop();
}

#[test]
#[ignore = "takes long; make test-kernels runs it"]
fn a_bad_model_is_replaced_by_what_threads_that_are_moved_teach() {
    // To it every thread gains the same.
    let mut bad: Model = serde_json::from_str(MODEL).unwrap();
    for speedup in &mut bad.speedup {
        speedup.trees.trees.clear();
        speedup.trees.weights.clear();
        (speedup.trees.base, speedup.trees.range) = (1.2, None);
    }
    bad.check().unwrap();
    fs::write(PATH, bad.to_json().unwrap()).unwrap();
    fs::write("/proc/sys/kernel/nmi_watchdog", "0").unwrap();
    let children = of_each_kind();
    // It moves threads whatever the model says.
    let arguments = ["--policy", "acfs", "--model", PATH, "--learn", "-v"];
    let scheduler = Scheduler::start(&arguments);
    for _ in 0..120 {
        if Path::new("/tmp/model.json.old").exists() {
            break;
        }
        thread::sleep(s(1));
    }
    // What takes its place is put to work, too.
    thread::sleep(s(1));
    assert_eq!(state(), "enabled");
    scheduler.stop();
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let old = Model::read(Path::new("/tmp/model.json.old")).unwrap();
    assert_eq!(old, bad);
    let learnt = Model::read(Path::new(PATH)).unwrap();
    let [before, after] = [&old, &learnt].map(error_on_the_table);
    println!(
        "\non 83 programs: error {before:.3} before, {after:.3} after {} examples of {}",
        learnt.data.rows,
        learnt.data.programs.join(", ")
    );
    assert!(after < before / 2.0);
}

#[test]
fn a_model_that_is_of_no_use_here_is_refused_before_anything_is_attached() {
    // What else may be wrong with a file is tried on the host.
    fs::write(PATH, MODEL.replace("QEMU TCG CPU", "Some CPU")).unwrap();
    let output = Command::new(binary())
        .args(["--policy", "rank", "--model", PATH])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(PATH) && said.contains("another machine"),
        "{said}"
    );
    assert_eq!(state(), "disabled");
}
