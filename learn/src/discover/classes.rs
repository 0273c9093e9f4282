// SPDX-License-Identifier: GPL-2.0-or-later
//! `scx_hetero train --discover --interference`: which events are worth counting to tell what disturbs a thread.

use std::fmt::Write;

use anyhow::Result;
use hetero_core::interference::signs::{NR_SIGNS, at};
use hetero_core::pmu::Meaning;
use hetero_core::text::hang_words;

/// Signs that an event makes, beside instructions and cycles. The others need none: they are of run time, clocks, sleep
/// and which CPUs are busy.
const OF_EVENTS: [(Meaning, &[usize]); 3] = [
    (
        Meaning::LlcMisses,
        &[at::MISSES_MORE, at::MISSES, at::BANDWIDTH, at::OTHERS],
    ),
    (Meaning::L2Misses, &[at::L2_MORE, at::L2]),
    (Meaning::StalledMem, &[at::STALLED_MORE, at::OTHER_MORE]),
];

/// How well classes are told by these signs: macro F1, and the part that is right.
type ScoreOfSigns<'s> = dyn Fn(&[usize]) -> Result<(f64, f64)> + 's;

/// Adds the event that raises `score` most, again and again. A report.
///
/// # Errors
/// Those of `score`.
pub(crate) fn choose(score: &ScoreOfSigns) -> Result<String> {
    let signs = |events: &[usize]| -> Vec<usize> {
        let without = |sign: &usize| !OF_EVENTS.iter().any(|(_, of)| of.contains(sign));
        let mut signs: Vec<usize> = (0..NR_SIGNS).filter(without).collect();
        signs.extend(events.iter().flat_map(|&event| OF_EVENTS[event].1));
        signs.sort_unstable();
        signs
    };
    let mut chosen: Vec<usize> = Vec::new();
    let mut reached = score(&signs(&chosen))?;
    let mut out = String::new();
    let mut say = |what: &str, (f1, right): (f64, f64)| {
        let _ = writeln!(out, "  {what:<24} {f1:.3}  {:5.1} %", 100.0 * right);
    };
    say("instructions and cycles", reached);
    while chosen.len() < OF_EVENTS.len() {
        let mut best: Option<(usize, (f64, f64))> = None;
        for event in (0..OF_EVENTS.len()).filter(|event| !chosen.contains(event)) {
            let scored = score(&signs(&[&chosen[..], &[event]].concat()))?;
            if best.is_none_or(|(_, (most, _))| scored.0 > most) {
                best = Some((event, scored));
            }
        }
        let Some((event, scored)) = best else { break };
        if scored.0 <= reached.0 {
            break;
        }
        chosen.push(event);
        reached = scored;
        say(&format!("and {}", OF_EVENTS[event].0), scored);
    }
    let left = (0..OF_EVENTS.len()).filter(|event| !chosen.contains(event));
    let left: Vec<&str> = left.map(|event| OF_EVENTS[event].0.name()).collect();
    let end = match left.is_empty() {
        true => String::new(),
        false => format!("\nNothing is gained by {}.", left.join(" or ")),
    };
    Ok(format!(
        "{}\n\n{}{end}",
        hang_words(
            "Events that tell classes of interference, of programs left out, by boosted trees: macro F1, and how \
             many windows are right. Tables of pairs have the signs of three events.",
            0,
            2
        ),
        out.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_added_while_they_tell_more() {
        // Misses tell most, stalls a little more beside them, and the L2's nothing.
        let score = |signs: &[usize]| {
            let has = |sign: usize| f64::from(u8::from(signs.contains(&sign)));
            let f1 = 0.5 + 0.3 * has(at::MISSES) + 0.1 * has(at::STALLED_MORE);
            Ok((f1, f1))
        };
        let text = choose(&score).unwrap();
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(place("instructions and cycles") < place("and llc-misses"));
        assert!(place("and llc-misses") < place("and stalled-mem"));
        assert!(text.ends_with("Nothing is gained by l2-misses."), "{text}");
    }
}
