// SPDX-License-Identifier: GPL-2.0-only
//! What files of virtual hybrid machines may have and most lack (energy, latencies, resctrl, feedback,
//! pipelines): what is wrong with it is refused in words.

use crate::machines::{refuses, settings};

#[test]
fn impossible_energies_are_refused_by_their_key() {
    refuses(
        "alder-lake-energy",
        &[
            (
                "uncore_w = 3.0",
                "uncore_w = -3.0",
                "energy: `uncore_w` must be at least 0",
            ),
            (
                "dram_nj = 12",
                "dram_nj = nan",
                "energy: `dram_nj` cannot be nan",
            ),
            (
                "uncore_w = 3.0",
                "uncore_w = 1e9",
                "energy: `uncore_w` must be at most 4095",
            ),
            (
                "idle_w = 1.2",
                "idle_w = 5",
                "energy: `idle_w` is more than `uncore_w`",
            ),
            (
                "[4400, 1.2]",
                "[4400, 12]",
                "P, energy: `volts`: [4400, 12] must be at most 10000 MHz, 5 volts",
            ),
            ("pl2_w = 95", "pl2_w = 20", "`pl2_w` is less than `pl1_w`"),
            ("leakage_w = 1.2\n", "", "P, energy lacks `leakage_w`"),
            ("llc = 6", "llc = -6", "P, energy, nj: `llc` must be"),
            ("llc = 6 }", "llc = 6, l4 = 1 }", "unknown setting `l4`"),
            (
                "[2000, 0.78]",
                "[300, 0.78]",
                "300 after 400 does not ascend",
            ),
            ("[2000, 0.82]", "[2000, 0.6]", "E, energy: `volts` fall"),
            (
                "[3300, 0.95], [4400, 1.2]]",
                "[3300, 0.95]]",
                "P, energy: `volts` end at 3300 MHz, below the type's `mhz`: 4400",
            ),
            (
                "[400, 0.65]",
                "[400, 0]",
                "`volts`: [400, 0] must be positive",
            ),
            ("[400, 0.65]", "400", "list of [MHz, volts], not 400"),
            ("[0, 0.6]", "[5, 0.6]", "`idle` must begin at 0"),
            (
                "[200, 0.15]",
                "[200, 1.5]",
                "`idle`: a deeper state takes 1.5",
            ),
            (
                "[core_type.E.energy]",
                "[core_type.F.energy]",
                "core type E lacks `energy`",
            ),
            ("[energy]", "[energies]", "P has `energy`, but the machine"),
            ("pl2_w = 95", "thermal_r = 2", "energy lacks `thermal_s`"),
            (
                "pl2_w = 95",
                "thermal_r = 0\nthermal_s = 5",
                "energy: `thermal_r` must be at least 0.001",
            ),
            (
                "pl2_w = 95",
                "thermal_r = 2\nthermal_s = 5\nmax_c = 128",
                "energy: `max_c` is at most 127, not 128",
            ),
            (
                "pl2_w = 95",
                "thermal_r = 2\nthermal_s = 5\nmax_c = 20",
                "`ambient_c` is not below `max_c`: 25 and 20",
            ),
            (
                "like = \"alder-lake-4p4e\"",
                "like = \"pdp-11\"",
                "no machine pdp-11",
            ),
        ],
    );
}

#[test]
fn impossible_sensors_are_refused_by_their_key() {
    refuses(
        "odroid-xu4-energy",
        &[
            ("A7 = 0x45", "A8 = 0x45", "`A8` is no core type, nor memory"),
            ("A7 = 0x45", "A7 = 0x40", "`A7` and `A15` have one address"),
            (
                "A7 = 0x45",
                "A7 = 0x50",
                "0x08 to 0x77, but for 0x50 to 0x57, not 0x50",
            ),
            (
                "A7 = 0x45",
                "A7 = 0x100",
                "`A7`: an address is 0x08 to 0x77",
            ),
            (
                "A7 = 0x45",
                "A7 = \"0x45\"",
                "sensors: `A7` cannot be '0x45'",
            ),
            ("[energy.sensors]", "[sensors]", "unknown setting `sensors`"),
        ],
    );
}

#[test]
fn impossible_idle_states_are_refused_by_their_key() {
    refuses(
        "alder-lake-cpuidle",
        &[
            (
                "[230, 0.02]]",
                "[230, 0.2]]",
                "`cpuidle`: the state that is left in 230 microseconds takes 0.2 W, more than 0.06 W",
            ),
            ("[[2, 0.6]", "[[200, 0.6]", "170 after 200 does not ascend"),
            ("[230, 0.02]]", "[23000, 0.02]]", "at most 10000 micros"),
            ("[230, 0.02]]", "230]", "list of [microseconds, watts]"),
            (
                "[230, 0.02]]",
                "[231, 0.02], [232, 0.02], [233, 0.02], [234, 0.02], [235, 0.02]]",
                "P: `cpuidle` has at most 7 states, not 8",
            ),
            (
                ", [230, 0.005]]",
                "]",
                "as many states of `cpuidle` each: P has 4, E has 3",
            ),
            (
                "[core_type.E]",
                "[core_type.E]\nidle_exit = [[4, 2]]",
                "E: `cpuidle` and `idle_exit` do not go together",
            ),
            (
                "[core_type.P]",
                "energy = \"off\"\n[core_type.P]",
                "P: `cpuidle` needs `[energy]`",
            ),
        ],
    );
}

#[test]
fn impossible_latencies_and_noise_are_refused_by_their_key() {
    refuses(
        "i7-1260p-noisy",
        &[
            (
                "sibling_ns = 4.3\n",
                "",
                "latency lacks `sibling_ns`: there are cores of 2 threads",
            ),
            ("llc_ns = 32\n", "", "latency lacks `llc_ns`"),
            (
                "other_ns = 33.5",
                "other_ns = -1",
                "latency: `other_ns` must be at least 0",
            ),
            (
                "other_ns = 33.5",
                "other_ns = nan",
                "latency: `other_ns` cannot be nan",
            ),
            (
                "other_ns = 33.5",
                "other_ns = 33.5\nmoon_ns = 1",
                "latency: unknown setting `moon_ns`",
            ),
            (
                "noise = \"low\"",
                "noise = \"loud\"",
                "`noise` is off, low or high, not loud",
            ),
            ("noise = \"low\"", "noise = 3", "`noise` cannot be 3"),
            ("[[4, 2]", "[4, 2", "wrong.toml"),
            ("[[4, 2]", "[4", "P: `idle_exit` is a list of [microseconds"),
            ("[500, 170]", "[500, 1]", "P: `idle_exit`: a deeper state"),
            (
                "[500, 170]",
                "[3, 170]",
                "`idle_exit`: microseconds 3 after",
            ),
            ("[500, 170]", "[500, -1]", "must be at least 0"),
        ],
    );
}

/// Time is stretched for latencies between cores, as for caches; sleep is the guest's own.
#[test]
fn latencies_are_scaled_and_idle_states_are_not() {
    let noisy = settings("i7-1260p-noisy");
    for line in [
        "latency.llc_ns = 640",
        "latency.sibling_ns = 86.0",
        "noise = 1",
        "noise.clock = 0.002",
        "type.1.idle_exit.3.exit_us = 230",
    ] {
        assert!(noisy.lines().any(|l| l == line), "{line}: {noisy}");
    }
    let plain = settings("i7-1260p");
    for line in ["latency = 0", "noise = 0", "type.0.idle_exit = 0"] {
        assert!(plain.lines().any(|l| l == line), "{line}: {plain}");
    }
}

#[test]
fn impossible_settings_of_resctrl_are_refused_by_their_key() {
    refuses(
        "alder-lake-resctrl",
        &[
            (
                "rmids = 64",
                "rmids = 0",
                "resctrl: `rmids` must be at least 1, not 0",
            ),
            (
                "rmids = 64",
                "rmids = 1025",
                "resctrl: `rmids` must be at most 1024",
            ),
            (
                "rmids = 64",
                "rmids = 6.4",
                "resctrl: `rmids` cannot be 6.4",
            ),
            ("rmids = 64\n", "", "resctrl lacks `rmids`"),
            (
                "clos = 16",
                "clos = 0",
                "resctrl: `clos` must be at least 1",
            ),
            (
                "clos = 16",
                "clos = 129",
                "resctrl: `clos` must be at most 128",
            ),
            (
                "clos = 16",
                "clos = 16\nways = 13",
                "resctrl: unknown setting `ways`",
            ),
            (
                "[resctrl]",
                "llc.l3.ways = 48\n[resctrl]",
                "llc l3: `ways` must be at most 32 with",
            ),
            (
                "like = \"alder-lake-4p4e\"",
                "like = \"juno-r1\"",
                "cluster 0 lacks `l2`: `[resctrl]`",
            ),
            (
                "like = \"alder-lake-4p4e\"",
                "like = \"meteor-lake\"",
                "llc soc: `ways` must be those of the first",
            ),
        ],
    );
}

#[test]
fn impossible_feedback_is_refused_by_its_key() {
    refuses(
        "alder-lake-hfi",
        &[
            (
                "step = 4",
                "step = 0",
                "hfi: `step` must be at least 1, not 0",
            ),
            (
                "step = 4",
                "step = 256",
                "hfi: `step` must be at most 255, not 256",
            ),
            ("step = 4", "step = 1.5", "hfi: `step` cannot be 1.5"),
            (
                "interval_ms = 100",
                "interval_ms = 0",
                "hfi: `interval_ms` must be at least 1, not 0",
            ),
            (
                "interval_ms = 100",
                "interval_s = 1",
                "hfi: unknown setting `interval_s`",
            ),
            (
                "like = \"alder-lake-energy\"",
                "like = \"alder-lake-4p4e\"",
                "hfi: efficiency needs `[energy]`",
            ),
        ],
    );
}

/// A pipeline's settings are named where they are wrong.
#[test]
fn impossible_pipelines_are_refused_by_their_key() {
    refuses(
        "alder-lake-pipeline",
        &[
            ("width = 6", "width = 0", "P, pipeline: `width` must be"),
            ("width = 6\n", "", "P, pipeline lacks `width`"),
            ("window = 512", "window = -1", "`window` must be at least 0"),
            ("hide = 0.", "hide = 1.", "`hide` must be at most 1"),
            ("hide = 0.", "hide = nan # ", "`hide` cannot be nan"),
            ("alu = 5", "alu = 0", "P, pipeline, ports: `alu` must be"),
            ("load = 5, ", "", "P, pipeline, latency lacks `load`"),
            ("div = 15", "div = \"long\"", "`div` cannot be 'long'"),
            ("fp = 4", "fp = 4, fma = 4", "unknown setting `fma`"),
            (
                "[core_type.E.pipeline]",
                "[core_type.E.pipelines]",
                "core type E lacks `pipeline`",
            ),
            (
                "like = \"alder-lake-4p4e\"",
                "like = \"meteor-lake\"",
                "core types with a `pipeline` are at most 2, not 3",
            ),
        ],
    );
}
