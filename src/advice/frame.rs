// SPDX-License-Identifier: GPL-2.0-only
//! What goes over the connection: a greeting of 16 bytes from the scheduler, with the page; frames of 32 bytes from the
//! program. All in the machine's own byte order.

use hetero_core::advice::team::TeamTime;
use hetero_core::advice::told::ProgramSays;

/// "SHA1" as it lies in the memory of a little-endian machine.
pub(super) const MAGIC: u32 = 0x3141_4853;
pub(super) const VERSION: u32 = 1;

/// Bytes of the page.
pub(super) const PAGE: usize = 4096;

/// Bytes of a frame.
pub(super) const LEN: usize = 32;

const TIME: u32 = 1;
const PHASE: u32 = 2;
const MEMBER: u32 = 3;
const NO_MEMBER: u32 = 4;

/// Parts of time are told in thousandths, plus one; 0 is unknown.
const THOUSAND: u32 = 1000;

/// What a new subscriber is sent.
pub(super) fn greeting() -> [u8; 16] {
    let mut bytes = [0; 16];
    let words = [MAGIC, VERSION, PAGE as u32, LEN as u32];
    for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_ne_bytes();
    }
    bytes
}

/// What one that connects is told first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// It has a page now.
    Serves,
    /// It comes from another version.
    OtherVersion,
    /// It gets none, in words.
    Refuses(String),
}

impl Greeting {
    /// Of these bytes.
    pub fn of(said: &[u8]) -> Self {
        if said == greeting() {
            return Self::Serves;
        }
        let text = String::from_utf8_lossy(said);
        match text.trim_end().strip_prefix("error: ") {
            Some(why) => Self::Refuses(why.into()),
            None => Self::OtherVersion,
        }
    }
}

/// What a program says.
///
/// # Errors
/// It makes no sense, in words.
pub(super) fn decode(bytes: &[u8; LEN]) -> Result<ProgramSays, String> {
    let half = |at: usize| u32::from_ne_bytes(bytes.as_chunks::<4>().0[at]);
    let rate = u64::from_ne_bytes(bytes.as_chunks::<8>().0[1]);
    let (kind, number, waited) = (half(0), half(1), half(4));
    match kind {
        TIME if number == 0 => Err("a team has one thread at least".into()),
        TIME if waited > THOUSAND + 1 => Err("more than all of the time was waited".into()),
        TIME => Ok(ProgramSays::Time(TeamTime {
            threads: number as usize,
            rate: (rate > 0).then_some(rate as f64),
            waited: (waited > 0).then(|| f64::from(waited - 1) / f64::from(THOUSAND)),
        })),
        PHASE => Ok(ProgramSays::Phase(number)),
        MEMBER => Ok(ProgramSays::Member(number, true)),
        NO_MEMBER => Ok(ProgramSays::Member(number, false)),
        _ => Err(format!("no frame is of kind {kind}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a program would.
    fn encode(told: ProgramSays) -> [u8; LEN] {
        let (kind, number, rate, waited) = match told {
            ProgramSays::Time(time) => {
                let waited = time.waited.map_or(0, |part| (part * 1000.0) as u32 + 1);
                let rate = time.rate.map_or(0, |rate| rate as u64);
                (TIME, time.threads as u32, rate, waited)
            }
            ProgramSays::Phase(phase) => (PHASE, phase, 0, 0),
            ProgramSays::Member(tid, true) => (MEMBER, tid, 0, 0),
            ProgramSays::Member(tid, false) => (NO_MEMBER, tid, 0, 0),
        };
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&number.to_ne_bytes());
        bytes[8..16].copy_from_slice(&rate.to_ne_bytes());
        bytes[16..20].copy_from_slice(&waited.to_ne_bytes());
        bytes
    }

    #[test]
    fn what_is_told_survives_the_way() {
        let time = TeamTime {
            threads: 6,
            rate: Some(12345.0),
            waited: Some(0.25),
        };
        let unknown = TeamTime {
            threads: 1,
            ..TeamTime::default()
        };
        for told in [
            ProgramSays::Time(time),
            ProgramSays::Time(unknown),
            ProgramSays::Phase(u32::MAX),
            ProgramSays::Member(4711, true),
            ProgramSays::Member(4711, false),
        ] {
            assert_eq!(decode(&encode(told)), Ok(told));
        }
    }

    #[test]
    fn greetings_are_told_apart() {
        assert_eq!(Greeting::of(&greeting()), Greeting::Serves);
        let refused = Greeting::of(b"error: too many\n");
        assert_eq!(refused, Greeting::Refuses("too many".into()));
        for other in [&b""[..], b"error", &[0xff; 16]] {
            assert_eq!(Greeting::of(other), Greeting::OtherVersion);
        }
    }

    #[test]
    fn nonsense_has_a_reason() {
        let why =
            |words: [u32; 8]| decode(words.map(u32::to_ne_bytes).concat()[..].try_into().unwrap());
        assert!(why([0; 8]).unwrap_err().contains("kind 0"));
        assert!(
            why([1, 0, 0, 0, 0, 0, 0, 0])
                .unwrap_err()
                .contains("one thread")
        );
        assert!(
            why([1, 1, 0, 0, 1002, 0, 0, 0])
                .unwrap_err()
                .contains("waited")
        );
        assert!(why([u32::MAX; 8]).is_err());
    }
}
