// SPDX-License-Identifier: GPL-2.0-only
//! What a beat of a program is that does not tell itself.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// Kinds of beats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BeatKind {
    /// A line on one of its outputs.
    Lines(Output),
    /// So many bytes there.
    Bytes(Output, u64),
    /// So many instructions.
    Instructions(u64),
    /// A call of a function: in the first of these libraries or programs that has it.
    Function(Vec<String>, String),
    /// A tracepoint, by group and name.
    Tracepoint(String, String),
    /// Two words that may be either of the last two.
    Either(String, String),
}

/// Where a program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Functions that well-known programs do a piece of work by, and the libraries that have them.
///
/// libGL's `glXSwapBuffers` calls libGLX's, where there is one: a call of one of them is a beat.
const PRESETS: [(&str, &[&str], &str); 5] = [
    ("x264", &["libx264", "x264"], "x264_encoder_encode"),
    ("ffmpeg", &["libavcodec", "ffmpeg"], "avcodec_send_frame"),
    ("vulkan", &["libvulkan"], "vkQueuePresentKHR"),
    ("egl", &["libEGL"], "eglSwapBuffers"),
    ("glx", &["libGLX", "libGL"], "glXSwapBuffers"),
];

impl FromStr for BeatKind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        for (name, files, symbol) in PRESETS {
            if text == name {
                let files = files.iter().map(ToString::to_string);
                return Ok(Self::Function(files.collect(), symbol.into()));
            }
        }
        let (what, number) = match text.split_once('=') {
            Some((what, number)) => (what, Some(parse_number(number)?)),
            None => (text, None),
        };
        let plain = |kind| match number {
            None => Ok(kind),
            Some(_) => bail!("only bytes and instructions have a number: a line is a beat"),
        };
        match what {
            "lines" => return plain(Self::Lines(Output::Stdout)),
            "lines:stderr" => return plain(Self::Lines(Output::Stderr)),
            "bytes" => return Ok(Self::Bytes(Output::Stdout, number.unwrap_or(1))),
            "bytes:stderr" => return Ok(Self::Bytes(Output::Stderr, number.unwrap_or(1))),
            "instructions" => return Ok(Self::Instructions(number.unwrap_or(1_000_000))),
            _ => {}
        }
        let names = PRESETS.map(|(name, ..)| name).join(", ");
        // A symbol may contain anything, but a file's name hardly a colon.
        let (first, second) = text.split_once(':').with_context(|| {
            format!(
                "a beat is lines, bytes=N, instructions=N, LIBRARY:SYMBOL, GROUP:NAME of a \
                 tracepoint, or one of {names}"
            )
        })?;
        ensure!(
            !first.is_empty() && !second.is_empty(),
            "name a LIBRARY:SYMBOL, or GROUP:NAME of a tracepoint"
        );
        Ok(match (first, second.split_once(':')) {
            ("tracepoint", Some((group, name))) => Self::Tracepoint(group.into(), name.into()),
            ("uprobe", Some((file, symbol))) => Self::Function(vec![file.into()], symbol.into()),
            _ if first.contains('/') => Self::Function(vec![first.into()], second.into()),
            _ => Self::Either(first.into(), second.into()),
        })
    }
}

fn parse_number(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(['k', 'K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok();
    let number = number.and_then(|n| n.checked_mul(unit)).unwrap_or(0);
    ensure!(number > 0, "'{text}' is no number such as 64K");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> BeatKind {
        text.parse().unwrap()
    }

    #[test]
    fn beats_are_named_in_a_word() {
        assert_eq!(of("lines"), BeatKind::Lines(Output::Stdout));
        assert_eq!(of("lines:stderr"), BeatKind::Lines(Output::Stderr));
        assert_eq!(of("bytes=64K"), BeatKind::Bytes(Output::Stdout, 64_000));
        assert_eq!(of("bytes:stderr=2"), BeatKind::Bytes(Output::Stderr, 2));
        assert_eq!(of("instructions"), BeatKind::Instructions(1_000_000));
        assert_eq!(of("instructions=1G"), BeatKind::Instructions(1_000_000_000));
        let function =
            |file: &str, symbol: &str| BeatKind::Function(vec![file.into()], symbol.into());
        assert_eq!(of("./a:main"), function("./a", "main"));
        assert_eq!(of("uprobe:a:b::c"), function("a", "b::c"));
        let both = BeatKind::Either("libx264".into(), "x264_encoder_encode".into());
        assert_eq!(of("libx264:x264_encoder_encode"), both);
        let tracepoint = BeatKind::Tracepoint("sched".into(), "sched_switch".into());
        assert_eq!(of("tracepoint:sched:sched_switch"), tracepoint);
        assert!(matches!(of("glx"), BeatKind::Function(_, symbol) if symbol == "glXSwapBuffers"));
    }

    #[test]
    fn what_is_no_beat_is_told_what_is() {
        let why = |text: &str| BeatKind::from_str(text).unwrap_err().to_string();
        assert!(why("frames").contains("vulkan") && why("").contains("lines"));
        assert!(why("bytes=x").contains("64K") && why("bytes=0").contains("64K"));
        assert!(why("bytes=99999999999G").contains("64K"));
        assert!(why("lines=2").contains("only bytes"));
        assert!(why(":x").contains("LIBRARY:SYMBOL") && why("x:").contains("LIBRARY:SYMBOL"));
    }
}
