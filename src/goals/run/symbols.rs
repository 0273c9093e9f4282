// SPDX-License-Identifier: GPL-2.0-only
//! Where in a file a function begins.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

/// How many names are offered for one that is not there.
const OFFERED: usize = 4;

/// How alike a name has to be to be offered, of 1.
const ALIKE: f64 = 0.8;

/// What a file has of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SymbolFound {
    /// It begins at this offset in the file.
    At(u64),
    /// It is not there; these are, whose names are the nearest, the best first.
    Near(Vec<String>),
}

/// Looks for a function in a program or library.
///
/// # Errors
/// It cannot be read, or is neither.
pub(super) fn find(path: &Path, symbol: &str) -> Result<SymbolFound> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let cache = ReadCache::new(file);
    let elf = object::File::parse(&cache)
        .with_context(|| format!("{} is neither a program nor a library", path.display()))?;
    let functions = elf.dynamic_symbols().chain(elf.symbols()).filter(|symbol| {
        symbol.is_definition() && symbol.kind() == SymbolKind::Text && symbol.address() > 0
    });
    let mut names = BTreeSet::new();
    for function in functions {
        let Ok(name) = function.name() else { continue };
        // As in `name@@VERSION`.
        let name = name.split('@').next().unwrap_or(name);
        if name == symbol {
            let address = function.address();
            let offset = elf.segments().find_map(|segment| {
                let (offset, size) = segment.file_range();
                let within = address.checked_sub(segment.address())?;
                (within < size).then(|| offset + within)
            });
            if let Some(offset) = offset {
                return Ok(SymbolFound::At(offset));
            }
        }
        names.insert(name);
    }
    Ok(SymbolFound::Near(nearest(symbol, names)))
}

fn nearest<'a>(symbol: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let alike = names.into_iter().map(|name| {
        let contained = name.contains(symbol) || (name.len() > 3 && symbol.contains(name));
        let alike = strsim::jaro_winkler(symbol, name);
        (if contained { alike + 1.0 } else { alike }, name)
    });
    let mut alike: Vec<(f64, &str)> = alike.filter(|(alike, _)| *alike >= ALIKE).collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let names = alike.iter().take(OFFERED);
    names.map(|(_, name)| (*name).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_those_that_one_would_mean() {
        let names = [
            "x264_encoder_open_164",
            "x264_encoder_encode",
            "main",
            "free",
        ];
        assert_eq!(
            nearest("x264_encoder_encod", names),
            ["x264_encoder_encode", "x264_encoder_open_164"]
        );
        assert_eq!(
            nearest("x264_encoder_open", names)[0],
            "x264_encoder_open_164"
        );
        assert!(nearest("vkQueuePresentKHR", names).is_empty());
    }

    #[test]
    fn what_is_no_program_is_told_so() {
        let why = |path: &str| format!("{:#}", find(Path::new(path), "main").unwrap_err());
        assert!(why("/proc/self/status").contains("neither a program"));
        assert!(why("/nowhere").contains("cannot read /nowhere"));
        assert!(why("/proc").contains("/proc"));
    }
}
