// SPDX-License-Identifier: GPL-2.0-only
//! Hardware counters: what can be counted on each core type, and how.
//!
//! Events are asked for by [`Meaning`]; each PMU has its own [`Encoding`] for them, from a table
//! of its microarchitecture ([`tables`]), or where there is none from what the kernel offers.
//! [`plan`] sorts the events wished into sets that fit the PMU's counters, [`Round`] puts samples
//! from several sets together again, and [`open`] does the only I/O but for the reading of sysfs.
//!
//! ```no_run
//! use scx_hetero::pmu::{Counter, Machine, Meaning, Options, Target, plan};
//!
//! let machine = Machine::detect();
//! for pmu in &machine.pmus {
//!     let plan = plan(&[Meaning::LlcMisses.into(), Meaning::BranchMisses.into()], pmu);
//!     for encoding in &plan.sets[0].counters {
//!         let cpu = Target::Cpu(pmu.cpus[0]);
//!         let counter = Counter::open(pmu, encoding, cpu, None, Options::default())?;
//!         println!("{} {:?}", encoding.name, counter.read()?);
//!     }
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod counts;
mod event;
mod facts;
mod fallback;
mod format;
mod identify;
mod machine;
pub mod module;
pub mod open;
pub mod round;
pub mod sampler;
pub mod sets;
pub mod tables;
pub mod virtual_counters;

pub(crate) use event::plain;
pub use event::{ANY, Encoding, Event, Meaning, Space};
pub use facts::{Facts, PmuFacts, root_from_env};
pub use format::Field;
pub use identify::Cpu;
pub use machine::{Countable, Machine, Pmu};
pub use open::{Counter, OpenError, Options, Reading, Target, availability};
pub use round::Round;
pub use sets::{Plan, Set, plan};
pub use tables::{Counters, Table};
