// SPDX-License-Identifier: GPL-2.0-only
//! What is packed beside the program: that it fits the program, and what reads it accepts it.

use crate::program::{PROGRAM, command, output};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    fs::read_to_string(folder.join(file)).unwrap()
}

/// The help of a command, and the names under "Commands:" in it, as people see it.
fn help_of(command: &[&str]) -> (String, Vec<String>) {
    let output = output(&[command, &["--help"]].concat());
    let help = String::from_utf8(output.stdout).unwrap();
    let after = help.split_once("Commands:\n").unwrap_or_default().1;
    let commands = after.split("\n\n").next().unwrap().lines();
    // Two columns in; what is further in goes on with a text.
    let names = commands.filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_string());
    let names = names.filter(|name| name != "help").collect();
    (help, names)
}

fn assert_example(command: &[&str]) {
    let (help, subcommands) = help_of(command);
    let example = [&["scx_hetero"], command].concat().join(" ");
    let examples = help.split_once("\nExample");
    assert!(
        examples.is_some_and(|(_, text)| text.contains(&example)),
        "{example}: {help}"
    );
    // None goes on in another line.
    let text = examples.unwrap_or_default().1.split("\n\n").next();
    for line in text.unwrap().lines().skip(1) {
        let program = line.trim_start_matches("  ").trim_start_matches("sudo ");
        assert!(program.starts_with("scx_hetero"), "{line}: {help}");
    }
    for name in &subcommands {
        assert_example(&[command, &[name.as_str()]].concat());
    }
}

#[test]
fn every_commands_help_has_an_example() {
    assert_example(&[]);
    // Hidden, as it is for packagers.
    assert_example(&["generate"]);
    // And as it is for the service.
    assert_example(&["restore"]);
}

#[test]
fn the_kinds_of_beats_are_a_table_in_the_help() {
    let (help, _) = help_of(&["goal", "run"]);
    let kinds = help.split_once("A beat is:\n").unwrap().1;
    for line in kinds.split("\n\n").next().unwrap().lines() {
        let told = line.get(24..26) == Some("  ") || line.get(25..26) == Some(" ");
        assert!(told && line.len() <= 80, "{line}: {help}");
    }
}

#[test]
fn what_cannot_be_printed_is_told_and_what_nobody_reads_is_not() {
    for args in [
        &["--help"][..],
        &["--version"],
        &["--help-stats"],
        &["sim", "--help"],
    ] {
        let run = |to: std::process::Stdio| command(args).stdout(to).output().unwrap();
        let full = run(fs::File::create("/dev/full").unwrap().into());
        let said = String::from_utf8(full.stderr).unwrap();
        assert_eq!(full.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
        let (unread, pipe) = std::io::pipe().unwrap();
        drop(unread);
        let unread = run(pipe.into());
        assert!(
            unread.status.success() && unread.stderr.is_empty(),
            "{args:?}"
        );
    }
}

fn generated(folder: &Path) -> impl Fn(&str) -> String {
    let output = output(&["generate", folder.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
    move |file| fs::read_to_string(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

#[test]
fn man_pages_and_completions_know_every_subcommand_and_option() {
    let folder = tempfile::tempdir().unwrap();
    // A folder that is not there yet.
    let folder = folder.path().join("new");
    let file = generated(&folder);
    let (man, bash) = (file("scx_hetero.1"), file("scx_hetero.bash"));
    let (zsh, fish) = (file("_scx_hetero"), file("scx_hetero.fish"));
    let (_, subcommands) = help_of(&[]);
    for known in ["topology", "doctor", "sim"] {
        assert!(
            subcommands.iter().any(|name| name == known),
            "{subcommands:?}"
        );
    }
    for name in &subcommands {
        assert!(
            man.contains(&format!("scx_hetero\\-{name}(1)")),
            "{name}: {man}"
        );
        assert!(
            file(&format!("scx_hetero-{name}.1")).contains(".SH NAME"),
            "{name}"
        );
        for completions in [&bash, &zsh, &fish] {
            assert!(completions.contains(name), "{name}");
        }
    }
    for option in ["policy", "core-types", "stats", "exit-dump-len"] {
        assert!(man.contains(&option.replace('-', "\\-")), "{option}");
        for completions in [&bash, &zsh, &fish] {
            assert!(completions.contains(option), "{option}");
        }
    }
    assert!(
        man.contains(".SH \"EXIT STATUS\"\n0 detached cleanly"),
        "{man}"
    );
    let beats = file("scx_hetero-goal-run.1");
    for part in [
        ".SH NOTES\n.PP\nA beat is:\n.nf\nlines,",
        ".SH \"EXAMPLES\"\n.nf\nscx_hetero goal run",
    ] {
        assert!(beats.contains(part), "{part} is not in: {beats}");
    }
    assert!(!man.contains("slots") && !folder.join("scx_hetero-generate.1").exists());
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let output = output(&["generate", "/proc/none"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot write to /proc/none"), "{said}");
}

/// Whether the shell is there and takes the completions, or why not.
fn parse(shell: &str, file: PathBuf) {
    match Command::new(shell).arg("-n").arg(&file).output() {
        Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
        Err(error) => println!("SKIPPED: {shell}: {error}"),
    }
}

#[test]
fn shells_understand_their_completions() {
    let folder = tempfile::tempdir().unwrap();
    let _ = generated(folder.path());
    for (shell, file) in [
        ("bash", "scx_hetero.bash"),
        ("zsh", "_scx_hetero"),
        ("fish", "scx_hetero.fish"),
    ] {
        parse(shell, folder.path().join(file));
    }
}

#[test]
fn systemd_finds_no_fault_with_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["scx_hetero.service", "scx_hetero-prometheus.service"] {
        let path = folder.path().join(name);
        // It looks for the program and the man page, which need not be installed.
        let unit = packaging(name).replace("/usr/bin/scx_hetero", PROGRAM);
        let unit = unit
            .lines()
            .filter(|line| !line.starts_with("Documentation="));
        fs::write(&path, unit.collect::<Vec<_>>().join("\n")).unwrap();
        match Command::new("systemd-analyze")
            .arg("verify")
            .arg(&path)
            .output()
        {
            Err(error) => println!("SKIPPED: systemd-analyze: {error}"),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                // Of units of the machine that it runs on, it may say what it likes.
                let ours: Vec<_> = said
                    .lines()
                    .filter(|line| line.contains("scx_hetero"))
                    .collect();
                assert!(output.status.success() && ours.is_empty(), "{said}");
            }
        }
    }
}

/// What a unit says of a key.
fn says(unit: &str, key: &str) -> Option<String> {
    let unit = packaging(unit);
    let mut lines = unit.lines();
    let said = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    said.map(str::to_string)
}

#[test]
fn the_units_bound_what_their_programs_take_and_only_one_is_root() {
    let (scheduler, exporter) = ("scx_hetero.service", "scx_hetero-prometheus.service");
    for unit in [scheduler, exporter] {
        assert!(says(unit, "MemoryMax").is_some(), "{unit}");
        assert!(says(unit, "TasksMax").is_some(), "{unit}");
        // What neither may be given, the other could not read.
        let group = says(unit, "SupplementaryGroups");
        assert_eq!(group.as_deref(), Some("scx_hetero"), "{unit}");
    }
    let users = packaging("sysusers.d/scx_hetero.conf");
    assert!(
        users.lines().any(|line| line == "g scx_hetero -"),
        "{users}"
    );
    assert_eq!(says(exporter, "DynamicUser").as_deref(), Some("yes"));
    // A watchdog hears of one that says that it is ready.
    assert_eq!(says(scheduler, "Type").as_deref(), Some("notify"));
    assert!(says(scheduler, "WatchdogSec").is_some());
}

#[test]
fn the_service_is_started_as_the_program_wants_it() {
    let flags = packaging("scx_hetero.default");
    let flags = flags.lines().filter_map(|line| {
        line.trim_start_matches('#')
            .strip_prefix("SCX_FLAGS=\"")?
            .strip_suffix('"')
    });
    let flags: Vec<_> = flags.collect();
    assert!(flags.len() > 1 && flags.contains(&""), "{flags:?}");
    for line in flags {
        // Parses them, and ends before it attaches anything.
        let args: Vec<_> = line.split_whitespace().chain(["--help-stats"]).collect();
        assert!(output(&args).status.success(), "{args:?}");
    }
    // What the unit does not try again is what the help says.
    let unit = packaging("scx_hetero.service");
    assert!(unit.contains("RestartPreventExitStatus=2 3 4 5 6\n"));
    let help = String::from_utf8(output(&["--help"]).stdout).unwrap();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for status in [
        "2 wrong usage",
        "3 not root",
        "4 the kernel has no sched_ext",
        "5 another",
        "6 the",
    ] {
        assert!(help.contains(status), "{status}: {help}");
    }
}
