// SPDX-License-Identifier: GPL-2.0-or-later
//! `goal_model <FILE` - how well equation 1 of Sironi et al. (2013) describes programs, as in their Table 1.
//!
//! `experiments/goals-model` writes the file: looks at programs that are kept on so many cores, a line each,
//! `program,part,cores,now_ns,beats,beat_at_ns,spent_ns`. Parts named `random` change their cores now and then, parts
//! named `static` keep them. Rates and costs are taken between beats, as the scheduler takes them.
//!
//! a and b come from least squares over the random part, as in the paper; then each interval of the static part is
//! predicted from the one before it. R² is over all of these together, MAPE is the mean over numbers of cores, with its standard
//! deviation. Once c is the number of cores, once what was spent, and then the scheduler's own [`RateModel`] learns and predicts as
//! it goes.

use std::collections::BTreeMap;
use std::io::stdin;
use std::time::Duration;

use hetero_core::goals::GoalSettings;
use hetero_core::goals::model::RateModel;
use hetero_core::goals::rate::{BeatLog, BeatReading};

/// Two intervals, one after the other, on as many cores.
#[derive(Clone, Copy)]
struct Step {
    cores: u32,
    before: f64,
    rate: f64,
    spent: f64,
}

/// What was predicted, and what came.
type Predictions = BTreeMap<u32, Vec<(f64, f64)>>;

/// A program's steps, of the random part and of the static one.
#[derive(Default)]
struct Program {
    random: Vec<Step>,
    fixed: Vec<Step>,
}

/// What is open while lines are read.
struct Stretch {
    key: (String, String, u32),
    log: BeatLog,
    before: Option<f64>,
}

fn main() {
    let settings = GoalSettings::default();
    let least_ns = settings.interval.as_nanos() as u64;
    let mut programs: BTreeMap<String, Program> = BTreeMap::new();
    let mut stretch: Option<Stretch> = None;
    for line in stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(',').collect();
        let [name, part, cores, now, beats, at, spent] = words[..] else {
            continue;
        };
        let number = |word: &str| word.parse::<u64>().unwrap_or(0);
        let key = (name.to_string(), part.to_string(), number(cores) as u32);
        if stretch.as_ref().is_none_or(|it| it.key != key) {
            // What was before a change of cores is what tells a from b.
            let same = stretch
                .as_ref()
                .filter(|it| it.key.0 == key.0 && it.key.1 == key.1 && key.1 == "random");
            stretch = Some(Stretch {
                before: same.and_then(|it| it.before),
                key: key.clone(),
                log: BeatLog::new(Duration::from_secs(1)),
            });
        }
        let Some(open) = &mut stretch else { continue };
        let reading = BeatReading {
            beats: number(beats),
            at_ns: number(at),
            worked_ns: None,
            spent_ns: number(spent),
            allotted_ns: 0,
        };
        open.log.read(number(now), &reading);
        let Some(interval) = open.log.interval(settings.beats, least_ns) else {
            continue;
        };
        let before = open.before.replace(interval.rate);
        // The first interval has none before it.
        let Some(before) = before else { continue };
        let step = Step {
            cores: key.2,
            before,
            rate: interval.rate,
            spent: interval.spent,
        };
        let program = programs.entry(key.0).or_default();
        match key.1.as_str() {
            "random" => program.random.push(step),
            _ => program.fixed.push(step),
        }
    }
    println!(
        "| program | a | R², by cores | MAPE, % | R², by what was spent | MAPE, % | R², online | MAPE, % |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for (name, program) in &programs {
        let by_cores = regression(&program.random, |step| f64::from(step.cores));
        let by_spent = regression(&program.random, |step| step.spent);
        let fixed = &program.fixed;
        let columns = [
            predictions(fixed, |step| {
                by_cores.0 * step.before + by_cores.1 * f64::from(step.cores)
            }),
            predictions(fixed, |step| {
                by_spent.0 * step.before + by_spent.1 * step.spent
            }),
            online(program),
        ];
        let cells = columns.map(|of| {
            let (mape, deviation) = mape(&of);
            format!("{:.2} | {mape:.2} ± {deviation:.2}", r_squared(&of))
        });
        println!("| {name} | {:.2} | {} |", by_cores.0, cells.join(" | "));
    }
}

/// a and b by least squares.
fn regression(steps: &[Step], cost: impl Fn(&Step) -> f64) -> (f64, f64) {
    let mut sums = [0.0; 5];
    for step in steps {
        let (x, y) = (step.before, cost(step));
        for (sum, one) in sums
            .iter_mut()
            .zip([x * x, x * y, y * y, x * step.rate, y * step.rate])
        {
            *sum += one;
        }
    }
    let [xx, xy, yy, xr, yr] = sums;
    let determinant = xx * yy - xy * xy;
    if determinant <= 1e-9 * xx * yy {
        // Rates were always in proportion to what they took: nothing is left for a.
        return (0.0, yr / yy);
    }
    (
        (xr * yy - yr * xy) / determinant,
        (yr * xx - xr * xy) / determinant,
    )
}

fn predictions(steps: &[Step], predict: impl Fn(&Step) -> f64) -> Predictions {
    let mut all = Predictions::new();
    for step in steps {
        let of = all.entry(step.cores).or_default();
        of.push((predict(step), step.rate));
    }
    all
}

/// The scheduler's model has lived through the random part, and learns on.
fn online(program: &Program) -> Predictions {
    let mut model: Option<RateModel> = None;
    let mut all = Predictions::new();
    for (part, steps) in [&program.random, &program.fixed].into_iter().enumerate() {
        for step in steps {
            let spent = step.spent.max(1e-6);
            let model = model.get_or_insert_with(|| RateModel::new(step.rate, spent));
            if part == 1 {
                let predicted = model.predict(step.before, spent);
                all.entry(step.cores)
                    .or_default()
                    .push((predicted, step.rate));
            }
            model.update(step.before, spent, step.rate);
        }
    }
    all
}

fn r_squared(predictions: &Predictions) -> f64 {
    let all: Vec<(f64, f64)> = predictions.values().flatten().copied().collect();
    let mean = all.iter().map(|(_, rate)| rate).sum::<f64>() / all.len() as f64;
    let errors: f64 = all.iter().map(|(it, rate)| (rate - it).powi(2)).sum();
    let spread: f64 = all.iter().map(|(_, rate)| (rate - mean).powi(2)).sum();
    1.0 - errors / spread
}

/// Mean and standard deviation, percent.
fn mape(predictions: &Predictions) -> (f64, f64) {
    let each = predictions.values().map(|of| {
        let errors = of
            .iter()
            .map(|(it, rate)| (it / rate.max(f64::MIN_POSITIVE) - 1.0).abs());
        100.0 * errors.sum::<f64>() / of.len() as f64
    });
    let each: Vec<f64> = each.collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    let variance = each.iter().map(|it| (it - mean).powi(2)).sum::<f64>();
    (mean, (variance / each.len() as f64).sqrt())
}
