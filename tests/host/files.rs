// SPDX-License-Identifier: GPL-2.0-only
//! What commands do to files that they are given: none is written over that is read, and none is read without end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::program::command;

/// What it says on standard error as it fails, with `folder` as its current directory.
fn said(folder: &Path, line: &str) -> String {
    let args: Vec<&str> = line.split(' ').collect();
    let output = command(&args).current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    String::from_utf8(output.stderr).unwrap()
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
        let said = said(folder.path(), line);
        let asks = format!("itself: name another file with {option}\n");
        assert!(said.ends_with(&asks), "{line}: {said}");
    }
    for line in [
        "train t.csv -o new --report here/new",
        "collect -o new.json",
        "collect -o new.csv --share new.json",
        "--record new --samples ./new",
    ] {
        let said = said(folder.path(), line);
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
