// SPDX-License-Identifier: GPL-2.0-or-later
//! What each source says about core types, on its own.

use super::sysfs::{RawCpu, SysfsPmu, TopologyFacts};
use super::{MAX_CORE_TYPES, Source, in_words};

/// How much faster, in percent, a core must look than the next slower one before they are of
/// different core types. Favoured cores of one type are up to 14 % apart (Turbo Boost Max 3.0 on
/// Broadwell-E: 4.0 and 3.5 GHz); core types that are close, such as Meteor Lake's P and E by
/// their frequency (4.5 and 3.8 GHz), are 18 %.
pub const MIN_GAP_PERCENT: u32 = 15;

/// The sources that are a number per core, in order of trust.
pub(super) const NUMERIC: [Source; 3] = [Source::Capacity, Source::Cppc, Source::MaxFreq];

/// CPUs by core type, fastest first.
pub(super) type Groups = Vec<Vec<u32>>;

/// What one source says of the CPUs it knows.
pub(super) struct Evidence {
    pub source: Source,
    pub groups: Groups,
}

/// What every source says that says anything, in order of trust.
pub(super) fn gather(facts: &TopologyFacts, notes: &mut Vec<String>) -> Vec<Evidence> {
    let mut evidence: Vec<Evidence> = pmus(facts, notes).into_iter().collect();
    evidence.extend(NUMERIC.map(|source| numbers(facts, source, notes)));
    evidence.retain(|evidence| !evidence.groups.is_empty());
    evidence
}

/// What the PMUs say: one group a PMU. `None` where they say nothing, as a generic PMU that serves
/// alone does.
fn pmus(facts: &TopologyFacts, notes: &mut Vec<String>) -> Option<Evidence> {
    let mut pmus: Vec<SysfsPmu> = Vec::new();
    for pmu in facts.pmus.iter() {
        let mut cpus = pmu.cpus.clone()?;
        for other in &pmus {
            let taken = other.cpus.as_deref().unwrap_or_default();
            let both: Vec<u32> = taken.iter().copied().filter(|c| cpus.contains(c)).collect();
            if !both.is_empty() {
                notes.push(format!(
                    "PMUs {} and {} both claim {}: counted with {}",
                    other.name,
                    pmu.name,
                    in_words(&both),
                    other.name
                ));
                cpus.retain(|cpu| !both.contains(cpu));
            }
        }
        let (name, cpus) = (pmu.name.clone(), Some(cpus));
        pmus.push(SysfsPmu { name, cpus });
    }
    if let [only] = &pmus[..]
        && only.name.starts_with("armv8_pmuv3")
    {
        return None;
    }
    let mut groups: Groups = match pmus.iter().map(intel_rank).collect::<Option<Vec<_>>>() {
        Some(_) => {
            pmus.sort_by_key(intel_rank);
            pmus.into_iter().filter_map(|pmu| pmu.cpus).collect()
        }
        None => by_speed(facts, pmus, notes),
    };
    groups.retain(|cpus| !cpus.is_empty());
    let source = Source::Pmu;
    Some(Evidence { source, groups })
}

fn intel_rank(pmu: &SysfsPmu) -> Option<usize> {
    ["cpu_core", "cpu_atom", "cpu_lowpower"]
        .iter()
        .position(|name| *name == pmu.name)
}

/// Orders PMUs, whose names do not tell, by the most trusted number that differs between them.
fn by_speed(facts: &TopologyFacts, mut pmus: Vec<SysfsPmu>, notes: &mut Vec<String>) -> Groups {
    let speed = |pmu: &SysfsPmu, source| median(facts, pmu.cpus.as_deref()?, source);
    let ranked = NUMERIC.into_iter().find(|&source| {
        let speeds: Option<Vec<u32>> = pmus.iter().map(|pmu| speed(pmu, source)).collect();
        speeds.is_some_and(|speeds| speeds.iter().any(|speed| *speed != speeds[0]))
    });
    match ranked {
        Some(source) => pmus.sort_by_key(|pmu| std::cmp::Reverse(speed(pmu, source))),
        None if pmus.len() > 1 => {
            // Boards mostly number their little cores first.
            pmus.sort_by_key(|pmu| std::cmp::Reverse(pmu.cpus.clone()));
            let names: Vec<&str> = pmus.iter().map(|pmu| pmu.name.as_str()).collect();
            notes.push(format!(
                "nothing says which PMU's cores are faster: taken to be {}; \
                 --core-types says otherwise",
                names.join(", then ")
            ));
        }
        None => {}
    }
    pmus.into_iter().filter_map(|pmu| pmu.cpus).collect()
}

/// What a number per core says: cores sorted by it, cut where neighbours are far enough apart.
fn numbers(facts: &TopologyFacts, source: Source, notes: &mut Vec<String>) -> Evidence {
    let value = |cpu: &RawCpu| Some((core_value(facts, cpu, source)?, cpu.id));
    let mut known: Vec<(u32, u32)> = facts.cpus.iter().filter_map(value).collect();
    known.sort_by_key(|&(value, id)| (std::cmp::Reverse(value), id));

    let gap = |i: usize| f64::from(known[i - 1].0) / f64::from(known[i].0);
    let min_gap = f64::from(100 + MIN_GAP_PERCENT) / 100.0;
    let mut cuts: Vec<usize> = (1..known.len()).filter(|&i| gap(i) >= min_gap).collect();
    if cuts.len() >= MAX_CORE_TYPES {
        notes.push(format!(
            "{source} has {} levels: only its {} widest gaps count",
            cuts.len() + 1,
            MAX_CORE_TYPES - 1
        ));
        cuts.sort_by(|&a, &b| gap(b).total_cmp(&gap(a)));
        cuts.truncate(MAX_CORE_TYPES - 1);
        cuts.sort_unstable();
    }

    let mut groups = Groups::new();
    for (i, &(_, id)) in known.iter().enumerate() {
        if i == 0 || cuts.contains(&i) {
            groups.push(Vec::new());
        }
        groups.last_mut().expect("pushed at i == 0").push(id);
    }
    groups.iter_mut().for_each(|group| group.sort_unstable());
    Evidence { source, groups }
}

/// The number `source` gives one CPU.
pub(super) fn value(cpu: &RawCpu, source: Source) -> Option<u32> {
    match source {
        Source::Capacity => cpu.capacity,
        Source::Cppc => cpu.highest_perf,
        Source::MaxFreq => cpu.max_freq_khz,
        _ => None,
    }
}

/// The number `source` gives a CPU's core: SMT siblings are never of different types.
fn core_value(facts: &TopologyFacts, cpu: &RawCpu, source: Source) -> Option<u32> {
    let siblings = cpu.siblings.iter().filter_map(|&id| facts.cpu(id));
    siblings.filter_map(|cpu| value(cpu, source)).max()
}

/// The middle of the numbers `source` gives these CPUs: unmoved by a favoured core, or by one whose
/// firmware entry is wrong.
pub(super) fn median(facts: &TopologyFacts, cpus: &[u32], source: Source) -> Option<u32> {
    let cpus = cpus.iter().filter_map(|&id| facts.cpu(id));
    let mut values: Vec<u32> = cpus.filter_map(|cpu| value(cpu, source)).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
