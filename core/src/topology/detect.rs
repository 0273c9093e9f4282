// SPDX-License-Identifier: GPL-2.0-or-later
//! Which CPUs are of one core type: weighs the evidence of all sources into one outcome.

use anyhow::Result;

use super::evidence::{self, Evidence, Groups, NUMERIC, median, value};
use super::sysfs::{RawCpu, TopologyFacts};
use super::{CoreTypesSpec, MAX_CORE_TYPES, Source, are, cpulist, in_words};

/// The core types found. Every online CPU is in exactly one.
pub(super) struct Found {
    pub groups: Groups,
    pub names: Vec<String>,
    /// Which groups are low-power islands.
    pub islands: Vec<bool>,
    pub source: Source,
    pub disagreements: Vec<String>,
    pub notes: Vec<String>,
}

pub(super) fn detect(facts: &TopologyFacts, override_: Option<&CoreTypesSpec>) -> Result<Found> {
    let mut notes = facts.notes.clone();
    let evidence = evidence::gather(facts, &mut notes);
    let (groups, source, listed) = match override_ {
        Some(spec) => {
            let (names, groups) = spec.resolve(facts, &mut notes)?;
            note_split_cores(facts, &groups, &mut notes);
            (groups, Source::Override, Some(names))
        }
        None => {
            let (groups, source) = decide(facts, &evidence, &mut notes);
            (groups, source, None)
        }
    };
    let mut others = evidence;
    others.retain(|other| !decided(other, source));
    note_unknown(facts, &others, &mut notes);
    let islands = islands(facts, &groups);
    Ok(Found {
        names: listed.unwrap_or_else(|| names(facts.arm, &islands)),
        disagreements: disagreements(&others, &groups, source),
        islands,
        groups,
        source,
        notes,
    })
}

/// The outcome of the most trusted source that tells CPUs apart.
fn decide(
    facts: &TopologyFacts,
    evidence: &[Evidence],
    notes: &mut Vec<String>,
) -> (Groups, Source) {
    let Some(best) = evidence.iter().find(|evidence| evidence.groups.len() > 1) else {
        return (vec![facts.online()], Source::AllSame);
    };
    let best = steady(facts, evidence, best);
    let (mut groups, mut source) = (best.groups.clone(), best.source);
    adopt_unknown(facts, &mut groups, source, notes);
    if split_islands(facts, &mut groups) {
        match source {
            Source::Pmu => source = Source::PmuAndL3,
            _ => notes.push("the lack of an L3 tells LP-E cores from E cores".into()),
        }
    }
    if groups.len() > MAX_CORE_TYPES {
        let rest: Vec<Vec<u32>> = groups.drain(MAX_CORE_TYPES..).collect();
        let last = &mut groups[MAX_CORE_TYPES - 1];
        last.extend(rest.into_iter().flatten());
        last.sort_unstable();
        notes.push(format!(
            "{source} shows more than {MAX_CORE_TYPES} core types: the slowest \
             are counted as one, {}",
            in_words(last)
        ));
    }
    (groups, source)
}

/// The maximum frequency in place of CPPC, where both tell the same CPUs apart and otherwise: on AMD CPUs heat lowers the rank of
/// preferred cores (`amd_pstate_prefcore_ranking`) while the machine runs, by more than core types may differ. Where clocks show a single
/// type they decide nothing, for they do so without boost, too.
fn steady<'a>(facts: &TopologyFacts, evidence: &'a [Evidence], best: &'a Evidence) -> &'a Evidence {
    if facts.arm || best.source != Source::Cppc {
        return best;
    }
    let clocks = evidence.iter().find(|other| {
        let knows = |cpu| other.groups.iter().any(|group| group.contains(cpu));
        other.source == Source::MaxFreq
            && other.groups.len() > 1
            && best.groups.iter().flatten().all(knows)
            && other.groups != best.groups
    });
    clocks.unwrap_or(best)
}

/// Puts online CPUs that `source` does not know with the group they most likely belong to.
fn adopt_unknown(
    facts: &TopologyFacts,
    groups: &mut Groups,
    source: Source,
    notes: &mut Vec<String>,
) {
    let unknown = facts
        .cpus
        .iter()
        .filter(|cpu| !groups.iter().any(|g| g.contains(&cpu.id)));
    let homes: Vec<(u32, usize)> = unknown
        .map(|cpu| (cpu.id, home(facts, cpu, groups)))
        .collect();
    let before = groups.clone();
    for (i, group) in groups.iter_mut().enumerate() {
        let adopted: Vec<u32> = homes.iter().filter(|h| h.1 == i).map(|h| h.0).collect();
        if adopted.is_empty() {
            continue;
        }
        notes.push(format!(
            "{} not known to {source}: counted with {}",
            are(&adopted),
            in_words(&before[i])
        ));
        group.extend(adopted);
        group.sort_unstable();
    }
}

fn home(facts: &TopologyFacts, cpu: &RawCpu, groups: &Groups) -> usize {
    let of_sibling = |group: &Vec<u32>| group.iter().any(|id| cpu.siblings.contains(id));
    let nearest = |source| {
        let own = value(cpu, source)?;
        let medians = groups.iter().map(|group| median(facts, group, source));
        let medians = medians.collect::<Option<Vec<u32>>>()?;
        (0..groups.len()).min_by_key(|&i| medians[i].abs_diff(own))
    };
    groups
        .iter()
        .position(of_sibling)
        .or_else(|| NUMERIC.into_iter().find_map(nearest))
        .unwrap_or(groups.len() - 1)
}

/// Which groups have no L3 though a faster group has.
fn islands(facts: &TopologyFacts, groups: &Groups) -> Vec<bool> {
    let all = |cpus: &[u32], test: fn(&RawCpu) -> bool| {
        cpus.iter().filter_map(|&id| facts.cpu(id)).all(test)
    };
    let mut l3_before = false;
    let island = |cpus: &Vec<u32>| {
        let island = l3_before && all(cpus, lacks_l3);
        l3_before |= all(cpus, |cpu| cpu.l3.is_some());
        island
    };
    groups.iter().map(island).collect()
}

/// The kernel describes this CPU's caches and there is no L3 among them.
fn lacks_l3(cpu: &RawCpu) -> bool {
    cpu.l2.is_some() && cpu.l3.is_none()
}

/// Splits each group that is partly a low-power island. True where there was one.
fn split_islands(facts: &TopologyFacts, groups: &mut Groups) -> bool {
    let before = groups.len();
    let mut split = Groups::new();
    for group in groups.drain(..) {
        let lacks = |id: &u32| facts.cpu(*id).is_some_and(lacks_l3);
        let (without, with): (Vec<u32>, Vec<u32>) = group.iter().partition(|id| lacks(id));
        if split.is_empty() || without.is_empty() || with.is_empty() {
            split.push(group);
        } else {
            split.extend([with, without]);
        }
    }
    *groups = split;
    groups.len() > before
}

fn names(arm: bool, islands: &[bool]) -> Vec<String> {
    let arm_names: &[&str] = match (arm, islands.len()) {
        (_, 1) => &["cpu"],
        (true, 2) => &["big", "LITTLE"],
        (true, 3) => &["big", "mid", "LITTLE"],
        (true, _) => &["prime", "big", "mid", "LITTLE"],
        (false, _) => &[],
    };
    if !arm_names.is_empty() {
        return arm_names.iter().map(|name| name.to_string()).collect();
    }
    let (mut e, mut lpe) = (0, 0);
    let mut numbered = |name: &str, island: bool| {
        let count = if island { &mut lpe } else { &mut e };
        *count += 1;
        match *count {
            1 => name.to_string(),
            n => format!("{name}{n}"),
        }
    };
    let name = |(i, &island): (usize, &bool)| match (i, island) {
        (0, _) => "P".to_string(),
        (_, true) => numbered("LP-E", true),
        (_, false) => numbered("E", false),
    };
    islands.iter().enumerate().map(name).collect()
}

/// Whether this is what the outcome comes from.
fn decided(evidence: &Evidence, source: Source) -> bool {
    evidence.source == source || (evidence.source, source) == (Source::Pmu, Source::PmuAndL3)
}

fn note_unknown(facts: &TopologyFacts, others: &[Evidence], notes: &mut Vec<String>) {
    for Evidence { source, groups } in others {
        let mut unknown = facts.online();
        unknown.retain(|cpu| !groups.iter().any(|group| group.contains(cpu)));
        if !unknown.is_empty() {
            notes.push(format!("{} not known to {source}", are(&unknown)));
        }
    }
}

fn note_split_cores(facts: &TopologyFacts, groups: &Groups, notes: &mut Vec<String>) {
    let group_of = |id: &u32| groups.iter().position(|group| group.contains(id));
    for cpu in &facts.cpus {
        let (first, own) = (cpu.siblings.first(), group_of(&cpu.id));
        if first == Some(&cpu.id) && cpu.siblings.iter().any(|id| group_of(id) != own) {
            notes.push(format!(
                "{} one core but listed under different core types",
                are(&cpu.siblings)
            ));
        }
    }
}

/// A sentence for each of the other sources that sees other core types than `groups`.
fn disagreements(others: &[Evidence], groups: &Groups, source: Source) -> Vec<String> {
    let mut sentences = Vec::new();
    for other in others {
        let known = |cpu: &u32| other.groups.iter().any(|group| group.contains(cpu));
        let mut ours: Groups = groups.clone();
        ours.iter_mut().for_each(|group| group.retain(known));
        ours.retain(|group| !group.is_empty());
        if ours == other.groups {
            continue;
        }
        sentences.push(format!(
            "{} {}, where {source} {}",
            other.source,
            view(&other.groups, other.source),
            view(&ours, source),
        ));
    }
    sentences
}

/// "says that all 24 CPUs are the same", or "has 0-15 faster than 16-23".
fn view(groups: &Groups, source: Source) -> String {
    let plural = matches!(source, Source::Pmu | Source::PmuAndL3);
    match &groups[..] {
        [all] if plural => format!("say that all {} CPUs are the same", all.len()),
        [all] => format!("says that all {} CPUs are the same", all.len()),
        _ => {
            let lists: Vec<String> = groups.iter().map(|group| cpulist::format(group)).collect();
            let verb = if plural { "have" } else { "has" };
            format!("{verb} {}", lists.join(" faster than "))
        }
    }
}
