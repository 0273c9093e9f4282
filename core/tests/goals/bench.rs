// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs programs on a machine under goals, and says how near they were to their targets.

use hetero_core::goals::room::GoalRoom;
use hetero_core::goals::{GoalMachine, GoalSettings, GoalState, Goals, SessionSight};
use rand_pcg::Pcg64Mcg;

use crate::plant::{MS, Plant};

/// How often goals look, ms.
pub(crate) const LOOK: u64 = 50;

/// How near windows of a second, or ten beats where that is longer, were to targets. The first two
/// seconds do not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nearness {
    pub(crate) windows: u32,
    pub(crate) within: u32,
    /// Of those, windows that began a second or more after the program's phase did.
    pub(crate) settled: u32,
    pub(crate) settled_within: u32,
    pub(crate) settled_beyond_15: u32,
    /// The most that one of these was off.
    pub(crate) worst: f64,
}

impl Nearness {
    fn note(&mut self, off: f64, settled: bool) {
        self.windows += 1;
        self.within += u32::from(off <= 0.1);
        if settled {
            self.settled += 1;
            self.settled_within += u32::from(off <= 0.1);
            self.settled_beyond_15 += u32::from(off > 0.15);
            self.worst = self.worst.max(off);
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.windows += other.windows;
        self.within += other.within;
        self.settled += other.settled;
        self.settled_within += other.settled_within;
        self.settled_beyond_15 += other.settled_beyond_15;
        self.worst = self.worst.max(other.worst);
    }

    /// Percent of all windows within 10 %, of settled ones, and of these beyond 15 %.
    pub(crate) fn percent(&self) -> [f64; 3] {
        let part = |part: u32, of: u32| 100.0 * f64::from(part) / f64::from(of.max(1));
        [
            part(self.within, self.windows),
            part(self.settled_within, self.settled),
            part(self.settled_beyond_15, self.settled),
        ]
    }
}

/// See the module.
pub(crate) struct Bench {
    pub(crate) goals: Goals,
    pub(crate) machine: GoalMachine,
    pub(crate) plants: Vec<Plant>,
    pub(crate) rng: Pcg64Mcg,
    pub(crate) ms: u64,
    /// How often goals look, ms: [`LOOK`] unless changed.
    pub(crate) look_ms: u64,
    /// What each may spend now.
    given: Vec<f64>,
    /// What of it the BPF half really lets it spend.
    pub(crate) delivered: f64,
    pub(crate) rooms: Vec<GoalRoom>,
    pub(crate) near: Nearness,
}

impl Bench {
    pub(crate) fn new(plants: Vec<Plant>, fast_cores: f64, rng: Pcg64Mcg) -> Self {
        Self {
            goals: Goals::new(GoalSettings::default()),
            machine: GoalMachine {
                fast_cores,
                others: 0.0,
            },
            plants,
            rng,
            ms: 0,
            look_ms: LOOK,
            given: Vec::new(),
            delivered: 1.0,
            rooms: Vec::new(),
            near: Nearness::default(),
        }
    }

    fn look(&mut self) {
        let sights: Vec<SessionSight> = self.plants.iter().map(Plant::sight).collect();
        let now = self.ms * MS;
        self.goals.confine(&self.rooms);
        let states = self.goals.look(now, &self.machine, &sights);
        self.given.clear();
        let given = states.iter().map(|state| state.fast_cores);
        self.given.extend(given);
        let sum: f64 = self.given.iter().sum();
        assert!(sum <= self.machine.fast_cores + 1e-6, "{sum}");
        if std::env::var_os("GOALS_TRACE").is_some() {
            let it = &states[0];
            println!(
                "{} {:.2} of {:.2} beats/s, given {:.3} of {:.3}, spent {:.3}, {:?}",
                self.ms,
                it.rates.windowed.unwrap_or(0.0),
                it.target,
                it.fast_cores,
                it.demand,
                it.spent,
                it.miss
            );
        }
    }

    fn part_of(&self, room: &GoalRoom) -> f64 {
        let all = self.plants.iter().zip(&self.given);
        let those = all.filter(|(plant, _)| room.has(plant.room));
        let given: f64 = those.map(|(_, given)| given).sum();
        (room.fast_cores / given).min(1.0)
    }

    /// For so many ms.
    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            if self.ms.is_multiple_of(self.look_ms) {
                self.look();
            }
            let mut free = self.machine.fast_cores;
            // What is confined gets no more than its CPUs have, whatever it is allotted.
            let parts: Vec<f64> = self.rooms.iter().map(|room| self.part_of(room)).collect();
            let part = |of: Option<u8>| of.map_or(1.0, |of| parts[usize::from(of)]);
            for (plant, given) in self.plants.iter_mut().zip(&self.given) {
                let may = given * self.delivered * part(plant.room);
                free -= plant.step(self.ms * MS, may, free.max(0.0), &mut self.rng) * 1000.0;
            }
            self.ms += 1;
            if self.ms.is_multiple_of(100) && self.ms > 2000 {
                for plant in &self.plants {
                    let off = plant.rate_before(self.ms * MS) / plant.target - 1.0;
                    let settled =
                        self.ms > plant.phase_began(self.ms) + 1000 + plant.window_began();
                    self.near.note(off.abs(), settled);
                }
            }
        }
    }

    /// Of the latest look.
    pub(crate) fn state(&self, plant: usize) -> &GoalState {
        let id = self.plants[plant].id;
        self.goals.of(id).expect("it is a session")
    }

    /// Rate over target, in the last window.
    pub(crate) fn reached(&self, plant: usize) -> f64 {
        let plant = &self.plants[plant];
        plant.rate_before(self.ms * MS) / plant.target
    }
}
