// SPDX-License-Identifier: GPL-2.0-only
//! docs/dependencies.md names all that is linked, and nothing else.

use std::collections::BTreeSet;

use crate::licences::{LINKED, crates};

const OURS: [&str; 5] = [
    "scx_hetero",
    "hetero-core",
    "hetero-heartbeats",
    "scx_hetero-learn",
    "scx_hetero-userland",
];
const PAGE: &str = include_str!("../../docs/dependencies.md");

/// Names of what others have written, in all of a package's tree or of its manifest alone.
fn others(package: &str, edges: &str, more: &[&str]) -> BTreeSet<String> {
    // The same on each machine: some crates are of one architecture.
    let target = ["--target", "x86_64-unknown-linux-gnu"];
    let found = crates(package, edges, &[&target, more].concat());
    let names = found.into_iter().map(|(name, _)| name);
    names.filter(|name| !OURS.contains(&&**name)).collect()
}

fn linked(package: &str) -> BTreeSet<String> {
    others(package, LINKED, &[])
}

fn named(package: &str) -> BTreeSet<String> {
    others(package, "normal", &["--depth", "1"])
}

/// What a section of the page has in its table, and in the list below that.
fn section(title: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (_, text) = PAGE.split_once(&format!("\n## {title}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let table = rows.map(|row| row.split('`').next().unwrap().to_string());
    let (_, below) = text.split_once("\nBelow them").unwrap();
    let (_, below) = below.split_once("\n\n").unwrap();
    let names = below.trim().trim_end_matches('.').split(',');
    (
        table.collect(),
        names.map(|name| name.trim().to_string()).collect(),
    )
}

#[test]
fn the_page_names_all_that_is_linked_and_nothing_else() {
    let ours = &named("scx_hetero") | &named("hetero-core");
    let scheduler = linked("scx_hetero");
    assert_eq!(section("The scheduler"), (ours.clone(), &scheduler - &ours));
    for (title, package) in [
        ("Learning", "scx_hetero-learn"),
        ("The example in user space", "scx_hetero-userland"),
    ] {
        let more = &named(package) - &ours;
        let below = &(&linked(package) - &scheduler) - &more;
        assert_eq!(section(title), (more, below));
    }
}

#[test]
fn the_page_says_how_many_there_are() {
    let core = named("hetero-core");
    for package in OURS {
        let all = linked(package);
        let named = &(&named(package) | &core) & &all;
        let row = PAGE
            .lines()
            .find(|line| line.starts_with(&format!("| `{package}`")))
            .unwrap();
        let counts = format!("| {} | {} |", all.len(), named.len());
        assert!(
            row.ends_with(&counts),
            "{package} has {counts}, the page {row}"
        );
    }
}
