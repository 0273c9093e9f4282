// SPDX-License-Identifier: GPL-2.0-only
//! Opening counters, and saying in words why it did not work.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use perf_event_open_sys as sys;
use sys::bindings as perf;

use super::{Encoding, MachinePmus, Meaning, Pmu, Space};
use crate::preflight::Permissions;
use crate::topology::cpulist;

/// Whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everything that runs on a CPU.
    Cpu(u32),
    /// A thread, by its id (0: the calling one), on whichever CPUs the PMU serves.
    Thread(i32),
}

/// How a counter is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterOptions {
    /// Do not count in user mode.
    pub exclude_user: bool,
    /// Do not count in the kernel.
    pub exclude_kernel: bool,
    /// Count in threads and processes that the thread starts from now on, too.
    pub inherit: bool,
    /// Open it stopped: see [`Counter::enable`].
    pub disabled: bool,
    /// Raise an event every so many counts.
    pub sample_period: Option<u64>,
}

/// What a counter says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// The count.
    pub value: u64,
    /// Nanoseconds for which it was enabled.
    pub enabled: u64,
    /// Nanoseconds for which it really counted.
    pub running: u64,
}

impl CounterReading {
    /// What was counted since `earlier`; `None` unless it was counted all the while: a counter
    /// that had to yield its place gives a count that is frozen, not wrong to look at.
    pub fn since(&self, earlier: &Self) -> Option<u64> {
        let enabled = self.enabled.checked_sub(earlier.enabled)?;
        let running = self.running.checked_sub(earlier.running)?;
        let valid = enabled > 0 && enabled == running;
        valid.then(|| self.value.wrapping_sub(earlier.value))
    }
}

const READ_FORMAT: u64 =
    (perf::PERF_FORMAT_TOTAL_TIME_ENABLED | perf::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64;

/// An open counter. It counts until it is dropped.
#[derive(Debug)]
pub struct Counter {
    file: File,
}

impl Counter {
    /// Opens `encoding` of `pmu`, in the group of `leader` where one is given. Members of a group
    /// count together or not at all.
    pub fn open(
        pmu: &Pmu,
        encoding: &Encoding,
        target: Target,
        leader: Option<&Self>,
        options: CounterOptions,
    ) -> Result<Self, OpenError> {
        let mut attr = attributes(pmu, encoding, options);
        let (pid, cpu) = match target {
            Target::Cpu(cpu) => (-1, cpu as i32),
            Target::Thread(tid) => (tid, -1),
        };
        let group = leader.map_or(-1, |leader| leader.file.as_raw_fd());
        Self::opened(&mut attr, (pid, cpu), group)
            .map_err(|errno| OpenError::new(errno, pmu, encoding, target, options))
    }

    /// Opens an event of a PMU that is no CPU's, such as `power`, read at one CPU.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_system_wide(type_id: u32, config: u64, cpu: u32) -> io::Result<Self> {
        let mut attr = perf::perf_event_attr {
            type_: type_id,
            size: size_of::<perf::perf_event_attr>() as u32,
            config,
            read_format: READ_FORMAT,
            ..Default::default()
        };
        Ok(Self::opened(&mut attr, (-1, cpu as i32), -1)?)
    }

    /// Opens what `attr` says, of a thread or on a CPU, in the group of a leader's descriptor; -1 is none.
    fn opened(
        attr: &mut perf::perf_event_attr,
        (pid, cpu): (i32, i32),
        group: i32,
    ) -> Result<Self, Errno> {
        // SAFETY: `attr` is a whole perf_event_attr that says its own size, and outlives the call.
        let fd = unsafe {
            let flags = perf::PERF_FLAG_FD_CLOEXEC as std::ffi::c_ulong;
            sys::perf_event_open(attr, pid, cpu, group, flags)
        };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else knows of it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Self { file })
    }

    /// What it has counted.
    pub fn read(&self) -> io::Result<CounterReading> {
        let mut bytes = [0; 24];
        (&self.file).read_exact(&mut bytes)?;
        let word = |n: usize| {
            let bytes = bytes[8 * n..8 * n + 8].try_into();
            u64::from_ne_bytes(bytes.expect("eight bytes"))
        };
        Ok(CounterReading {
            value: word(0),
            enabled: word(1),
            running: word(2),
        })
    }

    /// Starts it, and its group if it leads one.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: this request has no argument but a flag.
        let result =
            unsafe { sys::ioctls::ENABLE(self.file.as_raw_fd(), perf::PERF_IOC_FLAG_GROUP) };
        Errno::result(result).map(drop).map_err(io::Error::from)
    }

    /// Stops it, and its group if it leads one.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: this request has no argument but a flag.
        let result =
            unsafe { sys::ioctls::DISABLE(self.file.as_raw_fd(), perf::PERF_IOC_FLAG_GROUP) };
        Errno::result(result).map(drop).map_err(io::Error::from)
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<Counter> for OwnedFd {
    fn from(counter: Counter) -> Self {
        counter.file.into()
    }
}

/// Opens several, as one group led by the first or each alone.
pub fn open_all(
    pmu: &Pmu,
    encodings: &[Encoding],
    target: Target,
    grouped: bool,
    options: CounterOptions,
) -> Result<Vec<Counter>, OpenError> {
    let mut counters: Vec<Counter> = Vec::with_capacity(encodings.len());
    for encoding in encodings {
        let leader = counters.first().filter(|_| grouped);
        // A group starts with its leader.
        let options = CounterOptions {
            disabled: options.disabled && (leader.is_none()),
            ..options
        };
        counters.push(Counter::open(pmu, encoding, target, leader, options)?);
    }
    Ok(counters)
}

fn attributes(pmu: &Pmu, encoding: &Encoding, options: CounterOptions) -> perf::perf_event_attr {
    let mut attr = perf::perf_event_attr {
        type_: match encoding.space {
            Space::Pmu => pmu.type_id,
            Space::Hardware => perf::PERF_TYPE_HARDWARE,
            Space::Cache => perf::PERF_TYPE_HW_CACHE,
        },
        size: size_of::<perf::perf_event_attr>() as u32,
        config: encoding.config,
        read_format: READ_FORMAT,
        ..Default::default()
    };
    attr.__bindgen_anon_3.config1 = encoding.config1;
    attr.__bindgen_anon_4.config2 = encoding.config2;
    attr.__bindgen_anon_1.sample_period = options.sample_period.unwrap_or(0);
    attr.set_exclude_user(options.exclude_user.into());
    attr.set_exclude_kernel(options.exclude_kernel.into());
    attr.set_inherit(options.inherit.into());
    attr.set_disabled(options.disabled.into());
    attr
}

/// Why a counter could not be opened, for people: what, why, and what to do about it.
#[derive(Clone, Debug)]
pub struct OpenError {
    /// The kernel's answer.
    pub errno: Errno,
    what: String,
    why: String,
}

impl OpenError {
    fn new(
        errno: Errno,
        pmu: &Pmu,
        encoding: &Encoding,
        target: Target,
        options: CounterOptions,
    ) -> Self {
        let place = match target {
            Target::Cpu(cpu) => format!("on CPU {cpu}"),
            Target::Thread(0) => "in this thread".to_string(),
            Target::Thread(tid) => format!("in thread {tid}"),
        };
        let elsewhere = matches!(target, Target::Cpu(cpu) if !pmu.cpus.contains(&cpu));
        Self {
            errno,
            what: format!("cannot count {} {place} with {}", encoding.name, pmu.name),
            why: match errno {
                Errno::ENOENT | Errno::ENODEV | Errno::EINVAL if elsewhere => {
                    format!("it serves CPUs {} only", cpulist::format(&pmu.cpus))
                }
                _ => explain(errno, enough(target, options), &Circumstances::read()),
            },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for OpenError {}

/// What decides who may count.
#[derive(Clone, Debug, Default)]
struct Circumstances {
    paranoid: Option<i32>,
    /// See [`Permissions::too_paranoid`].
    too_paranoid: Option<i32>,
    locked_down: bool,
    root: bool,
    hypervisor: bool,
}

impl Circumstances {
    fn read() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = text("/proc/cpuinfo");
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
        let permissions = Permissions::read(Path::new("/"));
        Self {
            paranoid: permissions.and_then(|it| it.paranoid),
            too_paranoid: permissions.and_then(Permissions::too_paranoid),
            locked_down: text("/sys/kernel/security/lockdown").contains("[confidentiality]"),
            root: nix::unistd::geteuid().is_root(),
            hypervisor: flags.is_some_and(|line| line.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

/// The highest `perf_event_paranoid` at which an ordinary user may count this.
fn enough(target: Target, options: CounterOptions) -> i32 {
    match target {
        Target::Cpu(_) => 0,
        Target::Thread(_) if options.exclude_kernel => 2,
        Target::Thread(_) => 1,
    }
}

fn explain(errno: Errno, enough: i32, now: &Circumstances) -> String {
    match errno {
        Errno::EACCES | Errno::EPERM if now.locked_down => {
            "the kernel is locked down, which forbids counters: boot it without \
             lockdown=confidentiality"
                .to_string()
        }
        Errno::EACCES | Errno::EPERM if now.root => match now.too_paranoid {
            Some(level) => format!(
                "not allowed, although this is root: where kernel.perf_event_paranoid is {level} this \
                 kernel wants CAP_SYS_ADMIN, so give it that, or 'sysctl kernel.perf_event_paranoid=2'"
            ),
            None => "not allowed, although this is root: a container or seccomp filter forbids \
                     perf_event_open, so give it CAP_PERFMON or run outside"
                .to_string(),
        },
        Errno::EACCES | Errno::EPERM => {
            let level = now
                .paranoid
                .map_or("unknown".to_string(), |level| level.to_string());
            let capability = match now.too_paranoid {
                Some(_) => "CAP_SYS_ADMIN",
                None => "CAP_PERFMON",
            };
            let user_mode = if enough == 1 && now.paranoid == Some(2) {
                ", or count in user mode only"
            } else {
                ""
            };
            format!(
                "not allowed (kernel.perf_event_paranoid is {level}): run it as root, give it \
                 {capability}, or 'sysctl kernel.perf_event_paranoid={enough}'{user_mode}"
            )
        }
        Errno::ENOENT | Errno::EOPNOTSUPP => {
            let vm = if now.hypervisor {
                ", perhaps because this virtual machine has no virtual PMU (with QEMU: \
                 -cpu host,pmu=on)"
            } else {
                ""
            };
            format!("this PMU does not have the event{vm}; choose another")
        }
        Errno::ENODEV | Errno::ENXIO => {
            "the CPU is offline, or this PMU does not serve it: bring it back, or choose another"
                .to_string()
        }
        Errno::EINVAL => {
            "the PMU does not know the event, or cannot count it together with the others of its \
             group: ask for fewer at once, or for another"
                .to_string()
        }
        Errno::EMFILE => {
            "this process has as many files open as it may: raise the limit ('ulimit -n', or \
             LimitNOFILE= of the service)"
                .to_string()
        }
        Errno::ENFILE => {
            "the system has as many files open as it may: raise 'sysctl fs.file-max'".to_string()
        }
        Errno::ENOSPC | Errno::EBUSY => {
            "another program holds the PMU for itself: stop it ('perf', a profiler, or a debugger)"
                .to_string()
        }
        Errno::ESRCH => "there is no such thread any more".to_string(),
        Errno::ENOSYS => "this kernel has no perf events: it needs CONFIG_PERF_EVENTS".to_string(),
        Errno::E2BIG => "this kernel is too old for the request".to_string(),
        other => format!("{} ({other:?})", other.desc()),
    }
}

/// Whether anything can be counted on this machine's CPUs; if not, one line that says why and
/// what to do about it.
pub fn availability(machine: &MachinePmus) -> Result<(), String> {
    if machine.pmus.is_empty() {
        return Err(no_pmu(&Circumstances::read()));
    }
    for pmu in &machine.pmus {
        let Some(cycles) = pmu.meaning(Meaning::Cycles) else {
            return Err(format!("No counters: {} cannot count cycles.", pmu.name));
        };
        let cpu = Target::Cpu(pmu.cpus[0]);
        if let Err(error) = Counter::open(pmu, &cycles, cpu, None, CounterOptions::default()) {
            return Err(format!("No counters: {error}."));
        }
    }
    Ok(())
}

fn no_pmu(now: &Circumstances) -> String {
    if now.hypervisor {
        "No counters: this virtual machine has no virtual PMU; where the host has one, switch it \
         on (with QEMU and KVM: -cpu host,pmu=on)."
            .to_string()
    } else {
        "No counters: the kernel shows no PMU of the CPUs (/sys/bus/event_source/devices); look \
         for the reason in 'dmesg | grep -i pmu'."
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: i32 = 0;

    #[test]
    fn each_refusal_names_its_remedy() {
        let user = Circumstances {
            paranoid: Some(3),
            ..Circumstances::default()
        };
        let said = explain(Errno::EACCES, CPU, &user);
        assert!(said.contains("perf_event_paranoid is 3"), "{said}");
        assert!(said.contains("perf_event_paranoid=0'"), "{said}");
        let said = explain(Errno::EACCES, 1, &user);
        assert!(said.contains("perf_event_paranoid=1'"), "{said}");

        let two = Circumstances {
            paranoid: Some(2),
            ..user.clone()
        };
        assert!(explain(Errno::EACCES, 1, &two).ends_with("count in user mode only"));

        let root = Circumstances {
            root: true,
            ..Circumstances::default()
        };
        assert!(explain(Errno::EPERM, CPU, &root).contains("container"));
        let bare = Circumstances {
            too_paranoid: Some(3),
            ..root.clone()
        };
        assert!(
            explain(Errno::EACCES, CPU, &bare).contains("is 3 this kernel wants CAP_SYS_ADMIN")
        );
        let locked = Circumstances {
            locked_down: true,
            ..root
        };
        assert!(explain(Errno::EPERM, CPU, &locked).contains("lockdown=confidentiality"));

        let vm = Circumstances {
            hypervisor: true,
            ..Circumstances::default()
        };
        assert!(explain(Errno::ENOENT, CPU, &vm).contains("virtual PMU"));
        assert!(!explain(Errno::ENOENT, CPU, &user).contains("virtual"));
        assert!(explain(Errno::EMFILE, CPU, &user).contains("ulimit -n"));
        assert!(explain(Errno::ENOMEM, CPU, &user).contains("ENOMEM"));
        assert!(no_pmu(&vm).contains("pmu=on"));
        assert!(no_pmu(&user).contains("dmesg"));
    }

    #[test]
    fn what_an_ordinary_user_may_count_depends_on_whose_and_where() {
        let user_mode = CounterOptions {
            exclude_kernel: true,
            ..CounterOptions::default()
        };
        assert_eq!(enough(Target::Cpu(3), user_mode), 0);
        assert_eq!(enough(Target::Thread(0), user_mode), 2);
        assert_eq!(enough(Target::Thread(0), CounterOptions::default()), 1);
    }

    #[test]
    fn only_what_was_counted_all_the_while_is_believed() {
        let reading = |value, enabled, running| CounterReading {
            value,
            enabled,
            running,
        };
        let earlier = reading(100, 1000, 1000);
        assert_eq!(reading(150, 1500, 1500).since(&earlier), Some(50));
        assert_eq!(reading(100, 1500, 1000).since(&earlier), None);
        assert_eq!(reading(120, 1500, 1200).since(&earlier), None);
        assert_eq!(earlier.since(&earlier), None);
    }
}
