// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero train --here`: measures this machine first.

use std::path::Path;

use anyhow::{Result, ensure};
use crossbeam::channel::Receiver;

use crate::collect;
use crate::ml::args::Here;
use crate::topology::Topology;

/// Fills the table. The exit status: 0, or that of an interruption. A program that cannot be measured
/// is left out, with a warning.
///
/// # Errors
/// In words: there is nothing to learn on this machine, or nothing can be counted; what was measured
/// so far is kept.
pub fn measure(args: &Here, table: &Path, stop: &Receiver<()>) -> Result<u8> {
    let topology = Topology::detect(args.core_types.as_ref())?;
    ensure!(
        topology.types.len() > 1,
        "all cores of this machine are alike ({}): there is nothing to learn. 'scx_hetero topology' \
         says why, --core-types names core types by hand",
        topology.summary()
    );
    let args = collect::Args::to_train(
        table,
        args.suite.clone(),
        args.window,
        args.core_types.clone(),
    );
    Ok(match collect::fill(&args, stop)? {
        None => collect::INTERRUPTED,
        Some(_) => 0,
    })
}
