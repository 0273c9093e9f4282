// SPDX-License-Identifier: GPL-2.0-only
//! The codes of events that only learning uses are those of the vendor's lists, as the crate
//! `scx_raw_pmu` ships them.

use scx_hetero::ml::events::FURTHER;
use serde_json::Value;

use crate::pmu_tables::ARCH;

/// What the vendor calls them, by feature and microarchitecture.
const NAMES: [(&str, &str, &str); 11] = [
    ("l1i-misses", "golden-cove", "L2_RQSTS.ALL_CODE_RD"),
    ("topdown-retiring", "golden-cove", "UOPS_RETIRED.SLOTS"),
    ("topdown-fe-bound", "golden-cove", "IDQ_BUBBLES.CORE"),
    (
        "topdown-be-bound",
        "golden-cove",
        "TOPDOWN.BACKEND_BOUND_SLOTS",
    ),
    ("topdown-bad-spec", "golden-cove", "TOPDOWN.BAD_SPEC_SLOTS"),
    (
        "topdown-mem-bound",
        "golden-cove",
        "TOPDOWN.MEMORY_BOUND_SLOTS",
    ),
    ("l1i-misses", "gracemont", "ICACHE.MISSES"),
    ("topdown-retiring", "gracemont", "TOPDOWN_RETIRING.ALL"),
    ("topdown-fe-bound", "gracemont", "TOPDOWN_FE_BOUND.ALL"),
    ("topdown-be-bound", "gracemont", "TOPDOWN_BE_BOUND.ALL"),
    (
        "topdown-bad-spec",
        "gracemont",
        "TOPDOWN_BAD_SPECULATION.ALL",
    ),
];

#[test]
fn codes_are_the_vendors() {
    let mut events: Vec<Value> = Vec::new();
    for entry in std::fs::read_dir(ARCH.join("x86/alderlake")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        if let Ok(Value::Array(list)) = serde_json::from_str(&text) {
            events.extend(list);
        }
    }
    for ((feature, kind, code), (named, on, vendors)) in FURTHER.into_iter().zip(NAMES) {
        assert_eq!((feature, kind), (named, on));
        let unit = if kind == "golden-cove" {
            "cpu_core"
        } else {
            "cpu_atom"
        };
        let event = events
            .iter()
            .find(|event| event["EventName"] == vendors && event["Unit"] == unit);
        let event = event.unwrap_or_else(|| panic!("{vendors} is not in the list of {unit}"));
        let mut expected = format!("event={}", event["EventCode"].as_str().unwrap());
        if let Some(umask) = event["UMask"].as_str() {
            let umask = u8::from_str_radix(umask.trim_start_matches("0x"), 16).unwrap();
            expected += &format!(",umask=0x{umask:02x}");
        }
        assert_eq!(code, expected, "{vendors}");
    }
}
