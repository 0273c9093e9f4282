// SPDX-License-Identifier: GPL-2.0-only
//! Policies and placement on plain values: no kernel, no clock.

use std::time::Duration;

use crate::fixtures::Machine;
use hetero_core::testing::task_of;
use scx_hetero::placement::{efficient_room, most_efficient, shares, tiers, tiers_for};
use scx_hetero::policy::{self, Action, Policy, RoundRobin, Snapshot};
use scx_hetero::table::{Task, TaskId, TaskState};
use scx_hetero::topology::{MAX_CORE_TYPES, Topology};

const INTERVAL: Duration = Duration::from_millis(400);

const SETTINGS: policy::Settings = policy::Settings {
    swap_interval: INTERVAL,
    fairness: 100,
    oversubscribe: 2.5,
    objective: policy::Objective::Edp,
    swap_rules: None,
    limits: None,
    without: &[],
};

fn alder_lake() -> Topology {
    Machine::new("i7-1260p").topology()
}

fn names(topology: &Topology, order: &[scx_hetero::placement::Tier]) -> Vec<String> {
    order
        .iter()
        .map(|tier| {
            let name = &topology.types[tier.core_type].name;
            let which = if tier.whole_core {
                "cores"
            } else {
                "second threads"
            };
            format!("{} {name} {which}", tier.cpus)
        })
        .collect()
}

#[test]
fn idle_cpus_are_sought_in_the_order_p_e_second_threads_lp_e() {
    let topology = Machine::new("ultra-7-155h").topology();
    assert_eq!(
        names(&topology, &tiers(&topology).collect::<Vec<_>>()),
        [
            "6 P cores",
            "8 E cores",
            "6 P second threads",
            "2 LP-E cores"
        ]
    );
    assert_eq!(
        names(&topology, &tiers_for(&topology, 1)),
        [
            "8 E cores",
            "6 P cores",
            "6 P second threads",
            "2 LP-E cores"
        ]
    );
    let phone = Machine::new("phone-4-2-2").topology();
    assert_eq!(
        names(&phone, &tiers(&phone).collect::<Vec<_>>()),
        ["2 big cores", "2 mid cores", "4 LITTLE cores"]
    );
}

/// The order in which CPUs are filled while energy is saved, and how many threads run before the
/// fastest type has to.
fn saving(machine: &str) -> (Vec<String>, usize) {
    let topology = Machine::new(machine).topology();
    let first = most_efficient(&topology).unwrap();
    let order = names(&topology, &tiers_for(&topology, first));
    (order, efficient_room(&topology))
}

#[test]
fn saving_energy_fills_the_low_power_island_then_e_then_p() {
    let (order, room) = saving("ultra-7-155h");
    let lpe_e_p = ["2 LP-E cores", "8 E cores", "6 P cores"];
    assert_eq!(order[..3], lpe_e_p);
    assert_eq!(
        (&order[3..], room),
        (&["6 P second threads".to_string()][..], 10)
    );
    assert_eq!(
        saving("ultra-9-285h"),
        (lpe_e_p.map(String::from).to_vec(), 10)
    );
    // Lunar Lake: all slower cores are on the island.
    let lpe_p = ["4 LP-E cores", "4 P cores"].map(String::from);
    assert_eq!(saving("ultra-7-258v"), (lpe_p.to_vec(), 4));
    let (phone, room) = saving("phone-4-2-2");
    assert_eq!(phone, ["4 LITTLE cores", "2 mid cores", "2 big cores"]);
    assert_eq!(room, 6);
    let (two_types, room) = saving("i7-1260p");
    assert_eq!(two_types[..2], ["8 E cores", "4 P cores"]);
    assert_eq!(room, 8);
    let alike = Machine::new("ryzen-7950x").topology();
    assert_eq!((most_efficient(&alike), efficient_room(&alike)), (None, 0));
}

#[test]
fn threads_fill_the_fast_cores_first_and_then_every_type_in_proportion() {
    let topology = alder_lake(); // 4 P with SMT, 8 E
    for (threads, expected) in [
        (0, [0, 0]),
        (1, [1, 0]),
        (4, [4, 0]),
        (9, [4, 5]),
        (12, [4, 8]),
        (14, [6, 8]),
        (16, [8, 8]),
        (20, [12, 8]),
        (32, [16, 16]),
    ] {
        assert_eq!(
            shares(&topology, threads)[..2],
            expected,
            "{threads} threads"
        );
    }
}

/// A little machine to drive a policy with: threads run where the policy puts
/// them, one per CPU.
struct Bench {
    topology: Topology,
    tasks: Vec<Task>,
    policy: RoundRobin,
    now_ns: u64,
}

impl Bench {
    /// One thread per entry: its process and the core type where it starts.
    fn new(topology: Topology, threads: &[(u32, usize)]) -> Self {
        let tasks = threads
            .iter()
            .enumerate()
            .map(|(slot, &(tgid, core_type))| Task {
                tgid,
                ..task_of(slot as u32, 0, core_type, topology.types.len())
            })
            .collect();
        Self {
            topology,
            tasks,
            policy: RoundRobin::new(INTERVAL),
            now_ns: 0,
        }
    }

    fn decide(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            topology: &self.topology,
            tasks: &self.tasks,
        };
        self.policy.decide(&snapshot, &mut actions);
        actions
    }

    fn set(&mut self, task: TaskId, core_type: usize) {
        let task = &mut self.tasks[task.slot as usize];
        task.hint = Some(core_type);
        task.core_type = core_type;
    }

    /// Runs for an interval, decides, and carries the decision out.
    fn step(&mut self) -> Vec<Action> {
        self.now_ns += INTERVAL.as_nanos() as u64;
        for task in &mut self.tasks {
            if task.state == TaskState::Running {
                task.run_ns[task.core_type] += INTERVAL.as_nanos() as u64;
            }
        }
        let actions = self.decide();
        for action in &actions {
            match action {
                Action::Hint(seen, core_type) => self.set(seen.task, core_type.unwrap()),
                Action::Swap(pair) => pair.iter().for_each(|(seen, to)| self.set(seen.task, *to)),
                action => panic!("rr measures nothing: {action:?}"),
            }
        }
        actions
    }

    fn big_ns(&self) -> Vec<f64> {
        self.tasks
            .iter()
            .map(|task| task.run_ns[0] as f64)
            .collect()
    }
}

fn spread(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values
        .iter()
        .map(|v| (v - mean).abs() / mean)
        .fold(0.0, f64::max)
}

fn xu4() -> Topology {
    Machine::new("odroid-xu4").topology() // 4 big, 4 LITTLE
}

#[test]
fn single_threaded_applications_share_the_big_cores_equally() {
    let threads: Vec<_> = (0..8).map(|i| (i as u32, usize::from(i >= 4))).collect();
    let mut bench = Bench::new(xu4(), &threads);
    for _ in 0..400 {
        bench.step();
    }
    assert!(spread(&bench.big_ns()) < 0.02, "{:?}", bench.big_ns());
}

#[test]
fn an_application_with_many_threads_gets_no_more_than_one_with_few() {
    // Process 1 has six threads, processes 2 and 3 one each: all three can have
    // a third of four big cores' time, but one thread cannot use more than one.
    let threads = [
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 1),
        (1, 1),
        (2, 1),
        (3, 1),
    ];
    let mut bench = Bench::new(xu4(), &threads);
    for _ in 0..400 {
        bench.step();
    }
    let big = bench.big_ns();
    let all = 400.0 * INTERVAL.as_nanos() as f64;
    assert!(big[6] > 0.97 * all && big[7] > 0.97 * all, "{big:?}");
    assert!(
        spread(&big[..6]) < 0.02,
        "threads of one process share equally: {big:?}"
    );
}

#[test]
fn a_newcomer_neither_waits_for_the_others_age_nor_takes_their_place_for_it() {
    let threads: Vec<_> = (0..7).map(|i| (i as u32, usize::from(i >= 4))).collect();
    let mut bench = Bench::new(xu4(), &threads);
    for _ in 0..200 {
        bench.step();
    }
    let mut newcomer = bench.tasks[6];
    newcomer.id.slot = 7;
    newcomer.tgid = 99;
    newcomer.core_type = 1;
    newcomer.run_ns = [0; MAX_CORE_TYPES];
    bench.tasks.push(newcomer);
    let before = bench.big_ns();
    for _ in 0..400 {
        bench.step();
    }
    let since: Vec<f64> = bench
        .big_ns()
        .iter()
        .zip(&before)
        .map(|(now, then)| now - then)
        .collect();
    assert!(spread(&since) < 0.03, "{since:?}");
}

#[test]
fn with_three_types_the_slower_ones_are_rotated_through_as_well() {
    let phone = Machine::new("phone-4-2-2").topology();
    let threads: Vec<_> = [0, 0, 1, 1, 2, 2, 2, 2]
        .iter()
        .enumerate()
        .map(|(i, &core_type)| (i as u32, core_type))
        .collect();
    let mut bench = Bench::new(phone, &threads);
    for _ in 0..800 {
        bench.step();
    }
    assert!(spread(&bench.big_ns()) < 0.02, "{:?}", bench.big_ns());
    for task in &bench.tasks {
        assert!(
            task.run_ns[1] > 0 && task.run_ns[2] > 0,
            "{:?}",
            task.run_ns
        );
    }
}

#[test]
fn idle_pinned_and_kernel_threads_are_left_alone() {
    let mut bench = Bench::new(
        xu4(),
        &[
            (1, 0),
            (2, 0),
            (3, 0),
            (4, 0),
            (5, 1),
            (6, 1),
            (7, 1),
            (8, 1),
        ],
    );
    bench.tasks[4].state = TaskState::Blocked;
    bench.tasks[5].pinned = true;
    bench.tasks[6].kthread = true;
    bench.tasks[7].allowed_types = 0b10;
    for _ in 0..10 {
        assert_eq!(bench.step(), []);
    }
}

#[test]
fn an_empty_big_core_is_filled_and_a_crowded_one_is_relieved() {
    for start in [1, 0] {
        let threads: Vec<_> = (1..=6).map(|process| (process, start)).collect();
        let mut bench = Bench::new(xu4(), &threads);
        bench.step();
        let on_big = bench
            .tasks
            .iter()
            .filter(|task| task.core_type == 0)
            .count();
        assert_eq!(on_big, 4);
    }
}

#[test]
fn nothing_is_swapped_on_a_machine_with_one_core_type() {
    let server = Machine::new("epyc-9354p").topology();
    let mut bench = Bench::new(server, &[(1, 0), (2, 0)]);
    assert_eq!(bench.step(), []);
    assert_eq!(policy::Name::None.build(SETTINGS).interval(), None);
}

#[test]
fn in_a_crowd_who_goes_by_samples_decides_less_often_and_rr_as_it_was_told() {
    let topology = hetero_core::testing::machine(&[2, 4]);
    let due = |name: policy::Name, threads: u32, asleep: usize| {
        let mut tasks: Vec<Task> = (0..threads)
            .map(|slot| task_of(slot, slot % 6, 0, 2))
            .collect();
        tasks[..asleep]
            .iter_mut()
            .for_each(|task| task.state = TaskState::Blocked);
        let snapshot = Snapshot {
            now_ns: 0,
            topology: &topology,
            tasks: &tasks,
        };
        name.build(SETTINGS).due_in(&snapshot).unwrap().as_millis()
    };
    use policy::Name::{Camps, Hsp, Rr};
    // Of camps 50 ms, of hsp 200 where each thread has one of the six CPUs.
    assert_eq!(
        [3, 6, 18].map(|threads| due(Camps, threads, 0)),
        [50, 50, 150]
    );
    assert_eq!(due(Camps, 18, 12), 50);
    assert_eq!(
        [Camps, Hsp, Rr].map(|name| due(name, 600, 0)),
        [500, 500, 400]
    );
}
