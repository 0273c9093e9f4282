// SPDX-License-Identifier: GPL-2.0-only

use super::*;

#[test]
fn numbers_are_found_between() {
    assert_eq!(numbered("temp12_input", "temp", "_input"), Some(12));
    assert_eq!(numbered("mon_L3_01", "mon_L3_", ""), Some(1));
    for name in ["temp_input", "temp1_max", "tempX_input", "temp+1_input", ""] {
        assert_eq!(numbered(name, "temp", "_input"), None, "{name}");
    }
    assert_eq!(numbered("temp99999999999_input", "temp", "_input"), None);
}

#[test]
fn rapl_zones_are_in_order_of_trust_and_number() {
    let mut zones = vec![
        "intel-rapl-mmio:0",
        "intel-rapl:10",
        "intel-rapl:2:1",
        "intel-rapl:2",
    ];
    zones.sort_by_key(|zone| zone_order(zone));
    assert_eq!(
        zones,
        [
            "intel-rapl:2",
            "intel-rapl:2:1",
            "intel-rapl:10",
            "intel-rapl-mmio:0"
        ]
    );
    for other in ["intel-rapl", "dtpm:0", "intel-rapl:x", "intel-rapl:"] {
        assert_eq!(zone_order(other), None, "{other}");
    }
}

#[test]
fn rapl_zones_name_what_they_belong_to() {
    assert_eq!(package_scope("package-1"), Scope::Package(1));
    let die = Scope::Die { package: 1, die: 0 };
    assert_eq!(package_scope("package-1-die-0"), die);
    for other in ["psys", "", "package-", "package-x-die-0"] {
        assert_eq!(package_scope(other), Scope::Machine, "{other}");
    }
}

#[test]
fn thermal_zones_of_cpus_are_told_from_others() {
    let cpu = "x86_pkg_temp TCPU cpu-thermal cpu_thermal cpu0-thermal cpuss1-thermal                    bigcore0-thermal littlecore-thermal big_cluster BIG LITTLE MID soc-thermal soc_thermal";
    for kind in cpu.split_whitespace() {
        assert!(is_cpu_zone(kind), "{kind}");
    }
    for kind in "acpitz iwlwifi_1 pch_cannonlake gpu-thermal G3D pmic battery TSKN".split(' ') {
        assert!(!is_cpu_zone(kind), "{kind}");
    }
}
