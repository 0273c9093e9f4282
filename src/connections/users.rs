// SPDX-License-Identifier: GPL-2.0-only
//! Which user one counts as where each is to have a part and no more. A user may take on a range of subordinate ids
//! (`subuid(5)`), one after another; all of a range are one user more.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

const SUBORDINATE: &str = "/etc/subuid";

/// Of that file, bytes.
const LARGEST: u64 = 1 << 20;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountedUsers {
    subordinate: Arc<[Range<u32>]>,
}

impl CountedUsers {
    /// Those of this machine, as they are now.
    pub(crate) fn here() -> Self {
        let mut bytes = Vec::new();
        let file = File::open(SUBORDINATE);
        let _ = file.and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
        Self::of_lines(&String::from_utf8_lossy(&bytes))
    }

    /// Lines of `NAME:FIRST:COUNT`; others are passed over.
    pub(crate) fn of_lines(lines: &str) -> Self {
        let range = |line: &str| {
            let mut parts = line.trim().split(':').skip(1).map(str::parse::<u32>);
            let (first, count) = (parts.next()?.ok()?, parts.next()?.ok()?);
            // A range that root is in would count it with others.
            (first > 0).then(|| first..first.saturating_add(count))
        };
        Self {
            subordinate: lines.lines().filter_map(range).collect(),
        }
    }

    /// The one that this one counts as.
    pub(crate) fn of(&self, uid: u32) -> u32 {
        let mut ranges = self.subordinate.iter();
        let range = ranges.find(|range| range.contains(&uid));
        range.map_or(uid, |range| range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_subordinate_ids_is_one_user() {
        let users = CountedUsers::of_lines("a:100000:65536\nnonsense\nb:0:70000\nc:4294967295:9\n");
        let counted = [0, 1000, 100_000, 165_535, 165_536, u32::MAX].map(|uid| users.of(uid));
        assert_eq!(counted, [0, 1000, 100_000, 100_000, 165_536, u32::MAX]);
    }
}
