// SPDX-License-Identifier: GPL-2.0-only
//! `make build` and `make generated` on a machine that is no Debian and no x86-64: they need the
//! compilers and two libraries, and say where these come from.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder of programs that takes the place of PATH, and what is built into `target`.
struct Host(TempDir);

impl Host {
    /// Without dpkg and apt-get, and with everything that the build needs.
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        for tool in ["sh", "make", "dirname", "cut", "awk", "id", "df"] {
            let path = std::env::var_os("PATH").unwrap();
            let found = std::env::split_paths(&path).map(|folder| folder.join(tool));
            let found = found.into_iter().find(|file| file.exists()).unwrap();
            symlink(found, host.0.path().join(tool)).unwrap();
        }
        host.script("uname", "echo aarch64");
        host.script("cc", "");
        host.script("clang", "echo 20.1.8");
        host.script("pkg-config", "");
        let log = host.0.path().join("log");
        let cargo = "[ \"$1\" = --version ] && echo 'cargo 1.92.0 (abc 2026-01-01)' && exit";
        let called = format!("echo \"$BPF_CLANG: $*\" >>{}", log.display());
        host.script("cargo", &format!("{cargo}\n{called}"));
        fs::create_dir(host.0.path().join("release")).unwrap();
        let program = format!("echo \"scx_hetero $1\" >>{}", log.display());
        host.script("release/scx_hetero", &program);
        host
    }

    fn script(&self, name: &str, text: &str) {
        let file = self.0.path().join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn make(&self, goal: &str) -> Output {
        Command::new(self.0.path().join("make"))
            .arg(goal)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .env_clear()
            .env("PATH", self.0.path())
            .env("HOME", self.0.path())
            .env("CARGO_TARGET_DIR", self.0.path())
            .output()
            .unwrap()
    }

    /// What was called, a line each.
    fn log(&self) -> String {
        fs::read_to_string(self.0.path().join("log")).unwrap_or_default()
    }
}

#[test]
fn the_program_is_built_without_debian_and_without_what_only_virtual_machines_need() {
    let host = Host::new();
    let output = host.make("build");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(host.log(), "clang: build --release\n");

    let output = host.make("generated");
    assert!(output.status.success(), "{output:?}");
    assert!(host.log().ends_with("scx_hetero generate\n"), "{output:?}");
}

#[test]
fn what_is_missing_is_named_with_the_packages_of_four_distributions() {
    let host = Host::new();
    host.script("pkg-config", "[ \"$2\" != libelf ]");
    host.script("clang", "echo 17.0.6");
    let output = host.make("build");
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(host.log(), "", "nothing was begun");
    let error = String::from_utf8(output.stderr).unwrap();
    for expected in [
        "clang 18 or later",
        "libelf, with its headers",
        "apt install clang-19 libelf-dev",
        "dnf install clang elfutils-libelf-devel",
        "pacman -S --needed clang libelf",
        "zypper install clang-devel libelf-devel",
    ] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(!error.contains("zlib, with"), "that is there: {error}");
}

#[test]
fn an_old_rust_is_named_before_it_fails() {
    let host = Host::new();
    host.script("cargo", "echo 'cargo 1.85.1 (abc 2025-01-01)'");
    let output = host.make("build");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{error}");
    assert!(error.contains("cargo is version 1.85.1"), "{error}");
}

#[test]
fn the_bpf_half_has_no_name_that_a_kernel_for_arm_has() {
    let out = Path::new(env!("OUT_DIR"));
    let headers = out.join("scx_utils-bpf_h");
    let builds = fs::read_dir(out.join("../..")).unwrap();
    let mut libbpf = builds.map(|entry| entry.unwrap().path().join("out/include"));
    let libbpf = libbpf
        .find(|path| path.join("bpf/bpf_helpers.h").exists())
        .expect("libbpf's headers, which its build unpacks");
    let root = env!("CARGO_MANIFEST_DIR");
    let which = Command::new("testbed/build-needs")
        .arg("clang")
        .current_dir(root)
        .output();
    let clang = String::from_utf8(which.unwrap().stdout).unwrap();
    let output = Command::new(clang.trim())
        .args(["-target", "bpf", "-fsyntax-only", "-D__TARGET_ARCH_arm64"])
        .arg("-Wno-compare-distinct-pointer-types")
        .args(
            ["arch/arm64", "", "bpf-compat"]
                .map(|path| format!("-I{}", headers.join(path).display())),
        )
        .arg(format!("-I{}", libbpf.display()))
        .arg("src/bpf/main.bpf.c")
        .current_dir(root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
