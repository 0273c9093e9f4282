// SPDX-License-Identifier: GPL-2.0-only
//! `scx_hetero monitor`: the running scheduler, live on a terminal.
//!
//! [`app`] is what is known, [`keys`] what keys do, [`draw`] how it looks: all three are pure.
//! [`client`] asks the scheduler, and this file owns the terminal.

pub mod app;
mod beside;
pub mod client;
pub mod draw;
pub mod energy;
mod goals;
pub mod keys;
pub mod timeline;

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use crate::ask::Socket;
use app::App;
use draw::Appearance;

/// News and signals are looked for this often; keys are seen at once.
const POLL: Duration = Duration::from_millis(100);

/// The main thread may take so long to leave by itself.
const PATIENCE: Duration = Duration::from_millis(500);

/// Arguments of `scx_hetero monitor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    scx_hetero monitor         then ? for the keys\n  \
    scx_hetero monitor -d 0.5  twice a second")]
pub struct Args {
    /// Time between readings
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = crate::ask::seconds)]
    interval: Duration,

    #[command(flatten)]
    at: Socket,
}

/// Gives the terminal back as it was, on every way out; on a panic ratatui's hook does.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the running scheduler until the user quits or `stop` is set.
///
/// # Errors
/// Where there is no terminal that it can draw on.
pub fn run(args: &Args, stop: &Arc<AtomicBool>) -> Result<()> {
    let term = std::env::var("TERM").unwrap_or_default();
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !is_terminal || term.is_empty() || term == "dumb" {
        bail!(
            "this is not a terminal that can be drawn on; `scx_hetero --monitor 1` prints plain \
             lines"
        );
    }
    let look = Appearance::of(|name| std::env::var(name).ok());
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let _restore = Restore;
    watch(Arc::clone(stop));
    show(&mut terminal, args, look, stop)
}

/// Leaves where the main thread cannot: it would look for keys for ever on a terminal that is gone,
/// as when a connection breaks.
fn watch(stop: Arc<AtomicBool>) {
    thread::spawn(move || {
        loop {
            let stdin = std::io::stdin();
            let mut terminal = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
            let seen = poll(&mut terminal, POLL.as_millis() as u16);
            // Nothing was asked for: what it says is that something is wrong.
            let is_gone = seen.is_ok_and(|terminals| terminals > 0);
            if is_gone || stop.load(Ordering::Relaxed) {
                thread::sleep(PATIENCE);
                ratatui::restore();
                std::process::exit(i32::from(is_gone));
            }
            thread::sleep(POLL);
        }
    });
}

fn show(
    terminal: &mut DefaultTerminal,
    args: &Args,
    look: Appearance,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let (questions, news) = client::start(args.at.socket.clone(), args.interval);
    let mut app = App::default();
    let mut stale = true;
    while !app.quit && !stop.load(Ordering::Relaxed) {
        if stale {
            terminal
                .draw(|frame| draw::draw(frame, &app, look))
                .context("cannot draw")?;
        }
        stale = false;
        if event::poll(POLL).context("cannot read keys")? {
            match event::read().context("cannot read keys")? {
                Event::Key(key) => {
                    let action = keys::action(&app.view, key);
                    if let Some(question) = action.and_then(|action| app.act(action)) {
                        questions.send(question)?;
                    }
                    stale = true;
                }
                Event::Resize(..) => stale = true,
                _ => {}
            }
        }
        for update in news.try_iter() {
            app.update(update);
            stale = true;
        }
    }
    Ok(())
}
