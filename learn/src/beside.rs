// SPDX-License-Identifier: GPL-2.0-or-later
//! A model beside plain guesses: one that is no better than the mean of all programs has learnt
//! nothing, and `train` says so.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;
use hetero_core::ml::data::{Data, INSTRUCTIONS};
use hetero_core::ml::learn::Pair;
use hetero_core::ml::scores::RowEstimate;
use hetero_core::text::wrap;

use crate::fit::{FeatureKind, Fit};
use crate::resample::Interval;
use crate::trial::{HeldOutTrial, Learn, Setting};
use crate::ways::Way;

/// Up to so many rows of a core type all that `train` chooses is chosen anew in each fold. Of more the
/// choice hardly depends on one program, and takes long.
pub const FEW_ROWS: usize = 200;
/// A line on IPC is not to be bent by a penalty.
const RIDGE: f64 = 0.01;

/// Estimates of SF or EF from one core type, a model's first.
pub struct Beside {
    core_type: String,
    /// SF or EF.
    what: &'static str,
    /// Whether everything was chosen anew in each fold.
    pub anew: bool,
    ways: Vec<(&'static str, HeldOutTrial, bool)>,
}

/// Tries what `learn` makes and plain guesses on the rows of a core type, with each of the groups `each`
/// left out, and for pairs every two of `few`.
///
/// # Errors
/// Something cannot be learnt.
pub fn beside(
    data: &Data,
    core_type: usize,
    what: &'static str,
    (learn, anew): (&Learn, bool),
    pairs: &[Pair],
    [each, few]: [&[usize]; 2],
) -> Result<Beside> {
    let programs: BTreeMap<String, usize> = data
        .programs()
        .into_iter()
        .enumerate()
        .map(|(n, name)| (name.to_string(), n))
        .collect();
    let rows = data.rows_of(core_type);
    let here = |row: usize| data.rows[row].core_type == core_type;
    let setting = Setting {
        data,
        pairs: pairs
            .iter()
            .copied()
            .filter(|pair| here(pair.a) && here(pair.b))
            .collect(),
        learnt: rows.clone(),
        tried: rows,
        groups: each.to_vec(),
        few: few.to_vec(),
        programs: &programs,
    };
    let features = data.usable(&[core_type]);
    let mut guesses = vec![
        ("the mean of all", Way::Mean),
        ("the median of all", Way::Median),
    ];
    if data.features.iter().any(|name| name == INSTRUCTIONS) {
        let line = Fit {
            seen: FeatureKind::Ipc,
            ..Fit::squares(RIDGE)
        };
        guesses.push(("a line on IPC", Way::Fit(line)));
        let more = match what {
            "EF" => "more IPC, more EF",
            _ => "more IPC, more SF",
        };
        guesses.push((more, Way::Ipc));
    }
    let mut ways = vec![("this model", setting.of(learn)?, true)];
    for (name, way) in guesses {
        let trial = setting.of(&|data, rows| way.learn(data, rows, &features))?;
        ways.push((name, trial, way.estimates()));
    }
    Ok(Beside {
        core_type: data.core_types[core_type].clone(),
        what,
        anew,
        ways,
    })
}

impl Beside {
    fn trial(&self, name: &str) -> Option<&HeldOutTrial> {
        let found = self.ways.iter().find(|way| way.0 == name);
        found.map(|(_, trial, _)| trial)
    }

    /// What is, and what the model said.
    pub fn said(&self) -> &[RowEstimate] {
        self.trial("this model").map_or(&[], HeldOutTrial::said)
    }

    /// What says that the model has learnt nothing, if so.
    pub fn doubt(&self) -> Option<String> {
        let (model, mean) = (self.trial("this model")?, self.trial("the mean of all")?);
        let (less, right) = (model.nearer_than(mean), Interval::of_percent(model.right()));
        let (kind, what) = (&self.core_type, self.what);
        let error = format!(
            "its error is {:.3}, the mean's {:.3}",
            model.error().value,
            mean.error().value
        );
        if less.low > 0.0 && right.low > 50.0 {
            return None;
        }
        Some(match (less.value > 0.0, right.low > 50.0) {
            (true, true) => format!(
                "{what} from {kind}: the model puts programs in order, but its estimate may be no nearer than the \
                 mean of all: {error}, which may be chance."
            ),
            (false, true) => format!(
                "{what} from {kind}: the model puts programs in order, but its estimate is no nearer than the mean of \
                 all: {error}."
            ),
            (_, false) => format!(
                "{what} from {kind}: nothing shows that the model knows more than the mean of all programs: {error}, \
                 and of pairs {right:.0} % are right. Measure more programs, or count other events."
            ),
        })
    }
}

/// All of them as a table.
pub fn text(all: &[Beside]) -> String {
    let mut out = String::new();
    let Some(first) = all.first() else {
        return out;
    };
    let anew = match first.anew {
        true => ", with all choices made anew without them",
        false => "",
    };
    let head = format!(
        "Beside plain guesses, on programs not learnt from{anew}; in the brackets lie 95 % of random draws \
         of programs:"
    );
    let _ = writeln!(out, "\n{}", wrap(&head));
    let mut row = |cells: [String; 4]| {
        let [name, right, error, less] = cells;
        let line = format!("  {name:<19} {right:>15} {error:>22} {less:>18}");
        let _ = writeln!(out, "{}", line.trim_end());
    };
    let less = "LESS THAN MEAN'S";
    row(["", "PAIRS RIGHT, %", "ERROR", less].map(String::from));
    for beside in all {
        row([
            format!("{} from {}", beside.what, beside.core_type),
            String::new(),
            String::new(),
            String::new(),
        ]);
        let mean = beside.trial("the mean of all");
        for (name, trial, estimates) in &beside.ways {
            let right = match Interval::of_percent(trial.right()) {
                right if right.value.is_nan() => "-".to_string(),
                right if right.low == right.high => format!("{:.0}", right.value),
                right => format!("{right:.0}"),
            };
            let mut cells = [format!("  {name}"), right, String::new(), String::new()];
            if let (true, Some(mean)) = (*estimates, mean) {
                cells[2] = format!("{:.3}", trial.error());
                if *name != "the mean of all" {
                    let Interval { low, high, .. } = trial.nearer_than(mean);
                    cells[3] = format!("{low:.3} to {high:.3}");
                }
            }
            row(cells);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use hetero_core::ml::validate::{groups, pairs};

    use super::*;

    /// Programs whose SF the rate of branches says, or nothing does.
    fn data(known: bool) -> Data {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let mut text = String::from("program,instructions,cycles,branches,sf\n");
        for n in 0..30_u32 {
            let branches = 100 + 10 * (n * 7 % 11);
            let of = if known {
                branches
            } else {
                100 + 10 * (n * n % 13)
            };
            let sf = 1.0 + f64::from(of) / 400.0;
            text += &format!("p{n},1000,{},{branches},{sf}\n", 1000 + n * 17 % 5);
        }
        std::fs::write(&path, text).unwrap();
        Data::read(&[path], &[]).unwrap()
    }

    fn tried(known: bool) -> Beside {
        let data = data(known);
        let (each, few) = (groups(&data, 30, 1), groups(&data, 8, 1));
        let way = Way::Fit(Fit::deviations(0.01));
        let features = data.usable(&[0]);
        let learn: &Learn = &|data, rows| way.learn(data, rows, &features);
        let pairs = pairs(&data, 1000, 1);
        beside(&data, 0, "SF", (learn, true), &pairs, [&each, &few]).unwrap()
    }

    #[test]
    fn a_model_that_knows_is_better_than_the_mean_and_no_doubt_is_said() {
        let beside = tried(true);
        assert_eq!(beside.doubt(), None);
        let model = beside.trial("this model").unwrap();
        assert!(model.error().value < 0.02 && model.right().value > 0.95);
        assert!(model.correlation().low > 0.9);
        let mean = beside.trial("the mean of all").unwrap();
        assert_eq!(mean.right().value, 0.5);
        assert!(model.nearer_than(mean).low > 0.0);
        let said = text(&[beside]);
        assert!(said.contains("SF from big") && said.contains("more IPC, more SF"));
        assert!(
            said.lines().all(|line| line.chars().count() <= 80),
            "{said}"
        );
    }

    #[test]
    fn a_model_that_knows_nothing_is_doubted() {
        let doubt = tried(false).doubt().unwrap();
        assert!(doubt.contains("SF from big: nothing shows"), "{doubt}");
    }
}
