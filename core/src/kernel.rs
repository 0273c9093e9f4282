// SPDX-License-Identifier: GPL-2.0-or-later
//! What the running kernel says of itself.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use crate::files::read_trimmed;

/// Its release, where it says.
pub fn release(root: &Path) -> Option<String> {
    read_trimmed(root.join("proc/sys/kernel/osrelease"))
}

/// The options that it was built with, as its makers wrote them.
pub fn config(root: &Path) -> Option<String> {
    let mut text = String::new();
    let zipped = File::open(root.join("proc/config.gz")).ok();
    if let Some(file) = zipped
        && GzDecoder::new(file).read_to_string(&mut text).is_ok()
    {
        return Some(text);
    }
    let release = release(root)?;
    let places = [
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
    ];
    let mut texts = places
        .iter()
        .map(|path| fs::read_to_string(root.join(path)));
    texts.find_map(Result::ok)
}

/// Whether an option is built in.
pub fn is_set(config: &str, option: &str) -> bool {
    let mut lines = config.lines();
    lines.any(|line| line.strip_prefix(option) == Some("=y"))
}
