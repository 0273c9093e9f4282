// SPDX-License-Identifier: GPL-2.0-only
//! What `scx_hetero doctor` finds on machines whose files are laid out here.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixtures::Machine;
use crate::program::command;
use flate2::{Compression, write::GzEncoder};
use scx_hetero::advice::{AdviceServer, MAX_OF_PROCESS};
use scx_hetero::doctor::{Check, Report, Severity, examine};

const CONFIG: &str = "CONFIG_SCHED_CLASS_EXT=y\nCONFIG_EXT_GROUP_SCHED=y\nCONFIG_BPF_SYSCALL=y\n\
                      CONFIG_BPF_JIT=y\nCONFIG_DEBUG_INFO_BTF=y";
const BTF: &str = "sys/kernel/btf/vmlinux";
const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 154\n\
                       model name\t: A CPU";

/// A laptop on which nothing is amiss.
fn healthy() -> Machine {
    let machine = Machine::new("i7-1260p");
    machine
        .set("proc/sys/kernel/osrelease", "6.18.15+deb13-amd64")
        .set(
            "proc/self/status",
            "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff",
        )
        .set("proc/cpuinfo", CPUINFO)
        .set("proc/1/comm", "systemd")
        .set("boot/config-6.18.15+deb13-amd64", CONFIG)
        .set("sys/kernel/sched_ext/state", "disabled")
        .set("sys/class/powercap/intel-rapl:0/name", "package-0")
        .set("sys/class/powercap/intel-rapl:0/energy_uj", "1234567")
        .set("sys/fs/cgroup/cgroup.controllers", "cpuset cpu")
        .set("sys/fs/cgroup/system.slice/cpu.max", "max 100000")
        .set(BTF, "");
    fs::write(machine.root().join(BTF), [0x9f, 0xeb, 1, 0]).unwrap();
    machine
}

fn all(report: &Report) -> impl Iterator<Item = &Check> {
    report.sections.iter().flat_map(|section| &section.checks)
}

/// The checks of this name that are not as they should be.
fn amiss(report: &Report) -> Vec<String> {
    let amiss = all(report).filter(|c| matches!(c.status, Severity::Warning | Severity::Failed));
    amiss
        .map(|c| format!("{} {:?}", c.name, c.status))
        .collect()
}

fn run(machine: &Machine, args: &[&str], env: &[(&str, &str)]) -> Output {
    command(&["doctor"])
        .args(args)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .envs(env.iter().copied())
        .env("SCX_SYSFS_PREFIX", machine.root())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn on_a_good_machine_nothing_is_amiss() {
    let machine = healthy();
    let report = examine(machine.root());
    assert_eq!(amiss(&report), [""; 0]);
    assert_eq!((report.failed, report.warnings), (0, 0));
    for topic in [
        "kernel",
        "core types",
        "counters",
        "energy",
        "neighbours",
        "programs",
    ] {
        let section = report.sections.iter().find(|s| s.topic == topic).unwrap();
        assert!(!section.checks.is_empty(), "{topic}");
    }
    let interference = all(&report).find(|check| check.name == "interference");
    assert_eq!(
        interference.unwrap().found,
        "what slows a thread down is told: last-level cache, L2 cache of its cluster, memory \
         bandwidth, SMT sibling, power or heat, lock or barrier"
    );
    let output = run(&machine, &[], &[]);
    assert!(output.status.success());
    let text = stdout(&output);
    for part in [
        "Linux 6.18.15+deb13-amd64",
        "4P (8 threads) + 8E in 2 clusters",
        "cpu_core counts on CPUs 0-7 (golden-cove)",
        "energy is counted: package (powercap); no sensor of: cores, memory,",
        "Nothing fails; no warnings.",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn whatever_is_amiss_is_found_and_has_a_remedy() {
    use Severity::{Failed, Note, Warning};
    type Change = fn(&Machine);
    let cases: &[(&str, Severity, &str, Change)] = &[
        ("release", Failed, "6.16", |m| {
            m.set("proc/sys/kernel/osrelease", "6.12.9-arch1");
        }),
        ("sched-ext", Failed, "CONFIG_SCHED_CLASS_EXT", |m| {
            fs::remove_dir_all(m.root().join("sys/kernel/sched_ext")).unwrap();
        }),
        ("sched-ext", Failed, "without CONFIG_SCHED_CLASS_EXT", |m| {
            fs::remove_dir_all(m.root().join("sys/kernel/sched_ext")).unwrap();
            let config = CONFIG.replace("CONFIG_SCHED_CLASS_EXT=y\n", "");
            m.set("boot/config-6.18.15+deb13-amd64", &config);
        }),
        ("options", Failed, "without CONFIG_BPF_JIT", |m| {
            let config = CONFIG.replace("CONFIG_BPF_JIT=y", "# CONFIG_BPF_JIT is not set");
            m.set("boot/config-6.18.15+deb13-amd64", &config);
        }),
        ("cgroup-weights", Warning, "CPUWeight", |m| {
            let config = CONFIG.replace("CONFIG_EXT_GROUP_SCHED=y\n", "");
            m.set("boot/config-6.18.15+deb13-amd64", &config);
        }),
        ("options", Note, "not shown", |m| {
            m.remove("boot/config-6.18.15+deb13-amd64");
        }),
        ("btf", Failed, "another kernel build", |m| {
            m.set(BTF, "no BTF");
        }),
        ("jit", Failed, "bpf_jit_enable=1", |m| {
            m.set("proc/sys/net/core/bpf_jit_enable", "0");
        }),
        ("lockdown", Failed, "without lockdown", |m| {
            m.set(
                "sys/kernel/security/lockdown",
                "none integrity [confidentiality]",
            );
        }),
        ("scheduler", Failed, "systemctl stop", |m| {
            m.set("sys/kernel/sched_ext/state", "enabled")
                .set("sys/kernel/sched_ext/root/ops", "lavd_1.1.4");
        }),
        ("isolation", Failed, "boot it without isolcpus=", |m| {
            m.set("sys/devices/system/cpu/isolated", "0-3")
                .set("proc/cmdline", "quiet isolcpus=0-3");
        }),
        ("pid-namespace", Failed, "--pid=host", |m| {
            let folder = m.root().join("proc/self/ns");
            fs::create_dir_all(&folder).unwrap();
            symlink("pid:[4026532345]", folder.join("pid")).unwrap();
        }),
        ("real-time", Failed, "boot an ordinary one", |m| {
            m.set(
                "proc/sys/kernel/version",
                "#1 SMP PREEMPT_RT Debian 7.3.4-1",
            );
        }),
        ("permissions", Note, "sudo scx_hetero doctor", |m| {
            m.set("proc/self/status", "Uid:\t1000\t1000\t0\t0\nCapEff:\t0");
        }),
        ("permissions", Failed, "without CAP_PERFMON, CAP_BPF", |m| {
            m.set(
                "proc/self/status",
                "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000000400",
            );
        }),
        ("permissions", Warning, "perf_event_paranoid=2", |m| {
            m.set("proc/sys/kernel/perf_event_paranoid", "3").set(
                "proc/self/status",
                "Uid:\t0\t0\t0\t0\nCapEff:\t000000c000000000",
            );
        }),
        ("core-types", Failed, "mount sysfs", |m| {
            m.remove("sys/devices/system/cpu/online");
        }),
        ("agreement", Warning, "--core-types", |m| {
            m.set("sys/devices/system/cpu/cpu{0-7}/cpu_capacity", "500")
                .set("sys/devices/system/cpu/cpu{8-15}/cpu_capacity", "1024");
        }),
        ("topology", Note, "not a number", |m| {
            m.set("sys/devices/system/cpu/cpu3/cpu_capacity", "fast");
        }),
        ("calibration", Warning, "cut short", |m| {
            m.set("var/lib/scx_hetero/calibration.json", "{");
        }),
        ("model", Note, "train --here", |_| {}),
        ("model", Warning, "cut short", |m| {
            m.set("var/lib/scx_hetero/model.json", "{");
        }),
        ("model", Warning, "is ignored", |m| {
            let model = "models/virtual-juno-r1.model.json";
            m.set(
                "var/lib/scx_hetero/model.json",
                &fs::read_to_string(model).unwrap(),
            );
        }),
        ("pmu", Warning, "pmu=on", |m| {
            fs::remove_dir_all(m.root().join("sys/bus/event_source")).unwrap();
        }),
        ("pmu", Warning, "on CPUs 8-15", |m| {
            fs::remove_dir_all(m.root().join("sys/bus/event_source/devices/cpu_atom")).unwrap();
        }),
        ("pmu", Note, "unknown make", |m| {
            m.set("proc/cpuinfo", &CPUINFO.replace("154", "9999"));
        }),
        ("watchdog", Note, "nmi_watchdog=0", |m| {
            m.set("proc/sys/kernel/nmi_watchdog", "1");
        }),
        ("energy", Note, "no RAPL", |m| {
            fs::remove_dir_all(m.root().join("sys/class/powercap")).unwrap();
        }),
        ("daemons", Warning, "--now intel_lpmd", |m| {
            m.set("proc/77/comm", "intel_lpmd");
        }),
        ("daemons", Warning, "--now scx_loader", |m| {
            m.set("proc/77/comm", "scx_loader");
        }),
        ("daemons", Warning, "pin_cores=no", |m| {
            m.set("proc/77/comm", "gamemoded");
        }),
        ("daemons", Note, "thermald", |m| {
            m.set("proc/77/comm", "thermald");
        }),
        (
            "cgroup-limits",
            Warning,
            "1 cgroup has a limit of CPU time",
            |m| {
                m.set("sys/fs/cgroup/system.slice/cpu.max", "50000 100000");
            },
        ),
        (
            "cgroup-limits",
            Warning,
            "2 cgroups have a limit of CPU freq",
            |m| {
                m.set("sys/fs/cgroup/a.slice/cpu.uclamp.max", "20.00")
                    .set("sys/fs/cgroup/b.slice/cpu.uclamp.max", "0.00");
            },
        ),
        ("advice", Note, "no scx_hetero runs", |_| {}),
        ("advice", Warning, "has ended", |m| {
            fs::create_dir_all(m.root().join("run/scx_hetero")).unwrap();
            // A socket stays when what listened there ends.
            UnixListener::bind(m.root().join("run/scx_hetero/advice.sock")).unwrap();
        }),
        ("cgroup-limits", Note, "version 1", |m| {
            m.remove("sys/fs/cgroup/cgroup.controllers");
        }),
    ];
    for (name, status, text, change) in cases {
        let machine = healthy();
        change(&machine);
        let report = examine(machine.root());
        let check = all(&report).find(|check| {
            let said = format!("{} {:?}", check.found, check.remedy);
            check.name == *name && said.contains(text)
        });
        let check = check.unwrap_or_else(|| panic!("no {name} with '{text}': {report:#?}"));
        assert_eq!(check.status, *status, "{name} {text}");
        for check in all(&report) {
            let grave = matches!(check.status, Warning | Failed);
            assert!(!grave || check.remedy.is_some(), "{check:#?}");
        }
        let expected = u8::from(report.failed > 0);
        assert_eq!(
            report.failed > 0,
            amiss(&report).iter().any(|c| c.ends_with("Failed"))
        );
        assert_eq!(
            run(&machine, &[], &[]).status.code(),
            Some(expected.into()),
            "{name}"
        );
    }
}

#[test]
fn programs_get_advice_where_it_is_served() {
    let machine = healthy();
    let path = machine.root().join("run/scx_hetero/advice.sock");
    let server = AdviceServer::start(&path).unwrap();
    let advice = || {
        let report = examine(machine.root());
        let check = all(&report).find(|check| check.name == "advice").unwrap();
        (check.status, check.found.clone())
    };
    let (status, found) = advice();
    assert_eq!(status, Severity::Ok, "{found}");
    assert!(found.contains("get advice"), "{found}");
    // It has left no subscription. And what others are refused is told.
    let begin = Instant::now();
    while !server.subscribers().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    let kept = [(); MAX_OF_PROCESS].map(|()| UnixStream::connect(&path).unwrap());
    while server.subscribers().len() < kept.len() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(5));
    }
    let (status, found) = advice();
    assert_eq!(status, Severity::Warning, "{found}");
    assert!(found.contains("times already"), "{found}");
}

#[test]
fn our_own_scheduler_is_no_stranger() {
    let machine = healthy();
    machine
        .set("sys/kernel/sched_ext/state", "enabled")
        .set("sys/kernel/sched_ext/root/ops", "hetero_0.1.0_x86_64");
    assert_eq!(amiss(&examine(machine.root())), [""; 0]);
}

#[test]
fn options_are_read_packed_and_a_damaged_file_is_passed_over() {
    let machine = healthy();
    machine.remove("boot/config-6.18.15+deb13-amd64");
    let path = machine.root().join("proc/config.gz");
    let mut packed = GzEncoder::new(File::create(&path).unwrap(), Compression::fast());
    writeln!(packed, "{CONFIG}").unwrap();
    packed.finish().unwrap();
    let options = |machine: &Machine| {
        let report = examine(machine.root());
        all(&report).find(|c| c.name == "options").unwrap().status
    };
    assert_eq!(options(&machine), Severity::Ok);
    machine.set("proc/config.gz", "no archive");
    assert_eq!(options(&machine), Severity::Note);
    machine.set("lib/modules/6.18.15+deb13-amd64/config", CONFIG);
    assert_eq!(options(&machine), Severity::Ok);
}

#[test]
fn json_tells_all_but_what_is_private() {
    let machine = healthy();
    machine
        .set(
            "sys/fs/cgroup/user.slice/secret-project.service/cpu.max",
            "1000 100000",
        )
        .set("proc/sys/kernel/hostname", "secret-host")
        .set("proc/77/comm", "secret-daemon")
        .set("proc/cmdline", "secret-option");
    assert!(stdout(&run(&machine, &[], &[])).contains("secret-project.service"));
    let output = run(&machine, &["--json"], &[]);
    assert!(output.status.success());
    let text = stdout(&output);
    assert!(!text.contains("secret"), "{text}");
    assert!(!text.contains(machine.root().to_str().unwrap()), "{text}");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], 1);
    assert_eq!(
        (&value["failed"], &value["warnings"]),
        (&0.into(), &1.into())
    );
    let checks = value["sections"].as_array().unwrap().iter();
    let mut checks = checks.flat_map(|section| section["checks"].as_array().unwrap());
    let lost = checks
        .find(|check| check["name"] == "cgroup-limits")
        .unwrap();
    assert_eq!(lost["status"], "warning");
    assert!(lost["remedy"].as_str().unwrap().contains("CPUWeight"));
}

#[test]
fn text_fits_a_terminal_and_has_colours_where_they_are_wanted() {
    let bad = |machine: Machine| {
        machine
            .set("proc/7/comm", "intel_lpmd")
            .set("sys/fs/cgroup/cgroup.controllers", "cpu");
        for i in 0..7 {
            machine.set(
                &format!("sys/fs/cgroup/a-rather-long-name-{i}.slice/cpu.max"),
                "1 2",
            );
        }
        machine
    };
    let names = [
        "epyc-9354p",
        "i7-13700k",
        "odroid-xu4",
        "ryzen-ai-9-hx-370",
        "ultra-7-155h",
    ];
    let mut machines: Vec<_> = names.iter().map(|name| bad(Machine::new(name))).collect();
    machines.extend([Machine::empty(), bad(Machine::empty()), healthy()]);
    for machine in &machines {
        let text = stdout(&run(machine, &[], &[]));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(!text.contains('\x1b') && !text.contains("  \n"), "{text}");
    }
    let forced = ("CLICOLOR_FORCE", "1");
    let coloured = stdout(&run(&machines[0], &[], &[forced]));
    assert!(
        coloured.contains("\x1b[31m") || coloured.contains("31m"),
        "{coloured}"
    );
    let plain = stdout(&run(&machines[0], &[], &[("NO_COLOR", "1")]));
    assert!(!plain.contains('\x1b'));
}

#[test]
fn who_reads_only_the_beginning_is_not_an_error() {
    let machine = healthy();
    let mut child = command(&["doctor", "--json"])
        .env("SCX_SYSFS_PREFIX", machine.root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}
