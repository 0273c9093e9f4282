// SPDX-License-Identifier: GPL-2.0-only
//! All columns of a mix: phases and places.

use super::{Columns, Counts, MOST_COLUMNS};
use crate::sim::contention::{Contention, PhaseLoad, RunningThread};
use crate::sim::experiment::Bench;
use crate::topology::MAX_CORE_TYPES;

/// Goes through all columns.
pub(super) struct Search<'a> {
    pub(super) bench: &'a Bench,
    pub(super) types: usize,
    /// By core type.
    pub(super) llcs: Vec<usize>,
    pub(super) contention: Contention,
    /// Of the programs so far.
    pub(super) chosen: Vec<Counts>,
    pub(super) columns: &'a mut Columns,
}

impl Search<'_> {
    /// Chooses a phase for each program from number `program` on; `None` if these are too many.
    pub(super) fn phases(
        &mut self,
        chosen: &mut Vec<usize>,
        program: usize,
        room: Counts,
    ) -> Option<()> {
        let Some((compiled, _)) = self.bench.members().get(program) else {
            let runnable = (0..chosen.len())
                .map(|p| self.workers(p, chosen[p]))
                .sum::<u32>();
            let left_out = runnable.saturating_sub(room.iter().sum());
            return self.places(chosen, 0, room, left_out);
        };
        for phase in 0..compiled.stages.len() {
            chosen[program] = phase;
            self.phases(chosen, program + 1, room)?;
        }
        Some(())
    }

    /// Threads of a program that can run in a phase.
    fn workers(&self, program: usize, phase: usize) -> u32 {
        let (compiled, member) = &self.bench.members()[program];
        if compiled.stages[phase].serial {
            1
        } else {
            member.threads
        }
    }

    /// Chooses where the threads of each program from number `program` on run; `left_out` are still
    /// to be left out.
    fn places(
        &mut self,
        phases: &[usize],
        program: usize,
        room: Counts,
        left_out: u32,
    ) -> Option<()> {
        if program == phases.len() {
            return if left_out == 0 {
                self.column(phases)
            } else {
                Some(())
            };
        }
        let workers = self.workers(program, phases[program]);
        for out in 0..=workers.min(left_out) {
            for counts in splits(workers - out, &room, self.types) {
                let mut room = room;
                room.iter_mut()
                    .zip(counts)
                    .for_each(|(room, count)| *room -= count);
                self.chosen.push(counts);
                let rest = self.places(phases, program + 1, room, left_out - out);
                self.chosen.pop();
                rest?;
            }
        }
        Some(())
    }

    /// Adds what is chosen.
    fn column(&mut self, phases: &[usize]) -> Option<()> {
        if self.columns.count == MOST_COLUMNS {
            return None;
        }
        let mut runners: Vec<(RunningThread, usize)> = Vec::new();
        for (program, counts) in self.chosen.iter().enumerate() {
            let load = self.bench.members()[program].0.stages[phases[program]].load;
            for (core_type, &count) in counts.iter().enumerate().take(self.types) {
                let runner = RunningThread {
                    llc: self.llcs[core_type],
                    core_type,
                    load,
                    beside: None,
                    confined: false,
                };
                runners.extend((0..count).map(|_| (runner, program)));
            }
        }
        // Those that disturb each other share a memory.
        runners.sort_unstable();
        let mut speeds = vec![0.0; phases.len()];
        let machine = self.bench.machine();
        let energy = machine.energy.as_ref();
        let mut watts = energy.map_or(0.0, |energy| {
            let busy = |core_type| -> u32 { self.chosen.iter().map(|of| of[core_type]).sum() };
            let types = machine.topology.types.iter().enumerate();
            let idle = types.map(|(of, kind)| {
                energy.cores[of].idle_w * (kind.cpus.len() as f64 - f64::from(busy(of)))
            });
            energy.uncore_w + idle.sum::<f64>()
        });
        let mut runs = |runner: &RunningThread, load: &PhaseLoad, ns: f64, misses: f64| {
            if let Some(energy) = energy {
                let core = (runner.core_type, machine.cores[runner.core_type].hz);
                watts += energy.run_nj(core, load, ns, (1.0, misses)) / ns;
            }
        };
        let memory = |llc: usize| self.bench.machine().llcs[llc].memory;
        for group in runners.chunk_by(|(a, _), (b, _)| memory(a.llc) == memory(b.llc)) {
            let (disturbed, alone): (Vec<_>, Vec<_>) = group
                .iter()
                .partition(|(runner, _)| self.bench.loads()[runner.load].matters());
            let key: Vec<RunningThread> = disturbed.iter().map(|(runner, _)| *runner).collect();
            for ((runner, program), rate) in disturbed.iter().zip(self.contention.rates(&key)) {
                let ns = rate.ns_per_instruction;
                speeds[*program] += 1.0 / ns;
                runs(runner, &self.bench.loads()[runner.load], ns, rate.misses);
            }
            for (runner, program) in alone {
                let load = &self.bench.loads()[runner.load];
                let ns = load.alone_ns(runner.core_type);
                speeds[program] += 1.0 / ns;
                runs(&runner, load, ns, 0.0);
            }
        }
        if energy.is_some() {
            self.columns.watts.push(watts);
        }
        for (program, &speed) in speeds.iter().enumerate() {
            let compiled = &self.bench.members()[program].0;
            let (alone, _) = self.bench.alone()[program];
            for (phase, stage) in compiled.stages.iter().enumerate() {
                let whole = stage.instructions * f64::from(compiled.rounds);
                let here = phase == phases[program];
                let progress = if here {
                    speed * alone * 1e9 / whole
                } else {
                    0.0
                };
                self.columns.progress[program][phase].push(progress);
            }
        }
        self.columns.count += 1;
        Some(())
    }
}

/// All ways to put `threads` onto core types with so much room.
pub(super) fn splits(threads: u32, room: &Counts, types: usize) -> Vec<Counts> {
    fn fill(left: u32, room: &Counts, place: usize, so_far: Counts, all: &mut Vec<Counts>) {
        if left == 0 {
            all.push(so_far);
        } else if place < room.len() {
            for count in 0..=left.min(room[place]) {
                let mut next = so_far;
                next[place] = count;
                fill(left - count, room, place + 1, next, all);
            }
        }
    }
    let mut limited = [0; MAX_CORE_TYPES];
    limited[..types].copy_from_slice(&room[..types]);
    let mut all = Vec::new();
    fill(threads, &limited, 0, [0; MAX_CORE_TYPES], &mut all);
    all
}
