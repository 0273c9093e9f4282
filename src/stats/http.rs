// SPDX-License-Identifier: GPL-2.0-only
//! As much of HTTP as it takes to be scraped: one GET or HEAD without a body on a connection.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use httparse::{EMPTY_HEADER, Error, Request, Status};

use crate::connections::{ClientLimits, MayIdle, Served, Service};

/// What clients may take. A scraper asks at once and reads at once.
pub(super) const LIMITS: ClientLimits = ClientLimits {
    connections: 64,
    request: 8 << 10,
    patience: Duration::from_secs(10),
    may_idle: MayIdle::Never,
};

/// Lines of a head after the first.
const HEADERS: usize = 64;

/// What the text is, by <https://prometheus.io/docs/instrumenting/exposition_formats>.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers with what `page` says of a path: a status and a text.
pub(super) struct Http<P> {
    pub(super) page: P,
}

impl<P: FnMut(&str) -> (u16, String)> Service for Http<P> {
    type Listener = TcpListener;
    type Client = ();

    fn greet(&mut self, _: &TcpStream) -> io::Result<()> {
        Ok(())
    }

    fn serve(&mut self, (): &mut (), received: &[u8], more: bool) -> Served {
        let mut headers = [EMPTY_HEADER; HEADERS];
        let mut request = Request::new(&mut headers);
        let (status, text) = match request.parse(received) {
            Ok(Status::Complete(_)) => self.answer(&request),
            Ok(Status::Partial) if more => return Served::Partial,
            // It has ended in the middle, or will not end.
            Ok(Status::Partial) if received.len() < LIMITS.request => {
                (400, "Half a request.\n".into())
            }
            Ok(Status::Partial) | Err(Error::TooManyHeaders) => {
                (431, "More than a scraper has to say.\n".into())
            }
            Err(why) => (400, format!("Not HTTP: {why}.\n")),
        };
        let body = match request.method {
            Some("HEAD") => "",
            _ => &text,
        };
        let allow = match status {
            405 => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let answer = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\n{allow}\
             Connection: close\r\n\r\n{body}",
            reason(status),
            text.len()
        );
        Served::Answer {
            taken: received.len(),
            bytes: answer.into_bytes(),
            last: true,
        }
    }
}

impl<P: FnMut(&str) -> (u16, String)> Http<P> {
    fn answer(&mut self, request: &Request) -> (u16, String) {
        if !matches!(request.method, Some("GET" | "HEAD")) {
            return (405, "Only GET.\n".into());
        }
        // What length it says need not even be a number: it is not waited for.
        let has_body = request.headers.iter().any(|header| {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            is("transfer-encoding") || is("content-length") && header.value != b"0"
        });
        if has_body {
            return (413, "A GET without a body.\n".into());
        }
        let path = request.path.unwrap_or_default();
        (self.page)(path.split('?').next().unwrap_or_default())
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(request: &str) -> Option<String> {
        let page = |path: &str| (200, format!("at {path}\n"));
        let more = request.len() < LIMITS.request;
        match (Http { page }).serve(&mut (), request.as_bytes(), more) {
            Served::Partial => None,
            Served::Answer { bytes, last, .. } => {
                assert!(last);
                Some(String::from_utf8(bytes).unwrap())
            }
        }
    }

    fn status(request: &str) -> Option<u16> {
        say(request)?.split(' ').nth(1)?.parse().ok()
    }

    #[test]
    fn a_get_is_answered_and_a_head_without_the_text() {
        let get = say("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n"), "{get}");
        assert!(get.contains("\r\nContent-Length: 12\r\n"), "{get}");
        assert!(get.ends_with("\r\n\r\nat /metrics\n"), "{get}");
        let head = say("HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
        assert!(head.contains("\r\nContent-Length: 12\r\n") && head.ends_with("\r\n\r\n"));
        assert_eq!(say("GET /metrics HTTP/1.1\r\nHost:"), None);
        assert_eq!(
            status("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
            Some(200)
        );
    }

    #[test]
    fn everything_else_is_refused_without_waiting_for_more_of_it() {
        for length in [
            "2000",
            "9223372036854775808",
            "4611686018427387904",
            "-1",
            "x",
        ] {
            let request = format!("GET /metrics HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
            assert_eq!(status(&request), Some(413), "{length}");
        }
        let chunked = "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(status(chunked), Some(413));
        let post = say("POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n").unwrap();
        assert!(post.starts_with("HTTP/1.1 405 ") && post.contains("\r\nAllow: GET, HEAD\r\n"));
        assert_eq!(status("\u{1}\u{2}\r\n\r\n"), Some(400));
        assert_eq!(
            status(&format!("GET /{} HTTP/1.1", "x".repeat(9000))),
            Some(431)
        );
        let headers = "a: b\r\n".repeat(100);
        assert_eq!(
            status(&format!("GET / HTTP/1.1\r\n{headers}\r\n")),
            Some(431)
        );
    }
}
