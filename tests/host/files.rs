// SPDX-License-Identifier: GPL-2.0-only
//! What commands do to files that they are given: none is written over that is read, and none is read without end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::program::command;

/// What it says on standard error as it fails with this status, with `folder` as its current directory.
fn fails(folder: &Path, line: &str, status: i32) -> String {
    let args: Vec<&str> = line.split(' ').collect();
    let output = command(&args).current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

/// The same of what is no wrong usage.
fn said(folder: &Path, line: &str) -> String {
    fails(folder, line, 1)
}

#[test]
fn no_command_writes_over_what_it_reads_nor_twice_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["t.csv", "t.json", "b.jsonl", "rec", "m.toml", "k.db"];
    for name in files {
        fs::write(folder.path().join(name), "precious").unwrap();
    }
    for (name, to) in [("link.csv", "t.csv"), ("here", ".")] {
        symlink(folder.path().join(to), folder.path().join(name)).unwrap();
    }
    for (line, option) in [
        ("train t.csv -o t.csv", "--output"),
        ("train t.csv -o t.json", "--output"),
        ("train link.csv -o t.csv", "--output"),
        ("train t.csv -o here/t.csv", "--output"),
        ("train t.csv --report ./t.csv", "--report"),
        (
            "train t.csv --leave-out p --estimates link.csv",
            "--estimates",
        ),
        ("train t.csv --import classifier=rec -o rec", "--output"),
        ("train --here --suite m.toml -o m.toml", "--output"),
        ("train --here -o measurements.csv", "--output"),
        ("collect --from t.csv --share link.csv", "--share"),
        ("collect --from t.csv --share t.json", "--share"),
        (
            "collect --suite t.json -o t.csv",
            "the header beside the table",
        ),
        ("collect --pairs --suite m.toml -o m.toml", "--output"),
        ("bench run m.toml -o here/m.toml", "--out"),
        ("bench report b.jsonl --csv b.jsonl", "--csv"),
        ("bench report . --csv b.jsonl", "--csv"),
        ("report rec -o rec", "--out"),
        ("goal plot rec -o here/rec", "--out"),
        ("know export k.db --store k.db", "FILE"),
        ("know import k.db --store here/k.db", "--store"),
        (
            "sim W5 --policy camps --add-mixes m.toml --record m.toml",
            "--record",
        ),
        ("--model t.json --record t.json", "--record"),
        ("--rules m.toml --samples here/m.toml", "--samples"),
    ] {
        let said = fails(folder.path(), line, 2);
        let asks = format!("itself: name another file with {option}\n");
        assert!(said.ends_with(&asks), "{line}: {said}");
    }
    for line in [
        "train t.csv -o new --report here/new",
        "collect -o new.json",
        "collect -o new.csv --share new.json",
        "--record new --samples ./new",
    ] {
        let said = fails(folder.path(), line, 2);
        assert!(said.ends_with(": name different files\n"), "{line}: {said}");
    }
    for name in files {
        let kept = fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(kept, "precious", "{name}");
    }
}

#[test]
fn what_has_no_end_or_is_no_text_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let mixes = "[programs]\na = 'true'\n[mixes]\nm = 'a'\n";
    fs::write(folder.path().join("m.toml"), mixes).unwrap();
    fs::write(folder.path().join("binary"), [b'a', 0xff, b'\n']).unwrap();
    for line in [
        "sim W5 --model /dev/zero",
        "sim W5 --model binary",
        "sim W5 --add-mixes /dev/zero",
        "sim W5 --add-programs /dev/zero",
        "bench run /dev/zero",
        "bench run m.toml -o /dev/full",
        "bench report /dev/zero",
        "bench report binary",
        "know import /dev/zero",
        "model /dev/zero",
        "train /dev/zero",
        "train --interference /dev/zero",
        "collect --from /dev/zero --share s.csv",
    ] {
        let said = said(folder.path(), line);
        assert!(said.contains("it is no text"), "{line}: {said}");
    }
}

#[test]
fn what_is_not_there_or_a_folder_is_said_to_be_so() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("dir")).unwrap();
    for (line, hint) in [
        ("sim W5 --model nope", "is the name right"),
        ("sim W5 --model dir", "name a file, not a folder"),
        ("train --interference nope", "is the name right"),
        ("collect --from nope --share s.csv", "is the name right"),
    ] {
        let said = said(folder.path(), line);
        assert!(said.contains(hint), "{line}: {said}");
    }
}

#[test]
fn a_damaged_file_is_said_to_be_so_with_the_line_and_what_belongs_there() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"schema": 1, "kind": "header"}"#;
    for (name, text) in [
        ("cut.json", "{\"schema\": 2,\n\"machine\": \"x"),
        (
            "list.json",
            "{\"schema\": 2,\n\"machine\": [],\n\"programs\": []}",
        ),
        ("new.json", "{\"schema\": 99}"),
        ("b.jsonl", &format!("{header}\nnonsense\n")),
        ("t.csv", "program,cpi,sf\na,1,2\nb,1\n"),
        ("e.csv", "program,core-type,sf,said,sigma\na,P,x,1,1\n"),
        ("s.toml", "[[program]]\nname = 3\ncommand = [\"true\"]\n"),
        ("m.toml", "[[program]]\nname = \"a\"\nmips = {}\n"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    for (line, place) in [
        ("know import cut.json", "ends in the middle, in line 2"),
        (
            "know import list.json",
            "line 2, column 11: expected text, not a list",
        ),
        ("know import new.json", "its schema is 99"),
        ("model cut.json", "ends in the middle, in line 2"),
        ("model list.json", "cannot use the model list.json: "),
        ("bench report b.jsonl", "b.jsonl is of no use: line "),
        ("train t.csv", "t.csv: line 3: 3 cells are expected, not 2"),
        ("sim W5 --model e.csv", "line 2, cell 3: it is no number"),
        ("sim W5 --add-programs m.toml", "m.toml:"),
    ] {
        let said = said(folder.path(), line);
        assert!(said.contains(place), "{line}: {said}");
        for of_rust in ["invalid type", "sequence", "struct", "a map"] {
            assert!(!said.contains(of_rust), "{line}: {said}");
        }
    }
}

#[test]
fn a_name_of_which_there_is_nothing_is_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let mixes = "[programs]\na = 'true'\n[mixes]\nm = 'a'\n";
    fs::write(folder.path().join("m.toml"), mixes).unwrap();
    fs::write(folder.path().join("t.csv"), "program,cpi,sf\na,1,2\n").unwrap();
    for line in [
        "sim NOPE",
        "sim nope,W5",
        "sim W5 --machine nope",
        "sim W5 --policy nope",
        "sim soplex",
        "bench run m.toml --mix nope",
        "bench run m.toml --scheduler nope",
        "train t.csv --leave-out nope",
        "train t.csv --column nope",
        "set policy nope",
        "--profile nope",
        "know x[",
    ] {
        fails(folder.path(), line, 2);
    }
}

#[test]
fn the_scheduler_does_not_wait_for_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for option in ["--rules", "--model"] {
        let said = fails(folder.path(), &format!("{option} pipe"), 2);
        let asks = format!("pipe is a pipe: name a file with {option}");
        assert!(said.contains(&asks), "{said}");
    }
}
