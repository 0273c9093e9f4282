// SPDX-License-Identifier: GPL-2.0-only
//! Beats by what a program prints, which is passed on as it comes.

use std::io::{self, ErrorKind, Read, Write};

/// Bytes that are passed on at a time.
const CHUNK: usize = 64 << 10;

/// Finds the beats in what comes.
#[derive(Clone, Debug)]
pub(super) enum PassedBeats {
    /// Lines, which may end as Unix, Windows, or a counter that overwrites itself has it. What came last
    /// was a carriage return.
    Lines { returned: bool },
    /// So many bytes each; and how many there are of the next.
    Bytes { each: u64, left: u64 },
}

impl PassedBeats {
    pub(super) fn lines() -> Self {
        Self::Lines { returned: false }
    }

    pub(super) fn bytes(each: u64) -> Self {
        Self::Bytes {
            each: each.max(1),
            left: 0,
        }
    }

    /// How many are done with these bytes.
    fn count(&mut self, bytes: &[u8]) -> u64 {
        match self {
            Self::Lines { returned } => {
                let mut lines = 0;
                for byte in bytes {
                    // A return and a newline are one end.
                    lines += u64::from(*byte == b'\r' || (*byte == b'\n' && !*returned));
                    *returned = *byte == b'\r';
                }
                lines
            }
            Self::Bytes { each, left } => {
                *left += bytes.len() as u64;
                let beats = *left / *each;
                *left %= *each;
                beats
            }
        }
    }
}

/// Passes on what comes until it ends; tells of beats as soon as they are there.
///
/// # Errors
/// It can no longer be passed on; what reads from the program is closed then, as if there were nothing
/// in between.
pub(super) fn pass_on(
    mut from: impl Read,
    mut to: impl Write,
    mut beats: PassedBeats,
    mut tell: impl FnMut(u64),
) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    loop {
        let read = match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let done = beats.count(&bytes[..read]);
        if done > 0 {
            tell(done);
        }
        to.write_all(&bytes[..read])?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_three_ways_and_wherever_they_are_cut() {
        let mut lines = PassedBeats::lines();
        let counts = ["a\nb\n", "c", "\n", "d\r\ne\r", "\nf\rg\r", "h\n\n"];
        let counts = counts.map(|text| lines.count(text.as_bytes()));
        assert_eq!(counts, [2, 0, 1, 2, 2, 2]);
    }

    #[test]
    fn bytes_are_counted_across_reads() {
        let mut bytes = PassedBeats::bytes(10);
        let counts = [5, 4, 1, 25, 5].map(|n| bytes.count(&vec![0; n]));
        assert_eq!(counts, [0, 0, 1, 2, 1]);
    }

    #[test]
    fn what_comes_is_passed_on_unchanged() {
        let text: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let (mut out, mut told) = (Vec::new(), 0);
        pass_on(&text[..], &mut out, PassedBeats::bytes(1000), |n| told += n).unwrap();
        assert_eq!((out == text, told), (true, 200));

        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = pass_on(&text[..], Closed, PassedBeats::lines(), |_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
