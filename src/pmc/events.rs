// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero pmc events`: what this machine can count.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::pmu::virtual_counters::{CounterName, CounterStatus, Description};
use crate::pmu::{ANY, Encoding, MachinePmus, Pmu, Space, availability};
use crate::text::wrap;
use crate::topology::{Topology, cpulist};

/// The list, for people.
pub(super) fn text(
    machine: &MachinePmus,
    topology: &Topology,
    virtual_counters: &[Description],
) -> String {
    let mut text = String::new();
    if let (true, Err(why)) = (machine.pmus.is_empty(), availability(machine)) {
        text += &format!("{}\n\n", wrap(&why));
    }
    let rank = |pmu: &&Pmu| topology.cpu(pmu.cpus[0]).map(|cpu| cpu.core_type);
    let mut pmus: Vec<&Pmu> = machine.pmus.iter().collect();
    pmus.sort_by_key(rank);
    for pmu in pmus {
        text += &of_pmu(pmu, topology);
        text.push('\n');
    }
    text + &of_virtual_counters(virtual_counters)
}

/// The list, for programs. `schema` is 1 and grows when a field changes its meaning or goes; new
/// fields may come at any time.
pub(super) fn to_json(
    machine: &MachinePmus,
    topology: &Topology,
    counters: &[Description],
) -> Value {
    let pmus = machine.pmus.iter().map(|pmu| {
        json!({
            "name": pmu.name,
            "microarchitecture": pmu.table.map(|table| table.name),
            "cpus": pmu.cpus,
            "core_types": core_types(pmu, topology),
            "counters": pmu.counters,
            "watchdog": pmu.watchdog,
            "events": pmu.countable(),
            "sysfs_events": pmu.sysfs_events().collect::<Vec<_>>(),
        })
    });
    json!({ "schema": 1, "pmus": pmus.collect::<Vec<_>>(), "virtual_counters": counters })
}

fn core_types(pmu: &Pmu, topology: &Topology) -> Vec<String> {
    let of_pmu = topology.types.iter().filter(|core_type| {
        let mut cpus = core_type.cpus.iter();
        cpus.any(|cpu| pmu.cpus.contains(cpu))
    });
    of_pmu.map(|core_type| core_type.name.clone()).collect()
}

fn of_pmu(pmu: &Pmu, topology: &Topology) -> String {
    let microarchitecture = match pmu.table {
        Some(table) => table.name.to_string(),
        None => "a microarchitecture without a table, so by the kernel's own events".to_string(),
    };
    let counters = match pmu.counters.fixed {
        0 => format!("{} counters", pmu.counters.general),
        fixed => format!(
            "{} general counters and {fixed} fixed",
            pmu.counters.general
        ),
    };
    let mut text = wrap(&format!(
        "{} ({}, CPUs {}): {microarchitecture}, {counters}.",
        pmu.name,
        core_types(pmu, topology).join(" and "),
        cpulist::format(&pmu.cpus),
    ));
    text.push('\n');
    if pmu.watchdog {
        text += &wrap(
            "The NMI watchdog holds one of them for cycles; 'sysctl kernel.nmi_watchdog=0' frees \
             it.",
        );
        text.push('\n');
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "EVENT",
        "CODE",
        "COUNTERS",
        "NAME OF THE VENDOR",
    ]);
    for countable in pmu.countable() {
        let encoding = &countable.encoding;
        table.add_row([
            countable.meaning.to_string(),
            code(encoding),
            which(encoding),
            encoding.name.to_string(),
        ]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text += &format!("\n{}\n", table.trim_fmt());
    let names: Vec<_> = pmu.sysfs_events().collect();
    if !names.is_empty() {
        text += &format!(
            "\n{}\n",
            wrap(&format!(
                "Also by the kernel's names: {}.",
                names.join(", ")
            ))
        );
    }
    text
}

/// How `-e` takes it.
fn code(encoding: &Encoding) -> String {
    match encoding.space {
        Space::Pmu => format!("r{:x}", encoding.config),
        Space::Hardware | Space::Cache => "kernel's".to_string(),
    }
}

/// Which counters can count it.
fn which(encoding: &Encoding) -> String {
    let fixed = encoding.fixed.map(|n| format!("fixed {n}"));
    let general = match encoding.general {
        0 => None,
        ANY => Some("any".to_string()),
        mask => {
            let numbers: Vec<u32> = (0..64).filter(|n| mask >> n & 1 != 0).collect();
            Some(cpulist::format(&numbers))
        }
    };
    let both: Vec<_> = fixed.into_iter().chain(general).collect();
    both.join(", ")
}

fn of_virtual_counters(counters: &[Description]) -> String {
    let mut text = "Virtual counters, for --virtual:\n".to_string();
    let mut absent: Vec<(&str, Vec<&str>)> = Vec::new();
    for name in CounterName::ALL {
        let of_name = || counters.iter().filter(move |counter| counter.name == *name);
        let present = of_name().filter(|counter| counter.status == CounterStatus::Present);
        let scopes: Vec<_> = present.map(|counter| counter.scope.to_string()).collect();
        if scopes.is_empty() {
            let why = of_name().find_map(|counter| match &counter.status {
                CounterStatus::Absent(why) => Some(why.as_str()),
                CounterStatus::Present => None,
            });
            let why = why.unwrap_or("not found");
            match absent.iter_mut().find(|(other, _)| *other == why) {
                Some((_, names)) => names.push(name.as_str()),
                None => absent.push((why, vec![name.as_str()])),
            }
            continue;
        }
        let said = match scopes.len() {
            1..=3 => scopes.join(", "),
            many => format!("{} and {} more", scopes[0], many - 1),
        };
        text += &wrap(&format!("  {name:<15} {said}"));
        text.push('\n');
    }
    for (why, names) in absent {
        text += &wrap(&format!("Absent: {}: {why}.", names.join(", ")));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_as_a_list() {
        let encoding = |fixed, general| Encoding {
            fixed,
            general,
            ..Encoding::raw(0xc0, "x")
        };
        assert_eq!(which(&encoding(Some(0), ANY)), "fixed 0, any");
        assert_eq!(which(&encoding(None, 0b1111)), "0-3");
        assert_eq!(which(&encoding(Some(3), 0)), "fixed 3");
        assert_eq!(code(&encoding(None, 0)), "rc0");
    }
}
