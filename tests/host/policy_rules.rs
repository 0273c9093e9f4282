// SPDX-License-Identifier: GPL-2.0-only
//! What no policy may ever do, whatever the tasks: tried on random lives of random tasks.

use std::collections::HashSet;
use std::time::Duration;

use clap::ValueEnum;
use hetero_core::testing::{machine, task_of};
use proptest::prelude::*;
use scx_hetero::pmu::sample::{EventCounts, Sample, SampleMetrics, SampleWatts, SfEstimate};
use scx_hetero::policy::{Action, Name, Policy, Seen, Settings, Snapshot};
use scx_hetero::table::{Task, TaskId, TaskState};
use scx_hetero::topology::Topology;

const LOOK_NS: u64 = 50_000_000;

/// What happens to one of the tasks between two looks.
#[derive(Clone, Debug)]
enum Event {
    Comes(usize, u8),
    Goes(usize),
    State(usize, u8),
    /// It is found on some core type that it may use, whatever was wished.
    Moved(usize, usize),
    Affinity(usize, u8),
    Siblings(usize, u32),
    Sample(usize, f64, f64),
    /// So many looks pass.
    Time(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let slot = 0..16_usize;
    prop_oneof![
        4 => (slot.clone(), 1..16_u8).prop_map(|(s, a)| Event::Comes(s, a)),
        1 => slot.clone().prop_map(Event::Goes),
        2 => (slot.clone(), 0..3_u8).prop_map(|(s, state)| Event::State(s, state)),
        2 => (slot.clone(), 0..4_usize).prop_map(|(s, to)| Event::Moved(s, to)),
        1 => (slot.clone(), 1..16_u8).prop_map(|(s, a)| Event::Affinity(s, a)),
        1 => (slot.clone(), 0..9_u32).prop_map(|(s, n)| Event::Siblings(s, n)),
        6 => (slot, 0.0..4.0, 0.0..1e10).prop_map(|(s, ipc, btr)| Event::Sample(s, ipc, btr)),
        6 => (1..12_u8).prop_map(Event::Time),
    ]
}

/// Some machine, tasks in slots, and a policy that is asked about them.
struct World {
    topology: Topology,
    slots: Vec<Option<Task>>,
    generation: u32,
    now_ns: u64,
    policy: Box<dyn Policy>,
}

impl World {
    fn new(counts: &[u32], name: Name, fairness: u8) -> Self {
        Self {
            topology: machine(counts),
            slots: vec![None; 16],
            generation: 0,
            now_ns: 0,
            policy: name.build(Settings {
                fairness,
                ..Settings::default()
            }),
        }
    }

    fn nr_types(&self) -> usize {
        self.topology.types.len()
    }

    /// Affinity that allows some type that there is.
    fn allowed(&self, bits: u8) -> u8 {
        let all = (1 << self.nr_types()) - 1;
        if bits & all == 0 { all } else { bits & all }
    }

    fn happen(&mut self, event: &Event) {
        let nr_types = self.nr_types();
        match *event {
            Event::Comes(slot, bits) => {
                self.generation += 1;
                let mut new = task_of(slot as u32, 0, 0, nr_types);
                new.id.generation = self.generation;
                new.allowed_types = self.allowed(bits);
                new.pinned = bits == 5;
                new.kthread = bits == 9;
                self.slots[slot] = Some(new);
                self.put(slot, slot);
            }
            Event::Goes(slot) => self.slots[slot] = None,
            Event::Moved(slot, to) => self.put(slot, to),
            Event::Affinity(slot, bits) => {
                let allowed = self.allowed(bits);
                if let Some(task) = &mut self.slots[slot] {
                    task.allowed_types = allowed;
                    self.put(slot, slot);
                }
            }
            Event::State(slot, state) => {
                if let Some(task) = &mut self.slots[slot] {
                    task.state =
                        [TaskState::Blocked, TaskState::Queued, TaskState::Running][state as usize];
                }
            }
            Event::Siblings(slot, threads) => {
                if let Some(task) = &mut self.slots[slot] {
                    task.nr_runnable = threads;
                }
            }
            Event::Sample(slot, ipc, btr) => {
                if let Some(task) = &self.slots[slot] {
                    self.policy.observe(&sample(task, ipc, btr));
                }
            }
            Event::Time(looks) => (0..looks).for_each(|_| self.look()),
        }
    }

    /// Brings a task to a core type near `to` that it may use.
    fn put(&mut self, slot: usize, to: usize) {
        let nr_types = self.nr_types();
        if let Some(task) = &mut self.slots[slot] {
            let types = (0..nr_types).map(|i| (to + i) % nr_types);
            let there = types.into_iter().find(|&t| task.may_use(t)).unwrap();
            task.core_type = there;
            task.cpu = self.topology.types[there].cpus[0] as i32;
        }
    }

    fn look(&mut self) {
        self.now_ns += LOOK_NS;
        for task in self.slots.iter_mut().flatten() {
            if task.state == TaskState::Running {
                task.run_ns[task.core_type] += LOOK_NS;
                task.amp_progress += LOOK_NS >> task.core_type;
            }
        }
        let tasks: Vec<Task> = self.slots.iter().flatten().cloned().collect();
        let snapshot = Snapshot {
            now_ns: self.now_ns,
            topology: &self.topology,
            tasks: &tasks,
        };
        let mut actions = Vec::new();
        self.policy.decide(&snapshot, &mut actions);
        self.check(&actions);
        for action in &actions {
            let moves: &[(Seen, usize)] = match action {
                Action::Hint(seen, Some(to)) => &[(*seen, *to)],
                Action::Swap(pair) => pair,
                _ => &[],
            };
            for &(seen, to) in moves {
                let slot = seen.task.slot as usize;
                if let Some(task) = &mut self.slots[slot] {
                    task.hint = Some(to);
                    // One in three is not carried out at once.
                    if !self.now_ns.is_multiple_of(3 * LOOK_NS) {
                        self.put(slot, to);
                    }
                }
            }
        }
    }

    fn check(&self, actions: &[Action]) {
        let find = |id: TaskId| {
            let task = self.slots[id.slot as usize].as_ref();
            task.filter(|task| task.id == id)
                .expect("a task that there is")
        };
        let mut named = HashSet::new();
        let mut sent = |seen: &Seen, to: usize| {
            let task = find(seen.task);
            assert_eq!(seen.on, task.core_type, "seen where it is");
            assert!(task.may_use(to), "outside its affinity: {task:?} to {to}");
            assert!(!task.pinned && !task.kthread, "{task:?}");
            assert!(named.insert(seen.task), "named twice: {actions:?}");
        };
        let mut told = HashSet::new();
        for action in actions {
            match action {
                Action::Hint(seen, to) => {
                    // One that is no longer sent anywhere may stay.
                    let stays = find(seen.task).core_type;
                    sent(seen, to.unwrap_or(stays));
                }
                Action::Swap([(one, to), (other, back)]) => {
                    sent(one, *to);
                    sent(other, *back);
                    // The number of threads per type stays: each goes where the other is, or, if
                    // that one waits in a queue, where it was sent.
                    assert_ne!(to, back, "{actions:?}");
                    for (from, place) in [(one, back), (other, to)] {
                        let task = find(from.task);
                        let waits = task.state == TaskState::Queued && task.hint == Some(*place);
                        assert!(
                            *place == task.core_type || waits,
                            "{task:?} is not on {place}"
                        );
                    }
                }
                Action::Slowdown(id, inverse) => {
                    find(*id);
                    assert!(told.insert(*id), "told twice: {actions:?}");
                    assert!(inverse.iter().all(|&i| i > 0.0 && i <= 1.0), "{inverse:?}");
                }
                Action::Park(cpu, time) => {
                    assert!(self.topology.cpu(*cpu).is_some(), "{actions:?}");
                    assert!(*time <= Duration::from_millis(100), "{actions:?}");
                }
                Action::Weight(..) | Action::Join(..) => panic!("{actions:?}: that is no policy's"),
            }
        }
    }
}

fn sample(task: &Task, ipc: f64, btr: f64) -> Sample {
    Sample {
        task: task.id,
        tid: task.tid,
        tgid: task.tgid,
        core_type: task.core_type,
        at_ns: 0,
        run_ns: LOOK_NS,
        last: false,
        counts: EventCounts::default(),
        metrics: SampleMetrics {
            ips: ipc * 1e9,
            ipc,
            frequency: 1e9,
            l1_per_kilo: Some(100.0 * ipc),
            branch_fraction: Some(0.1),
            btr: Some(btr),
            stalled: None,
        },
        sf: Some(SfEstimate {
            sf: 1.0 + ipc,
            sigma: 0.05,
        }),
        ef: Some(0.3 + ipc),
        watts: (ipc < 2.0).then(|| SampleWatts::on(task.core_type, 0.5 + ipc, 0.1)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn actions_respect_affinity_keep_numbers_and_name_no_task_twice(
        events in prop::collection::vec(event(), 1..120),
        counts in prop_oneof![Just(vec![4]), Just(vec![2, 4]), Just(vec![4, 4]), Just(vec![2, 3, 1])],
        fairness in prop_oneof![Just(100_u8), 0..100_u8],
    ) {
        for &name in Name::value_variants() {
            let mut world = World::new(&counts, name, fairness);
            for event in &events {
                world.happen(event);
            }
        }
    }
}
