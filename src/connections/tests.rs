// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use std::io::BufRead;
use std::io::BufReader;

/// Answers each line with what it is asked to say; "long" is longer than any socket buffer.
struct Echo {
    served: usize,
}

const LONG: usize = 8 << 20;

impl Service for Echo {
    type Listener = UnixListener;
    type Client = ();

    fn greet(&mut self, _: &UnixStream) -> io::Result<()> {
        Ok(())
    }

    fn serve(&mut self, (): &mut (), received: &[u8], more: bool) -> Served {
        let Some(end) = received.iter().position(|&byte| byte == b'\n') else {
            return match more {
                true => Served::Partial,
                false => Served::Answer {
                    taken: received.len(),
                    bytes: b"no line\n".to_vec(),
                    last: true,
                },
            };
        };
        self.served += 1;
        let mut bytes = received[..=end].to_vec();
        if bytes == b"long\n" {
            bytes = vec![b'x'; LONG];
            bytes.push(b'\n');
        }
        Served::Answer {
            taken: end + 1,
            last: bytes == b"last\n",
            bytes,
        }
    }
}

const LIMITS: ClientLimits = ClientLimits {
    connections: 4,
    request: 100,
    patience: Duration::from_secs(3600),
    may_idle: MayIdle::Always,
};

struct Bench {
    folder: tempfile::TempDir,
    connections: Connections<Echo>,
    echo: Echo,
}

impl Bench {
    fn new(limits: ClientLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            folder,
            connections: Connections::new(listener, limits),
            echo: Echo { served: 0 },
        }
    }

    fn connect(&mut self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("socket")).unwrap();
        self.rounds();
        stream
    }

    /// Until there is nothing to do.
    fn rounds(&mut self) {
        for _ in 0..50 {
            let round = self
                .connections
                .round(&mut self.echo, None, Some(Duration::ZERO));
            round.unwrap();
        }
    }

    fn send(&mut self, mut stream: &UnixStream, text: &str) {
        stream.write_all(text.as_bytes()).unwrap();
        self.rounds();
    }
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    BufReader::with_capacity(1, stream)
        .read_line(&mut line)
        .unwrap();
    line
}

#[test]
fn lines_are_answered_in_order_whatever_the_pieces() {
    let mut bench = Bench::new(LIMITS);
    let client = bench.connect();
    bench.send(&client, "on");
    bench.send(&client, "e\ntwo\nth");
    assert_eq!(
        (line(&client), line(&client)),
        ("one\n".into(), "two\n".into())
    );
    bench.send(&client, "ree\n");
    client.shutdown(Shutdown::Write).unwrap();
    bench.rounds();
    assert_eq!(line(&client), "three\n");
    assert_eq!(line(&client), "");
    assert!(bench.connections.open.is_empty());
}

#[test]
fn a_client_that_does_not_read_is_not_listened_to_and_holds_nobody_up() {
    let mut bench = Bench::new(LIMITS);
    let deaf = bench.connect();
    bench.send(&deaf, "long\none\ntwo\n");
    deaf.set_nonblocking(true).unwrap();
    while (&deaf).write(b"three\n").is_ok() {}
    bench.rounds();
    assert_eq!(bench.echo.served, 1);
    assert!(bench.connections.open[0].received.len() <= LIMITS.request);
    let other = bench.connect();
    bench.send(&other, "hello\n");
    assert_eq!(line(&other), "hello\n");
}

#[test]
fn the_one_that_was_silent_longest_makes_room() {
    let mut bench = Bench::new(LIMITS);
    let first = bench.connect();
    let crowd: Vec<_> = (0..100)
        .map(|_| {
            let idle = bench.connect();
            bench.send(&first, "still here\n");
            assert_eq!(line(&first), "still here\n");
            idle
        })
        .collect();
    assert_eq!(bench.connections.open.len(), LIMITS.connections);
    bench.send(&crowd[99], "let in\n");
    assert_eq!(line(&crowd[99]), "let in\n");
    assert_eq!(line(&crowd[0]), "", "closed");
}

#[test]
fn what_is_too_long_is_answered_once() {
    let mut bench = Bench::new(LIMITS);
    let client = bench.connect();
    bench.send(&client, &"x".repeat(1000));
    assert_eq!(line(&client), "no line\n");
    assert_eq!(line(&client), "");
    bench.send(&client, "late\n");
    assert_eq!(bench.echo.served, 0);
    // Not by a drop: a program that another test starts has a copy of the descriptor for a moment.
    client.shutdown(Shutdown::Both).unwrap();
    bench.rounds();
    assert!(bench.connections.open.is_empty());
}

#[test]
fn who_is_late_is_hung_up_on_and_who_may_idle_is_not() {
    let patience = Duration::from_millis(20);
    for (may_idle, stay) in [
        (MayIdle::Always, 2),
        (MayIdle::Answered, 1),
        (MayIdle::Never, 0),
    ] {
        let mut bench = Bench::new(ClientLimits {
            connections: 5,
            patience,
            may_idle,
            ..LIMITS
        });
        let idle = bench.connect();
        let answered = bench.connect();
        bench.send(&answered, "once\n");
        assert_eq!(line(&answered), "once\n");
        let slow = bench.connect();
        bench.send(&slow, "half a li");
        let deaf = bench.connect();
        bench.send(&deaf, "long\n");
        let left = bench.connect();
        bench.send(&left, "last\n");
        assert_eq!(line(&left), "last\n");
        std::thread::sleep(patience);
        while bench.connections.open.len() > stay {
            // Waits for the next deadline by itself.
            bench
                .connections
                .round(&mut bench.echo, None, None)
                .unwrap();
        }
        assert_eq!(bench.connections.open.len(), stay);
        drop((idle, answered, slow, deaf));
    }
}

#[test]
fn it_can_be_woken_while_it_waits_for_ever() {
    let mut bench = Bench::new(LIMITS);
    let (wake, other) = UnixStream::pair().unwrap();
    drop(other);
    let round = bench
        .connections
        .round(&mut bench.echo, Some(wake.as_fd()), None);
    round.unwrap();
}
