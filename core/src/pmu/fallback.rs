// SPDX-License-Identifier: GPL-2.0-or-later
//! Events of microarchitectures without a table: what the kernel itself can map.

use std::borrow::Cow;

use super::event::{Encoding, Meaning, Space};
use super::tables::Counters;

/// General counters to expect where nothing says how many there are: no PMU of the last fifteen
/// years has fewer.
pub(super) const FEWEST: u32 = 4;

/// Names under which a PMU's `events/` may list what is meant, the best first.
pub(super) fn sysfs_names(meaning: Meaning) -> &'static [&'static str] {
    match meaning {
        Meaning::Instructions => &["instructions", "inst_retired"],
        Meaning::Cycles => &["cpu-cycles", "cpu_cycles"],
        Meaning::RefCycles => &["ref-cycles"],
        Meaning::Branches => &["branch-instructions", "br_retired", "br_pred"],
        Meaning::BranchMisses => &["branch-misses", "br_mis_pred_retired", "br_mis_pred"],
        Meaning::Loads => &["ld_retired"],
        Meaning::Stores => &["st_retired"],
        Meaning::L1Accesses => &["l1d_cache"],
        Meaning::L1Misses => &["l1d_cache_refill"],
        Meaning::L2Accesses => &["l2d_cache"],
        Meaning::L2Misses => &["l2d_cache_refill"],
        Meaning::LlcReferences => &["ll_cache_rd", "cache-references"],
        Meaning::LlcMisses => &["ll_cache_miss_rd", "cache-misses"],
        Meaning::StalledMem => &["stall_backend_mem"],
        Meaning::StalledFrontend => &["stall_frontend", "stalled-cycles-frontend"],
        Meaning::DtlbMisses => &["dtlb_walk", "l1d_tlb_refill"],
        Meaning::FpOps | Meaning::Divider => &[],
    }
}

/// With the fixed counter for what is meant: Intel's first three, in the order of the
/// architecture, or ARM's one for cycles. Intel's reference cycles have no other.
pub(super) fn with_fixed(mut encoding: Encoding, meaning: Meaning, counters: Counters) -> Encoding {
    encoding.fixed = match (meaning, counters.fixed) {
        (Meaning::Cycles, 1) | (Meaning::Instructions, 2..) => Some(0),
        (Meaning::Cycles, 2..) => Some(1),
        (Meaning::RefCycles, 3..) => Some(2),
        _ => None,
    };
    if meaning == Meaning::RefCycles && encoding.fixed.is_some() {
        encoding.general = 0;
    }
    encoding
}

/// The kernel's generalised events by the names that perf gives them.
const HARDWARE: [(&str, u64); 10] = [
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("ref-cycles", 9),
];
/// What generalised cache events are of, in the kernel's order.
const CACHES: [&str; 7] = [
    "L1-dcache",
    "L1-icache",
    "LLC",
    "dTLB",
    "iTLB",
    "branch",
    "node",
];
/// And of what of it: operation, whether it missed, and how the name ends.
const OPERATIONS: [(u64, u64, &str); 6] = [
    (0, 0, "loads"),
    (0, 1, "load-misses"),
    (1, 0, "stores"),
    (1, 1, "store-misses"),
    (2, 0, "prefetches"),
    (2, 1, "prefetch-misses"),
];

/// Every generalised event's name, but for instructions and cycles.
pub(super) fn perfs_names() -> impl Iterator<Item = String> {
    let hardware = HARDWARE[2..].iter().map(|(name, _)| name.to_string());
    let caches = CACHES.iter().flat_map(|cache| {
        let of_cache = OPERATIONS.iter();
        of_cache.map(move |(.., operation)| format!("{cache}-{operation}"))
    });
    hardware.chain(caches)
}

/// The generalised event of this name, such as `LLC-load-misses`; upper and lower case are the same.
pub(super) fn by_perfs_name(name: &str, type_id: u32, extended: bool) -> Option<Encoding> {
    named(name.to_ascii_lowercase(), type_id, extended)
}

/// The same, called by that name.
fn named(name: impl Into<Cow<'static, str>>, type_id: u32, extended: bool) -> Option<Encoding> {
    let name = name.into();
    let is = |known: &str| known.eq_ignore_ascii_case(&name);
    let cache = || {
        let caches = (0..).zip(CACHES);
        let all = caches.flat_map(|cache| OPERATIONS.iter().map(move |of| (cache, of)));
        let mut found = all.filter(|((_, of), (.., end))| is(&format!("{of}-{end}")));
        let ((cache, _), (operation, missed, _)) = found.next()?;
        Some((Space::Cache, cache | operation << 8 | missed << 16))
    };
    let (space, config) = match HARDWARE.iter().find(|(known, _)| is(known)) {
        Some((_, config)) => (Space::Hardware, *config),
        None => cache()?,
    };
    Some(Encoding {
        space,
        ..Encoding::raw(config | of_pmu(type_id, extended), name)
    })
}

/// Where there are several PMUs of CPU cores, generalised events say which.
fn of_pmu(type_id: u32, extended: bool) -> u64 {
    match extended {
        true => u64::from(type_id) << 32,
        false => 0,
    }
}

/// The kernel's generalised event. It says only on opening whether the PMU has one.
pub(super) fn generalised(
    meaning: Meaning,
    type_id: u32,
    extended: bool,
    counters: Counters,
) -> Option<Encoding> {
    let name = match meaning {
        Meaning::Cycles => "cpu-cycles",
        Meaning::Instructions => "instructions",
        Meaning::LlcReferences => "cache-references",
        Meaning::LlcMisses => "cache-misses",
        Meaning::Branches => "branch-instructions",
        Meaning::BranchMisses => "branch-misses",
        Meaning::StalledFrontend => "stalled-cycles-frontend",
        Meaning::RefCycles => "ref-cycles",
        Meaning::L1Accesses => "L1-dcache-loads",
        Meaning::L1Misses => "L1-dcache-load-misses",
        Meaning::DtlbMisses => "dTLB-load-misses",
        _ => return None,
    };
    let encoding = named(name, type_id, extended)?;
    Some(with_fixed(encoding, meaning, counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generalised_events_have_perfs_names() {
        let of = |name: &str| by_perfs_name(name, 10, true).map(|of| (of.space, of.config));
        assert_eq!(of("cache-misses"), Some((Space::Hardware, 10 << 32 | 3)));
        assert_eq!(of("L1-dcache-loads"), Some((Space::Cache, 10 << 32)));
        let misses = 10 << 32 | 1 << 16 | 1 << 8 | 3;
        assert_eq!(of("dtlb-store-misses"), Some((Space::Cache, misses)));
        assert_eq!(of("L1-dcache-weather"), None);
        assert!(perfs_names().all(|name| by_perfs_name(&name, 4, false).is_some()));
        // As the meanings have them.
        let counters = Counters::default();
        let meant = generalised(Meaning::DtlbMisses, 10, true, counters).unwrap();
        assert_eq!(of("dTLB-load-misses"), Some((meant.space, meant.config)));
    }
}
