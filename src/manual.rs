// SPDX-License-Identifier: GPL-2.0-only
//! Man pages, from what the help says.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

/// Where it reads and writes, in the page of the program itself.
const FILES: [(&str, &str); 4] = [
    (
        "/etc/scx_hetero/rules.toml",
        "Where some programs run and what they weigh; see --rules",
    ),
    (
        "/etc/default/scx_hetero",
        "What its service starts it with: SCX_FLAGS",
    ),
    (
        "/var/lib/scx_hetero/",
        "What was measured of this machine, and is known of programs",
    ),
    (
        "/run/scx_hetero/, /run/scx/root/stats",
        "Sockets, while it runs",
    ),
];

/// Writes a page for the program and for each of its commands.
pub(crate) fn write(program: Command, folder: &Path) -> io::Result<()> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let source = format!("{} {}", program.get_name(), env!("CARGO_PKG_VERSION"));
    page(&program, &source, None, folder)
}

fn page(command: &Command, source: &str, of: Option<&str>, folder: &Path) -> io::Result<()> {
    let man = Man::new(command.clone()).source(source);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    let shown = |of: &&Command| !of.is_hide_set();
    if command.get_subcommands().any(|of| shown(&of)) {
        man.render_subcommands_section(&mut text)?;
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    text.extend(sections(&after).bytes());
    match of {
        None => {
            writeln!(text, ".SH FILES")?;
            for (path, what) in FILES {
                writeln!(text, ".TP\n.I {}\n{}", escaped(path), escaped(what))?;
            }
        }
        Some(of) => writeln!(text, ".SH \"SEE ALSO\"\n{}(1)", escaped(of))?,
    }
    fs::write(folder.join(man.get_filename()), text)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut commands = command.get_subcommands().filter(shown);
    commands.try_for_each(|of| page(of, source, Some(name), folder))
}

/// Sections of what follows the options in the help, whose paragraphs are examples, the exit status, or notes.
fn sections(after: &str) -> String {
    let (mut named, mut notes) = (String::new(), String::new());
    for part in after.split("\n\n").filter(|part| !part.is_empty()) {
        let (title, rest) = part.split_once(':').unwrap_or_default();
        let title = match title {
            "Example" | "Examples" => "EXAMPLES",
            "Exit status" => "EXIT STATUS",
            _ => {
                notes += &format!(".PP\n{}", paragraph(part));
                continue;
            }
        };
        named += &format!(".SH \"{title}\"\n{}", paragraph(rest.trim_matches('\n')));
    }
    match notes.is_empty() {
        true => named,
        false => format!(".SH NOTES\n{notes}{named}"),
    }
}

/// Its lines, those that are indented as they are.
fn paragraph(text: &str) -> String {
    let mut written = String::new();
    let mut as_it_is = false;
    for line in text.lines() {
        if line.starts_with("  ") != as_it_is {
            written += if as_it_is { ".fi\n" } else { ".nf\n" };
            as_it_is = !as_it_is;
        }
        written += &escaped(line.trim());
        written.push('\n');
    }
    if as_it_is {
        written += ".fi\n";
    }
    written
}

/// What roff would take for its own is escaped.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    let line = line.replace('\'', "\\(aq");
    match line.starts_with('.') {
        true => format!("\\&{line}"),
        false => line,
    }
}
