// SPDX-License-Identifier: GPL-2.0-or-later
//! Energy: whether to believe a sensor ([`judge`], [`whole`]), watts by core type ([`model`]), and whose joules they
//! are ([`ledger`]); which places cost least ([`thrift`]); whether a package is at its
//! limit ([`limit`]). Plain values in and out.
//!
//! PMCTrack reads RAPL and the sensors of ARM boards for the whole of what they measure (2017, section 3.2,
//! virtual counters); no sensor tells threads apart. See `docs/energy.md`.

pub mod fit;
pub mod judge;
pub mod ledger;
pub mod limit;
pub mod model;
pub mod reading;
mod sharing;
pub mod thrift;
pub mod whole;
