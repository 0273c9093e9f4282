// SPDX-License-Identifier: MIT
//! Builds the C library, which has the one implementation, into the crate.

fn main() {
    for file in [
        "advice.c",
        "heartbeat.c",
        "connection.c",
        "internal.h",
        "scx_hetero_advice.h",
        "scx_hetero_heartbeat.h",
    ] {
        println!("cargo:rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(["advice.c", "heartbeat.c", "connection.c"])
        .flag("-std=gnu11")
        .define("_GNU_SOURCE", None)
        .flag("-fvisibility=hidden")
        .flag("-pthread")
        // A program that one does debug is as fast as others here.
        .opt_level(2)
        .compile("scx_hetero_heartbeat");
}
