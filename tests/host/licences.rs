// SPDX-License-Identifier: GPL-2.0-only
//! What is linked into each program may be. All of the scheduler goes with GPL-2.0-only, which Apache-2.0
//! does not; the program that learns is GPL-2.0-or-later, hence GPL-3.0 with a crate that is Apache-2.0
//! alone, so nothing in it may be GPL-2.0-only.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use spdx::{Expression, LicenseReq, ParseMode};

/// Licences that go with any version of the GPL. Of a choice (`OR`) one of them is enough.
const LINKABLE: &[&str] = &[
    "0BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "GPL-2.0-or-later",
    "ISC",
    "LGPL-2.1", // SPDX's older name of the next
    "LGPL-2.1-only",
    "LGPL-2.1-or-later",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Named as a dependency by scx_utils, which generates bindings when it is built; nothing of it is in the
/// binary.
const NOT_LINKED: &[&str] = &["clang-sys"];

fn goes_with(own: &str, licence: &str) -> bool {
    let Ok(expression) = Expression::parse_mode(licence, ParseMode::LAX) else {
        return false;
    };
    let linkable = |one: &LicenseReq| {
        let one = one.to_string();
        one == own || LINKABLE.contains(&one.as_str())
    };
    expression.evaluate(linkable)
}

/// Name and licence of each crate that a package is made of; `edges` is which dependencies count, `more`
/// are other arguments of `cargo tree`.
pub(crate) fn crates(package: &str, edges: &str, more: &[&str]) -> BTreeSet<(String, String)> {
    let tree = |more: &[&str]| {
        Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--prefix", "none"])
            .args(["--format", "{p}\t{l}", "--edges", edges])
            .args(["--package", package])
            .args(more)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap()
    };
    let mut output = tree(&[more, &["--offline"]].concat());
    if !output.status.success() {
        // What no ordinary build takes may not have been downloaded yet.
        output = tree(more);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    let found = text.lines().filter_map(|line| {
        let (name, licence) = line.split_once('\t')?;
        let licence = licence.trim_end_matches(" (*)");
        Some((name.split(' ').next()?.to_string(), licence.to_string()))
    });
    found.collect()
}

/// What ends up in a program.
pub(crate) const LINKED: &str = "normal,no-proc-macro";
/// The scheduler's package, and the licence that all of it must go with.
const SCHEDULER: (&str, &str) = ("scx_hetero", "GPL-2.0-only");
const LEARNS: (&str, &str) = ("scx_hetero-learn", "Apache-2.0");
/// In no ordinary build, but its tree is known all the same.
const EXAMPLE: (&str, &str) = ("scx_hetero-userland", "GPL-2.0-only");

#[test]
fn all_that_is_linked_goes_with_the_programs_licence() {
    for (package, own) in [SCHEDULER, LEARNS, EXAMPLE] {
        let crates = crates(package, LINKED, &[]);
        assert!(crates.len() > 50, "{crates:?}");
        let unfit: Vec<_> = crates
            .iter()
            .filter(|(name, licence)| {
                !goes_with(own, licence) && !NOT_LINKED.contains(&name.as_str())
            })
            .collect();
        assert!(unfit.is_empty(), "{package} may not link {unfit:?}");
    }
}

#[test]
fn programs_of_any_licence_may_link_heartbeats() {
    let crates = crates("hetero-heartbeats", LINKED, &[]);
    let own = ("hetero-heartbeats".to_string(), "MIT".to_string());
    assert_eq!(crates.into_iter().collect::<Vec<_>>(), [own]);
    // Its sources say the same.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("heartbeats");
    let folders = [folder.join("src"), folder];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    for file in files
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
    {
        let text = fs::read_to_string(&file).unwrap();
        let mit = text.lines().take(3).any(|line| line.contains("MIT"));
        // A manifest says it further down, and a template is too short to be anybody's.
        let other = ["toml", "in"].map(Some);
        let kind = file.extension().and_then(|kind| kind.to_str());
        assert!(mit || other.contains(&kind), "{}", file.display());
        assert!(!text.contains("GPL-2"), "{}", file.display());
    }
}

#[test]
fn the_scheduler_links_nothing_that_only_learning_takes() {
    let crates = crates(SCHEDULER.0, LINKED, &[]);
    let of_learning =
        |name: &str| name.starts_with("linfa") || name == "ndarray" || name == "plotters";
    assert!(!crates.iter().any(|(name, _)| of_learning(name)));
}

#[test]
fn the_core_is_built_without_clang_and_libbpf() {
    let crates = crates("hetero-core", "normal,build", &[]);
    assert!(crates.len() > 30, "{crates:?}");
    for taboo in ["bindgen", "cc", "clang-sys", "libbpf-sys", "scx_utils"] {
        assert!(!crates.iter().any(|(name, _)| name == taboo), "{taboo}");
    }
}

#[test]
fn apache_alone_goes_with_learning_only_and_of_a_choice_one_is_enough() {
    for own in [SCHEDULER.1, LEARNS.1] {
        assert!(goes_with(own, "MIT OR Apache-2.0") && goes_with(own, "Unlicense/MIT"));
        assert!(goes_with(own, "(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!goes_with(own, "GPL-3.0-only") && !goes_with(own, ""));
    }
    assert!(!goes_with(SCHEDULER.1, "Apache-2.0") && !goes_with(SCHEDULER.1, "MIT AND Apache-2.0"));
    assert!(goes_with(LEARNS.1, "Apache-2.0") && !goes_with(LEARNS.1, "GPL-2.0-only"));
}
