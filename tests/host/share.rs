// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero collect --share`: what may be given away of a table, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use hetero_core::ml::data::Data;
use serde_json::{Value, json};

use crate::program::{error, stdout};

/// A folder with `mine.csv`, measured by somebody with secrets, and its header.
struct Owner {
    folder: tempfile::TempDir,
}

/// Whatever only the owner should know; all of it is in the table or the header.
const SECRETS: [&str; 9] = [
    "jane",
    "/home",
    "payroll",
    "film.mkv",
    "--key",
    "buildhost",
    "workstation",
    "2026-11",
    "fast-ones",
];

impl Owner {
    fn new() -> Self {
        let owner = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut table =
            "program,variant,core-type,window,runs,deviation,run-ns,instructions,cycles,\
                         loads,llc-misses\n"
                .to_string();
        for (number, (program, variant)) in [
            ("integer", ""),
            ("chase", "32 KiB"),
            ("payroll", "/home/jane/films/film.mkv"),
            ("payroll", "--key abc"),
            ("x264", ""),
            // By one of our names, but another command.
            ("sort", ""),
        ]
        .into_iter()
        .enumerate()
        {
            for window in ["1", "2", ""] {
                for (core_type, ns) in [("fast-ones", 500), ("E", 600 + 100 * number)] {
                    table += &format!(
                        "{program},{variant},{core_type},{window},3,0.00061,{ns},1000,2000,{number}.5,\n"
                    );
                }
            }
        }
        owner.write("mine.csv", &table);
        let own = |words: &str| -> Vec<String> { words.split(' ').map(String::from).collect() };
        let event = json!({"name": "MEM_INST_RETIRED.ALL_LOADS", "general": 255, "fixed": null});
        let pmu = |core_type: &str, microarchitecture: &str| {
            json!({
                "core_type": core_type, "microarchitecture": microarchitecture,
                "counters": [8, 4], "events": {"loads": event, "llc-misses": event},
            })
        };
        owner.header(&json!({
            "schema": 1,
            "written_by": "scx_hetero 0.1.0",
            "date": "2026-11-25T13:00:00Z",
            "machine": {
                "name": "jane's workstation",
                "identity": {
                    "cpu": "12th Gen Intel(R) Core(TM) i7-1260P",
                    "core_types": [
                        {"name": "fast-ones", "cpus": "0-7", "max_freq_khz": 4_700_000},
                        {"name": "E", "cpus": "8-15", "max_freq_khz": 3_400_000},
                    ],
                },
                "microcode": "0x42c",
                "kernel": "7.3.4-jane-buildhost",
                "pmus": [pmu("fast-ones", "golden-cove"), pmu("E", "gracemont")],
            },
            "window": 100_000_000,
            "user_only": false,
            "commands": {
                "integer": own("hetero-programs integer --warmup 0 --seconds 1000"),
                "chase 32 KiB":
                    own("hetero-programs chase --working-set 32 --warmup 0 --seconds 1000"),
                "payroll /home/jane/films/film.mkv": own("/home/jane/payroll /home/jane/films/film.mkv"),
                "payroll --key abc": own("/home/jane/payroll --key abc"),
                "x264": own("x264"),
                "sort": own("/home/jane/sort"),
            },
        }));
        owner
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn header(&self, header: &Value) {
        self.write("mine.json", &header.to_string());
    }

    /// Shares it. What is told, and what is shared.
    fn share(&self, more: &[&str]) -> (String, String) {
        let (from, to) = (self.path("mine.csv"), self.path("shared.csv"));
        let words = ["collect", "--from", text(&from), "--share", text(&to)];
        let told = stdout(&[&words[..], more].concat());
        (told, fs::read_to_string(to).unwrap())
    }

    /// Why it is not shared.
    fn refused(&self, to: &str) -> String {
        let (from, to) = (self.path("mine.csv"), self.path(to));
        error(&["collect", "--from", text(&from), "--share", text(&to)])
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn nothing_private_is_shared() {
    let owner = Owner::new();
    let (told, shared) = owner.share(&[]);
    for secret in SECRETS {
        let (header, table) = (owner.path("mine.json"), owner.path("mine.csv"));
        let all = fs::read_to_string(header).unwrap() + &fs::read_to_string(table).unwrap();
        assert!(all.contains(secret), "{secret} is not tried");
        assert!(!shared.contains(secret), "{secret} in {shared}");
    }
    assert!(
        told.contains("holds 5 programs, 3 of them by number"),
        "{told}"
    );
    for line in [
        "# cpu: 12th Gen Intel(R) Core(TM) i7-1260P",
        "# microcode: 0x42c",
        "# kernel: 7.3.4",
        "# window: 100000000 instructions, user and kernel mode",
        "# core type: type-1, CPUs 0-7, 4700 MHz, golden-cove, 8 general and 4 fixed counters",
        "# core type: E, CPUs 8-15, 3400 MHz, gracemont, 8 general and 4 fixed counters",
        "integer,,type-1,1,3,0.00061,500,1000,2000,0.5,",
        "chase,32 KiB,E,,3,0.00061,700,1000,2000,1.5,",
        "program-1,variant-1,E,2,3,0.00061,800,1000,2000,2.5,",
        "program-1,variant-2,E,2,3,0.00061,900,1000,2000,3.5,",
        "program-2,,E,2,3,0.00061,1000,1000,2000,4.5,",
        "program-3,,E,2,3,0.00061,1100,1000,2000,5.5,",
    ] {
        assert!(shared.lines().any(|l| l == line), "no '{line}' in {shared}");
    }
    // It may be written again, and no more than it was left beside it.
    assert_eq!(owner.share(&[]).1, shared);
    assert_eq!(fs::read_dir(owner.folder.path()).unwrap().count(), 3);
}

#[test]
fn names_are_shared_where_that_is_wished_but_no_variants() {
    let owner = Owner::new();
    let (told, shared) = owner.share(&["--share-names"]);
    assert!(told.contains("holds 5 programs. "), "{told}");
    assert!(shared.contains("\npayroll,variant-2,E,2,3,") && shared.contains("\nsort,,E,2,3,"));
    for secret in ["jane", "film.mkv", "--key"] {
        assert!(!shared.contains(secret), "{secret} in {shared}");
    }
}

/// The tables that the shipped models are of come through with all that is learnt from.
#[test]
fn a_shared_table_is_learnt_from_as_the_one_that_it_is_of() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("shared.csv");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/alder-lake-4p4e.csv");
    let told = stdout(&["collect", "--from", text(&from), "--share", text(&to)]);
    assert!(told.contains("holds 83 programs. "), "{told}");
    let [mine, shared] = [&from, &to].map(|path| Data::read(&[path.as_path()], &[]).unwrap());
    // Some features are NaN, which equals nothing.
    let same = format!("{:?}", mine.rows) == format!("{:?}", shared.rows);
    assert!(same, "the rows differ");
    assert_eq!(mine.features, shared.features);
    assert_eq!(mine.core_types, shared.core_types);

    let owner = Owner::new();
    let _ = owner.share(&[]);
    let data = Data::read(&[owner.path("shared.csv").as_path()], &[]).unwrap();
    assert_eq!(data.core_types, ["type-1", "E"]);
}

#[test]
fn what_cannot_be_shared_is_said_and_nothing_is_written() {
    let owner = Owner::new();
    let table = fs::read_to_string(owner.path("mine.csv")).unwrap();
    owner.write("notes.csv", "of mine");
    assert!(
        owner
            .refused("notes.csv")
            .contains("was not written by --share")
    );
    assert!(owner.refused("mine.csv").contains("is the table itself"));
    assert!(owner.refused("nowhere/shared.csv").contains("cannot write"));

    owner.write("mine.csv", &table.replacen("500,1000,", "500,jane,", 1));
    let said = owner.refused("shared.csv");
    assert!(
        said.contains("line 2: 'jane' in column instructions is no number"),
        "{said}"
    );
    owner.write("mine.csv", &table.replacen("llc-misses", "salary", 1));
    assert!(
        owner
            .refused("shared.csv")
            .contains("column 'salary' is no event")
    );
    owner.write("mine.csv", &table.replacen(",E,", ",jane,", 1));
    assert!(
        owner
            .refused("shared.csv")
            .contains("there is no core type 'jane'")
    );
    owner.write("mine.csv", "program,sf\nx,2\n");
    assert!(
        owner
            .refused("shared.csv")
            .contains("do not begin as those")
    );
    owner.write("mine.csv", &table);
    fs::remove_file(owner.path("mine.json")).unwrap();
    let said = owner.refused("shared.csv");
    assert!(
        said.contains("it has no header") && said.contains("mine.json"),
        "{said}"
    );
    assert!(!owner.path("shared.csv").exists());
    assert_eq!(
        fs::read_to_string(owner.path("notes.csv")).unwrap(),
        "of mine"
    );

    assert!(error(&["collect", "--from", "mine.csv"]).contains("--share"));
    let both = [
        "collect", "--from", "a.csv", "--share", "b.csv", "-o", "c.csv",
    ];
    assert!(error(&both).contains("cannot be used with"));
}
