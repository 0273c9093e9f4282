// SPDX-License-Identifier: GPL-2.0-or-later
//! `scx_hetero train`: from tables to a model.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use log::{info, warn};

use crate::beside::Beside;
use crate::estimates::{self, Lesson, names};
use crate::kinds::{self, LinfaKind, Worth};
use crate::{beside, discover, import, interference, left_out, plot, show};
use hetero_core::files::{check_writable, write_whole};
use hetero_core::ml::args::{ModelKind, Train};
use hetero_core::ml::boosting::{Boosting, Loss};
use hetero_core::ml::data::Data;
use hetero_core::ml::learn::{self, View};
use hetero_core::ml::model::{Classifier, DataIdentity, Model, RankBy, SCHEMA};
use hetero_core::ml::validate::{
    Comparisons, Contest, HeldOutSpeedups, by_estimate, comparisons, groups, pairs,
};
use hetero_core::output;
use hetero_core::text::stamp;

/// Pairs that the classifier learns from, at most: more of the same programs say little more.
const MOST_PAIRS: usize = 10_000;
/// Into so many groups programs are dealt for what is learnt many times over.
const GROUPS: usize = 8;
/// The seed of all that is drawn by chance.
const SEED: u64 = 1;
/// Threads are ranked by their estimated SF if that is right at most so much more seldom than the
/// classifier: it is one evaluation a thread instead of one a comparison.
const AS_GOOD: f64 = 0.005;

/// Learns, writes and prints.
///
/// # Errors
/// In words: what is wrong with the tables, or why nothing can be learnt. The model that was there
/// before is then still there.
pub fn run(args: &Train) -> Result<()> {
    if args.interference {
        return interference::run(args);
    }
    let (tables, output) = (args.tables(), args.output());
    // To learn takes long: that a file cannot be written is said before.
    let others = [&args.report, &args.estimates].into_iter().flatten();
    for path in others.map(PathBuf::as_path).chain([output]) {
        let cannot = || format!("cannot write {}", path.display());
        check_writable(path).with_context(cannot)?;
        ensure!(
            !path.is_dir(),
            "{} is a folder: name a file",
            path.display()
        );
    }
    let mut data = Data::read(&tables, &args.column)?;
    // With the columns that there are now: events may be chosen among them.
    let left_out = Data {
        rows: data.leave_out(&args.leave_out)?,
        features: data.features.clone(),
        core_types: data.core_types.clone(),
        per: data.per,
        ..Data::default()
    };
    for note in &data.notes {
        warn!("{note}");
    }
    if args.discover {
        output::print(discover::discover(&mut data, args)?)?;
    }
    let learnt = learn(&data, args)?;
    learnt.model.check()?;
    if let Some(path) = &args.report {
        let drawn = plot::draw(&learnt.model, &learnt.speedups)?;
        write_whole(path, drawn.as_bytes())?;
    }
    let left_out = left_out::estimates(&learnt.model, &left_out)?;
    write_whole(output, learnt.model.to_json()?.as_bytes())?;
    if let Some(path) = &args.estimates {
        write_whole(path, &left_out::csv(&left_out)?)?;
    }
    let comparisons = learnt.comparisons.as_ref().map(show::comparisons);
    let kinds = match args.compare {
        true => show::kinds(&learnt.model.core_types, &learnt.kinds),
        false => String::new(),
    };
    for doubt in learnt.guesses.iter().filter_map(Beside::doubt) {
        warn!("{doubt}");
    }
    output::print(format_args!(
        "{}{}{}{}{}\nWritten to {}.",
        show::text(&learnt.model),
        left_out::text(&left_out, &learnt.model.core_types),
        beside::text(&learnt.guesses),
        comparisons.unwrap_or_default(),
        kinds,
        output.display()
    ))
}

/// A model, and what it was found to be worth.
struct Learnt {
    model: Model,
    /// What is and what was said, by core type.
    speedups: Vec<HeldOutSpeedups>,
    comparisons: Option<Comparisons>,
    /// Every kind of models that was tried, boosted trees first.
    kinds: Vec<(String, Worth)>,
    /// By core type: beside plain guesses.
    guesses: Vec<Beside>,
}

fn learn(data: &Data, args: &Train) -> Result<Learnt> {
    let programs = data.programs();
    ensure!(
        programs.len() >= 3,
        "{} are too few programs: some must be left out to see what is learnt from the others",
        programs.len()
    );
    let boosting = |loss| Boosting {
        trees: args.trees.into(),
        depth: args.depth.into(),
        shrinkage: args.shrinkage,
        subsample: args.subsample,
        seed: SEED,
        ..Boosting::new(loss)
    };
    let few = groups(data, GROUPS.min(programs.len()), SEED);
    let each = groups(data, programs.len().min(100), SEED);
    let mut model = Model {
        schema: SCHEMA,
        written_by: format!("scx_hetero {}", env!("CARGO_PKG_VERSION")),
        date: stamp(SystemTime::now())?,
        machine: data.header.as_ref().map(|header| header.machine.clone()),
        data: DataIdentity {
            tables: args.tables().iter().map(|path| name(path)).collect(),
            digest: format!("{:016x}", data.digest),
            rows: data.rows.len(),
            programs: programs.iter().map(|name| name.to_string()).collect(),
        },
        core_types: data.core_types.clone(),
        rank_by: RankBy::Speedup,
        speedup: Vec::new(),
        efficiency: Vec::new(),
        efficiency_pairs: None,
        classifier: None,
    };
    let pairs = pairs(data, MOST_PAIRS, SEED);
    let linear = args.model_kind == ModelKind::Linear;
    let machine = model.machine.clone();
    let estimates::LearntEstimates {
        estimates,
        mut found,
        views,
        by: learnt_by,
        mut guesses,
        mut took,
    } = Lesson {
        data,
        args,
        efficiency: false,
        counted: Vec::new(),
        machine: machine.as_ref(),
        pairs: &pairs,
        groups: [&each, &few],
        boosting: &boosting,
    }
    .learn()?;
    model.speedup = estimates;
    let counted = views.iter().map(|view| names(data, &view.features));
    let counted: Vec<Vec<String>> = counted.collect();
    match data.efficiency().filter(|of| of.programs().len() >= 3) {
        Some(of) => guesses.extend(efficiency(&of, args, counted, &mut model, &boosting)?),
        None => ensure!(
            !args.import.iter().any(|import| import.efficiency),
            "the tables say nothing of energy: there is no column 'joules' or 'ef'"
        ),
    }

    let all_types: Vec<usize> = (0..data.core_types.len()).collect();
    let shared = data.usable(&all_types);
    let chosen: Vec<usize> = shared
        .into_iter()
        .filter(|feature| {
            views
                .iter()
                .any(|view: &View| view.features.contains(feature))
        })
        .collect();
    let (mut compared, mut kinds) = (None, Vec::new());
    if chosen.is_empty() {
        ensure!(
            !linear,
            "no feature was counted on all core types, which a model of kind 'linear' takes: leave out \
             --model-kind, or count the same events everywhere"
        );
        warn!("no classifier: no feature was counted on all core types");
    } else {
        let view = View {
            features: chosen,
            core_type: data.core_types.len() > 1,
        };
        ensure!(
            !pairs.is_empty(),
            "all programs gain the same (one class only): there is nothing to tell apart"
        );
        info!(
            "classifier: {} pairs, learnt anew for every two of {GROUPS} groups of programs",
            pairs.len()
        );
        let contest = Contest {
            view: &view,
            classifier: boosting(Loss::Logistic),
            speedup_views: &views,
            speedup: &learnt_by,
        };
        let scores = comparisons(data, &pairs, &contest, &few, &mut || ())?;
        let import = args.import.iter().find(|import| import.core_type.is_none());
        let import = import.map(|import| import::read(&import.path, data.per));
        let classifier = match import.transpose()? {
            Some(trees) => {
                let on_all = import::score_classifier(data, &pairs, &trees)?;
                Classifier::imported(on_all, scores.by_speedup, trees)
            }
            None => {
                let begun = Instant::now();
                let (trees, fitted) =
                    learn::classifier(data, &pairs, &view, &boosting(Loss::Logistic), &[])?;
                took += begun.elapsed();
                Classifier {
                    imported: false,
                    scores: scores.both_ways,
                    by_speedup: scores.by_speedup,
                    importances: fitted.importances,
                    curve: scores.curve.clone(),
                    trees,
                }
            }
        };
        model.classifier = Some(classifier);
        let boosted = Worth {
            speedup: found.iter().cloned().map(Some).collect(),
            by_speedup: Some(scores.by_speedup),
            classifier: scores.both_ways,
            took,
        };
        kinds.push(("boosted trees".to_string(), boosted));
        let (mut by_speedup, mut by_classifier) = (scores.by_speedup, scores.both_ways);
        for kind in LinfaKind::ALL {
            if !(args.compare || linear && kind == LinfaKind::Linear) {
                continue;
            }
            info!("{kind}: learnt anew for each group of programs");
            let worth = kinds::worth(kind, data, &views, &pairs, &view, [&each, &few])?;
            if linear && kind == LinfaKind::Linear {
                kinds::replace_by_linear(&mut model, data, &views, (&pairs, &view), &worth)?;
                found = worth.speedup.iter().flatten().cloned().collect();
                by_speedup = worth.by_speedup.unwrap_or_default();
                by_classifier = worth.classifier;
            }
            kinds.push((kind.to_string(), worth));
        }
        if by_speedup.accuracy() < by_classifier.accuracy() - AS_GOOD {
            model.rank_by = RankBy::Classifier;
        }
        // Those are of boosted trees.
        compared = (!linear).then_some(scores);
    }
    Ok(Learnt {
        model,
        speedups: found,
        comparisons: compared,
        kinds,
        guesses,
    })
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Learns EF into `model`, in the way of SF; what it is worth beside plain guesses. What SF asks for is
/// `counted` anyway, by core type.
fn efficiency(
    data: &Data,
    args: &Train,
    counted: Vec<Vec<String>>,
    model: &mut Model,
    boosting: &dyn Fn(Loss) -> Boosting,
) -> Result<Vec<Beside>> {
    let programs = data.programs().len();
    let few = groups(data, GROUPS.min(programs), SEED);
    let each = groups(data, programs.min(100), SEED);
    let pairs = pairs(data, MOST_PAIRS, SEED);
    let machine = model.machine.clone();
    let learnt = Lesson {
        data,
        args,
        efficiency: true,
        counted,
        machine: machine.as_ref(),
        pairs: &pairs,
        groups: [&each, &few],
        boosting,
    }
    .learn()?;
    let right = by_estimate(data, &pairs, &learnt.views, &learnt.by, &few)?;
    model.efficiency_pairs = (right.number() > 0).then_some(right);
    model.efficiency = learnt.estimates;
    Ok(learnt.guesses)
}
