// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero goal run`: a session for a program that knows nothing of sessions. Its beats are seen from outside:
//! [`kind`] says what one is, and [`source`] where they come from. [`passed`] counts what it prints, [`events`] what
//! the kernel sees it do, and [`symbols`] and [`libraries`] find the functions that it calls, [`own`] whose calls are its.

mod events;
mod kind;
mod libraries;
mod own;
mod passed;
mod session;
mod source;
mod symbols;

pub(super) use session::run;

use hetero_core::whole::whole;
use kind::BeatKind;

/// Arguments of `scx_hetero goal run`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("whom").required(true).args(["pid", "command"]),
    override_usage = "scx_hetero goal run --rate BEATS [OPTIONS] -- COMMAND [ARGS]...\n       \
                      scx_hetero goal run --rate BEATS --beat KIND [OPTIONS] -p PID",
    after_help = "A beat is:\n  \
    lines, lines:stderr     a line that the program prints\n  \
    bytes=N, bytes:stderr=N so many bytes that it prints, e.g. 64K\n  \
    instructions=N          so many instructions in user mode [1M]; takes counters\n  \
    LIBRARY:SYMBOL          a call of a function, also of a program; takes root\n  \
    GROUP:NAME              a tracepoint, as syscalls:sys_enter_fsync; takes root\n  \
    x264, ffmpeg            a frame encoded by libx264, or sent to libavcodec\n  \
    vulkan, egl, glx        a picture shown\n\n\
    Examples:\n  \
    scx_hetero goal run --rate 10 -- ./prints-a-line-per-step\n  \
    sudo scx_hetero goal run --rate 30 --beat x264 -- x264 -o out.mkv in.y4m\n  \
    sudo scx_hetero goal run --rate 60 --beat libfoo:foo_step -- ./program\n  \
    sudo scx_hetero goal run --rate 60 --beat vulkan -p PID\n\n\
    The exit status is the command's."
)]
pub(super) struct RunArgs {
    /// Beats per second that the program has to do
    #[arg(long, value_name = "BEATS", value_parser = super::command::rate)]
    rate: f64,

    /// Watch this process, which runs, with all that it starts, until it ends or Ctrl-C;
    /// takes root
    #[arg(short, long, value_name = "PID", value_parser = whole::<u32>(1..))]
    pid: Option<u32>,

    /// What a beat is
    #[arg(long, value_name = "KIND", default_value = "lines")]
    beat: BeatKind,

    /// How much it counts where goals exceed the machine; most have 100
    #[arg(long, value_parser = whole::<u32>(1..=super::MAX_WEIGHT))]
    weight: Option<u32>,

    /// Its name in 'goal list' [default: the program's]
    #[arg(long)]
    name: Option<String>,

    /// The scheduler's socket for goals
    #[arg(long, hide = true, value_name = "PATH", env = super::SOCKET_VARIABLE, default_value = super::SOCKET)]
    goals: std::path::PathBuf,

    /// The command to run
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl RunArgs {
    /// And does not watch one that runs.
    pub(super) fn runs_a_program(&self) -> bool {
        self.pid.is_none()
    }
}
