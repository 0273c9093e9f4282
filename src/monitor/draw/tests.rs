// SPDX-License-Identifier: GPL-2.0-only

use hetero_core::interference::InterferenceClass;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::agent::disturbed::DisturbedStory;
use crate::monitor::app::Update;
use crate::monitor::app::tests::{app, live};
use crate::monitor::keys::KeyAction;
use crate::stats::live::{LiveCpu, LiveEnergy};
use crate::stats::story::{Story, ThreadStory};

const PLAIN: Appearance = Appearance {
    color: false,
    unicode: true,
};

/// The lines of the screen.
fn screen(app: &App, width: u16, height: u16, look: Appearance) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, look)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..height)
        .map(|y| line(y).trim_end().to_string())
        .collect()
}

#[test]
fn everything_is_there_in_80_columns() {
    let text = screen(&app(), 80, 24, PLAIN).join("\n");
    for part in [
        "policy camps, fairness 100",
        "30 threads, 3 runnable",
        "unfairness 1.12",
        "throughput 4.31",
        "ASP 2.10",
        " P      0 [|||   ]  50% 4.70G stress-ng-c",
        "SLOW=TYPExCONT",
        "1.98=1.80x1.10 1.80 120M  1  93%",
        "q quit",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn power_is_shown_where_it_is_known_and_that_it_is_saved() {
    let mut app = app();
    let live = app.live.as_mut().unwrap();
    live.watts = Some(12.34);
    live.saves = true;
    live.runnable = 1000;
    live.tasks = 10_000;
    let screen = screen(&app, 80, 24, PLAIN);
    assert!(screen[0].contains("fairness 100, saving "), "{}", screen[0]);
    assert!(screen[0].ends_with(" 10000 threads, 1000 runnable"));
    assert!(screen[1].ends_with("  ASP 2.10  12.3 W"), "{}", screen[1]);
}

#[test]
fn power_by_core_type_has_a_line_with_curves_where_energy_is_counted() {
    let mut app = app();
    assert!(app.power.is_empty());
    let mut live = live();
    let part = |part: &str, watts| LiveEnergy {
        part: part.into(),
        watts: Some(watts),
        ..LiveEnergy::default()
    };
    for watts in [10.0, 20.0, 40.0] {
        let mut energy: Vec<LiveEnergy> = live
            .core_types
            .iter()
            .map(|kind| part(&kind.name, watts))
            .collect();
        energy.extend([part("idle", 0.01), part("uncore", 3.0)]);
        live.energy = energy;
        app.update(Update::Live(Box::new(live.clone())));
    }
    let lines = screen(&app, 80, 24, PLAIN);
    assert!(lines[2].starts_with(" watts  P 40.0 ▃▅█ "), "{}", lines[2]);
    assert!(lines[2].ends_with("  uncore 3.0"), "{}", lines[2]);
    assert!(lines[3].contains("NWC"), "{}", lines[3]);
    assert!(lines[2].chars().count() <= 80);
}

#[test]
fn which_program_slows_down_which_is_a_matrix_in_80_columns() {
    let mut app = app();
    app.act(KeyAction::Beside);
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(text.contains("No program slows another down"), "{text}");
    let mut live = live();
    let by = |pid: u32, name: &str, slowdown, class| {
        Some(DisturbedStory {
            slowdown,
            class,
            also: None,
            confidence: 0.9,
            pid: Some(pid),
            by: Some(name.into()),
            part: Some(1.0),
        })
    };
    use InterferenceClass::{Bandwidth, Llc, Wait};
    live.threads[0].disturbed = by(102, "openssl", 1.4, Bandwidth);
    live.threads[1].disturbed = by(4_194_303, "a-name-of-15-ch", 12.0, Wait);
    live.threads[2].disturbed = by(102, "openssl", 1.2, Llc);
    // Another thread of the last program, for reasons that are not known; and one that is not sure.
    let mut other = live.threads[2].clone();
    (other.tid, other.comm) = (234, "worker".into());
    let found = other.disturbed.as_mut().unwrap();
    (found.pid, found.by) = (None, None);
    live.threads.push(other.clone());
    other.tid = 235;
    other.disturbed = by(101, "xz", 9.0, Llc);
    other.disturbed.as_mut().unwrap().confidence = 0.3;
    live.threads.push(other);
    app.update(Update::Live(Box::new(live)));
    let lines = screen(&app, 80, 24, PLAIN);
    let heading = lines.iter().position(|line| line.contains("SLOWED DOWN"));
    let heading = heading.unwrap();
    assert_eq!(
        lines[heading..heading + 4],
        [
            " SLOWED DOWN             BY a-n 4194303 BY openssl 102 BY not known",
            " openssl 102             12.00 wait",
            " xz 101                                 1.40 bandwidth",
            " a-name-of-15-ch 233                    1.20 llc       1.20 llc",
        ]
    );
    app.act(KeyAction::Down(1));
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(!text.contains("12.00 wait") && text.contains("1.40 bandwidth"));
    app.act(KeyAction::Down(100));
    assert_eq!(app.view, Screen::Beside(2));
    assert_eq!(app.act(KeyAction::Back), None);
    assert_eq!(app.view, Screen::Threads);
}

#[test]
fn power_of_the_last_minutes_has_a_view_by_core_type_and_program() {
    let mut app = app();
    app.act(KeyAction::Energy);
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(text.contains("there is no sensor"), "{text}");
    let mut live = live();
    for reading in 0..24 {
        let part = |part: &str, watts| LiveEnergy {
            part: part.into(),
            watts: Some(watts),
            ..LiveEnergy::default()
        };
        // It is busy for the second half.
        let busy = f64::from(u8::from(reading >= 12));
        live.energy = vec![
            part("P", 12.0 * busy),
            part("E", 3.0),
            part("untold", 0.0),
            part("uncore", 2.5),
        ];
        live.threads[0].watts = Some(12.0 * busy);
        live.threads[1].watts = Some(3.0);
        app.update(Update::Live(Box::new(live.clone())));
    }
    let lines = screen(&app, 80, 24, PLAIN);
    let heading = lines
        .iter()
        .position(|line| line.contains(" PID NAME"))
        .unwrap();
    let shown = &lines[heading..];
    let row = |what: &str| shown.iter().find(|line| line.contains(what)).unwrap();
    assert_eq!(
        lines[heading + 1],
        "         P                12.00   6.00  ▁▁██"
    );
    assert_eq!(
        *row("  uncore "),
        "         uncore            2.50   2.50  ▂▂▂▂"
    );
    assert!(!shown.join("\n").contains("untold"));
    // The program that took most comes first.
    assert_eq!(*row(" xz "), "     101 xz               12.00   6.00  ▁▁██");
    assert_eq!(
        *row(" openssl "),
        "     102 openssl           3.00   3.00  ▃▃▃▃"
    );
    let at = |what: &str| shown.iter().position(|line| line.contains(what));
    assert!(at(" xz ") < at(" openssl "));
    app.act(KeyAction::Down(1));
    assert_eq!(app.view, Screen::Energy(1));
    let scrolled = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(!scrolled.contains(" 101 xz") && scrolled.contains(" 102 openssl"));
    app.act(KeyAction::Back);
    assert_eq!(app.view, Screen::Threads);
}

#[test]
fn watts_of_threads_take_the_place_of_phases_and_hits() {
    let mut app = app();
    let live = app.live.as_mut().unwrap();
    live.energy = vec![LiveEnergy::default()];
    live.threads[0].watts = Some(12.34);
    live.threads[1].watts = Some(0.56);
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(text.contains("LOAD    W SLOW=TYPExCONT"), "{text}");
    assert!(!text.contains(" PH "), "{text}");
    for watts in ["%   12 ", "%  0.6 ", "%    - "] {
        assert!(text.contains(watts), "{watts:?} in\n{text}");
    }
}

#[test]
fn a_wide_screen_has_room_for_names_and_bars() {
    let text = screen(&app(), 120, 40, PLAIN).join("\n");
    for part in ["a-name-of-15-ch", "BEHIND|AHEAD", "4.70G stress-ng-cpu "] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn many_cpus_leave_room_for_threads() {
    let mut app = app();
    let mut live = live();
    let one = live.cpus[5].clone();
    live.cpus
        .extend((6..256).map(|cpu| LiveCpu { cpu, ..one.clone() }));
    app.update(Update::Live(Box::new(live)));
    let lines = screen(&app, 80, 24, PLAIN);
    let header = lines.iter().position(|line| line.contains("NAME"));
    assert!(
        header.is_some_and(|line| line <= 11),
        "{}",
        lines.join("\n")
    );
}

/// 64 fast CPUs and 64 slow ones, the last of them busy.
fn many() -> App {
    let mut app = app();
    let mut live = live();
    let one = live.cpus[0].clone();
    live.cpus = (0..128)
        .map(|cpu| LiveCpu {
            cpu,
            core_type: usize::from(cpu >= 64),
            domain: cpu as usize / 8,
            busy_pct: f64::from(cpu / 64 * 100),
            ..one.clone()
        })
        .collect();
    app.update(Update::Live(Box::new(live)));
    app
}

#[test]
fn no_core_type_vanishes_where_there_is_little_room() {
    let text = screen(&many(), 80, 24, PLAIN).join("\n");
    for part in [
        " P      0    0%",
        " E     64  100%",
        " more CPUs, busy 0% on",
        " more CPUs, busy 100% on",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let text = screen(&many(), 40, 10, PLAIN).join("\n");
    assert!(
        text.contains(" E ") && text.contains("CPUs, busy 100%"),
        "{text}"
    );
    // Where there is room all are shown.
    let text = screen(&many(), 200, 60, PLAIN).join("\n");
    assert!(
        text.contains("127") && !text.contains("more CPUs"),
        "{text}"
    );
}

#[test]
fn cpus_do_not_run_into_each_other() {
    for width in [40, 60, 80, 100, 200] {
        let mut app = many();
        for cpu in &mut app.live.as_mut().unwrap().cpus {
            cpu.cpu += 100;
            cpu.busy_pct = 100.0;
        }
        let text = screen(&app, width, 60, PLAIN).join("\n");
        let row = text.lines().find(|line| line.contains(" 100 ")).unwrap();
        for cpu in row.split_inclusive('%').filter(|cpu| cpu.ends_with('%')) {
            assert!(cpu.starts_with(' '), "{width}: {row}");
        }
    }
}

#[test]
fn a_narrow_screen_drops_columns_and_cuts_none_and_a_wide_one_keeps_slowdowns_whole() {
    let mut app = app();
    for thread in &mut app.live.as_mut().unwrap().threads {
        thread.btr = Some(100e3);
        thread.slowdown = Some(12.34);
        (thread.asymmetry, thread.contention) = (Some(10.01), Some(11.23));
    }
    let narrow = screen(&app, 60, 24, PLAIN).join("\n");
    assert!(
        narrow.contains("SLOW=TYPExCONT") && !narrow.contains("BTR"),
        "{narrow}"
    );
    assert!(screen(&app, 80, 24, PLAIN).join("\n").contains(" 100k "));
    let least = screen(&app, 40, 24, PLAIN).join("\n");
    assert!(least.contains("LOAD") && !least.contains("SLOW"), "{least}");
    let wide = screen(&app, 200, 40, PLAIN);
    let wide = wide.join("\n");
    assert!(wide.contains("12.34=10.01x11.23"), "{wide}");
    let header = wide.lines().find(|line| line.contains("NAME")).unwrap();
    let name = header.find("ON").unwrap() - header.find("NAME").unwrap();
    assert!(name <= 33 && header.contains("BEHIND|AHEAD"), "{header}");
}

#[test]
fn wide_letters_keep_the_grid() {
    let mut app = app();
    let live = app.live.as_mut().unwrap();
    for cpu in &mut live.cpus {
        cpu.comm = "名前名前名前名前名".into();
    }
    let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &app, PLAIN)).unwrap();
    let buffer = terminal.backend().buffer();
    let bars = |y: u16| {
        (0..100)
            .filter(|&x| buffer[(x, y)].symbol() == "[")
            .collect::<Vec<u16>>()
    };
    let rows: Vec<_> = (0..24).map(bars).filter(|bars| bars.len() > 1).collect();
    assert!(
        rows.len() > 1 && rows.iter().all(|row| *row == rows[0]),
        "{rows:?}"
    );
}

#[test]
fn what_to_do_without_a_scheduler_is_not_cut_off() {
    let app = App {
        gone: Some(
            "no sched_ext scheduler answers: start it with 'sudo scx_hetero', or 'sudo systemctl start \
             scx_hetero'"
                .into(),
        ),
        ..App::default()
    };
    for (width, height) in [(40, 10), (80, 24), (200, 50)] {
        let screen = screen(&app, width, height, PLAIN);
        let words: Vec<&str> = screen
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect();
        let text = words.join(" ");
        assert!(
            text.contains("'sudo systemctl start scx_hetero'; trying again"),
            "{text}"
        );
        assert!(text.ends_with("(q quits)"), "{text}");
    }
}

#[test]
fn the_help_explains_the_numbers_and_fits() {
    let mut app = app();
    app.act(KeyAction::Help);
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    for part in [
        "unfairness ",
        "throughput ",
        "ASP ",
        "NWC ",
        "forced ",
        "doubted",
        "MOVES by the policy",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn any_size_can_be_drawn() {
    let mut app = app();
    for view in [
        Screen::Threads,
        Screen::Filter,
        Screen::Story(101, 0),
        Screen::Beside(0),
        Screen::Energy(0),
        Screen::Policies(1),
        Screen::Help,
    ] {
        app.view = view;
        for (width, height) in [(1, 1), (39, 9), (40, 10), (80, 10), (300, 100)] {
            screen(&app, width, height, PLAIN);
        }
    }
    screen(&App::default(), 80, 24, PLAIN);
}

#[test]
fn who_is_gone_is_said_to_be() {
    let mut app = app();
    app.update(Update::Gone("no sched_ext scheduler answers".into()));
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(
        text.contains("NO ANSWER") && text.contains("trying again"),
        "{text}"
    );
    assert!(text.contains("openssl"), "what was seen last stays");
}

#[test]
fn what_the_scheduler_says_to_a_setting_is_shown() {
    let mut app = app();
    app.update(Update::Said(Ok("policy rr".into())));
    assert!(screen(&app, 80, 24, PLAIN)[23].contains("now policy rr"));
    app.update(Update::Said(Err("no".into())));
    assert!(screen(&app, 80, 24, PLAIN)[23].contains("refused: no"));
}

#[test]
fn the_story_the_policies_and_the_help_can_be_read() {
    let mut app = app();
    app.act(KeyAction::Enter);
    assert!(
        screen(&app, 80, 24, PLAIN)
            .join("\n")
            .contains("asking about 101")
    );
    app.update(Update::Story(Story {
        core_types: vec!["P".into(), "E".into()],
        threads: vec![ThreadStory {
            tid: 101,
            pid: 101,
            comm: "xz".into(),
            ..ThreadStory::default()
        }],
        ..Story::default()
    }));
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(
        text.contains("101 (xz)") && text.contains("where    P"),
        "{text}"
    );
    app.act(KeyAction::Back);
    app.act(KeyAction::Policies);
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(text.contains("> camps (in force)"), "{text}");
    app.act(KeyAction::Back);
    app.act(KeyAction::Help);
    let text = screen(&app, 80, 24, PLAIN).join("\n");
    assert!(
        text.contains("switch the policy") && text.contains("q, Ctrl-C"),
        "{text}"
    );
}

#[test]
fn without_colour_and_unicode_there_is_none() {
    let ascii = Appearance::of(|name| match name {
        "NO_COLOR" => Some("1".into()),
        "LANG" => Some("C".into()),
        _ => None,
    });
    assert!(!ascii.color && !ascii.unicode);
    assert!(screen(&app(), 80, 24, ascii).join("\n").is_ascii());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &app(), ascii)).unwrap();
    let cells = terminal.backend().buffer().content();
    assert!(
        cells
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
    );
    let utf8 = Appearance::of(|name| (name == "LC_ALL").then(|| "en_US.UTF-8".into()));
    assert!(utf8.color && utf8.unicode);
}
