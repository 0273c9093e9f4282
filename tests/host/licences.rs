// SPDX-License-Identifier: GPL-2.0-only
//! What is linked into the binary may be: all of it goes with GPL-2.0-only, which Apache-2.0 does not.

use std::collections::BTreeSet;
use std::process::Command;

use spdx::{Expression, LicenseReq, ParseMode};

/// Licences that go with GPL-2.0-only. Of a choice (`OR`) one of them is enough.
const LINKABLE: &[&str] = &[
    "0BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "GPL-2.0-only",
    "GPL-2.0-or-later",
    "ISC",
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

fn is_linkable(licence: &str) -> bool {
    let Ok(expression) = Expression::parse_mode(licence, ParseMode::LAX) else {
        return false;
    };
    let linkable = |one: &LicenseReq| LINKABLE.contains(&one.to_string().as_str());
    expression.evaluate(linkable)
}

/// Name and licence of each crate that the binary is made of.
fn crates() -> BTreeSet<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
        ])
        .args(["--format", "{p}\t{l}", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
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

#[test]
fn all_that_is_linked_goes_with_the_projects_licence() {
    let crates = crates();
    assert!(crates.len() > 50, "{crates:?}");
    let unfit: Vec<_> = crates
        .iter()
        .filter(|(name, licence)| !is_linkable(licence) && !NOT_LINKED.contains(&name.as_str()))
        .collect();
    assert!(unfit.is_empty(), "these may not be linked: {unfit:?}");
}

#[test]
fn apache_alone_does_not_and_of_a_choice_one_is_enough() {
    assert!(is_linkable("MIT OR Apache-2.0") && is_linkable("Unlicense/MIT"));
    assert!(is_linkable("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!is_linkable("Apache-2.0") && !is_linkable("MIT AND Apache-2.0"));
    assert!(!is_linkable("GPL-3.0-only") && !is_linkable(""));
}
