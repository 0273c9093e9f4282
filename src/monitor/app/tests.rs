// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::monitor::keys::KeyAction;
use crate::stats::live::{LiveCoreType, LiveCpu};

/// A machine with 2 P and 4 E CPUs and a few threads.
pub(crate) fn live() -> Live {
    let cpu = |cpu: u32| LiveCpu {
        cpu,
        core_type: usize::from(cpu >= 2),
        domain: usize::from(cpu >= 2),
        llc: 0,
        busy_pct: 50.0,
        mhz: Some(4700),
        tid: Some(100 + cpu),
        comm: "stress-ng-cpu".into(),
    };
    let kind = |name: &str, cpus| LiveCoreType {
        name: name.into(),
        cpus,
        busy_pct: 50.0,
    };
    let thread = |tid: u32, comm: &str, load_pct: f64, lead_ms: i64| LiveThread {
        tid,
        pid: tid,
        comm: comm.into(),
        state: "running".into(),
        cpu: tid % 6,
        core_type: usize::from(tid % 6 >= 2),
        load_pct,
        takes_part: true,
        slowdown: Some(1.98),
        asymmetry: Some(1.8),
        contention: Some(1.1),
        sf: Some(1.8),
        btr: Some(120e6),
        phase: Some(1),
        hit_rate: Some(0.93),
        lead_ns: Some(lead_ms * 1_000_000),
        moves: 5,
        watts: None,
        disturbed: None,
    };
    Live {
        elapsed_ns: 1_000_000_000,
        policy: "camps".into(),
        policies: vec!["none".into(), "rr".into(), "camps".into()],
        fairness: Some(100),
        core_types: vec![kind("P", 2), kind("E", 4)],
        cpus: (0..6).map(cpu).collect(),
        threads: vec![
            thread(101, "xz", 99.0, -400),
            thread(102, "openssl", 98.0, 300),
            thread(233, "a-name-of-15-ch", 50.0, 0),
        ],
        tasks: 30,
        runnable: 3,
        unfairness: Some(1.12),
        asp: Some(2.1),
        stp: Some(4.31),
        ..Live::default()
    }
}

pub(crate) fn app() -> App {
    let mut app = App::default();
    app.update(Update::Live(Box::new(live())));
    app
}

fn tids(app: &App) -> Vec<u32> {
    app.threads().iter().map(|thread| thread.tid).collect()
}

#[test]
fn threads_are_sorted_and_filtered() {
    let mut app = app();
    assert_eq!(tids(&app), [101, 102, 233]);
    app.sort = Sort::Progress;
    assert_eq!(tids(&app), [101, 233, 102], "those behind first");
    app.act(KeyAction::Reverse);
    assert_eq!(tids(&app), [102, 233, 101]);
    for letter in "Open".chars() {
        app.act(KeyAction::Type(letter));
    }
    assert_eq!(tids(&app), [102]);
    app.act(KeyAction::NoFilter);
    app.act(KeyAction::Type('2'));
    assert_eq!(tids(&app), [233], "ids by their beginning");
}

#[test]
fn sorting_goes_round_both_ways() {
    let mut app = app();
    for _ in 0..Sort::ALL.len() {
        app.act(KeyAction::NextSort);
    }
    assert_eq!(app.sort, Sort::Load);
    app.act(KeyAction::LastSort);
    assert_eq!(app.sort, Sort::Moves);
    app.act(KeyAction::NextSort);
    assert_eq!(app.sort, Sort::Load);
}

#[test]
fn the_choice_follows_its_thread() {
    let mut app = app();
    app.act(KeyAction::Down(1));
    assert_eq!(app.selected, Some(102));
    app.act(KeyAction::Reverse);
    assert_eq!(app.selected_index(&app.threads()), 1);
    app.act(KeyAction::Down(usize::MAX / 2));
    assert_eq!(app.selected, Some(101));
    app.act(KeyAction::Up(usize::MAX / 2));
    assert_eq!(app.selected, Some(233));
}

#[test]
fn enter_asks_for_the_story_and_back_ends_that() {
    let mut app = app();
    app.act(KeyAction::Down(1));
    assert_eq!(app.act(KeyAction::Enter), Some(Question::Story(Some(102))));
    assert_eq!(app.view, Screen::Story(102, 0));
    assert_eq!(app.act(KeyAction::Back), Some(Question::Story(None)));
    assert_eq!(app.view, Screen::Threads);
}

#[test]
fn a_policy_is_chosen_from_the_list_beginning_with_that_in_force() {
    let mut app = app();
    app.act(KeyAction::Policies);
    assert_eq!(app.view, Screen::Policies(2));
    app.act(KeyAction::Up(1));
    let asked = app.act(KeyAction::Enter);
    assert_eq!(asked, Some(Question::SetPolicy("rr".into())));
    app.update(Update::Said(Ok("policy rr".into())));
    assert_eq!(app.said, Some(Ok("policy rr".into())));
}

#[test]
fn paused_it_stands_still() {
    let mut app = app();
    app.act(KeyAction::Pause);
    let mut later = live();
    later.threads.clear();
    app.update(Update::Live(Box::new(later.clone())));
    assert_eq!(app.threads().len(), 3);
    app.act(KeyAction::Pause);
    app.update(Update::Live(Box::new(later)));
    assert_eq!(app.threads().len(), 0);
}

#[test]
fn what_was_seen_last_stays_when_the_scheduler_is_gone() {
    let mut app = app();
    app.update(Update::Gone("connection closed".into()));
    assert!(app.gone.is_some() && app.threads().len() == 3);
    app.update(Update::Live(Box::new(live())));
    assert_eq!(app.gone, None);
}
