// SPDX-License-Identifier: GPL-2.0-only
//! What can be tried on any machine, as anybody: a file for each thing that a user does, or that a
//! part of the project promises. One program, for each would be linked with everything.

mod advice;
mod allocation;
mod arith;
mod attack;
mod bench;
mod building;
mod camps;
mod contributing;
mod cost;
mod dependencies;
mod doctor;
mod fixtures;
mod goal_run;
mod goals;
mod heartbeats;
mod interference;
mod knowledge;
mod licences;
mod machine_extras;
mod machines;
mod ml;
mod ml_events;
mod ml_live;
mod model;
mod monitor;
mod packaging;
mod plugin;
mod pmc;
mod pmu_machines;
mod pmu_tables;
mod policies;
mod policy;
mod policy_rules;
mod program;
mod real_energy;
mod real_figures;
mod real_hardware;
mod record;
mod resctrl;
mod share;
mod sim;
mod tables;
mod topology;
mod virtual_counters;
