// SPDX-License-Identifier: GPL-2.0-only
//! What the firmware says that CPUs can do at present: Intel's hardware feedback (HFI), which Linux passes on by
//! thermal netlink (`drivers/thermal/intel/intel_hfi.c`), and turns on while something listens. It falls with heat and
//! with power limits, before the counters of `thermal_throttle` tell.
//!
//! Messages are the kernel's: those of other senders are passed over.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, send,
    socket,
};

/// `THERMAL_GENL_FAMILY_NAME`, `..._EVENT_GROUP_NAME` and the numbers of `linux/thermal.h`.
const FAMILY: &[u8] = b"thermal\0";
const GROUP: &[u8] = b"event\0";
const CAPABILITY_CHANGE: u8 = 14;
const CAPABILITY: u16 = 20;
const CAPABILITY_ID: u16 = 21;
const CAPABILITY_PERFORMANCE: u16 = 22;

/// Sizes of the headers of netlink, generic netlink and attributes.
const HEAD: usize = 16;
const GENERIC: usize = 4;
const ATTRIBUTE: usize = 4;

/// The bits of an attribute's type that are the type.
const TYPE: u16 = 0x3fff;

/// CPUs that are kept in mind, and messages that are read at a look.
const CPUS: usize = 1024;
const MESSAGES: usize = 64;

/// CPUs can do less if all together have so much of the most that was ever said of each.
const LESS: f64 = 0.9;

/// See the module.
pub(super) struct HardwareFeedback {
    socket: OwnedFd,
    capabilities: Capabilities,
}

/// Of each CPU the performance that it has now, of 1023, and the most that was said.
#[derive(Debug, Default)]
struct Capabilities(Vec<(u32, u32)>);

impl HardwareFeedback {
    /// Listens; `None` where there is nothing to hear.
    pub(super) fn listen() -> Option<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let generic = SockProtocol::NetlinkGeneric;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, generic).ok()?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).ok()?;
        send(socket.as_raw_fd(), &question(), MsgFlags::empty()).ok()?;
        let mut answer = vec![0; 16384];
        // It is there when send() returns.
        let length = receive(&socket, &mut answer)?;
        let group = group_in(answer.get(..length)?)?;
        // SAFETY: a plain system call; the kernel reads four bytes of ours.
        let joined = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_ADD_MEMBERSHIP,
                (&raw const group).cast(),
                size_of_val(&group) as u32,
            )
        };
        (joined == 0).then(|| Self {
            socket,
            capabilities: Capabilities::default(),
        })
    }

    /// Reads what has come; whether CPUs can do less at present than they could.
    pub(super) fn is_less(&mut self) -> bool {
        let mut message = [0; 16384];
        for _ in 0..MESSAGES {
            let Some(length) = receive(&self.socket, &mut message) else {
                break;
            };
            self.capabilities.take(&message[..length]);
        }
        self.capabilities.is_less()
    }
}

impl Capabilities {
    fn take(&mut self, message: &[u8]) {
        let Some(generic) = message.get(HEAD..) else {
            return;
        };
        if generic.first() != Some(&CAPABILITY_CHANGE) {
            return;
        }
        let all = attributes(generic.get(GENERIC..).unwrap_or_default());
        for (_, each) in all.filter(|(kind, _)| *kind == CAPABILITY) {
            // Three for each CPU: its number, performance, efficiency.
            let mut cpu = None;
            for (kind, value) in attributes(each) {
                let number = number(value).unwrap_or(0);
                match (kind, cpu) {
                    (CAPABILITY_ID, _) => cpu = Some(number as usize),
                    (CAPABILITY_PERFORMANCE, Some(cpu)) => self.note(cpu, number),
                    _ => {}
                }
            }
        }
    }

    fn note(&mut self, cpu: usize, performance: u32) {
        if cpu >= CPUS {
            return;
        }
        if cpu >= self.0.len() {
            self.0.resize(cpu + 1, (0, 0));
        }
        let (now, most) = &mut self.0[cpu];
        (*now, *most) = (performance, performance.max(*most));
    }

    fn is_less(&self) -> bool {
        let sum = |of: fn(&(u32, u32)) -> u32| self.0.iter().map(|cpu| f64::from(of(cpu))).sum();
        let (now, most): (f64, f64) = (sum(|cpu| cpu.0), sum(|cpu| cpu.1));
        now < LESS * most
    }
}

/// The length of a message of the kernel's.
fn receive(socket: &OwnedFd, message: &mut [u8]) -> Option<usize> {
    let (length, from) = recvfrom::<NetlinkAddr>(socket.as_raw_fd(), message).ok()?;
    let is_kernel = from.is_some_and(|from| from.pid() == 0);
    Some(if is_kernel { length } else { 0 })
}

/// Which numbers the family has.
fn question() -> Vec<u8> {
    let length = (HEAD + GENERIC + ATTRIBUTE + FAMILY.len()) as u32;
    let mut ask = length.to_ne_bytes().to_vec();
    ask.extend((libc::GENL_ID_CTRL as u16).to_ne_bytes());
    ask.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Its number in order, and whose it is: the kernel knows.
    ask.extend(1_u32.to_ne_bytes());
    ask.extend(0_u32.to_ne_bytes());
    ask.extend([libc::CTRL_CMD_GETFAMILY as u8, 1, 0, 0]);
    ask.extend(((ATTRIBUTE + FAMILY.len()) as u16).to_ne_bytes());
    ask.extend((libc::CTRL_ATTR_FAMILY_NAME as u16).to_ne_bytes());
    ask.extend(FAMILY);
    ask
}

/// The number of the group of events, in the answer to that.
fn group_in(answer: &[u8]) -> Option<u32> {
    let kind = answer.get(4..6)?;
    if kind != (libc::GENL_ID_CTRL as u16).to_ne_bytes() {
        return None;
    }
    let mut all = attributes(answer.get(HEAD + GENERIC..)?);
    let groups = libc::CTRL_ATTR_MCAST_GROUPS as u16;
    let (_, groups) = all.find(|(kind, _)| *kind == groups)?;
    attributes(groups).find_map(|(_, group)| {
        let of = |wanted: i32| {
            let mut parts = attributes(group);
            parts
                .find(|(kind, _)| *kind == wanted as u16)
                .map(|it| it.1)
        };
        let is_it = of(libc::CTRL_ATTR_MCAST_GRP_NAME) == Some(GROUP);
        number(of(libc::CTRL_ATTR_MCAST_GRP_ID)?).filter(|_| is_it)
    })
}

fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

/// Types and contents; what is cut short ends it.
fn attributes(mut from: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let half = |at: usize| Some(u16::from_ne_bytes(from.get(at..at + 2)?.try_into().ok()?));
        let length = usize::from(half(0)?);
        let value = from.get(ATTRIBUTE..length)?;
        let kind = half(2)? & TYPE;
        from = from.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn event(of: &[(u32, u32)]) -> Vec<u8> {
        let mut each = Vec::new();
        for (cpu, performance) in of {
            each.extend(attribute(CAPABILITY_ID, &cpu.to_ne_bytes()));
            let performance = performance.to_ne_bytes();
            each.extend(attribute(CAPABILITY_PERFORMANCE, &performance));
            each.extend(attribute(CAPABILITY_PERFORMANCE + 1, &[0; 4]));
        }
        let mut message = vec![0; HEAD];
        message.extend([CAPABILITY_CHANGE, 1, 0, 0]);
        // As nested attributes are marked.
        message.extend(attribute(CAPABILITY | 0x8000, &each));
        message
    }

    #[test]
    fn cpus_can_do_less_when_all_together_have_lost_a_tenth() {
        let mut capabilities = Capabilities::default();
        assert!(!capabilities.is_less());
        capabilities.take(&event(&[(0, 1000), (1, 600)]));
        assert!(!capabilities.is_less());
        capabilities.take(&event(&[(1, 500)]));
        assert!(!capabilities.is_less(), "little");
        capabilities.take(&event(&[(0, 800)]));
        assert!(capabilities.is_less());
        capabilities.take(&event(&[(0, 1000), (1, 590)]));
        assert!(!capabilities.is_less());
    }

    #[test]
    fn what_is_cut_short_or_of_another_kind_says_nothing() {
        let whole = event(&[(0, 1000), (5000, 7)]);
        let mut capabilities = Capabilities::default();
        for length in 0..whole.len() {
            capabilities.take(&whole[..length]);
        }
        capabilities.take(&whole);
        assert_eq!(capabilities.0, [(1000, 1000)]);
        let mut other = event(&[(0, 1)]);
        other[HEAD] = 1;
        capabilities.take(&other);
        assert_eq!(capabilities.0, [(1000, 1000)]);
    }

    #[test]
    fn the_group_of_events_is_found_in_what_the_kernel_says_of_the_family() {
        let group = |name: &[u8], id: u32| {
            let name = attribute(libc::CTRL_ATTR_MCAST_GRP_NAME as u16, name);
            let id = attribute(libc::CTRL_ATTR_MCAST_GRP_ID as u16, &id.to_ne_bytes());
            attribute(1, &[name, id].concat())
        };
        let groups = [group(b"sampling\0", 3), group(GROUP, 4)].concat();
        let mut answer = question();
        answer.truncate(HEAD + GENERIC);
        answer.extend(attribute(libc::CTRL_ATTR_FAMILY_NAME as u16, FAMILY));
        answer.extend(attribute(libc::CTRL_ATTR_MCAST_GROUPS as u16, &groups));
        assert_eq!(group_in(&answer), Some(4));
        assert_eq!(group_in(&question()), None);
    }
}
