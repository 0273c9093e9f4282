// SPDX-License-Identifier: GPL-2.0-only
//! The programs that have subscribed: the server adds and removes them, the scheduler's loop writes their pages.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hetero_core::advice::story::AdvisedStory;
use hetero_core::advice::told::ProgramSays;

use super::page::AdvicePage;
use super::{MAX_OF_PROCESS, MAX_SUBSCRIBERS};
use crate::agent::AdviceClient;
use crate::connections::peer::{Process, which_ended};
use crate::topology::Topology;

#[derive(Debug)]
struct Subscriber {
    id: u64,
    process: Process,
    client: AdviceClient,
    page: AdvicePage,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Subscribers {
    table: Mutex<(u64, Vec<Subscriber>)>,
}

impl Subscribers {
    fn table(&self) -> MutexGuard<'_, (u64, Vec<Subscriber>)> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table().1.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes one in; its number.
    ///
    /// # Errors
    /// There are too many, in words.
    pub(super) fn add(&self, process: Process, page: AdvicePage) -> Result<u64, String> {
        let mut table = self.table();
        let (last, all) = &mut *table;
        if all.len() >= MAX_SUBSCRIBERS {
            return Err(format!("there are {MAX_SUBSCRIBERS} subscribers already"));
        }
        let tgid = process.tgid;
        let own = all.iter().filter(|of| of.process.tgid == tgid).count();
        if own >= MAX_OF_PROCESS {
            return Err(format!(
                "process {tgid} has subscribed {MAX_OF_PROCESS} times already"
            ));
        }
        *last += 1;
        all.push(Subscriber {
            id: *last,
            process,
            client: AdviceClient::new(tgid),
            page,
        });
        Ok(*last)
    }

    /// Ends a subscription, if it is still there.
    pub(super) fn remove(&self, id: u64) {
        self.table().1.retain(|of| of.id != id);
    }

    /// Takes in what a program says.
    ///
    /// # Errors
    /// There is no room for it, or its subscription has ended, in words.
    pub(super) fn hear(&self, id: u64, told: ProgramSays) -> Result<(), &'static str> {
        let mut table = self.table();
        let found = table.1.iter_mut().find(|of| of.id == id);
        let found = found.ok_or("the subscription has ended with its process")?;
        let heard = found.client.told.hear(told);
        heard.then_some(()).ok_or("the team has too many members")
    }

    /// The process of a subscription.
    pub(super) fn process(&self, id: u64) -> Option<u32> {
        let table = self.table();
        let found = table.1.iter().find(|of| of.id == id);
        found.map(|of| of.client.tgid)
    }

    /// Ends those whose processes have ended, whoever has their connections.
    pub(super) fn bury(&self) {
        let mut table = self.table();
        let all = &mut table.1;
        let mut ended = vec![false; all.len()];
        which_ended(all.iter().map(|of| &of.process), &mut ended);
        let mut ended = ended.into_iter();
        all.retain(|_| !ended.next().unwrap_or(false));
    }

    /// What process `tgid` is advised and has told, if it has subscribed; where it has more than once, by the
    /// subscription that has told most.
    pub fn story(&self, tgid: u32) -> Option<AdvisedStory> {
        let table = self.table();
        let own = table.1.iter().filter(|of| of.client.tgid == tgid);
        let best = own.max_by_key(|of| of.client.told.measured().len())?;
        let client = &best.client;
        Some(AdvisedStory::of(tgid, &client.advice, &client.told))
    }

    /// Process and threads that it is advised to use, of each subscription.
    pub fn advised(&self, mut of: impl FnMut(u32, usize)) {
        for subscription in &self.table().1 {
            of(subscription.client.tgid, subscription.client.advice.threads);
        }
    }

    /// Has `advise` find out what to tell them.
    pub fn advise(&self, advise: impl FnOnce(&mut dyn Iterator<Item = &mut AdviceClient>)) {
        let mut table = self.table();
        advise(&mut table.1.iter_mut().map(|of| &mut of.client));
    }

    /// Tells them, as far as anything was found out.
    pub fn tell(&self, topology: &Topology) {
        let mut table = self.table();
        let told = table.1.iter_mut().filter(|of| of.client.advice.threads > 0);
        told.for_each(|of| of.page.write(&of.client.advice, topology));
    }
}
