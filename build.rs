// SPDX-License-Identifier: GPL-2.0-only
//! Compiles the BPF half into a skeleton, its interface into Rust types, and
//! its arithmetic into native code for the tests.

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

    println!("cargo:rerun-if-changed=src/bpf");
}
