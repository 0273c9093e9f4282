// SPDX-License-Identifier: GPL-2.0-only
//! A program's part of what the processors take: of all busy time in an interval as much as it had, a second on a
//! slower core type counting less. What runs beside it pays for its own time; a program that runs alone has all of
//! what cores take. (PMCTrack 2017, figure 14, shows energy beside counts so; a sensor knows no program.)

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::totals::Slice;
use crate::energy::Energy;
use crate::slowdown::calibrate::idle::busy_and_all;
use crate::topology::{MAX_CORE_TYPES, Topology};
use hetero_core::energy::reading::EnergyReading;

/// Shares are of intervals no shorter than this: the kernel tells busy time in hundredths of a second.
const STEP: Duration = Duration::from_millis(200);

/// What the kernel counts CPU time in.
const TICKS_PER_S: f64 = 100.0;

/// Seconds or joules by core type.
type ByType = [f64; MAX_CORE_TYPES];

/// See the module.
pub(super) struct ProgramJoules {
    energy: Energy,
    stat: File,
    /// Core type by CPU id.
    types: Vec<Option<usize>>,
    nr_types: usize,
    /// What a busy second of each core type counts.
    weights: ByType,
    looked: Instant,
    before: (EnergyReading, ByType),
    /// What the program ran since, s.
    ran: ByType,
    rates: Option<ByType>,
    /// Since the begin, and since the last line: joules, and the seconds that they are of.
    sums: [(ByType, ByType); 2],
}

impl ProgramJoules {
    /// From now on; `None` where nothing counts the processors' energy.
    pub(super) fn below(root: &Path, topology: &Topology) -> Option<Self> {
        let energy = Energy::below(root, Some(topology));
        let stat = File::open(root.join("proc/stat")).ok()?;
        let mut types = vec![None; topology.nr_cpu_ids as usize];
        for cpu in &topology.cpus {
            *types.get_mut(cpu.id as usize)? = Some(cpu.core_type);
        }
        let mut weights = [1.0; MAX_CORE_TYPES];
        for (weight, kind) in weights.iter_mut().zip(&topology.types) {
            *weight = (f64::from(kind.capacity.max(1)) / 1024.0).powi(2);
        }
        let mut joules = Self {
            before: (energy.reading(), [0.0; MAX_CORE_TYPES]),
            energy,
            stat,
            types,
            nr_types: topology.types.len().min(MAX_CORE_TYPES),
            weights,
            looked: Instant::now(),
            ran: [0.0; MAX_CORE_TYPES],
            rates: None,
            sums: Default::default(),
        };
        joules.before.1 = joules.busy();
        joules.energy.is_counted().then_some(joules)
    }

    /// Counting begins only now.
    pub(super) fn begin(&mut self) {
        self.energy.look(Instant::now(), 0.0);
        self.before = (self.energy.reading(), self.busy());
        self.looked = Instant::now();
    }

    /// Takes in what the program ran, and looks at the sensors when it is time, or `now`.
    pub(super) fn take(&mut self, slice: &Slice, now: bool) {
        for counted in &slice.counted {
            if let Some(ran) = self.ran.get_mut(counted.core_type) {
                *ran += counted.run_ns as f64 / 1e9;
            }
        }
        let passed = self.looked.elapsed();
        if passed < STEP && !(now && passed > STEP / 4) {
            return;
        }
        let busy = self.busy();
        let grown: ByType = std::array::from_fn(|t| (busy[t] - self.before.1[t]).max(self.ran[t]));
        self.looked = Instant::now();
        self.energy.look(self.looked, grown.iter().sum());
        let reading = self.energy.reading();
        let counted = reading.since(&self.before.0);
        let rates = rates(&counted, &grown, &self.weights, self.nr_types);
        self.before = (reading, busy);
        let ran = std::mem::take(&mut self.ran);
        if let Some(rates) = rates {
            for (joules, seconds) in &mut self.sums {
                for t in 0..self.nr_types {
                    joules[t] += rates[t] * ran[t];
                    seconds[t] += ran[t];
                }
            }
        }
        self.rates = rates;
    }

    /// Of so much run time on a core type just now, J.
    pub(super) fn of_sample(&self, core_type: usize, run_ns: f64) -> Option<f64> {
        Some(self.rates?.get(core_type)? * run_ns / 1e9)
    }

    /// Of so much run time on a core type, or on all, since the begin (0) or the last line (1), J: its part of the
    /// program's.
    pub(super) fn of_row(
        &self,
        since: usize,
        core_type: Option<usize>,
        run_ns: f64,
    ) -> Option<f64> {
        let (joules, seconds) = &self.sums[since];
        let of = |values: &ByType| match core_type {
            Some(core_type) => values[core_type],
            None => values.iter().sum(),
        };
        let (joules, seconds) = (of(joules), of(seconds));
        (seconds > 0.0).then(|| joules / seconds * run_ns / 1e9)
    }

    /// A line was printed.
    pub(super) fn next_line(&mut self) {
        self.sums[1] = Default::default();
    }

    /// For how long CPUs of each type have been busy since boot, s.
    fn busy(&self) -> ByType {
        let mut text = vec![0; 512 + 160 * self.types.len()];
        let length = self.stat.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..length]);
        let mut busy = [0.0; MAX_CORE_TYPES];
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let cpu = words.next().and_then(|name| name.strip_prefix("cpu"));
            let cpu = cpu.and_then(|id| id.parse::<usize>().ok());
            let Some(core_type) = cpu.and_then(|cpu| *self.types.get(cpu)?) else {
                continue;
            };
            let (ticks, _) = busy_and_all(words);
            busy[core_type.min(MAX_CORE_TYPES - 1)] += ticks / TICKS_PER_S;
        }
        busy
    }
}

/// Joules of a busy second of each core type, by the finest sensors that there are; `None` where they have not
/// counted, or nothing ran.
fn rates(
    counted: &EnergyReading,
    busy: &ByType,
    weights: &ByType,
    nr_types: usize,
) -> Option<ByType> {
    if counted.by_type[..nr_types].iter().all(Option::is_some) {
        let rate = |t: usize| match busy[t] > 0.0 {
            true => counted.by_type[t].unwrap_or_default() / busy[t],
            false => 0.0,
        };
        return Some(std::array::from_fn(rate));
    }
    let joules = counted.cores.or(counted.package)?;
    let weighted: f64 = busy.iter().zip(weights).map(|(a, b)| a * b).sum();
    (weighted > 0.0).then(|| weights.map(|weight| weight * joules / weighted))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::pmc::totals::Counted;
    use hetero_core::testing::board;

    #[test]
    fn a_busy_second_of_a_slower_type_counts_less_where_one_sensor_has_both() {
        let before = EnergyReading {
            cores: Some(1.0),
            package: Some(5.0),
            ..EnergyReading::default()
        };
        let now = EnergyReading {
            cores: Some(11.0),
            package: Some(25.0),
            ..before
        };
        let (busy, weights) = ([2.0, 2.0, 0.0, 0.0], [1.0, 0.25, 1.0, 1.0]);
        let found = rates(&now.since(&before), &busy, &weights, 2).unwrap();
        assert_eq!(found[..2], [4.0, 1.0]);
        let now = EnergyReading {
            by_type: [Some(6.0), Some(1.0), None, None],
            ..now
        };
        let before = EnergyReading {
            by_type: [Some(0.0), Some(0.0), None, None],
            ..before
        };
        let found = rates(&now.since(&before), &busy, &weights, 2).unwrap();
        assert_eq!(found[..2], [3.0, 0.5]);
        assert_eq!(
            rates(&EnergyReading::default().since(&before), &busy, &weights, 2),
            None
        );
    }

    #[test]
    fn a_program_has_its_part_of_the_busy_time() {
        let root = tempfile::tempdir().unwrap();
        let topology = board(1, 1);
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let stat = |ticks: u32| {
            let text = format!("cpu 0\ncpu0 {ticks} 0 0 9 9 0 0 0\ncpu1 0 0 0 9 9 0 0 0\n");
            fs::write(root.path().join("proc/stat"), text).unwrap();
        };
        stat(0);
        assert!(
            ProgramJoules::below(root.path(), &topology).is_none(),
            "no sensor"
        );
        let zone = root.path().join("sys/class/powercap/intel-rapl:0");
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("name"), "package-0").unwrap();
        fs::write(zone.join("energy_uj"), "1000000").unwrap();
        let mut joules = ProgramJoules::below(root.path(), &topology).unwrap();
        joules.begin();
        assert_eq!(joules.of_sample(0, 1e9), None);
        // Two seconds were busy, of which it had one.
        stat(200);
        fs::write(zone.join("energy_uj"), "9000000").unwrap();
        std::thread::sleep(STEP / 3);
        let slice = Slice {
            run_ns: 1_000_000_000,
            counted: vec![Counted {
                run_ns: 1_000_000_000,
                ..Counted::default()
            }],
        };
        joules.take(&slice, true);
        for since in [0, 1] {
            assert_eq!(joules.of_row(since, Some(0), 1e9), Some(4.0));
            assert_eq!(joules.of_row(since, None, 1e9), Some(4.0));
            assert_eq!(joules.of_row(since, Some(1), 1e9), None);
        }
        assert_eq!(joules.of_sample(0, 5e8), Some(2.0));
        joules.next_line();
        assert_eq!(joules.of_row(1, None, 1e9), None);
    }
}
