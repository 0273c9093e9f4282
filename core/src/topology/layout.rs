// SPDX-License-Identifier: GPL-2.0-or-later
//! From core types to the whole topology: clusters, contention domains and static capacities.

use std::collections::{BTreeMap, BTreeSet};

use super::detect::Found;
use super::evidence::{Groups, NUMERIC, median};
use super::sysfs::{RawCpu, TopologyFacts};
use super::{CoreType, Cpu, Domain, Source, Topology, are};

/// Capacity of the fastest type.
const FULL: u32 = 1024;
/// What a core type is taken to be worth, in percent of the one before, where nothing says.
const ASSUMED_PERCENT: u32 = 60;

pub(super) fn build(facts: TopologyFacts, mut found: Found) -> Topology {
    let mut notes = std::mem::take(&mut found.notes);
    let (capacities, capacity_source) = capacities(&facts, &found, &mut notes);
    let llcs = llcs(&facts, &mut notes);
    let domains = domains(&facts, &found.groups, &llcs);

    let index_in = |sets: &[Vec<u32>], id| sets.iter().position(|set| set.contains(&id));
    let domain_sets: Vec<Vec<u32>> = domains.iter().map(|domain| domain.cpus.clone()).collect();
    let cpus: Vec<Cpu> = facts
        .cpus
        .iter()
        .zip(llcs)
        .map(|(raw, llc)| Cpu {
            id: raw.id,
            core_type: index_in(&found.groups, raw.id).expect("every CPU has a type"),
            domain: index_in(&domain_sets, raw.id).expect("every CPU has a domain"),
            core: raw.siblings[0],
            siblings: raw.siblings.clone(),
            llc,
            package: raw.package,
            max_freq_khz: raw.max_freq_khz,
            capacity: raw.capacity,
            highest_perf: raw.highest_perf,
        })
        .collect();

    let mut llc_bytes = Vec::new();
    for (cpu, raw) in cpus.iter().zip(&facts.cpus) {
        llc_bytes.resize(llc_bytes.len().max(cpu.llc + 1), 0);
        llc_bytes[cpu.llc] = raw.llc_bytes.unwrap_or(0);
    }

    let types = found
        .groups
        .iter()
        .zip(found.names)
        .zip(found.islands)
        .zip(capacities)
        .map(|(((cpus, name), low_power_island), capacity)| CoreType {
            name,
            cpus: cpus.clone(),
            capacity,
            low_power_island,
            pmu: pmu_of(&facts, cpus),
        })
        .collect();

    Topology {
        types,
        domains,
        smt: cpus.iter().any(|cpu| cpu.siblings.len() > 1),
        cpus,
        llc_bytes,
        nr_cpu_ids: facts.nr_cpu_ids,
        source: found.source,
        capacity_source,
        disagreements: found.disagreements,
        notes,
    }
}

/// Capacity of each type: the ratio of the middle values of the number that told them apart, else of the most trusted
/// one, by which each type is slower than the one before.
fn capacities(
    facts: &TopologyFacts,
    found: &Found,
    notes: &mut Vec<String>,
) -> (Vec<u32>, Option<Source>) {
    let groups = &found.groups;
    if groups.len() == 1 {
        return (vec![FULL], Some(Source::AllSame));
    }
    let told = NUMERIC.into_iter().filter(|source| *source == found.source);
    for source in told.chain(NUMERIC) {
        let medians = groups.iter().map(|group| median(facts, group, source));
        if let Some(medians) = medians.collect::<Option<Vec<u32>>>()
            && medians.is_sorted_by(|faster, slower| faster > slower)
        {
            let scale = |&value| {
                let scaled = u64::from(value) * u64::from(FULL) / u64::from(medians[0]);
                (scaled as u32).max(1)
            };
            return (medians.iter().map(scale).collect(), Some(source));
        }
    }
    notes.push(format!(
        "no capacities known: each core type counts {ASSUMED_PERCENT} % of the one before"
    ));
    let next = |capacity: &u32| Some(capacity * ASSUMED_PERCENT / 100);
    let ladder = std::iter::successors(Some(FULL), next);
    (ladder.take(groups.len()).collect(), None)
}

/// The contention domain of each CPU, in the order of `facts.cpus`.
///
/// Where the kernel describes no caches, a cluster or else a package is taken to share one.
fn llcs(facts: &TopologyFacts, notes: &mut Vec<String>) -> Vec<usize> {
    let package = |of: &RawCpu| -> Vec<u32> {
        let cpus = facts.cpus.iter().filter(|cpu| cpu.package == of.package);
        cpus.map(|cpu| cpu.id).collect()
    };
    let (mut numbers, mut guessed) = (BTreeMap::new(), Vec::new());
    let mut llc = |cpu: &RawCpu| {
        let shared = cpu
            .l3
            .clone()
            .or_else(|| cpu.l2.clone())
            .unwrap_or_else(|| {
                guessed.push(cpu.id);
                cpu.cluster.clone().unwrap_or_else(|| package(cpu))
            });
        let next = numbers.len();
        *numbers.entry(shared).or_insert(next)
    };
    let llcs = facts.cpus.iter().map(&mut llc).collect();
    if !guessed.is_empty() {
        notes.push(format!(
            "{} without cache information: taken to share the last level with their cluster, or \
             else their package",
            are(&guessed)
        ));
    }
    llcs
}

/// What a cluster's CPUs share.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Shared {
    L2(Vec<u32>),
    Llc(usize),
}

fn domains(facts: &TopologyFacts, groups: &Groups, llcs: &[usize]) -> Vec<Domain> {
    let cores = |cpus: &[u32]| -> usize {
        let cores = cpus
            .iter()
            .filter_map(|&id| Some(facts.cpu(id)?.siblings[0]));
        cores.collect::<BTreeSet<u32>>().len()
    };
    let mut domains: BTreeMap<(usize, Shared), Vec<u32>> = BTreeMap::new();
    for (cpu, &llc) in facts.cpus.iter().zip(llcs) {
        let is_own = |group: &Vec<u32>| group.contains(&cpu.id);
        let core_type = groups
            .iter()
            .position(is_own)
            .expect("every CPU has a type");
        let mut l2 = cpu.l2.clone().unwrap_or_default();
        l2.retain(|id| groups[core_type].contains(id));
        let shared = match cores(&l2) {
            0 | 1 => Shared::Llc(llc),
            _ => Shared::L2(l2),
        };
        domains.entry((core_type, shared)).or_default().push(cpu.id);
    }
    let mut domains: Vec<Domain> = domains
        .into_iter()
        .map(|((core_type, shared), cpus)| Domain {
            core_type,
            shares_l2: matches!(shared, Shared::L2(_)) && has_l3(facts, &cpus),
            cpus,
        })
        .collect();
    domains.sort_by_key(|domain| (domain.core_type, domain.cpus[0]));
    domains
}

/// Whether there is another level beyond these CPUs' L2.
fn has_l3(facts: &TopologyFacts, cpus: &[u32]) -> bool {
    let of = |&id: &u32| facts.cpu(id).is_some_and(|cpu| cpu.l3.is_some());
    cpus.iter().all(of)
}

/// The PMU that serves all of these CPUs.
fn pmu_of(facts: &TopologyFacts, cpus: &[u32]) -> Option<String> {
    let serves = |pmu_cpus: &Vec<u32>| cpus.iter().all(|cpu| pmu_cpus.contains(cpu));
    let pmu = facts
        .pmus
        .iter()
        .find(|pmu| pmu.cpus.as_ref().is_none_or(serves))?;
    Some(pmu.name.clone())
}
