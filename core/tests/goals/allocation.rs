// SPDX-License-Identifier: GPL-2.0-or-later
//! A look allocates nothing once its sessions are known: it is taken in the agent's loop.

use hetero_core::goals::{GoalMachine, GoalSettings, Goals, SessionSight};

use crate::counting::ALLOCATIONS;
use crate::plant::{MS, Plant};

#[test]
fn a_look_allocates_nothing_whichever_sessions_come_and_go() {
    let mut sights: Vec<SessionSight> = (0..100)
        .map(|id| Plant::new(id, 30.0, 0.01).sight())
        .collect();
    let mut goals = Goals::new(GoalSettings::default());
    let machine = GoalMachine {
        fast_cores: 8.0,
        others: 1.0,
    };
    let mut look = |look: u64, sights: &mut [SessionSight]| {
        for sight in &mut *sights {
            sight.beats += 2;
            sight.beat_at_ns = look * 50 * MS;
            sight.spent_ns += 4 * MS;
        }
        goals.look(look * 50 * MS, &machine, sights);
    };
    for at in 1..10 {
        look(at, &mut sights);
        look(at, &mut sights[..50]);
    }
    let before = ALLOCATIONS.get();
    for at in 10..100 {
        let there = if at % 3 == 0 { 40 } else { 100 };
        look(at, &mut sights[..there]);
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
