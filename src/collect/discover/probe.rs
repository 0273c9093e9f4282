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
    // Of what has a fixed counter, one more finds room.
    let without = candidates.iter().zip(&numbers);
    let without = without.filter(|(candidate, _)| candidate.encoding.fixed.is_none());
    let most = without.map(|(_, number)| *number).max();
    let general = most.unwrap_or(pmu.counters.general).max(1);
    for (candidate, &number) in candidates.iter_mut().zip(&numbers) {
        if candidate.encoding.fixed.is_none() {
            candidate.encoding.general = counters_for(number, general);
        }
    }
    let mut fixed = pmu.counters.fixed;
    if let Some(instructions) = base.first().filter(|of| of.fixed.is_some())
        && copies(pmu, instructions)? <= general
    {
        // Nothing says so but CPUID, and that not always rightly.
        fixed = 0;
    }
    Ok(Counters { general, fixed })
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
