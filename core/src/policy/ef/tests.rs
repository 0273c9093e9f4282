// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::pmu::sample::{SampleWatts, SfEstimate};
use crate::testing::{MS, board, machine, sample, task_of};

/// Threads on a machine, of which a model says SF and EF.
struct Bench {
    topology: Topology,
    tasks: Vec<Task>,
    said: Vec<(f64, Option<f64>)>,
    /// Else nothing is said, and it is so all the same.
    has_model: bool,
    /// On the big core, W; on the small one what follows from SF and EF.
    watts: Vec<f64>,
    /// What these err by, of themselves.
    sigma: f64,
    policy: Efficient,
    now_ns: u64,
}

impl Bench {
    fn new(topology: Topology, objective: Objective, said: &[(f64, Option<f64>)]) -> Self {
        let types = topology.types.len();
        let on = |slot: u32| &topology.cpus[slot as usize];
        let tasks = (0..said.len() as u32).map(|i| task_of(i, i, on(i).core_type, types));
        Self {
            tasks: tasks.collect(),
            said: said.to_vec(),
            has_model: true,
            watts: Vec::new(),
            sigma: 0.01,
            policy: Efficient::new(objective),
            now_ns: 0,
            topology,
        }
    }

    /// Runs for 50 ms; says how many swaps there were, and does them.
    fn step(&mut self) -> usize {
        self.now_ns += 50 * MS;
        for (index, (task, &(sf, ef))) in self.tasks.iter_mut().zip(&self.said).enumerate() {
            task.run_ns[task.core_type] += 50 * MS;
            let ipc = if task.core_type == 0 { 1.0 } else { 1.0 / sf };
            let mut sample = sample(task, ipc, 300.0, 0.0);
            if self.has_model {
                sample.sf = Some(SfEstimate { sf, sigma: 0.05 });
                sample.ef = ef;
            }
            sample.watts = self.watts.get(index).map(|&watts| {
                let watts = match task.core_type {
                    0 => watts,
                    _ => watts * ef.unwrap_or(1.0) / (sf * sf),
                };
                SampleWatts::on(task.core_type, watts, self.sigma * watts)
            });
            self.policy.observe(&sample);
        }
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            topology: &self.topology,
            tasks: &self.tasks,
        };
        let mut actions = Vec::new();
        self.policy.decide(&snapshot, &mut actions);
        let mut swaps = 0;
        for action in actions {
            if let Action::Swap(both) = action {
                swaps += 1;
                for (seen, to) in both {
                    self.tasks[seen.task.slot as usize].core_type = to;
                }
            }
        }
        swaps
    }

    /// Where the threads are after some seconds, and after that for as long.
    fn settled(&mut self) -> Vec<usize> {
        (0..100).for_each(|_| _ = self.step());
        assert_eq!((0..100).map(|_| self.step()).sum::<usize>(), 0);
        self.tasks.iter().map(|task| task.core_type).collect()
    }
}

/// Two of much speedup that cost even more, and two of less that cost hardly any; and two of little.
const SAID: [(f64, Option<f64>); 6] = [
    (3.0, Some(0.6)),
    (2.8, Some(0.7)),
    (1.8, Some(1.2)),
    (1.9, Some(1.1)),
    (1.2, Some(0.5)),
    (1.1, Some(0.4)),
];

#[test]
fn the_highest_ef_get_the_big_cores_and_keep_them() {
    let places = |objective| Bench::new(board(2, 4), objective, &SAID).settled();
    assert_eq!(places(Objective::Ef), [1, 1, 0, 0, 1, 1]);
    // That is not what is least of all together, which without watts is not known.
    assert_eq!(places(Objective::Edp), [0, 0, 1, 1, 1, 1]);
    assert_eq!(places(Objective::Throughput), [0, 0, 1, 1, 1, 1]);
    // E_small / E_big: 0.2, 0.25, 0.67, 0.58, 0.42, 0.36.
    assert_eq!(places(Objective::Energy), [1, 1, 0, 0, 1, 1]);
}

#[test]
fn where_no_ef_is_known_sf_counts_and_a_thread_without_has_the_others_mean() {
    let without = SAID.map(|(sf, _)| (sf, None));
    let places = |said: &[_]| Bench::new(board(2, 4), Objective::Ef, said).settled();
    assert_eq!(places(&without), [0, 0, 1, 1, 1, 1]);
    let mut one = SAID;
    one[5] = (2.5, None);
    // The mean of E_small / E_big is 0.4: an EF of 1.0.
    assert_eq!(places(&one), [1, 1, 0, 0, 1, 1]);
    one[5] = (3.2, None);
    assert_eq!(places(&one), [1, 1, 0, 1, 1, 0]);
}

#[test]
fn where_watts_are_known_the_least_product_of_all_is_what_counts() {
    // The second has the higher EF, but hardly any watts to save.
    let said = [(2.5, Some(1.0)), (2.0, Some(1.25)), (1.1, Some(0.3))];
    let places = |objective, watts: &[f64]| {
        let mut bench = Bench::new(board(1, 2), objective, &said);
        bench.watts = watts.to_vec();
        bench.settled()
    };
    assert_eq!(places(Objective::Edp, &[]), [0, 1, 1]);
    assert_eq!(places(Objective::Ef, &[1.0, 1.0, 1.0]), [1, 0, 1]);
    // Of all ways the one with the least watts over the square of speed.
    for watts in [[1.0, 0.3, 1.0], [0.2, 1.0, 0.5], [3.0, 0.2, 0.2]] {
        let product = |fast: usize| {
            let sum = |of: &dyn Fn(usize) -> f64| (0..3).map(of).sum::<f64>();
            let all = sum(&|i| {
                let (sf, ef) = (said[i].0, said[i].1.unwrap());
                if i == fast {
                    watts[i]
                } else {
                    watts[i] * ef / (sf * sf)
                }
            });
            let speed = sum(&|i| if i == fast { 1.0 } else { 1.0 / said[i].0 });
            all / (speed * speed)
        };
        let best = (0..3)
            .min_by(|&a, &b| product(a).total_cmp(&product(b)))
            .unwrap();
        let found = places(Objective::Edp, &watts);
        assert_eq!(
            found.iter().position(|&on| on == 0),
            Some(best),
            "{watts:?}"
        );
    }
}

#[test]
fn without_a_model_what_is_measured_counts() {
    // The second is not as much faster, and takes as much on the small core.
    let said = [(2.0, Some(1.0)), (1.8, Some(2.6))];
    let mut bench = Bench::new(board(1, 1), Objective::Edp, &said);
    bench.watts = vec![12.0, 12.0];
    bench.has_model = false;
    assert_eq!(bench.settled(), [1, 0]);
    bench.said.swap(0, 1);
    // What was measured is out of date, and is looked at again.
    (0..600).for_each(|_| _ = bench.step());
    assert_eq!(bench.settled(), [0, 1]);
}

/// Where the threads begin they are only with luck where they belong by SF.
#[test]
fn what_is_not_known_of_watts_is_not_believed() {
    let said = [(2.0, Some(1.0)), (1.9, Some(2.4))];
    let places = |sigma: f64, has_model: bool| {
        let mut bench = Bench::new(board(1, 1), Objective::Edp, &said);
        (bench.watts, bench.sigma) = (vec![12.0, 12.0], sigma);
        bench.has_model = has_model;
        (0..600).for_each(|_| _ = bench.step());
        bench.tasks.swap(0, 1);
        bench.said.swap(0, 1);
        bench.settled()
    };
    for has_model in [false, true] {
        assert_eq!(places(0.01, has_model), [0, 1]);
        assert_eq!(places(0.5, has_model), [1, 0]);
    }
}

/// Of a thread that a sensor has told of on the big core alone.
#[test]
fn beside_a_sensor_a_model_says_nothing_of_watts() {
    let topology = board(1, 1);
    let saves = |usual: &[f64]| {
        let mut speedups = Speedups::default();
        let task = task_of(0, 0, 0, 2);
        let mut watts = SampleWatts::on(0, 3.0, 0.03);
        watts.usual[..usual.len()].copy_from_slice(usual);
        for _ in 0..4 {
            let mut sample = sample(&task, 1.0, 300.0, 0.0);
            let (sf, sigma) = (2.0, 0.05);
            (sample.sf, sample.ef) = (Some(SfEstimate { sf, sigma }), Some(1.0));
            sample.watts = Some(watts);
            speedups.observe(&sample);
        }
        let usual = Usual::default();
        Profile::of(&task, &speedups, &topology, &parts(&topology), &usual).saves(1, 1.0)
    };
    // Half of the energy, in twice the time.
    let (more, variance) = saves(&[]);
    assert!((more - 3.0 * 0.75).abs() < 0.1, "{more}");
    assert!(variance.is_finite());
    let (more, variance) = saves(&[4.0, 2.0]);
    assert!((more - 3.0 * 0.5).abs() < 1e-9, "{more}");
    assert!(!variance.is_finite());
}

#[test]
fn of_what_threads_differ_by_as_much_is_believed_as_is_known() {
    let of = |sigma: f64| {
        let values = [
            (7.0, sigma * sigma),
            (9.0, sigma * sigma),
            (20.0, f64::INFINITY),
        ];
        let spread = Spread::of(values.into_iter());
        values.map(|(value, variance)| spread.believed(value, variance))
    };
    assert_eq!(of(0.0), [7.0, 9.0, 8.0]);
    // They differ by 2, of which 1 may be error: of what is left a third.
    let some = of(1.0);
    let third = 1.0 / 3.0;
    assert!(
        (some[0] - 8.0 + third).abs() < 1e-9 && (some[1] - 8.0 - third).abs() < 1e-9,
        "{some:?}"
    );
    assert_eq!(of(2.0), [8.0; 3]);
    let guessed = Spread::of([(3.0, f64::INFINITY), (5.0, f64::INFINITY)].into_iter());
    assert_eq!(guessed.believed(3.0, f64::INFINITY), 4.0);
    assert_eq!(Spread::of(std::iter::empty()).believed(1.0, 0.0), 0.0);
}

#[test]
fn less_than_the_margin_moves_nothing() {
    let mut bench = Bench::new(
        board(1, 1),
        Objective::Energy,
        &[(2.0, Some(1.0)), (2.0, Some(1.04))],
    );
    assert_eq!(bench.settled(), [0, 1]);
    // It is no more than what a model errs by.
    bench.said[1] = (2.0, Some(1.1));
    assert_eq!(bench.settled(), [0, 1]);
    bench.said[1] = (2.0, Some(1.8));
    assert_eq!(bench.settled(), [1, 0]);
}

#[test]
fn of_three_types_each_gets_what_is_most_efficient_there() {
    let said = [(4.0, Some(0.5)), (4.0, Some(1.0)), (4.0, Some(2.0))];
    let mut bench = Bench::new(machine(&[1, 1, 1]), Objective::Ef, &said);
    assert_eq!(bench.settled(), [2, 1, 0]);
}
