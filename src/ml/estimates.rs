// SPDX-License-Identifier: GPL-2.0-only
//! Hands a model's forests to the BPF half, which asks them as soon as a sample is complete
//! (`src/bpf/estimate.bpf.h`).

use std::mem::MaybeUninit;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore, MapFlags, OpenObject, ProgramInput};

use crate::bpf::{BpfSkel, BpfSkelBuilder, OpenBpfSkel, intf};
use crate::ml::data::Per;
use crate::ml::forest::Forest;
use crate::ml::live::{Estimated, LiveEstimator};
use crate::pmu::sampler::Sampler;
use crate::topology::MAX_CORE_TYPES;

/// What events may be counted in a sample.
const MAX_EVENTS: usize = intf::hetero_consts_MAX_EVENTS as usize;

/// Forests of SF and of EF, for each core type.
pub(crate) const FORESTS: usize = MAX_CORE_TYPES * intf::estimated_NR_ESTIMATED as usize;

/// Makes room for the forests of every core type in the BPF half, which is not loaded yet.
///
/// # Errors
/// Where libbpf refuses.
pub(crate) fn make_room(skel: &mut OpenBpfSkel) -> Result<()> {
    let room = skel.maps.forests.set_max_entries(FORESTS as u32);
    room.context("cannot size the map of forests")
}

/// Has the BPF half make the estimates where all that a forest asks is counted at once; elsewhere
/// it makes none, and the agent does.
///
/// # Errors
/// Where the kernel refuses.
pub(crate) fn hand_over(live: &LiveEstimator, sampler: &Sampler, skel: &mut BpfSkel) -> Result<()> {
    let Some(bss) = skel.maps.bss_data.as_mut() else {
        return Ok(());
    };
    for (which, divisor) in bss.forest_divisors.iter_mut().enumerate() {
        *divisor = intf::estimate_divisor_NOT_ESTIMATED as u8;
        let core_type = which % MAX_CORE_TYPES;
        let what = match which < MAX_CORE_TYPES {
            true => Estimated::Sf,
            false => Estimated::Ef,
        };
        let place = |event: &_| sampler.place(core_type, event);
        let Some((per, forest)) = live.laid_out(what, core_type, place) else {
            continue;
        };
        let key = (which as u32).to_ne_bytes();
        let handed = skel
            .maps
            .forests
            .update(&key, forest.bytes(), MapFlags::ANY);
        handed.context("cannot hand the model to the kernel")?;
        *divisor = divided_by(per);
    }
    Ok(())
}

fn divided_by(per: Per) -> u8 {
    let divisor = match per {
        Per::Instruction => intf::estimate_divisor_PER_INSTRUCTION,
        Per::Cycle => intf::estimate_divisor_PER_CYCLE,
    };
    divisor as u8
}

/// The BPF half, loaded to be asked for estimates and not attached: for tests and measurements.
pub struct Trial<'o> {
    skel: BpfSkel<'o>,
}

impl<'o> Trial<'o> {
    /// Events are divided by cycles.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn load(object: &'o mut MaybeUninit<OpenObject>) -> Result<Self> {
        let mut skel = BpfSkelBuilder::default().open(object)?;
        for mut program in skel.open_object_mut().progs_mut() {
            program.set_autoload(program.name() == "try_estimate");
        }
        skel.maps.hetero_ops.set_autocreate(false)?;
        if let Some(bss) = skel.maps.bss_data.as_mut() {
            bss.forest_divisors[0] = divided_by(Per::Cycle);
        }
        Ok(Self { skel: skel.load()? })
    }

    /// How many instructions the verifier went through.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn verified(&self) -> Result<u32> {
        let mut programs = libbpf_rs::query::ProgInfoIter::default();
        let found = programs.find(|program| program.name == "try_estimate");
        Ok(found
            .context("the kernel knows no try_estimate")?
            .verified_insns)
    }

    /// What a forest says of counts, whose second are cycles, in 1/2^20; and how long it takes to ask
    /// it so many times.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn ask(
        &self,
        forest: &Forest,
        counts: &[u64; MAX_EVENTS],
        times: u32,
    ) -> Result<(i64, Duration)> {
        let key = 0_u32.to_ne_bytes();
        let forests = &self.skel.maps.forests;
        forests.update(&key, forest.bytes(), MapFlags::ANY)?;
        // A struct estimate_trial: counts, core type, times, SF and time.
        let mut trial: Vec<u8> = counts
            .iter()
            .flat_map(|count| count.to_ne_bytes())
            .collect();
        trial.extend(key);
        trial.extend(times.to_ne_bytes());
        let out = trial.len();
        trial.resize(size_of::<intf::estimate_trial>(), 0);
        self.skel.progs.try_estimate.test_run(ProgramInput {
            context_in: Some(&mut trial),
            ..Default::default()
        })?;
        let number = |at: usize| Some(u64::from_ne_bytes(trial.get(at..at + 8)?.try_into().ok()?));
        let (sf, took_ns) = number(out)
            .zip(number(out + 8))
            .context("the answer is cut short")?;
        Ok((sf as i64, Duration::from_nanos(took_ns)))
    }
}
