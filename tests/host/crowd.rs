// SPDX-License-Identifier: GPL-2.0-only
//! Crowds of processes that subscribe to advice, of one user and of several: how many may, and what they cost. Users but the
//! own take root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use hetero_heartbeats::advice::Subscription;
use scx_hetero::advice::{AdviceServer, MAX_OF_PROCESS, MAX_OF_USER, MAX_SUBSCRIBERS};

use crate::advice::{advise, until};
use crate::attack::status;
use crate::program::{Ends, open_folder, serving};

const SERVE: &str = "SCX_HETERO_TEST_ADVICE";

/// Not a test by itself: a process that advises, and does nothing else.
#[test]
fn advises_where_it_is_told_to() {
    let Some(socket) = std::env::var_os(SERVE) else {
        return;
    };
    let server = AdviceServer::start(Path::new(&socket)).unwrap();
    println!("serving");
    // Until it is killed.
    loop {
        advise(server.subscribers(), 3);
        thread::sleep(Duration::from_millis(5));
    }
}

struct Advised {
    server: Ends,
    folder: tempfile::TempDir,
}

/// What became of a crowd's subscriptions.
struct Crowd {
    taken: usize,
    refused: usize,
    why: String,
    _program: Ends,
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("new/advice.sock")
}

impl Advised {
    fn start() -> Self {
        let folder = open_folder();
        let built = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(folder.path().join("crowd"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/host/crowd.c"))
            .status();
        assert!(built.unwrap().success());
        // As the scheduler, which raises the limit itself.
        let limit = "ulimit -n 4096";
        let test = "crowd::advises_where_it_is_told_to";
        let server = serving(limit, test, (SERVE, &socket_in(folder.path())));
        Self { server, folder }
    }

    fn socket(&self) -> PathBuf {
        socket_in(self.folder.path())
    }

    /// So many processes of a user subscribe as often as one may.
    fn crowd(&self, uid: u32, processes: usize) -> Crowd {
        let numbers = [uid as usize, processes, MAX_OF_PROCESS].map(|of| of.to_string());
        let mut child = Command::new(self.folder.path().join("crowd"))
            .arg(self.socket())
            .args(numbers)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        Crowd {
            taken: number(),
            refused: number(),
            why: words.next().unwrap().to_owned(),
            _program: Ends(child),
        }
    }

    fn assert_serves(&self) {
        let mut subscription = Subscription::new(Some(&self.socket())).unwrap();
        until("advice", || {
            subscription.news().is_some_and(|told| told.threads == 3)
        });
    }

    /// Address space, kB, and descriptors.
    fn size(&self) -> (u64, usize) {
        let pid = self.server.id();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        (status(pid, "VmSize"), descriptors)
    }
}

#[test]
fn crowds_of_processes_get_what_one_user_may_have_and_all_together_and_cost_little() {
    let advised = Advised::start();
    advised.assert_serves();
    let before = advised.size();
    let own = nix::unistd::getuid().as_raw();
    let of_user = MAX_OF_USER / MAX_OF_PROCESS;
    let user = if own == 0 { 1001 } else { own };
    let mut crowds = vec![advised.crowd(user, of_user + 8)];
    let first = &crowds[0];
    assert_eq!((first.taken, first.refused), (MAX_OF_USER, 32));
    let said = format!("user {user} has {MAX_OF_USER} subscribers already");
    assert!(first.why.contains(&said), "{}", first.why);
    if own == 0 {
        // Another user is not in its way, until there are too many of all; and the last are root's.
        let mut taken = MAX_OF_USER;
        for user in 1002..=1004 {
            crowds.push(advised.crowd(user, of_user));
            taken += crowds.last().unwrap().taken;
        }
        let last = crowds.last().unwrap();
        let for_others = MAX_SUBSCRIBERS - MAX_SUBSCRIBERS / 16;
        assert_eq!((taken, last.refused), (for_others, 32));
        let said = format!("there are {for_others} subscribers already");
        assert!(last.why.contains(&said), "{}", last.why);
        crowds.push(advised.crowd(0, 12));
        let roots = crowds.last().unwrap();
        assert_eq!((taken + roots.taken, roots.refused), (MAX_SUBSCRIBERS, 16));
        let said = format!("there are {MAX_SUBSCRIBERS} subscribers already");
        assert!(roots.why.contains(&said), "{}", roots.why);
    }
    let taken: usize = crowds.iter().map(|of| of.taken).sum();
    let after = advised.size();
    println!("{taken} subscribers: {before:?} to {after:?} kB and descriptors");
    // A page, a connection and a pidfd each, and what was not collected yet of those that were refused.
    assert!(after.1 <= before.1 + 3 * taken + 8, "{after:?} {before:?}");
    assert!(
        after.0 <= before.0 + 16 * taken as u64,
        "{after:?} {before:?}"
    );
    drop(crowds);
    advised.assert_serves();
}
