// SPDX-License-Identifier: GPL-2.0-or-later
//! AMD's Zen cores; the compact ones (Zen 4c, Zen 5c) count the same. There are no fixed
//! counters, and any counter counts any event.

use super::super::event::Meaning::*;
use super::{ConfigLayout, Counters, EventRow, EventTable, row};

const ROWS: &[EventRow] = &[
    row(Instructions, "ex_ret_instr", 0xc0, 0),
    row(Cycles, "ls_not_halted_cyc", 0x76, 0),
    row(RefCycles, "ls_not_halted_p0_cyc.p0_freq_cyc", 0x120, 0x01),
    row(Branches, "ex_ret_brn", 0xc2, 0),
    row(BranchMisses, "ex_ret_brn_misp", 0xc3, 0),
    row(
        Loads,
        "ls_dispatch.{ld_dispatch,ld_st_dispatch}",
        0x29,
        0x05,
    ),
    row(
        Stores,
        "ls_dispatch.{store_dispatch,ld_st_dispatch}",
        0x29,
        0x06,
    ),
    row(
        L1Accesses,
        "ls_dispatch.{ld_dispatch,store_dispatch,ld_st_dispatch}",
        0x29,
        0x07,
    ),
    row(L1Misses, "ls_any_fills_from_sys.all", 0x44, 0xff),
    row(L2Accesses, "l2_cache_req_stat.all", 0x64, 0xff),
    row(L2Misses, "l2_cache_req_stat.ic_dc_miss_in_l2", 0x64, 0x09),
    row(
        LlcReferences,
        "ls_any_fills_from_sys.{local_ccx,remote_cache,dram_io_all}",
        0x44,
        0x5e,
    ),
    row(
        LlcMisses,
        "ls_any_fills_from_sys.{remote_cache,dram_io_all}",
        0x44,
        0x5c,
    ),
    row(FpOps, "fp_ops_retired_by_type.all", 0x0a, 0xff),
    row(StalledMem, "ex_no_retire.load_not_complete", 0xd6, 0xa2),
    row(StalledFrontend, "de_op_queue_empty", 0xa9, 0),
    row(DtlbMisses, "ls_l1_d_tlb_miss.all_l2_miss", 0x45, 0xf0),
    row(Divider, "ex_div_busy", 0xd3, 0),
];

const COUNTERS: Counters = Counters {
    general: 6,
    fixed: 0,
};

/// Zen 4 and Zen 4c.
pub(super) static ZEN4: EventTable = EventTable {
    name: "zen4",
    layout: ConfigLayout::Amd,
    counters: COUNTERS,
    rows: ROWS,
};

/// Zen 5 and Zen 5c.
pub(super) static ZEN5: EventTable = EventTable {
    name: "zen5",
    layout: ConfigLayout::Amd,
    counters: COUNTERS,
    rows: ROWS,
};
