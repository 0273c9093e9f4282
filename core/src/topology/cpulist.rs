// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's CPU list format: `0-3,8` is CPUs 0, 1, 2, 3 and 8.

use anyhow::{Result, bail};

/// The highest CPU number a list may name; the kernel's own limit (`NR_CPUS`) is 8192 CPUs.
pub const MAX_CPU_ID: u32 = 8191;

/// Parses a CPU list, ascending and without duplicates. An empty list is valid and names no CPU.
pub fn parse(list: &str) -> Result<Vec<u32>> {
    let mut cpus = Vec::new();
    let list = list.trim();
    if list.is_empty() {
        return Ok(cpus);
    }
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first, list)?, number(last, list)?);
        if first > last {
            bail!(
                "the range '{}' in '{list}' runs backwards: write {last}-{first}",
                part.trim()
            );
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

fn number(text: &str, list: &str) -> Result<u32> {
    match text.trim().parse() {
        Ok(cpu) if cpu <= MAX_CPU_ID => Ok(cpu),
        Ok(cpu) => bail!("CPU {cpu} in '{list}' is above the highest possible, {MAX_CPU_ID}"),
        Err(_) => bail!("'{list}' is not a CPU list such as 0-3,8"),
    }
}

/// Writes ascending CPUs as the shortest CPU list.
pub fn format(cpus: &[u32]) -> String {
    cpus.chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        })
        .collect::<Vec<_>>()
        .join(",")
}
