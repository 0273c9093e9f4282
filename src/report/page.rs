// SPDX-License-Identifier: GPL-2.0-only
//! The page: all in one file, which asks for nothing from anywhere.

use std::fmt::Write as _;

use super::curves::{self, Named};
use super::gather::{LISTED, ROWS, ReportData, ThreadRow};
use super::{beside, goals, misses, power, timeline};

/// Each colour is seen on the light page and on the dark one, three to one or better.
pub(super) const CURVES: [&str; curves::COLOURS] = [
    "#2f7fc1", "#d1495b", "#3d8f4f", "#b8741a", "#8a63c9", "#1f8f8f", "#a0654a", "#7a7f2a",
];

/// Core types, fastest first, on either page.
pub(super) const TYPES: [&str; 4] = ["#c8641e", "#2f7fc1", "#3d8f4f", "#808080"];

const STYLE: &str = "\
:root { color-scheme: light dark; --page: #ffffff; --ink: #1f2328; --pale: #59636e; --rule: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1117; --ink: #e6edf3; --pale: #9ea7b3; --rule: #3d444d; } }
body { margin: 0 auto; padding: 1rem; max-width: 1500px; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; } h2 { font-size: 1.15rem; margin: 2rem 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 75ch; } .pale { color: var(--pale); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; }
dt { color: var(--pale); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } .wide svg { display: block; width: 100%; min-width: 860px; height: auto; }
svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--rule); } .level { stroke: var(--pale); stroke-dasharray: 6 4; } .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.other { stroke: var(--pale); stroke-width: 1; stroke-opacity: .5; }
.little { fill-opacity: .4; } .some { fill-opacity: .7; } .up, .down { fill: var(--ink); }
.key { display: inline-block; width: 1.1rem; margin: 0 .35rem 0 .9rem; vertical-align: baseline; }
.key:first-child { margin-left: 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { color: var(--pale); font-weight: 600; } .number { text-align: right; }
.scroll { max-height: 30rem; overflow: auto; }
@media (max-width: 600px) { body { padding: .6rem; font-size: 15px; }
  .wide svg { min-width: 640px; } svg text { font-size: 14px; } }
";

/// The page of a recording called `file`.
pub(super) fn page(story: &ReportData, file: &str) -> String {
    let mut body = String::new();
    head(&mut body, story, file);
    section(
        &mut body,
        "Where each thread ran",
        &legend(story),
        Some(timeline::draw(story)),
    );
    let of = |curve: fn(&ThreadRow) -> &Vec<(f64, f64)>| -> Vec<Named> {
        let named = |row| Named {
            name: format!("{} {}", row_name(row), row.tid),
            curve: curve(row),
        };
        story.rows.iter().map(named).collect()
    };
    let one = |name: &str, curve| {
        [Named {
            name: name.into(),
            curve,
        }]
    };
    let draw =
        |title: &str, zero, curves: &[Named]| curves::draw(title, story.seconds, zero, curves);
    section(
        &mut body,
        "Unfairness",
        "The greatest slowdown over the least among the threads that compete for fast cores, by what \
         they did in the last ten seconds; 1 is even.",
        draw(
            "Unfairness over time",
            false,
            &one("unfairness", &story.unfairness),
        ),
    );
    section(
        &mut body,
        "Slowdown",
        "How much slower each thread was than on the fastest core type undisturbed, as the policy \
         measured it where the thread was; 1 is not at all.",
        draw(
            "Slowdown of each thread over time",
            false,
            &of(|row| &row.slowdown),
        ),
    );
    section(
        &mut body,
        "Which program slows down which",
        "Time that a program's threads lost beside others on the same core type, by the process that disturbed \
         them most, and most of it to what; as far as the scheduler was sure.",
        beside::draw(&story.beside),
    );
    section(
        &mut body,
        "Miss-rate curves",
        &misses::about(&story.misses),
        misses::draw(&story.misses),
    );
    section(
        &mut body,
        "Progress",
        "Work done, in seconds alone on the fastest core type (amp_progress), since a thread was first \
         seen. Under a fair policy the lines of threads that compute all the time stay together.",
        draw(
            "Progress of each thread over time",
            true,
            &of(|row| &row.progress),
        ),
    );
    let [asp, stp] = [("ASP", &story.asp), ("STP", &story.stp)].map(|(name, curve)| Named {
        name: name.into(),
        curve,
    });
    section(
        &mut body,
        "Throughput",
        "Aggregate speedup over the slowest core type (ASP), and throughput in units of one thread alone \
         on the fastest core (STP), over the last ten seconds.",
        draw("Throughput over time", true, &[asp, stp]),
    );
    let about = match story.goals.1 {
        0 => "Of programs with goals; 'scx_hetero goal plot' draws these two alone.".to_string(),
        more => format!("Of the programs that had goals for longest; {more} more had."),
    };
    for (heading, drawing, _) in goals::drawings(&story.goals.0, story.seconds) {
        section(&mut body, &heading, &about, Some(drawing.to_string()));
    }
    section(
        &mut body,
        "Power",
        "Of the processor packages, W.",
        draw("Power over time", true, &one("power", &story.watts)),
    );
    for (heading, about, drawing) in power::drawings(&story.power, story.seconds) {
        section(&mut body, heading, about, drawing);
    }
    moves(&mut body, story);
    let title = escape(file);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{title} - scx_hetero</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n{body}\
         </body>\n</html>\n",
        colours()
    )
}

fn row_name(row: &ThreadRow) -> &str {
    if row.comm.is_empty() { "?" } else { &row.comm }
}

fn colours() -> String {
    let mut style = String::new();
    for (index, colour) in CURVES.iter().enumerate() {
        let _ = writeln!(style, ".curve{index} {{ stroke: {colour}; }}");
    }
    for (index, colour) in TYPES.iter().enumerate() {
        let _ = writeln!(
            style,
            ".type{index} {{ fill: {colour}; background: {colour}; }}"
        );
    }
    style
}

fn head(body: &mut String, story: &ReportData, file: &str) {
    let begin = &story.begin;
    let types = begin.topology.types.iter();
    let types = types.map(|kind| format!("{} {}", kind.cpus.len(), kind.name));
    let policies = story.policies.iter().map(|(at, name)| match at {
        at if *at > 0.0 => format!("{name} from {at:.1} s on"),
        _ => name.clone(),
    });
    let facts = [
        ("Policy", policies.collect::<Vec<_>>().join(", ")),
        ("Length", format!("{:.1} s", story.seconds)),
        ("Begun", begin.date.clone()),
        ("CPU", begin.cpu.clone()),
        ("CPUs", types.collect::<Vec<_>>().join(" + ")),
        ("Kernel", begin.kernel.clone()),
        ("scx_hetero", begin.version.clone()),
        ("Moves", story.all_moves.to_string()),
    ];
    let _ = write!(body, "<h1>{}</h1>\n<dl>\n", escape(file));
    for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        let _ = writeln!(body, "<dt>{name}</dt><dd>{}</dd>", escape(fact));
    }
    *body += "</dl>\n";
    if let Some(complaint) = &story.complaint {
        let _ = writeln!(body, "<p><strong>{}</strong></p>", escape(complaint));
    }
}

fn legend(story: &ReportData) -> String {
    let types = story.begin.topology.types.iter().enumerate();
    let mut text: String = types
        .map(|(index, kind)| {
            let height = 1.0 - 0.23 * index as f64;
            format!(
                "<span class=\"key type{index}\" style=\"height:{height:.2}rem\"></span>{}",
                escape(&kind.name)
            )
        })
        .collect();
    text += ". Paler where it ran less. Triangles are moves by the policy, \u{25b2} to a faster core \
             type and \u{25bc} to a slower one: point at one to read why.";
    if story.more > 0 {
        let _ = write!(
            text,
            " The {ROWS} threads that ran most; {} more ran less.",
            story.more
        );
    }
    text
}

/// `about` is HTML; a section without a drawing is left out.
fn section(body: &mut String, title: &str, about: &str, drawing: Option<String>) {
    let Some(drawing) = drawing else { return };
    let _ = write!(
        body,
        "<section>\n<h2>{title}</h2>\n<p class=\"pale\">{about}</p>\n<div class=\"wide\" tabindex=\"0\">\n\
         {drawing}\n</div>\n</section>\n"
    );
}

fn moves(body: &mut String, story: &ReportData) {
    *body += "<section>\n<h2>Moves</h2>\n";
    if story.all_moves == 0 {
        *body += "<p class=\"pale\">The policy moved no thread.</p>\n</section>\n";
        return;
    }
    let which = if story.all_moves > LISTED as u64 {
        format!("The last {LISTED} of {}.", story.all_moves)
    } else {
        format!("All {}.", story.all_moves)
    };
    let _ = write!(
        body,
        "<p class=\"pale\">{which} Each thread of a swap has a line.</p>\n\
         <div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr><th class=\"number\">s</th>\
         <th>Thread</th><th>Moved</th></tr></thead>\n<tbody>\n"
    );
    for moved in &story.moves {
        let _ = writeln!(
            body,
            "<tr><td class=\"number\">{:.2}</td><td>{} {}</td><td>{}</td></tr>",
            moved.at_s,
            moved.tid,
            escape(&moved.comm),
            escape(&timeline::words(story, moved))
        );
    }
    *body += "</tbody>\n</table>\n</div>\n</section>\n";
}

/// For HTML, in text and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            // A thread may call itself anything.
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WCAG 2's relative luminance of #rrggbb.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    /// Backgrounds, light and dark.
    const PAGES: [&str; 2] = ["#ffffff", "#0d1117"];

    #[test]
    fn every_colour_is_seen_on_the_light_page_and_on_the_dark_one() {
        for colour in CURVES.iter().chain(&TYPES) {
            for page in PAGES {
                let (a, b) = (luminance(colour), luminance(page));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 3.0, "{colour} on {page}: {contrast:.2}");
                assert!(STYLE.contains(page));
            }
        }
    }

    #[test]
    fn what_threads_call_themselves_is_no_html() {
        assert_eq!(escape("<b>&\"\u{1b}"), "&lt;b&gt;&amp;&quot;\u{fffd}");
    }
}
