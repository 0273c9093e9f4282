// SPDX-License-Identifier: GPL-2.0-or-later
//! The class by what is known of machines: how much each cause would slow the thread down is estimated from the
//! signs, and what the thread lost is divided among the causes in that proportion.

use super::signs::{InterferenceSigns, at};
use super::{CLASSES, DISTURBED, InterferenceClass};

/// Cycles that a miss of the last-level cache costs, of those that wait for each other in part: some 300 cycles, four
/// at a time.
const MISS: f64 = 80.0;

/// Likewise where each waits for the one before, at the most.
const LONE_MISS: f64 = 300.0;

/// Likewise of an access to the last-level cache.
const L2_MISS: f64 = 20.0;

/// What a busy sibling adds to the cycles of an instruction: two threads of a core do 1.25 times the work of one.
const SIBLING: f64 = 0.6;

/// Traffic of others below this part of the bandwidth is in no thread's way.
const FREE: f64 = 0.2;

/// From this part of the bandwidth on, requests queue.
const FULL: f64 = 0.85;

/// How much longer a miss takes where memory is full than where it is not: as long again.
const QUEUE: f64 = 1.0;

/// Causes that would cost less than this part of what the thread lost explain no more than in that proportion.
const EXPLAINED: f64 = 0.25;

/// What each class is likely to be, 0 to 1, adding up to 1.
pub fn classify(signs: &InterferenceSigns) -> [f64; CLASSES] {
    let mut parts = [0.0; CLASSES];
    let mut set = |class: InterferenceClass, part: f64| parts[class as usize] = part;
    let clock = signs.values[at::CLOCK].max(0.0);
    let asleep = signs.values[at::ASLEEP].max(0.0);
    // What the cycles of an instruction have grown by.
    let cycles = (signs.values[at::SLOW] - signs.values[at::CLOCK]).max(0.0);
    set(InterferenceClass::Power, clock);
    set(InterferenceClass::Wait, asleep);
    let lost = cycles.exp_m1();
    let causes = causes(signs, lost);
    let sum: f64 = causes.iter().map(|(_, cost)| cost).sum();
    // What no cause comes near to explaining is the thread's own doing.
    let whole = sum.max(EXPLAINED * lost);
    if whole > 0.0 {
        for (class, cost) in causes {
            set(class, cycles * cost / whole);
        }
    }
    let all = clock + asleep + cycles;
    // How far from the border of what counts as disturbed it is, which noise of a few percent moves.
    let border = DISTURBED.ln();
    let disturbed = 1.0 / (1.0 + (-(signs.slowdown().ln() - border) / (0.3 * border)).exp());
    for part in &mut parts {
        *part *= disturbed / all.max(f64::MIN_POSITIVE);
    }
    parts[InterferenceClass::None as usize] = 1.0 - parts.iter().sum::<f64>();
    parts
}

/// What each cause but clock and sleep would add to a cycle undisturbed, of `lost` that were added in all.
fn causes(signs: &InterferenceSigns, lost: f64) -> [(InterferenceClass, f64); 4] {
    let misses = signs.values[at::MISSES].max(0.0);
    let more = signs.values[at::MISSES_MORE].clamp(0.0, misses);
    // Traffic of its own is in no thread's way.
    let others = (signs.values[at::OTHERS] / FREE).clamp(0.0, 1.0);
    let queue = queue(signs.values[at::BANDWIDTH]) * others;
    let llc = more * MISS / 1e3;
    let bandwidth = misses * MISS / 1e3 * queue;
    let sibling = SIBLING * signs.values[at::SIBLING].clamp(0.0, 1.0);
    let l2 = match signs.get(at::L2_MORE) {
        Some(added) => (added - more).max(0.0) * L2_MISS / 1e3,
        // Not counted: what remains, however much, where nothing else comes near to explaining it; else a little.
        None => (lost - (llc + bandwidth + sibling) / EXPLAINED).max(0.1),
    };
    let l2 = l2 * signs.values[at::CLUSTER].clamp(0.0, 1.0);
    // Misses that wait for each other cost more: what nothing else explains is theirs, as far as there was time for each undisturbed.
    let undisturbed = (misses - more).max(1e-3);
    let most = (LONE_MISS.min(1e3 / undisturbed) / MISS).max(1.0);
    let unexplained = lost - (l2 + sibling);
    let scale = (unexplained / (llc + bandwidth).max(1e-6)).clamp(1.0, most);
    let (llc, bandwidth) = (llc * scale, bandwidth * scale);
    [
        (InterferenceClass::Llc, llc),
        (InterferenceClass::L2, l2),
        (InterferenceClass::Bandwidth, bandwidth),
        (InterferenceClass::Sibling, sibling),
    ]
}

/// By how much longer a miss takes where memory is used to this part of its bandwidth, of what it takes where it is
/// not used at all.
fn queue(used: f64) -> f64 {
    let used = used.max(0.0);
    let full = ((used - FULL) / (1.0 - FULL)).clamp(0.0, 1.0);
    // As the wait for a server that is busy for this part of the time, while there is no queue to speak of.
    used.min(FULL).powi(2) / 2.0 + full * QUEUE
}

/// The most likely class, and how likely it is.
pub fn best(likely: &[f64; CLASSES]) -> (InterferenceClass, f64) {
    let all = InterferenceClass::ALL.iter().zip(likely);
    let best = all.max_by(|(_, a), (_, b)| a.total_cmp(b));
    best.map_or((InterferenceClass::None, 1.0), |(&class, &likely)| {
        (class, likely)
    })
}

/// What a thread wants of memory by either of two ways, which the same processes are in.
pub const BOTH: [InterferenceClass; 2] = [InterferenceClass::Llc, InterferenceClass::Bandwidth];

/// The one of [`BOTH`] beside the most likely class that explains this part of what was lost, or more, as well.
const BESIDES: f64 = 0.25;

/// The other class of [`BOTH`] that is a cause beside the most likely one, and how likely.
pub fn besides(
    class: InterferenceClass,
    likely: &[f64; CLASSES],
) -> Option<(InterferenceClass, f64)> {
    let [llc, bandwidth] = BOTH;
    let other = match class {
        InterferenceClass::Llc => bandwidth,
        InterferenceClass::Bandwidth => llc,
        _ => return None,
    };
    Some((other, likely[other as usize])).filter(|&(_, likely)| likely >= BESIDES)
}

#[cfg(test)]
mod tests {
    use super::super::signs::NR_SIGNS;
    use super::*;

    fn signs(of: &[(usize, f64)]) -> InterferenceSigns {
        let mut values = [None; NR_SIGNS];
        of.iter().for_each(|&(at, value)| values[at] = Some(value));
        InterferenceSigns::from_values(values)
    }

    fn likely(of: &[(usize, f64)]) -> [f64; CLASSES] {
        let likely = classify(&signs(of));
        let sum: f64 = likely.iter().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{likely:?}");
        assert!(
            likely.iter().all(|of| (0.0..=1.0).contains(of)),
            "{likely:?}"
        );
        likely
    }

    fn class(of: &[(usize, f64)]) -> InterferenceClass {
        best(&likely(of)).0
    }

    #[test]
    fn misses_that_wait_for_each_other_explain_more() {
        use at::{BANDWIDTH, MISSES, MISSES_MORE, OTHERS, SLOW};
        // As `canneal` beside three of `stream`: 300 cycles a miss, and half as much again for the queue.
        let told = |misses: f64, more: f64| {
            likely(&[
                (SLOW, 0.67),
                (MISSES, misses),
                (MISSES_MORE, more),
                (BANDWIDTH, 0.75),
                (OTHERS, 0.7),
            ])
        };
        let memory = |likely: [f64; CLASSES]| {
            likely[InterferenceClass::Llc as usize] + likely[InterferenceClass::Bandwidth as usize]
        };
        assert!(memory(told(4.7, 1.0)) > 0.95, "{:?}", told(4.7, 1.0));
        // So few explain little, however long each of them takes.
        assert!(memory(told(0.5, 0.1)) < 0.5, "{:?}", told(0.5, 0.1));
        // Where a thread misses so often anyway, many are under way at once.
        assert!(memory(told(40.0, 0.1)) > 0.95);
        let lost = 0.67_f64.exp_m1();
        let signs = signs(&[(SLOW, 0.67), (MISSES, 30.0), (MISSES_MORE, 1.0)]);
        let cost = causes(&signs, lost)[0].1;
        assert!((cost - MISS / 1e3).abs() < 1e-9, "{cost}");
    }

    #[test]
    fn where_cache_and_bandwidth_are_causes_both_are_told() {
        use InterferenceClass::{Bandwidth, L2, Llc};
        let of = |llc: f64, bandwidth: f64, l2: f64| {
            let mut likely = [0.0; CLASSES];
            for (class, part) in [(Llc, llc), (Bandwidth, bandwidth), (L2, l2)] {
                likely[class as usize] = part;
            }
            besides(best(&likely).0, &likely)
        };
        assert_eq!(of(0.45, 0.4, 0.0), Some((Bandwidth, 0.4)));
        assert_eq!(of(0.3, 0.6, 0.0), Some((Llc, 0.3)));
        assert_eq!(of(0.1, 0.8, 0.0), None);
        // It is another process that is in the way there.
        assert_eq!(of(0.3, 0.1, 0.5), None);
    }

    #[test]
    fn each_class_shows_in_its_signs() {
        use InterferenceClass::{Bandwidth, L2, Llc, None, Power, Sibling, Wait};
        use at::{
            ASLEEP, BANDWIDTH, CLOCK, CLUSTER, L2_MORE, MISSES, MISSES_MORE, OTHERS, SIBLING, SLOW,
        };
        assert_eq!(class(&[(SLOW, 0.02)]), None);
        assert_eq!(
            class(&[(SLOW, 0.5), (MISSES, 9.0), (MISSES_MORE, 8.0)]),
            Llc
        );
        let memory = [(SLOW, 0.5), (MISSES, 9.0), (BANDWIDTH, 1.0), (OTHERS, 0.7)];
        assert_eq!(class(&memory), Bandwidth);
        assert_eq!(class(&[(SLOW, 0.4), (SIBLING, 1.0)]), Sibling);
        for slow in [0.4, 1.5] {
            assert_eq!(class(&[(SLOW, slow), (CLUSTER, 1.0)]), L2);
            assert_eq!(class(&[(SLOW, slow)]), None, "nothing could be its cause");
        }
        let miss = [
            (SLOW, 0.5),
            (CLUSTER, 1.0),
            (MISSES, 4.0),
            (MISSES_MORE, 3.0),
        ];
        assert_eq!(class(&miss), Llc);
        assert_eq!(class(&[(SLOW, 0.4), (CLUSTER, 2.0), (L2_MORE, 9.0)]), L2);
        assert_eq!(class(&[(SLOW, 0.3), (CLOCK, 0.3), (SIBLING, 0.0)]), Power);
        assert_eq!(class(&[(SLOW, 0.0), (ASLEEP, 0.7)]), Wait);
    }
}
