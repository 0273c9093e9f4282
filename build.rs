// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF half into a skeleton, its interface into Rust types, its arithmetic into native
//! code for the tests, and all of it, natively, into the shared object that the simulator drives.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    scx_cargo::BpfBuilder::new()
        .expect("clang 18 or later is needed to build the BPF half (set BPF_CLANG to name it)")
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .build()
        .expect("the BPF half did not compile");

    cc::Build::new()
        .file("src/bpf/arith_native.c")
        .file("src/bpf/forest_native.c")
        .compile("hetero_arith");

    native_half();

    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=src/sim/native");
}

/// `$OUT_DIR/half.so` from `src/bpf/main.bpf.c`, unchanged, against the shim in `src/sim/native/`;
/// and its types in Rust, `native.rs`. `NATIVE_CFLAGS` adds to how it is compiled.
fn native_half() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let shim = Path::new("src/sim/native");
    let maps = fs::read_dir("src/bpf")
        .expect("src/bpf")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .map(|text| text.matches(r#"SEC(".maps")"#).count())
        .sum::<usize>();
    // testbed/native-half compiles it by the same file.
    let flags = fs::read_to_string(shim.join("half.flags")).expect("half.flags");
    let flags = flags.split_whitespace().map(str::to_string);
    let flags: Vec<_> = flags
        .chain([format!("-DNR_MAPS_IN_SOURCE={maps}")])
        .collect();

    // The optimiser must see what it sees for BPF; and what is not defined is no surprise at run time.
    let clang = env::var("BPF_CLANG").unwrap_or_else(|_| "clang".to_string());
    let compiler = cc::Build::new()
        .compiler(clang)
        .opt_level(2)
        .warnings(false)
        .get_compiler();
    let extra = env::var("NATIVE_CFLAGS").unwrap_or_default();
    println!("cargo:rerun-if-env-changed=NATIVE_CFLAGS");
    let status = compiler
        .to_command()
        .args(&flags)
        .args(extra.split_whitespace())
        .args([shim.join("half.c"), shim.join("shim.c")])
        .arg("-o")
        .arg(out.join("half.so"))
        .status()
        .expect("clang for the native BPF half");
    assert!(
        status.success(),
        "the BPF half does not compile natively: what it uses is missing in src/sim/native"
    );

    bindgen::Builder::default()
        .header(shim.join("half.c").to_string_lossy())
        .clang_args(flags.iter().filter(|flag| !flag.starts_with("-Wl") && *flag != "-shared"))
        .allowlist_type("task_struct|cgroup|cpumask|bpf_timer|bpf_perf_event_value|sched_ext_ops")
        .allowlist_type("scx_.*_args|native.*|bpf_iter_scx_dsq")
        .allowlist_type("task_ctx|cpu_ctx|domain_ctx|process_ctx|cgroup_ctx|reading|account|tier")
        .allowlist_var("SCX_.*|NATIVE_.*|PF_.*|E[A-Z0-9]+|MAX_.*|PERF_.*|.*_NS|NO_CPU|NO_DOMAIN|WORDS_PER_MASK")
        .blocklist_file(".*/intf\\.h")
        .raw_line("pub use crate::bpf::intf::*;")
        .derive_default(true)
        .layout_tests(false)
        .generate()
        .expect("Rust types of the native BPF half")
        .write_to_file(out.join("native.rs"))
        .expect("OUT_DIR can be written");
}
