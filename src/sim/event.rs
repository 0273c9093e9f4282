// SPDX-License-Identifier: GPL-2.0-only
//! The event queue: by time, and what was put in first comes first at the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimulatedEvent {
    /// A CPU's tick. A busy CPU has one, an idle one none.
    Tick(u32),
    /// The thread on a CPU comes to the end of a stretch of work; void if the CPU's stamp is
    /// another by then.
    Work(u32, u64),
    /// A thread has slept enough.
    Wake(u32),
    /// The stage of a thread that waits has begun, and what runs on a CPU comes to waking it up.
    Rouse(u32, u32),
    /// A program that has ended starts again.
    Start(u32),
    /// The agent's loop comes round.
    Agent,
    /// It looks at goals.
    Goals,
    /// CPUs compare their loads (scheduler `default`).
    Balance,
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, SimulatedEvent)>>,
    pushed: u64,
}

impl Events {
    /// Puts an event in, due at `at` ns.
    pub(super) fn push(&mut self, at: u64, event: SimulatedEvent) {
        self.heap.push(Reverse((at, self.pushed, event)));
        self.pushed += 1;
    }

    /// Takes the next event out, and when it is due, ns.
    pub(super) fn pop(&mut self) -> Option<(u64, SimulatedEvent)> {
        let Reverse((at, _, event)) = self.heap.pop()?;
        Some((at, event))
    }

    /// When the next event is due, ns.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// How many were put in so far.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_put_in() {
        let mut events = Events::default();
        events.push(20, SimulatedEvent::Tick(1));
        events.push(10, SimulatedEvent::Wake(9));
        events.push(10, SimulatedEvent::Tick(3));
        events.push(10, SimulatedEvent::Agent);
        assert_eq!(events.next_at(), Some(10));
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(
            order,
            [
                (10, SimulatedEvent::Wake(9)),
                (10, SimulatedEvent::Tick(3)),
                (10, SimulatedEvent::Agent),
                (20, SimulatedEvent::Tick(1))
            ]
        );
    }
}
