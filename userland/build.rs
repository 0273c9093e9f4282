// SPDX-License-Identifier: GPL-2.0-only
//! The BPF half, and the Rust that talks to it, as scx_rustland_core brings them.

use std::env;
use std::fs;
use std::path::PathBuf;

fn main() {
    // It writes its sources to where it is: that is not to be among ours.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::create_dir_all(out.join("src")).expect("OUT_DIR can be written");
    env::set_current_dir(&out).expect("OUT_DIR is there");
    scx_rustland_core::RustLandBuilder::new()
        .expect("clang 18 or later is needed to build the BPF half (set BPF_CLANG to name it)")
        .build()
        .expect("the BPF half did not compile");
    println!("cargo:rerun-if-changed=build.rs");
}
