// SPDX-License-Identifier: GPL-2.0-only
//! stub
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {}
pub(super) fn run(_: &RunArgs, _: &Arc<AtomicBool>) -> Result<u8> {
    Ok(0)
}
