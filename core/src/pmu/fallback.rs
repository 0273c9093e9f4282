// SPDX-License-Identifier: GPL-2.0-or-later
//! Events of microarchitectures without a table: what the kernel itself can map.

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

/// The kernel's generalised event. It says only on opening whether the PMU has one.
pub(super) fn generalised(
    meaning: Meaning,
    type_id: u32,
    extended: bool,
    counters: Counters,
) -> Option<Encoding> {
    use Space::{Cache, Hardware};
    const L1D: u64 = 0;
    const DTLB: u64 = 3;
    const MISS: u64 = 1 << 16;
    let (space, config, name) = match meaning {
        Meaning::Cycles => (Hardware, 0, "cpu-cycles"),
        Meaning::Instructions => (Hardware, 1, "instructions"),
        Meaning::LlcReferences => (Hardware, 2, "cache-references"),
        Meaning::LlcMisses => (Hardware, 3, "cache-misses"),
        Meaning::Branches => (Hardware, 4, "branch-instructions"),
        Meaning::BranchMisses => (Hardware, 5, "branch-misses"),
        Meaning::StalledFrontend => (Hardware, 7, "stalled-cycles-frontend"),
        Meaning::RefCycles => (Hardware, 9, "ref-cycles"),
        Meaning::L1Accesses => (Cache, L1D, "L1-dcache-loads"),
        Meaning::L1Misses => (Cache, L1D | MISS, "L1-dcache-load-misses"),
        Meaning::DtlbMisses => (Cache, DTLB | MISS, "dTLB-load-misses"),
        _ => return None,
    };
    let pmu = if extended {
        u64::from(type_id) << 32
    } else {
        0
    };
    let encoding = Encoding {
        space,
        ..Encoding::raw(config | pmu, name)
    };
    Some(with_fixed(encoding, meaning, counters))
}
