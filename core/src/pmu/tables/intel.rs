// SPDX-License-Identifier: GPL-2.0-or-later
//! Intel's P and E cores. Instructions, cycles and reference cycles have fixed counters 0 to 2
//! on all of them; reference cycles have no other, under the kernel's own code for it.

use super::super::event::Meaning::*;
use super::{ConfigLayout, Counters, EventRow, EventTable, row};

/// P cores count many events on the first four of their general counters only.
const FIRST_4: u64 = 0xf;

const fn counters(general: u32, fixed: u32) -> Counters {
    Counters { general, fixed }
}

const P_INSTRUCTIONS: EventRow = row(Instructions, "INST_RETIRED.ANY_P", 0xc0, 0).fixed(0);
const P_CYCLES: EventRow = row(Cycles, "CPU_CLK_UNHALTED.THREAD_P", 0x3c, 0).fixed(1);
const E_CYCLES: EventRow = row(Cycles, "CPU_CLK_UNHALTED.CORE_P", 0x3c, 0).fixed(1);
const REF_CYCLES: EventRow = row(RefCycles, "CPU_CLK_UNHALTED.REF_TSC", 0, 3)
    .fixed(2)
    .on(0);
const BRANCHES: EventRow = row(Branches, "BR_INST_RETIRED.ALL_BRANCHES", 0xc4, 0);
const BRANCH_MISSES: EventRow = row(BranchMisses, "BR_MISP_RETIRED.ALL_BRANCHES", 0xc5, 0);
const LLC_REFERENCES: EventRow = row(LlcReferences, "LONGEST_LAT_CACHE.REFERENCE", 0x2e, 0x4f);
const LLC_MISSES: EventRow = row(LlcMisses, "LONGEST_LAT_CACHE.MISS", 0x2e, 0x41);
const P_LOADS: EventRow = row(Loads, "MEM_INST_RETIRED.ALL_LOADS", 0xd0, 0x81).on(FIRST_4);
const P_STORES: EventRow = row(Stores, "MEM_INST_RETIRED.ALL_STORES", 0xd0, 0x82).on(FIRST_4);
const P_L1_ACCESSES: EventRow = row(L1Accesses, "MEM_INST_RETIRED.ANY", 0xd0, 0x83).on(FIRST_4);
const P_L1_MISSES: EventRow = row(L1Misses, "L1D.REPLACEMENT", 0x51, 0x01).on(FIRST_4);
const P_L2_ACCESSES: EventRow = row(L2Accesses, "L2_RQSTS.REFERENCES", 0x24, 0xff).on(FIRST_4);
const P_L2_MISSES: EventRow = row(L2Misses, "L2_RQSTS.MISS", 0x24, 0x3f).on(FIRST_4);
const P_FP: EventRow = row(FpOps, "FP_ARITH_INST_RETIRED.{SCALAR,VECTOR}", 0xc7, 0xff);
const P_STALLED: EventRow = row(StalledMem, "CYCLE_ACTIVITY.STALLS_L2_MISS", 0xa3, 0x05)
    .cmask(5)
    .on(FIRST_4);
const P_DIVIDER: EventRow = row(Divider, "ARITH.DIV_ACTIVE", 0xb0, 0x09).cmask(1);
const E_LOADS: EventRow = row(Loads, "MEM_UOPS_RETIRED.ALL_LOADS", 0xd0, 0x81);
const E_STORES: EventRow = row(Stores, "MEM_UOPS_RETIRED.ALL_STORES", 0xd0, 0x82);
const E_L1_LOADS: EventRow = row(L1Accesses, "MEM_UOPS_RETIRED.ALL_LOADS", 0xd0, 0x81);
const E_L2_MISSES: EventRow = row(L2Misses, "L2_REQUEST.MISS", 0x24, 0x01);
const E_STALLED: EventRow = row(StalledMem, "MEM_BOUND_STALLS_LOAD.L2_MISS", 0x34, 0x7e);
const E_DTLB: EventRow = row(DtlbMisses, "DTLB_LOAD_MISSES.WALK_COMPLETED", 0x08, 0x0e);
const E_DIVIDER: EventRow = row(Divider, "ARITH.DIV_ACTIVE", 0xcd, 0x03).cmask(1);

const GOLDEN_COVE_ROWS: &[EventRow] = &[
    P_INSTRUCTIONS,
    P_CYCLES,
    REF_CYCLES,
    BRANCHES,
    BRANCH_MISSES,
    P_LOADS,
    P_STORES,
    P_L1_ACCESSES,
    P_L1_MISSES,
    P_L2_ACCESSES,
    P_L2_MISSES,
    LLC_REFERENCES,
    LLC_MISSES,
    P_FP,
    P_STALLED,
    row(
        StalledFrontend,
        "IDQ_BUBBLES.CYCLES_0_UOPS_DELIV.CORE",
        0x9c,
        0x01,
    )
    .cmask(6),
    row(DtlbMisses, "DTLB_LOAD_MISSES.WALK_COMPLETED", 0x12, 0x0e).on(FIRST_4),
    P_DIVIDER,
];

/// P cores of Alder and Raptor Lake; Sapphire and Emerald Rapids.
pub(super) static GOLDEN_COVE: EventTable = EventTable {
    name: "golden-cove",
    layout: ConfigLayout::Intel,
    counters: counters(8, 4),
    rows: GOLDEN_COVE_ROWS,
};

/// P cores of Meteor Lake and Arrow Lake-U; Granite Rapids.
pub(super) static REDWOOD_COVE: EventTable = EventTable {
    name: "redwood-cove",
    layout: ConfigLayout::Intel,
    counters: counters(8, 4),
    rows: GOLDEN_COVE_ROWS,
};

/// P cores of Lunar Lake and Arrow Lake.
pub(super) static LION_COVE: EventTable = EventTable {
    name: "lion-cove",
    layout: ConfigLayout::Intel,
    counters: counters(10, 4),
    rows: &[
        P_INSTRUCTIONS,
        P_CYCLES,
        REF_CYCLES,
        BRANCHES,
        BRANCH_MISSES,
        P_LOADS,
        P_STORES,
        row(L1Accesses, "MEM_INST_RETIRED.ANY", 0xd0, 0x87),
        row(L1Misses, "L1D.REPLACEMENT", 0x51, 0x05),
        row(L2Accesses, "L2_RQSTS.REFERENCES", 0x24, 0xff),
        row(L2Misses, "L2_RQSTS.MISS", 0x24, 0x3f),
        LLC_REFERENCES,
        LLC_MISSES,
        row(FpOps, "FP_ARITH_OPS_RETIRED.{SCALAR,VECTOR}", 0xc7, 0x3f),
        row(StalledMem, "EXE_ACTIVITY.BOUND_ON_LOADS", 0xa6, 0x21).cmask(5),
        row(StalledFrontend, "IDQ_BUBBLES.STARVATION_CYCLES", 0x9c, 0x01).cmask(8),
        row(DtlbMisses, "DTLB_LOAD_MISSES.WALK_COMPLETED", 0x12, 0x0e),
        P_DIVIDER,
    ],
};

/// E cores of Alder and Raptor Lake; Alder Lake-N.
pub(super) static GRACEMONT: EventTable = EventTable {
    name: "gracemont",
    layout: ConfigLayout::Intel,
    counters: counters(6, 3),
    rows: &[
        P_INSTRUCTIONS,
        E_CYCLES,
        REF_CYCLES,
        BRANCHES,
        BRANCH_MISSES,
        E_LOADS,
        E_STORES,
        E_L1_LOADS,
        row(L1Misses, "MEM_LOAD_UOPS_RETIRED.L1_MISS", 0xd1, 0x08),
        row(L2Accesses, "L2_REQUEST.ALL", 0x24, 0),
        E_L2_MISSES,
        LLC_REFERENCES,
        LLC_MISSES,
        row(
            StalledMem,
            "MEM_BOUND_STALLS.{LOAD_LLC_HIT,LOAD_DRAM_HIT}",
            0x34,
            0x06,
        ),
        E_DTLB,
        E_DIVIDER,
    ],
};

/// E and LP-E cores of Meteor Lake and Arrow Lake-U, LP-E cores of Arrow Lake-H; Sierra Forest.
pub(super) static CRESTMONT: EventTable = EventTable {
    name: "crestmont",
    layout: ConfigLayout::Intel,
    counters: counters(8, 3),
    rows: &[
        P_INSTRUCTIONS,
        E_CYCLES,
        REF_CYCLES,
        BRANCHES,
        BRANCH_MISSES,
        E_LOADS,
        E_STORES,
        E_L1_LOADS,
        row(L1Misses, "MEM_LOAD_UOPS_RETIRED.L1_MISS", 0xd1, 0x40),
        E_L2_MISSES,
        LLC_REFERENCES,
        LLC_MISSES,
        // Intel lists none for 256 bits of single precision.
        row(
            FpOps,
            "FP_INST_RETIRED.{32B_SP,64B_DP,128B_SP,128B_DP,256B_DP}",
            0xc7,
            0x2f,
        ),
        E_STALLED,
        E_DTLB,
        E_DIVIDER,
    ],
};

/// E cores of Lunar Lake and Arrow Lake.
pub(super) static SKYMONT: EventTable = EventTable {
    name: "skymont",
    layout: ConfigLayout::Intel,
    counters: counters(8, 3),
    rows: &[
        P_INSTRUCTIONS,
        E_CYCLES,
        REF_CYCLES,
        BRANCHES,
        BRANCH_MISSES,
        E_LOADS,
        E_STORES,
        row(L1Accesses, "MEM_UOPS_RETIRED.ALL", 0xd0, 0x83),
        row(L1Misses, "MEM_LOAD_UOPS_RETIRED.L1_MISS", 0xd1, 0x40),
        row(L2Accesses, "L2_REQUEST.ALL", 0x24, 0x07),
        E_L2_MISSES,
        LLC_REFERENCES,
        LLC_MISSES,
        row(FpOps, "FP_INST_RETIRED.ALL", 0xc7, 0x3f),
        E_STALLED,
        E_DTLB,
        E_DIVIDER,
    ],
};

/// Ice Lake, Tiger Lake and Rocket Lake.
pub(super) static ICE_LAKE: EventTable = EventTable {
    name: "ice-lake",
    layout: ConfigLayout::Intel,
    counters: counters(8, 4),
    rows: &[
        P_INSTRUCTIONS,
        P_CYCLES,
        REF_CYCLES,
        BRANCHES,
        BRANCH_MISSES,
        P_LOADS,
        P_STORES,
        P_L1_ACCESSES,
        P_L1_MISSES,
        P_L2_ACCESSES,
        P_L2_MISSES,
        LLC_REFERENCES,
        LLC_MISSES,
        P_FP,
        P_STALLED,
        row(
            StalledFrontend,
            "IDQ_UOPS_NOT_DELIVERED.CYCLES_0_UOPS_DELIV.CORE",
            0x9c,
            0x01,
        )
        .cmask(5),
        row(DtlbMisses, "DTLB_LOAD_MISSES.WALK_COMPLETED", 0x08, 0x0e).on(FIRST_4),
        row(Divider, "ARITH.DIVIDER_ACTIVE", 0x14, 0x09).cmask(1),
    ],
};

/// Skylake and its likes up to Comet Lake and Cascade Lake. Four general counters a thread.
pub(super) static SKYLAKE: EventTable = EventTable {
    name: "skylake",
    layout: ConfigLayout::Intel,
    counters: counters(4, 3),
    rows: &[
        P_INSTRUCTIONS,
        P_CYCLES,
        REF_CYCLES,
        BRANCHES,
        BRANCH_MISSES,
        P_LOADS,
        P_STORES,
        P_L1_ACCESSES,
        P_L1_MISSES,
        P_L2_ACCESSES,
        P_L2_MISSES,
        LLC_REFERENCES,
        LLC_MISSES,
        P_FP,
        P_STALLED,
        row(
            StalledFrontend,
            "IDQ_UOPS_NOT_DELIVERED.CYCLES_0_UOPS_DELIV.CORE",
            0x9c,
            0x01,
        )
        .cmask(4),
        row(DtlbMisses, "DTLB_LOAD_MISSES.WALK_COMPLETED", 0x08, 0x0e),
        row(Divider, "ARITH.DIVIDER_ACTIVE", 0x14, 0x01).cmask(1),
    ],
};
