// SPDX-License-Identifier: GPL-2.0-only
//! What programs can have of a scheduler that runs.

use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::Check;
use crate::advice::{Greeting, SOCKET};

/// It is answered at once, or the scheduler has its hands full.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether they can get advice: a program would connect as this does.
pub(super) fn advice(root: &Path) -> Check {
    const NAME: &str = "advice";
    let path = root.join(SOCKET.trim_start_matches('/'));
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = "programs get no advice now: no scx_hetero runs";
            return Check::note(NAME, text);
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let text = format!("programs get no advice: what made {SOCKET} has ended");
            return Check::warning(NAME, text, "start scx_hetero again");
        }
        Err(error) => {
            let text = format!("programs get no advice: {SOCKET} cannot be reached: {error}");
            let remedy = "in a container, or below another root, let that path be seen";
            return Check::warning(NAME, text, remedy);
        }
    };
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut said = [0; 256];
    let read = stream.read(&mut said);
    match read.map(|length| Greeting::of(&said[..length])) {
        Ok(Greeting::Serves) => {
            Check::ok(NAME, format!("programs that ask at {SOCKET} get advice"))
        }
        Ok(Greeting::OtherVersion) => Check::warning(
            NAME,
            format!("what listens at {SOCKET} speaks another version"),
            "install the scheduler and what asks it from one package, and start it again",
        ),
        Ok(Greeting::Refuses(why)) => Check::warning(
            NAME,
            format!("programs like this one are refused advice: {why}"),
            "see what is believed and what is bounded in docs/advice.md",
        ),
        Err(error) => Check::warning(
            NAME,
            format!("the scheduler does not answer at {SOCKET}: {error}"),
            "look at its log: journalctl -u scx_hetero",
        ),
    }
}
