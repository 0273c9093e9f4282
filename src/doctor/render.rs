// SPDX-License-Identifier: GPL-2.0-only
//! The report for people, at most 80 columns wide.

use anstyle::{AnsiColor, Style};

use super::{Check, Report, Severity};
use crate::text::{hang, printable};

/// Where the text beside the status begins.
const INDENT: usize = 8;

impl Severity {
    /// A word, for who sees no colours.
    fn word(self) -> (&'static str, Style) {
        let colour = |colour: AnsiColor| colour.on_default();
        match self {
            Self::Ok => ("ok", colour(AnsiColor::Green)),
            Self::Note => ("note", colour(AnsiColor::Cyan)),
            Self::Warning => ("warn", colour(AnsiColor::Yellow).bold()),
            Self::Failed => ("FAIL", colour(AnsiColor::Red).bold()),
        }
    }
}

/// With colours: who prints it takes them out where they are not wanted.
pub(super) fn text(report: &Report) -> String {
    let heading = Style::new().bold();
    let mut text = format!("scx_hetero {}\n", report.version);
    for section in &report.sections {
        let topic = format!(
            "{}{}",
            section.topic[..1].to_uppercase(),
            &section.topic[1..]
        );
        text += &format!("\n{heading}{topic}{heading:#}\n");
        for check in &section.checks {
            text += &line(check);
        }
    }
    text.push('\n');
    text += &verdict(report);
    text.push('\n');
    text
}

fn line(check: &Check) -> String {
    let (word, style) = check.status.word();
    let mut text = format!(
        "  {style}{word:4}{style:#}  {}\n",
        hang(&printable(&check.found), INDENT, INDENT)
    );
    let mut more = |label: &str, what: &Option<String>| {
        if let Some(what) = what {
            let what = format!("{label}: {}", printable(what));
            text += &format!("{:INDENT$}{}\n", "", hang(&what, INDENT, INDENT));
        }
    };
    more("They are", &check.private);
    more("Remedy", &check.remedy);
    text
}

fn verdict(report: &Report) -> String {
    let warnings = match report.warnings {
        0 => "no warnings".to_string(),
        1 => "1 warning".to_string(),
        n => format!("{n} warnings"),
    };
    match report.failed {
        0 => format!("Nothing fails; {warnings}."),
        1 => format!("1 check fails, {warnings}: scx_hetero will not start here."),
        n => format!("{n} checks fail, {warnings}: scx_hetero will not start here."),
    }
}
