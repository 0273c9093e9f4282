// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether parts of what sensors count take more than the whole that they are of: cores, of all types or of one, more than their
//! package, or what is counted of the processors more than a battery gives.

use super::reading::EnergyReading;
use crate::topology::MAX_CORE_TYPES;

/// In so many minutes in succession cores take more than their package, or all processors more than the battery gives, before it is
/// called a lie. A battery's gauge may be a mean of its last minute, and lags behind a load that begins.
const CORES_MINUTES: u32 = 1;
const BATTERY_MINUTES: u32 = 3;

/// Which parts took more than their whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExcessParts {
    /// The packages.
    pub package: bool,
    /// All cores, as one sensor counts them.
    pub cores: bool,
    /// The cores of each type.
    pub types: [bool; MAX_CORE_TYPES],
}

/// See the module.
#[derive(Clone, Debug)]
pub struct WholeJudge {
    nr_types: usize,
    cores: WholeCheck,
    types: [WholeCheck; MAX_CORE_TYPES],
    all_types: WholeCheck,
    battery: WholeCheck,
}

impl WholeJudge {
    /// Of a machine with so many core types.
    pub fn new(nr_types: usize) -> Self {
        let check = || WholeCheck::new(CORES_MINUTES);
        Self {
            nr_types,
            cores: check(),
            types: std::array::from_fn(|_| check()),
            all_types: check(),
            battery: WholeCheck::new(BATTERY_MINUTES),
        }
    }

    /// Takes in what was counted in `seconds`, and what the battery gave in them, J, where it alone feeds the machine. Which parts
    /// are not to be believed any more.
    pub fn look(
        &mut self,
        seconds: f64,
        grown: &EnergyReading,
        battery: Option<f64>,
    ) -> ExcessParts {
        let mut excess = ExcessParts {
            cores: self.cores.exceeds(seconds, grown.cores, grown.package),
            ..ExcessParts::default()
        };
        for (t, check) in self.types.iter_mut().enumerate() {
            excess.types[t] = check.exceeds(seconds, grown.by_type[t], grown.package);
        }
        let types = grown.by_type.get(..self.nr_types);
        let sum = types.and_then(|types| types.iter().copied().sum());
        let is_too_much = self.all_types.exceeds(seconds, sum, grown.package);
        // Where it is not one of them, nothing says which.
        if is_too_much && !excess.types.contains(&true) {
            excess.types[..self.nr_types].fill(true);
        }
        let counted = grown.total_of(self.nr_types);
        if self.battery.exceeds(seconds, counted, battery) {
            match (grown.package, grown.cores) {
                (Some(_), _) => excess.package = true,
                (None, Some(_)) => excess.cores = true,
                (None, None) => excess.types[..self.nr_types].fill(true),
            }
        }
        excess
    }
}

/// How long a part is compared with its whole at a time, s.
const COMPARED: f64 = 60.0;
/// By so much: sensors have errors.
const TOLERANCE: f64 = 1.1;

/// Compares one part with its whole.
#[derive(Clone, Debug)]
struct WholeCheck {
    /// In so many minutes in succession the part takes more, before it is called a lie.
    minutes: u32,
    /// In so many it did so far.
    above: u32,
    seconds: f64,
    part: f64,
    whole: f64,
}

impl WholeCheck {
    /// One that calls it a lie after so many minutes in succession.
    fn new(minutes: u32) -> Self {
        Self {
            minutes,
            above: 0,
            seconds: 0.0,
            part: 0.0,
            whole: 0.0,
        }
    }

    /// Takes in what both took for `seconds`, J; whether the part has taken more than the whole for long enough.
    /// Where either is not known, it begins anew.
    fn exceeds(&mut self, seconds: f64, part: Option<f64>, whole: Option<f64>) -> bool {
        let (Some(part), Some(whole)) = (part, whole) else {
            *self = Self::new(self.minutes);
            return false;
        };
        self.seconds += seconds;
        self.part += part;
        self.whole += whole;
        if self.seconds < COMPARED {
            return false;
        }
        let above = match self.part > TOLERANCE * self.whole {
            true => self.above + 1,
            false => 0,
        };
        let is_lie = above >= self.minutes;
        *self = Self {
            above: if is_lie { 0 } else { above },
            ..Self::new(self.minutes)
        };
        is_lie
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_above_its_whole_is_seen_within_a_minute() {
        let minute = |part, whole| {
            let mut check = WholeCheck::new(1);
            (0..61).any(|_| check.exceeds(1.0, Some(part), whole))
        };
        assert!(!minute(10.0, Some(12.0)));
        assert!(!minute(12.5, Some(12.0)));
        assert!(minute(15.0, Some(12.0)));
        assert!(!minute(15.0, None));
    }

    #[test]
    fn a_gauge_that_is_a_mean_of_the_last_minute_is_no_proof() {
        // The whole is 10 W beside the package, which goes up and down by 50 W.
        let judged = |minutes, watts: fn(usize) -> f64| {
            let mut check = WholeCheck::new(minutes);
            (60..2400).any(|second| {
                let shown = (second - 60..second)
                    .map(|at| watts(at) + 10.0)
                    .sum::<f64>()
                    / 60.0;
                check.exceeds(1.0, Some(watts(second)), Some(shown))
            })
        };
        let loads: [fn(usize) -> f64; 3] = [
            |at| if at < 120 { 5.0 } else { 55.0 },
            |at| if at % 120 < 60 { 5.0 } else { 55.0 },
            |at| if at % 600 < 300 { 5.0 } else { 55.0 },
        ];
        for watts in loads {
            assert!(judged(1, watts), "one minute says so by mistake");
            assert!(!judged(3, watts));
        }
        // In between it must be more each minute.
        let mut check = WholeCheck::new(3);
        let mut minutes = |part, number: usize| {
            (0..60 * number).any(|_| check.exceeds(1.0, Some(part), Some(12.0)))
        };
        assert!(!minutes(15.0, 2));
        assert!(!minutes(10.0, 1));
        assert!(!minutes(15.0, 2));
        assert!(minutes(15.0, 1));
    }

    const NOTHING: EnergyReading = EnergyReading {
        package: None,
        cores: None,
        by_type: [None; MAX_CORE_TYPES],
        busy_ns: [0; MAX_CORE_TYPES],
    };

    /// Of two core types, for so many minutes, looked at each second.
    fn judged(
        minutes: usize,
        battery: Option<f64>,
        watts: impl Fn(usize) -> EnergyReading,
    ) -> ExcessParts {
        let mut judge = WholeJudge::new(2);
        let looks = (0..60 * minutes + 1).map(|second| judge.look(1.0, &watts(second), battery));
        looks
            .into_iter()
            .find(|excess| *excess != ExcessParts::default())
            .unwrap_or_default()
    }

    fn types(package: f64, big: f64, little: f64) -> EnergyReading {
        EnergyReading {
            package: Some(package),
            by_type: [Some(big), Some(little), None, None],
            ..NOTHING
        }
    }

    #[test]
    fn a_core_type_above_the_package_is_not_believed() {
        let excess = judged(1, None, |_| types(10.0, 12.0, 1.0));
        assert_eq!(excess.types, [true, false, false, false]);
        assert!(!excess.package && !excess.cores);
        // Together they take more, and nothing says which of them is wrong.
        let excess = judged(1, None, |_| types(10.0, 8.0, 6.0));
        assert_eq!(excess.types, [true, true, false, false]);
    }

    #[test]
    fn noise_and_sensors_of_other_paces_are_no_lie() {
        let none = ExcessParts::default();
        assert_eq!(judged(10, None, |_| types(10.0, 8.0, 2.5)), none);
        // The package's register is brought up to date every 5 s, and that of one type every 20.
        let stepped = |second: usize| {
            let package = if second.is_multiple_of(5) { 50.0 } else { 0.0 };
            types(
                package,
                6.0,
                if second.is_multiple_of(20) { 60.0 } else { 0.0 },
            )
        };
        assert_eq!(judged(10, None, stepped), none);
        // A load that begins: power that is a mean of its last ten seconds lags behind.
        let lagging = |second: usize| match second % 20 < 10 {
            true => types(50.0, 3.0, 2.0),
            false => types(5.0, 25.0, 20.0),
        };
        assert_eq!(judged(10, None, lagging), none);
        // Without a package there is no whole, nor where a look fails now and then.
        let boards = |_| EnergyReading {
            package: None,
            ..types(0.0, 20.0, 3.0)
        };
        assert_eq!(judged(10, None, boards), none);
        let gaps = |second: usize| EnergyReading {
            package: (!second.is_multiple_of(50)).then_some(10.0),
            ..types(0.0, 20.0, 3.0)
        };
        assert_eq!(judged(10, None, gaps), none);
    }

    #[test]
    fn what_is_counted_of_all_processors_is_compared_with_the_battery() {
        let of = |reading: EnergyReading| judged(4, Some(5.0), |_| reading);
        assert!(of(types(10.0, 3.0, 3.0)).package);
        let cores = EnergyReading {
            cores: Some(9.0),
            ..NOTHING
        };
        assert!(of(cores).cores);
        let boards = EnergyReading {
            package: None,
            ..types(0.0, 4.0, 3.0)
        };
        assert_eq!(of(boards).types, [true, true, false, false]);
        let less = EnergyReading {
            package: None,
            ..types(0.0, 2.0, 2.0)
        };
        assert_eq!(of(less), ExcessParts::default());
    }
}
