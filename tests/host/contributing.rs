// SPDX-License-Identifier: GPL-2.0-only
//! The policy that CONTRIBUTING.md shows is one that is compiled and tested.

#[test]
fn the_policy_on_the_page_is_the_one_in_the_tree() {
    let page = include_str!("../../CONTRIBUTING.md");
    let code = include_str!("../../core/src/policy/example.rs");
    let (policy, test) = code.split_once("\n#[cfg(test)]").unwrap();
    for part in [policy.to_string(), format!("#[cfg(test)]{test}")] {
        assert!(page.contains(&format!("```rust\n{part}```")), "{part}");
    }
}
