// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel takes, and how much of it at once. It says so when a group is opened: it tries whether each member
//! can have a counter of its own on a PMU that counts nothing else.

use anyhow::Result;
use nix::errno::Errno;

use crate::pmu::candidates::{Candidate, counters_for};
use crate::pmu::open::open_all;
use crate::pmu::sets::fit;
use crate::pmu::{CounterOptions, Counters, Encoding, Pmu, Target};

/// No CPU has more general counters than this and the fixed ones; asking further is of no use.
const MOST: u32 = 24;

/// Whether the kernel opens these as one group of this thread.
///
/// # Errors
/// It refuses for reasons that have nothing to do with them, such as a lack of permissions.
fn opens(pmu: &Pmu, group: &[Encoding]) -> Result<bool> {
    let options = CounterOptions {
        disabled: true,
        ..CounterOptions::default()
    };
    match open_all(pmu, group, Target::Thread(0), true, options) {
        Ok(_) => Ok(true),
        Err(error) => match error.errno {
            Errno::EACCES | Errno::EPERM | Errno::EMFILE | Errno::ENFILE | Errno::ENOSYS => {
                Err(error.into())
            }
            _ => Ok(false),
        },
    }
}

/// Whether this PMU counts such an event, as far as the kernel knows.
///
/// # Errors
/// Nothing can be counted at all.
pub(super) fn takes(pmu: &Pmu, encoding: &Encoding) -> Result<bool> {
    opens(pmu, std::slice::from_ref(encoding))
}

/// How many of an event are counted at once.
fn copies(pmu: &Pmu, encoding: &Encoding) -> Result<u32> {
    let mut number = 0;
    while number < MOST && opens(pmu, &vec![encoding.clone(); number as usize + 1])? {
        number += 1;
    }
    Ok(number)
}

/// How many counters there are, and which of them can count each candidate, whose encodings are changed to
/// say so. Only the kernel knows that of events that are in no table.
///
/// # Errors
/// Nothing can be counted at all.
pub(super) fn counters(
    pmu: &Pmu,
    base: &[Encoding],
    candidates: &mut [Candidate],
) -> Result<Counters> {
    let mut numbers = Vec::new();
    for candidate in candidates.iter() {
        numbers.push(copies(pmu, &candidate.encoding)?);
    }
    let instructions = base
        .first()
        .map(|of| Ok::<_, anyhow::Error>((of.fixed.is_some(), copies(pmu, of)?)));
    let known = candidates.iter().zip(&numbers);
    let known = known.filter(|(candidate, _)| candidate.encoding.fixed.is_none());
    let known: Vec<u32> = known.map(|(_, number)| *number).collect();
    let (general, has_fixed) = general(&known, instructions.transpose()?);
    for (candidate, &number) in candidates.iter_mut().zip(&numbers) {
        if candidate.encoding.fixed.is_none() {
            candidate.encoding.general = counters_for(number, general);
        }
    }
    let fixed = if has_fixed { pmu.counters.fixed } else { 0 };
    Ok(Counters { general, fixed })
}

/// How many general counters there are, where so many copies of each event found room, and of instructions, which
/// should have a fixed counter or not; and whether that is there. Of what has one, one copy more finds room: of
/// instructions, and of the few events that only the kernel knows to have one.
fn general(copies: &[u32], instructions: Option<(bool, u32)>) -> (u32, bool) {
    let number = |of: u32| copies.iter().filter(|&&found| found == of).count();
    let (general, fixed) = match instructions {
        Some((true, 0)) => (0, true),
        Some((true, most)) if number(most) > number(most - 1) => (most, false),
        Some((true, most)) => (most - 1, true),
        Some((false, most)) => (copies.iter().copied().fold(most, u32::max), true),
        None => (copies.iter().copied().max().unwrap_or(0), true),
    };
    (general.max(1), fixed)
}

/// Whether these are counted at once, beside what is held already.
///
/// # Errors
/// Nothing can be counted at all.
pub(super) fn at_once(pmu: &Pmu, set: &[Encoding]) -> Result<bool> {
    let all: Vec<Encoding> = set.iter().cloned().chain(pmu.held()).collect();
    let known = fit(&all.iter().collect::<Vec<_>>(), pmu.counters);
    Ok(known && opens(pmu, &all)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_counters_are_those_that_all_but_fixed_events_share() {
        // Golden Cove: some events have four, reference cycles a fixed one, too.
        assert_eq!(general(&[8, 4, 8, 9, 4, 8], Some((true, 9))), (8, true));
        // A virtual machine without the fixed ones that CPUID tells of.
        assert_eq!(general(&[4, 4, 4], Some((true, 4))), (4, false));
        // AMD has none.
        assert_eq!(general(&[6, 6, 4], Some((false, 6))), (6, true));
        assert_eq!(general(&[], Some((true, 9))), (8, true));
        assert_eq!(general(&[], None), (1, true));
        assert_eq!(general(&[0], Some((true, 0))), (1, true));
    }
}
