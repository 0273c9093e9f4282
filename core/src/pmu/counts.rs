// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts of a task on one core type. Which events they are of is the core type's [`Layout`], made
//! once; a sample carries the numbers in place, and making, moving or dropping one allocates nothing.

use std::fmt;
use std::sync::Arc;

use super::{Event, Meaning};
use crate::limits::{MAX_EVENTS, MAX_SETS};

/// So many events a sample has counts of, at the most: instructions and cycles, which are in every
/// set, and all others of the sets that take turns.
pub const MOST: usize = 2 + MAX_SETS * (MAX_EVENTS - 2);

/// The events that counts are of, in order; each is there once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout(Arc<[Event]>);

impl Layout {
    /// All of them.
    pub fn events(&self) -> &[Event] {
        &self.0
    }
}

impl<E: Into<Event>> FromIterator<E> for Layout {
    fn from_iter<I: IntoIterator<Item = E>>(events: I) -> Self {
        Self(events.into_iter().map(Into::into).collect())
    }
}

/// Counts by event, all scaled to the same run time.
#[derive(Clone, PartialEq)]
pub struct EventCounts {
    layout: Layout,
    /// In the order of the layout; zero beyond.
    values: [f64; MOST],
}

impl EventCounts {
    /// Of the events of a layout, in its order; there are at most [`MOST`].
    pub fn new(layout: &Layout, values: impl IntoIterator<Item = f64>) -> Self {
        let mut counts = Self {
            layout: layout.clone(),
            values: [0.0; MOST],
        };
        for (to, value) in counts.values.iter_mut().zip(values) {
            *to = value;
        }
        counts
    }

    /// All that were counted.
    pub fn iter(&self) -> impl Iterator<Item = (&Event, f64)> {
        self.layout.0.iter().zip(self.values)
    }

    /// Of what has a meaning; `None` if it was not counted.
    pub fn get(&self, meaning: Meaning) -> Option<f64> {
        self.find(|event| matches!(event, Event::Meaning(m) if *m == meaning))
    }

    /// Of an event that may have no meaning.
    pub fn of(&self, event: &Event) -> Option<f64> {
        self.find(|e| e == event)
    }

    fn find(&self, is_it: impl FnMut(&Event) -> bool) -> Option<f64> {
        let place = self.layout.0.iter().position(is_it)?;
        self.values.get(place).copied()
    }

    /// `meaning` per 1,000 instructions; `None` if either was not counted.
    pub fn per_kilo(&self, meaning: Meaning) -> Option<f64> {
        let instructions = self.get(Meaning::Instructions).filter(|&n| n > 0.0)?;
        Some(self.get(meaning)? * 1e3 / instructions)
    }
}

/// Nothing was counted.
impl Default for EventCounts {
    fn default() -> Self {
        Self::new(&Layout::default(), [])
    }
}

/// In a layout of their own.
impl<E: Into<Event>> FromIterator<(E, f64)> for EventCounts {
    fn from_iter<I: IntoIterator<Item = (E, f64)>>(pairs: I) -> Self {
        let (events, values): (Vec<Event>, Vec<f64>) = pairs
            .into_iter()
            .take(MOST)
            .map(|(event, value)| (event.into(), value))
            .unzip();
        Self::new(&events.into_iter().collect(), values)
    }
}

impl fmt::Debug for EventCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
