// SPDX-License-Identifier: GPL-2.0-or-later
//! ARM's Cortex cores. Cycles have a counter of their own; any other counter counts any event.
//! Up to Cortex-A72 the L2 is the last level of cache that a cluster has.

use super::super::event::Meaning::*;
use super::{ConfigLayout, Counters, EventRow, EventTable, row};

const fn counters(general: u32) -> Counters {
    Counters { general, fixed: 1 }
}

const INSTRUCTIONS: EventRow = row(Instructions, "INST_RETIRED", 0x08, 0);
const CYCLES: EventRow = row(Cycles, "CPU_CYCLES", 0x11, 0).fixed(0);
/// The kernel's number for the cycle counter, which it uses for nothing else on ARMv7.
const V7_CYCLES: EventRow = row(Cycles, "CPU_CYCLES", 0xff, 0).fixed(0).on(0);
const REF_CYCLES: EventRow = row(RefCycles, "CNT_CYCLES", 0x4004, 0);
const BR_PRED: EventRow = row(Branches, "BR_PRED", 0x12, 0);
const BR_MIS_PRED: EventRow = row(BranchMisses, "BR_MIS_PRED", 0x10, 0);
const BR_RETIRED: EventRow = row(Branches, "BR_RETIRED", 0x21, 0);
const BR_MIS_PRED_RETIRED: EventRow = row(BranchMisses, "BR_MIS_PRED_RETIRED", 0x22, 0);
const LD_RETIRED: EventRow = row(Loads, "LD_RETIRED", 0x06, 0);
const ST_RETIRED: EventRow = row(Stores, "ST_RETIRED", 0x07, 0);
const LD_SPEC: EventRow = row(Loads, "LD_SPEC", 0x70, 0);
const ST_SPEC: EventRow = row(Stores, "ST_SPEC", 0x71, 0);
const L1_ACCESSES: EventRow = row(L1Accesses, "L1D_CACHE", 0x04, 0);
const L1_MISSES: EventRow = row(L1Misses, "L1D_CACHE_REFILL", 0x03, 0);
const L2_ACCESSES: EventRow = row(L2Accesses, "L2D_CACHE", 0x16, 0);
const L2_MISSES: EventRow = row(L2Misses, "L2D_CACHE_REFILL", 0x17, 0);
const L2_AS_LLC: EventRow = row(LlcReferences, "L2D_CACHE", 0x16, 0);
const L2_AS_LLC_MISSES: EventRow = row(LlcMisses, "L2D_CACHE_REFILL", 0x17, 0);
const LLC_REFERENCES: EventRow = row(LlcReferences, "LL_CACHE_RD", 0x36, 0);
const LLC_MISSES: EventRow = row(LlcMisses, "LL_CACHE_MISS_RD", 0x37, 0);
const VFP_SPEC: EventRow = row(FpOps, "VFP_SPEC", 0x75, 0);
const STALL_MEM: EventRow = row(StalledMem, "STALL_BACKEND_MEM", 0x4005, 0);
const STALL_FRONTEND: EventRow = row(StalledFrontend, "STALL_FRONTEND", 0x23, 0);
const L1D_TLB_REFILL: EventRow = row(DtlbMisses, "L1D_TLB_REFILL", 0x05, 0);
const DTLB_WALK: EventRow = row(DtlbMisses, "DTLB_WALK", 0x34, 0);

/// Cortex-A7.
pub(super) static CORTEX_A7: EventTable = EventTable {
    name: "cortex-a7",
    layout: ConfigLayout::Arm,
    counters: counters(4),
    rows: &[
        INSTRUCTIONS,
        V7_CYCLES,
        BR_PRED,
        BR_MIS_PRED,
        LD_RETIRED,
        ST_RETIRED,
        L1_ACCESSES,
        L1_MISSES,
        L2_ACCESSES,
        L2_MISSES,
        L2_AS_LLC,
        L2_AS_LLC_MISSES,
        L1D_TLB_REFILL,
    ],
};

/// Cortex-A15.
pub(super) static CORTEX_A15: EventTable = EventTable {
    name: "cortex-a15",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: &[
        INSTRUCTIONS,
        V7_CYCLES,
        BR_PRED,
        BR_MIS_PRED,
        LD_SPEC,
        ST_SPEC,
        L1_ACCESSES,
        L1_MISSES,
        L2_ACCESSES,
        L2_MISSES,
        L2_AS_LLC,
        L2_AS_LLC_MISSES,
        VFP_SPEC,
        L1D_TLB_REFILL,
    ],
};

/// Cortex-A53.
pub(super) static CORTEX_A53: EventTable = EventTable {
    name: "cortex-a53",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: &[
        INSTRUCTIONS,
        CYCLES,
        BR_PRED,
        BR_MIS_PRED,
        LD_RETIRED,
        ST_RETIRED,
        L1_ACCESSES,
        L1_MISSES,
        L2_ACCESSES,
        L2_MISSES,
        L2_AS_LLC,
        L2_AS_LLC_MISSES,
        row(StalledMem, "LD_DEP_STALL", 0xe7, 0),
        L1D_TLB_REFILL,
    ],
};

/// Cortex-A55.
pub(super) static CORTEX_A55: EventTable = EventTable {
    name: "cortex-a55",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: &[
        INSTRUCTIONS,
        CYCLES,
        BR_RETIRED,
        BR_MIS_PRED_RETIRED,
        LD_RETIRED,
        ST_RETIRED,
        L1_ACCESSES,
        L1_MISSES,
        L2_ACCESSES,
        L2_MISSES,
        LLC_REFERENCES,
        LLC_MISSES,
        VFP_SPEC,
        row(StalledMem, "STALL_BACKEND_LD", 0xe7, 0),
        STALL_FRONTEND,
        DTLB_WALK,
    ],
};

const CORTEX_A57_ROWS: &[EventRow] = &[
    INSTRUCTIONS,
    CYCLES,
    BR_PRED,
    BR_MIS_PRED,
    LD_SPEC,
    ST_SPEC,
    L1_ACCESSES,
    L1_MISSES,
    L2_ACCESSES,
    L2_MISSES,
    L2_AS_LLC,
    L2_AS_LLC_MISSES,
    VFP_SPEC,
    L1D_TLB_REFILL,
];

/// Cortex-A57.
pub(super) static CORTEX_A57: EventTable = EventTable {
    name: "cortex-a57",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: CORTEX_A57_ROWS,
};

/// Cortex-A72.
pub(super) static CORTEX_A72: EventTable = EventTable {
    name: "cortex-a72",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: CORTEX_A57_ROWS,
};

/// Cortex-A76.
pub(super) static CORTEX_A76: EventTable = EventTable {
    name: "cortex-a76",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: &[
        INSTRUCTIONS,
        CYCLES,
        BR_RETIRED,
        BR_MIS_PRED_RETIRED,
        LD_SPEC,
        ST_SPEC,
        L1_ACCESSES,
        L1_MISSES,
        L2_ACCESSES,
        L2_MISSES,
        LLC_REFERENCES,
        LLC_MISSES,
        VFP_SPEC,
        STALL_FRONTEND,
        DTLB_WALK,
    ],
};

const CORTEX_A78_ROWS: &[EventRow] = &[
    INSTRUCTIONS,
    CYCLES,
    REF_CYCLES,
    BR_RETIRED,
    BR_MIS_PRED_RETIRED,
    LD_SPEC,
    ST_SPEC,
    L1_ACCESSES,
    L1_MISSES,
    L2_ACCESSES,
    L2_MISSES,
    LLC_REFERENCES,
    LLC_MISSES,
    VFP_SPEC,
    STALL_MEM,
    STALL_FRONTEND,
    DTLB_WALK,
];

/// Cortex-A78.
pub(super) static CORTEX_A78: EventTable = EventTable {
    name: "cortex-a78",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: CORTEX_A78_ROWS,
};

/// Cortex-X1.
pub(super) static CORTEX_X1: EventTable = EventTable {
    name: "cortex-x1",
    layout: ConfigLayout::Arm,
    counters: counters(6),
    rows: CORTEX_A78_ROWS,
};
