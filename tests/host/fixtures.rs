// SPDX-License-Identifier: GPL-2.0-only
//! Machines as sysfs trees. Each `*.sysfs` file holds lines `path: contents`; a `{cpulist}` in the
//! path writes the line once for each of these CPUs, and `{}` in the contents is that CPU.

use std::fs;
use std::path::{Path, PathBuf};

use scx_hetero::pmu;
use scx_hetero::topology::{CoreTypesSpec, Sysfs, Topology, cpulist};
use tempfile::TempDir;

/// Directory of a CPU, to follow with the number and the file.
pub(crate) const CPU: &str = "sys/devices/system/cpu/cpu";

/// A machine's sysfs tree in a temporary directory.
pub(crate) struct Machine {
    dir: TempDir,
}

impl Machine {
    /// The machine of `tests/fixtures/NAME.sysfs`.
    pub(crate) fn new(name: &str) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let path = fixtures.join(format!("{name}.sysfs"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let machine = Self::empty();
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, contents) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            machine.set(path, contents);
        }
        machine
    }

    /// A machine with nothing in its sysfs.
    pub(crate) fn empty() -> Self {
        let dir = TempDir::new().unwrap();
        Self { dir }
    }

    /// Where its `/sys` lies.
    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file, or one a CPU where the path holds `{cpulist}`.
    pub(crate) fn set(&self, path: &str, contents: &str) -> &Self {
        let Some((before, (list, after))) = path
            .split_once('{')
            .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        else {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{contents}\n")).unwrap();
            return self;
        };
        for cpu in cpulist::parse(list).unwrap() {
            let contents = contents.replace("{}", &cpu.to_string());
            self.set(&format!("{before}{cpu}{after}"), &contents);
        }
        self
    }

    /// Removes a file, or one a CPU where the path holds `{cpulist}`.
    pub(crate) fn remove(&self, path: &str) -> &Self {
        match path.split_once('{') {
            None => fs::remove_file(self.root().join(path)).unwrap(),
            Some((before, rest)) => {
                let (list, after) = rest.split_once('}').unwrap();
                for cpu in cpulist::parse(list).unwrap() {
                    fs::remove_file(self.root().join(format!("{before}{cpu}{after}"))).unwrap();
                }
            }
        }
        self
    }

    /// Takes CPUs offline as the kernel does: out of `online`, and without the files of a
    /// running CPU.
    pub(crate) fn offline(&self, cpus: &str) -> &Self {
        let online = fs::read_to_string(self.root().join("sys/devices/system/cpu/online")).unwrap();
        let (mut online, off) = (
            cpulist::parse(&online).unwrap(),
            cpulist::parse(cpus).unwrap(),
        );
        online.retain(|cpu| !off.contains(cpu));
        for cpu in off {
            for gone in ["topology", "cache", "cpufreq"] {
                let _ = fs::remove_dir_all(self.root().join(format!("{CPU}{cpu}/{gone}")));
            }
        }
        self.set("sys/devices/system/cpu/online", &cpulist::format(&online))
    }

    pub(crate) fn sysfs(&self) -> Sysfs {
        Sysfs::new(self.root())
    }

    pub(crate) fn topology(&self) -> Topology {
        Topology::read(&self.sysfs(), None).unwrap()
    }

    pub(crate) fn with_types(&self, spec: &str) -> anyhow::Result<Topology> {
        Topology::read(&self.sysfs(), Some(&spec.parse::<CoreTypesSpec>()?))
    }
}

/// The folder of measurements and captures from real machines, with a README of its own: where
/// `REAL_HARDWARE` says, else beside the repository. They are others' and not copied, so a test
/// that has none says that it skips `what`, and passes.
pub(crate) fn real_hardware(what: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/real-hardware");
    let folder = std::env::var_os("REAL_HARDWARE").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {what}, for {} is not there", folder.display());
    None
}

/// An Alder Lake laptop whose PMUs are known.
pub(crate) fn alder_lake() -> (Machine, Topology, pmu::MachinePmus) {
    let tree = Machine::new("i7-1260p");
    let block = |cpu: u32| {
        format!(
            "processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 154\n\n"
        )
    };
    tree.set("proc/cpuinfo", &(0..16).map(block).collect::<String>());
    for pmu in ["cpu_core", "cpu_atom"] {
        let devices = "sys/bus/event_source/devices";
        for (file, contents) in [
            ("format/event", "config:0-7"),
            ("format/umask", "config:8-15"),
            ("format/inv", "config:23"),
            ("format/cmask", "config:24-31"),
        ] {
            tree.set(&format!("{devices}/{pmu}/{file}"), contents);
        }
    }
    let topology = tree.topology();
    let machine = pmu::MachinePmus::read(tree.root());
    (tree, topology, machine)
}
