// SPDX-License-Identifier: GPL-2.0-or-later
//! Which processes are monitored by hardware that can tell few apart (PMCTrack 2017, section 4.3).
//!
//! Each is told apart by a number, its RMID. Of one that was freed lines are still in the cache, and would be
//! counted as the next owner's, so that PMCTrack gives out first those that were freed first (FIFO). The
//! kernel does so with RMIDs, and lets none be used as long as more than a few of its lines are left. Here the
//! same is done with turns: processes wait in a queue, and when there is no group left, that which has had
//! one for longest gives it to that which has waited for longest. Groups are never handed over, but removed
//! and made anew, which gives them other RMIDs.

use std::collections::VecDeque;

/// A process keeps its group for so long at least while others wait, ns: caches fill slowly.
pub const TURN_NS: u64 = 5_000_000_000;

/// After a refusal that concerned all it is tried again so much later, ns.
const RETRY_NS: u64 = 2_000_000_000;

/// Processes that wait, at most; others come in when there is room again.
const MOST_WAITING: usize = 1024;

/// What hardware says of a process; `None` where it says nothing now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MonitoredBytes {
    /// That last-level caches hold, of lines that it brought in, bytes.
    pub occupancy: Option<f64>,
    /// Moved between caches and memory since its group was made, bytes.
    pub total: Option<f64>,
}

/// Why a process gets no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupError {
    /// None is left, or all that are still have lines in the cache.
    NoneLeft,
    /// It has ended.
    Ended,
    /// It belongs to a group of another's, or may not be moved.
    NotThisOne,
    /// It is in a group of another scx_hetero's, as of `pmc`, which ends some time.
    Taken,
    /// The group is gone, or the process is no longer in it: removed by another, or resctrl was unmounted.
    Gone,
}

/// Monitoring groups; files are behind it.
pub trait MonitoringGroups {
    /// Makes a group for a process.
    ///
    /// # Errors
    /// It gets none.
    fn open(&mut self, pid: u32) -> Result<(), GroupError>;

    /// Reads a process's group.
    ///
    /// # Errors
    /// There is none any more.
    fn read(&mut self, pid: u32) -> Result<MonitoredBytes, GroupError>;

    /// Removes a process's group.
    fn close(&mut self, pid: u32);
}

/// A process that is monitored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MonitoredProcess {
    /// Process id.
    pub pid: u32,
    /// Since when, ns.
    pub since_ns: u64,
    /// Bytes that caches hold for it.
    pub occupancy: Option<f64>,
    /// Bytes/s that it moves to and from memory.
    pub rate: Option<f64>,
    /// Bytes that it has moved since its group was made.
    pub moved: Option<f64>,
    /// When that was read last, ns since some beginning.
    pub read_ns: u64,
}

impl MonitoredProcess {
    /// Bytes that caches hold for it, once it has moved as much as a cache of `size` bytes holds: before, lines
    /// that it brought in without a group are counted for no group.
    pub fn settled(&self, size: f64) -> Option<f64> {
        let enough = |moved: f64| moved >= size;
        self.occupancy.filter(|_| self.moved.is_some_and(enough))
    }
}

/// See the module.
#[derive(Debug)]
pub struct GroupPool {
    most: usize,
    /// Oldest first.
    held: VecDeque<MonitoredProcess>,
    /// First come, first served.
    waiting: VecDeque<u32>,
    /// Not to be asked for again, as long as they live.
    refused: Vec<u32>,
    retry_ns: u64,
    /// Kept for its memory.
    wanted: Vec<u32>,
}

impl GroupPool {
    /// With so many groups at most.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            held: VecDeque::new(),
            waiting: VecDeque::new(),
            refused: Vec::new(),
            retry_ns: 0,
            wanted: Vec::new(),
        }
    }

    /// Those that are monitored.
    pub fn monitored(&self) -> impl ExactSizeIterator<Item = &MonitoredProcess> {
        self.held.iter()
    }

    /// How many wait for a group.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Gives groups to those of `processes` whose turn it is, takes them from those that are no longer among
    /// them, and reads all.
    pub fn update(&mut self, now_ns: u64, processes: &[u32], groups: &mut impl MonitoringGroups) {
        self.wanted.clear();
        self.wanted.extend(processes);
        self.wanted.sort_unstable();
        self.wanted.dedup();
        let wanted = &self.wanted;
        let wants = |pid: u32| wanted.binary_search(&pid).is_ok();
        self.held.retain(|held| {
            let stays = wants(held.pid);
            if !stays {
                groups.close(held.pid);
            }
            stays
        });
        self.waiting.retain(|&pid| wants(pid));
        self.refused.retain(|&pid| wants(pid));
        for &pid in wanted {
            let known = self.held.iter().any(|held| held.pid == pid)
                || self.waiting.contains(&pid)
                || self.refused.contains(&pid);
            if !known && self.waiting.len() < MOST_WAITING {
                self.waiting.push_back(pid);
            }
        }
        self.take_turns(now_ns, groups);
        self.read(now_ns, groups);
    }

    fn take_turns(&mut self, now_ns: u64, groups: &mut impl MonitoringGroups) {
        // Of as many as were there: one that gives its group up waits behind them.
        for _ in 0..self.waiting.len() {
            if now_ns < self.retry_ns {
                return;
            }
            if self.held.len() >= self.most {
                let over = |held: &MonitoredProcess| now_ns - held.since_ns >= TURN_NS;
                if !self.held.front().is_some_and(over) {
                    return;
                }
                self.give_up_oldest(groups);
            }
            let Some(&pid) = self.waiting.front() else {
                return;
            };
            match groups.open(pid) {
                Ok(()) => {
                    self.waiting.pop_front();
                    self.held.push_back(MonitoredProcess {
                        pid,
                        since_ns: now_ns,
                        occupancy: None,
                        rate: None,
                        moved: None,
                        read_ns: 0,
                    });
                }
                Err(GroupError::NotThisOne) => {
                    self.waiting.pop_front();
                    self.refused.push(pid);
                }
                // One that is still busy is asked for again at the next update.
                Err(GroupError::Ended | GroupError::Taken) => _ = self.waiting.pop_front(),
                Err(GroupError::NoneLeft) => {
                    // There are fewer than we were told: others have them.
                    let over = |held: &MonitoredProcess| now_ns - held.since_ns >= TURN_NS;
                    if self.held.front().is_some_and(over) {
                        self.give_up_oldest(groups);
                    }
                    self.retry_ns = now_ns + RETRY_NS;
                }
                Err(GroupError::Gone) => self.retry_ns = now_ns + RETRY_NS,
            }
        }
    }

    fn give_up_oldest(&mut self, groups: &mut impl MonitoringGroups) {
        if let Some(oldest) = self.held.pop_front() {
            groups.close(oldest.pid);
            self.waiting.push_back(oldest.pid);
        }
    }

    fn read(&mut self, now_ns: u64, groups: &mut impl MonitoringGroups) {
        let waiting = &mut self.waiting;
        self.held.retain_mut(|held| {
            let Ok(bytes) = groups.read(held.pid) else {
                groups.close(held.pid);
                waiting.push_back(held.pid);
                return false;
            };
            held.occupancy = bytes.occupancy;
            let before = std::mem::replace(&mut held.moved, bytes.total);
            let then = std::mem::replace(&mut held.read_ns, now_ns);
            held.rate = match (before, bytes.total) {
                (Some(before), Some(total)) if now_ns > then && total >= before => {
                    Some((total - before) / ((now_ns - then) as f64 / 1e9))
                }
                _ => None,
            };
            true
        });
    }

    /// Removes a process's group, if it has one; it is the next to get one.
    pub fn leave(&mut self, pid: u32, groups: &mut impl MonitoringGroups) {
        if let Some(at) = self.held.iter().position(|held| held.pid == pid) {
            self.held.remove(at);
            groups.close(pid);
            self.waiting.push_front(pid);
        }
    }

    /// Removes all groups.
    pub fn close(&mut self, groups: &mut impl MonitoringGroups) {
        for held in self.held.drain(..) {
            groups.close(held.pid);
        }
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Hardware that has so many numbers, and gives out first what was freed first.
    #[derive(Default)]
    struct Hardware {
        groups: Vec<u32>,
        room: usize,
        opened: Vec<u32>,
        gone: Option<u32>,
        theirs: Option<u32>,
        moved: f64,
    }

    impl MonitoringGroups for Hardware {
        fn open(&mut self, pid: u32) -> Result<(), GroupError> {
            if self.theirs == Some(pid) {
                return Err(GroupError::NotThisOne);
            }
            if self.groups.len() >= self.room {
                return Err(GroupError::NoneLeft);
            }
            assert!(!self.groups.contains(&pid));
            self.groups.push(pid);
            self.opened.push(pid);
            Ok(())
        }

        fn read(&mut self, pid: u32) -> Result<MonitoredBytes, GroupError> {
            if self.gone == Some(pid) {
                return Err(GroupError::Gone);
            }
            assert!(self.groups.contains(&pid));
            Ok(MonitoredBytes {
                occupancy: Some(f64::from(pid)),
                total: Some(self.moved),
            })
        }

        fn close(&mut self, pid: u32) {
            self.groups.retain(|&group| group != pid);
        }
    }

    fn pids(pool: &GroupPool) -> Vec<u32> {
        pool.monitored().map(|held| held.pid).collect()
    }

    #[test]
    fn all_are_monitored_while_there_is_room() {
        let mut hardware = Hardware {
            room: 8,
            ..Hardware::default()
        };
        let mut pool = GroupPool::new(8);
        pool.update(0, &[3, 1, 2, 2], &mut hardware);
        assert_eq!(pids(&pool), [1, 2, 3]);
        hardware.moved = 2e6;
        pool.update(2 * S, &[3, 2], &mut hardware);
        assert_eq!((pids(&pool), hardware.groups.len()), (vec![2, 3], 2));
        let first = pool.monitored().next().unwrap();
        assert_eq!((first.occupancy, first.rate), (Some(2.0), Some(1e6)));
        assert_eq!((first.settled(3e6), first.settled(1e6)), (None, Some(2.0)));
        // One that is confined, or not any more, gets another group.
        pool.leave(2, &mut hardware);
        assert_eq!((pids(&pool), pool.waiting()), (vec![3], 1));
        pool.update(3 * S, &[3, 2], &mut hardware);
        assert_eq!(pids(&pool), [3, 2]);
        pool.close(&mut hardware);
        assert!(hardware.groups.is_empty() && pids(&pool).is_empty());
    }

    #[test]
    fn when_there_are_too_few_each_has_its_turn_first_come_first_served() {
        let mut hardware = Hardware {
            room: 2,
            ..Hardware::default()
        };
        let mut pool = GroupPool::new(2);
        for second in 0..30 {
            pool.update(second * S, &[1, 2, 3, 4, 5], &mut hardware);
            assert_eq!((pids(&pool).len(), pool.waiting()), (2, 3));
        }
        // Each five seconds two others, in the same order again and again.
        assert_eq!(hardware.opened[..7], [1, 2, 3, 4, 5, 1, 2]);
        assert_eq!(hardware.opened.len(), 12);
    }

    #[test]
    fn fewer_than_were_promised_are_shared_all_the_same() {
        let mut hardware = Hardware {
            room: 1,
            ..Hardware::default()
        };
        let mut pool = GroupPool::new(16);
        for second in 0..60 {
            pool.update(second * S, &[1, 2, 3], &mut hardware);
        }
        for pid in [1, 2, 3] {
            assert!(hardware.opened.iter().filter(|&&of| of == pid).count() >= 2);
        }
    }

    #[test]
    fn what_is_anothers_is_left_alone_and_what_vanishes_is_made_again() {
        let mut hardware = Hardware {
            room: 4,
            theirs: Some(1),
            ..Hardware::default()
        };
        let mut pool = GroupPool::new(4);
        for second in 0..10 {
            pool.update(second * S, &[1, 2], &mut hardware);
        }
        assert_eq!((pids(&pool), pool.waiting()), (vec![2], 0));
        hardware.gone = Some(2);
        pool.update(10 * S, &[1, 2], &mut hardware);
        assert_eq!((pids(&pool), pool.waiting()), (vec![], 1));
        hardware.gone = None;
        pool.update(11 * S, &[1, 2], &mut hardware);
        assert_eq!(pids(&pool), [2]);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut hardware = Hardware::default();
        let mut pool = GroupPool::new(0);
        let crowd: Vec<u32> = (0..5000).collect();
        pool.update(0, &crowd, &mut hardware);
        assert_eq!(pool.waiting(), MOST_WAITING);
    }
}
