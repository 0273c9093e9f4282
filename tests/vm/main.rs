// SPDX-License-Identifier: GPL-2.0-only
//! What takes a real kernel: these tests replace the scheduler of the machine that they run on, which
//! is a virtual one (`testbed/vm-tests`), one test at a time.

mod advice;
mod amd;
mod attribution;
mod bench;
mod calibrate;
mod camps;
mod cgroups;
mod counters;
mod cpuidle;
mod disturbed;
mod energy;
mod faults;
mod faults_hybrid;
mod feedback;
mod goals;
mod goals_tracepoint;
mod hotplug;
mod interference;
mod knowledge;
mod laptop;
mod latency;
mod ml;
mod noisy;
mod pmc;
mod preference;
mod profiles;
mod rapl;
mod record;
mod resctrl;
mod scheduling;
mod soak;
mod spin;
mod support;
mod testbed;
