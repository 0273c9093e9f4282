// SPDX-License-Identifier: GPL-2.0-only
//! Which parts of the BPF half are left out.

pub(crate) use hetero_core::mechanism::*;

use crate::bpf::intf;

/// What of `without` concerns the BPF half, a bit each.
pub(crate) fn bits(without: &[Mechanism]) -> u64 {
    let numbers = without.iter().map(|mechanism| *mechanism as u32);
    let of_bpf = numbers.filter(|&number| number < intf::mechanism_NR_MECHANISMS);
    of_bpf.fold(0, |bits, number| bits | 1 << number)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_bpf_half_numbers_its_parts_in_the_same_order() {
        let header = include_str!("bpf/intf.h");
        let numbered = header.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("MECHANISM_")?.strip_suffix(',')?;
            Some(name.to_lowercase().replace('_', "-"))
        });
        let ours = Mechanism::value_variants().iter();
        let ours = ours
            .filter_map(|mechanism| Some(mechanism.to_possible_value()?.get_name().to_string()));
        let of_bpf = ours.take(intf::mechanism_NR_MECHANISMS as usize);
        assert_eq!(of_bpf.collect::<Vec<_>>(), numbered.collect::<Vec<_>>());
    }
}
