// SPDX-License-Identifier: GPL-2.0-only
//! The running scheduler's statistics over HTTP, as Prometheus asks for them (`--prometheus`).
//!
//! A process of its own, and a client like the monitor: the scheduler itself has no business with
//! the network, and its unit allows it none.

mod page;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use log::{info, warn};

use super::client::Client;
use super::http::{Http, LIMITS};
use super::live::Live;
use crate::connections::Connections;

/// Where it listens unless it is told otherwise; reached from this machine alone.
pub const ADDRESS: &str = "127.0.0.1:9754";

/// How soon it heeds a signal.
const GLANCE: Duration = Duration::from_millis(250);

/// A scheduler that has not answered for so long is not asked again for as long: every client
/// would wait for that.
const SILENCE: Duration = Duration::from_secs(1);

/// A page is repeated for so long: whoever can connect is not to have the scheduler look at its threads without end,
/// nor to make what is since the last scrape a matter of moments for the others.
const SAME: Duration = Duration::from_secs(1);

/// Reads an address; a port alone is one of this machine's.
///
/// # Errors
/// It is neither.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok((IpAddr::V4(Ipv4Addr::LOCALHOST), port).into());
    }
    text.parse()
        .map_err(|_| format!("not an address with a port, like {ADDRESS} or [::1]:9754"))
}

/// Listens for those who scrape.
pub struct Exporter {
    listener: TcpListener,
}

impl Exporter {
    /// Listens at `address`, of which port 0 is any.
    ///
    /// # Errors
    /// Where it cannot, in one line.
    pub fn listen(address: SocketAddr) -> Result<Self> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|error: std::io::Error| {
            anyhow!("cannot listen at {address}: {error}; name another with --prometheus")
        })?;
        match address.ip().is_loopback() {
            true => info!("all users of this machine can read the statistics at {address}"),
            false => warn!("whoever reaches {address} can read the statistics"),
        }
        Ok(Self { listener })
    }

    /// Where.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves what the scheduler at `socket` says, until `stop`.
    ///
    /// # Errors
    /// Where nobody can be heard any more.
    pub fn serve(&self, socket: &Path, stop: &AtomicBool) -> Result<()> {
        if let Some(address) = self.address() {
            info!("serving statistics at http://{address}/metrics");
        }
        let mut asker = Asker::default();
        let mut http = Http {
            page: |path: &str| match path {
                "/metrics" => asker.metrics(socket, stop),
                "/" => (200, "See /metrics.\n".into()),
                _ => (404, "There is /metrics.\n".into()),
            },
        };
        let mut connections = Connections::new(self.listener.try_clone()?, LIMITS);
        while !stop.load(Ordering::Relaxed) {
            connections.round(&mut http, None, Some(GLANCE))?;
        }
        Ok(())
    }
}

/// Asks the scheduler for the clients that scrape.
#[derive(Default)]
struct Asker {
    client: Option<Client>,
    /// The last page, and when it was made.
    page: Option<(Instant, String)>,
    /// Until when it is not asked again, and why.
    silent: Option<(Instant, String)>,
}

impl Asker {
    fn metrics(&mut self, socket: &Path, stop: &AtomicBool) -> (u16, String) {
        let now = Instant::now();
        if let Some((until, why)) = &self.silent
            && *until > now
        {
            return (503, why.clone());
        }
        // Else one signal would have to wait for all clients.
        if stop.load(Ordering::Relaxed) {
            return (503, "This exporter ends.\n".into());
        }
        if let Some(page) = self.repeated(now) {
            return (200, page.to_string());
        }
        match self.ask(socket) {
            Ok(live) => {
                let page = page::render(&live);
                self.page = Some((Instant::now(), page.clone()));
                (200, page)
            }
            Err(error) => {
                let why = format!("{error:#}\n");
                let took = now.elapsed();
                if took >= SILENCE {
                    self.silent = Some((now + 2 * took, why.clone()));
                }
                (503, why)
            }
        }
    }

    /// The last page, as long as it stands.
    fn repeated(&self, now: Instant) -> Option<&str> {
        let (at, page) = self.page.as_ref()?;
        (now.saturating_duration_since(*at) < SAME).then_some(page)
    }

    /// Asks over the connection that there is, or a new one: the scheduler may have started anew.
    fn ask(&mut self, socket: &Path) -> Result<Live> {
        if let Some(mut known) = self.client.take()
            && let Ok(live) = known.live()
        {
            self.client = Some(known);
            return Ok(live);
        }
        let mut fresh = Client::connect(socket)?;
        let live = fresh.live()?;
        self.client = Some(fresh);
        Ok(live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_a_port_alone() {
        assert_eq!(parse_address("9754").unwrap(), ADDRESS.parse().unwrap());
        assert_eq!(parse_address("[::1]:80").unwrap().port(), 80);
        for bad in ["", "localhost", "1.2.3.4", "70000", "-1"] {
            assert!(parse_address(bad).unwrap_err().contains("9754"), "{bad}");
        }
    }

    #[test]
    fn a_page_is_repeated_for_a_second() {
        let at = Instant::now();
        let asker = Asker {
            page: Some((at, "page".into())),
            ..Asker::default()
        };
        assert_eq!(asker.repeated(at + SAME / 2), Some("page"));
        assert_eq!(asker.repeated(at + SAME), None);
        assert_eq!(Asker::default().repeated(at), None);
    }
}
