// SPDX-License-Identifier: GPL-2.0-only
//! Hardware counters at work: what [`hetero_core::pmu`] plans is opened, read and made samples of here.
//!
//! ```no_run
//! use scx_hetero::pmu::{Counter, CounterOptions, MachinePmus, Meaning, Target, plan};
//!
//! let machine = MachinePmus::detect();
//! for pmu in &machine.pmus {
//!     let plan = plan(&[Meaning::LlcMisses.into(), Meaning::BranchMisses.into()], pmu);
//!     for encoding in &plan.sets[0].counters {
//!         let cpu = Target::Cpu(pmu.cpus[0]);
//!         let counter = Counter::open(pmu, encoding, cpu, None, CounterOptions::default())?;
//!         println!("{} {:?}", encoding.name, counter.read()?);
//!     }
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod open;
pub(crate) mod ring;
pub mod sampler;
pub mod virtual_counters;

pub use hetero_core::pmu::*;
pub use open::{Counter, CounterOptions, CounterReading, OpenError, Target, availability};
