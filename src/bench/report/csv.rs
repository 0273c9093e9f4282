// SPDX-License-Identifier: GPL-2.0-only
//! A line for each run.

use anyhow::Result;

use super::summary::times;
use crate::bench::results::Results;
use crate::sim::metrics::ScheduleMetrics;

/// All runs in the order in which they were run; empty fields are what cannot be counted.
///
/// # Errors
/// A program was not measured alone.
pub(super) fn table(results: &Results) -> Result<Vec<u8>> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record([
        "scheduler",
        "mix",
        "repeat",
        "unfairness",
        "asp",
        "stp",
        "antt",
        "migrations_per_s",
        "joules",
        "seconds",
    ])?;
    for run in &results.runs {
        let metrics = ScheduleMetrics::of(&times(run, results)?);
        let migrations = run.migrations.map(|count| count as f64 / run.seconds);
        let field = |value: Option<f64>| value.map_or(String::new(), number);
        table.write_record([
            run.scheduler.clone(),
            run.mix.clone(),
            run.repeat.to_string(),
            number(metrics.unfairness),
            number(metrics.asp),
            number(metrics.stp),
            number(metrics.antt),
            field(migrations),
            field(run.joules),
            number(run.seconds),
        ])?;
    }
    Ok(table.into_inner()?)
}

fn number(value: f64) -> String {
    format!("{value:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::results;
    use crate::bench::results::tests::run;

    #[test]
    fn each_run_is_a_line() {
        let runs = vec![run("camps --fairness 50", "M,1", 2, [&[2.0], &[2.0]])];
        let text = String::from_utf8(table(&results(runs)).unwrap()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("scheduler,mix,repeat,unfairness"));
        assert_eq!(
            lines[1],
            "camps --fairness 50,\"M,1\",2,2.000000,3.000000,1.500000,1.500000,5.000000,,20.000000"
        );
    }
}
