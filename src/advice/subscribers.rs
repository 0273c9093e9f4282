// SPDX-License-Identifier: GPL-2.0-only
//! The programs that have subscribed: the server adds and removes them, the scheduler's loop writes their pages.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hetero_core::advice::story::AdvisedStory;
use hetero_core::advice::told::ProgramSays;

use super::page::AdvicePage;
use super::pages::IdlePages;
use super::{MAX_OF_PROCESS, MAX_SUBSCRIBERS};
use crate::agent::AdviceClient;
use crate::connections::peer::{Process, which_ended};
use crate::topology::Topology;

#[derive(Debug)]
struct Subscriber {
    id: u64,
    process: Process,
    client: AdviceClient,
    /// Whose programs the page is for.
    user: u32,
    page: AdvicePage,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of the last.
    last: u64,
    all: Vec<Subscriber>,
    idle: IdlePages,
}

impl Table {
    fn end(&mut self, mut ends: impl FnMut(&Subscriber) -> bool) {
        for of in self.all.extract_if(.., |of| ends(of)) {
            self.idle.give_back(of.user, of.page);
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Subscribers {
    table: Mutex<Table>,
}

impl Subscribers {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table().all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes one of this user in; its number, and its page.
    ///
    /// # Errors
    /// There are too many, or the kernel has no page, in words.
    pub(super) fn add(&self, process: Process, user: u32) -> Result<(u64, OwnedFd), String> {
        let mut table = self.table();
        let Table { last, all, idle } = &mut *table;
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
        let no_page = "there is no page to be had";
        let page = idle.take(user).map_err(|why| format!("{no_page}: {why}"))?;
        let descriptor = page.descriptor();
        let descriptor = descriptor.map_err(|why| format!("{no_page}: {why}"))?;
        *last += 1;
        all.push(Subscriber {
            id: *last,
            process,
            client: AdviceClient::new(tgid),
            user,
            page,
        });
        Ok((*last, descriptor))
    }

    /// Ends a subscription, if it is still there.
    pub(super) fn remove(&self, id: u64) {
        self.table().end(|of| of.id == id);
    }

    /// Takes in what a program says.
    ///
    /// # Errors
    /// There is no room for it, or its subscription has ended, in words.
    pub(super) fn hear(&self, id: u64, told: ProgramSays) -> Result<(), &'static str> {
        let mut table = self.table();
        let found = table.all.iter_mut().find(|of| of.id == id);
        let found = found.ok_or("the subscription has ended with its process")?;
        let heard = found.client.told.hear(told);
        heard.then_some(()).ok_or("the team has too many members")
    }

    /// The process of a subscription.
    pub(super) fn process(&self, id: u64) -> Option<u32> {
        let table = self.table();
        let found = table.all.iter().find(|of| of.id == id);
        found.map(|of| of.client.tgid)
    }

    /// Ends those whose processes have ended, whoever has their connections.
    pub(super) fn bury(&self) {
        let mut table = self.table();
        let mut ended = vec![false; table.all.len()];
        which_ended(table.all.iter().map(|of| &of.process), &mut ended);
        let mut ended = ended.into_iter();
        table.end(|_| ended.next().unwrap_or(false));
    }

    /// What process `tgid` is advised and has told, if it has subscribed; where it has more than once, by the
    /// subscription that has told most.
    pub fn story(&self, tgid: u32) -> Option<AdvisedStory> {
        let table = self.table();
        let own = table.all.iter().filter(|of| of.client.tgid == tgid);
        let best = own.max_by_key(|of| of.client.told.measured().len())?;
        let client = &best.client;
        Some(AdvisedStory::of(tgid, &client.advice, &client.told))
    }

    /// Process and threads that it is advised to use, of each subscription.
    pub fn advised(&self, mut of: impl FnMut(u32, usize)) {
        for subscription in &self.table().all {
            of(subscription.client.tgid, subscription.client.advice.threads);
        }
    }

    /// Has `advise` find out what to tell them.
    pub fn advise(&self, advise: impl FnOnce(&mut dyn Iterator<Item = &mut AdviceClient>)) {
        let mut table = self.table();
        advise(&mut table.all.iter_mut().map(|of| &mut of.client));
    }

    /// Tells them, as far as anything was found out.
    pub fn tell(&self, topology: &Topology) {
        let mut table = self.table();
        let told = table
            .all
            .iter_mut()
            .filter(|of| of.client.advice.threads > 0);
        told.for_each(|of| of.page.write(&of.client.advice, topology));
    }
}
