// SPDX-License-Identifier: GPL-2.0-or-later
//! A mean that follows what it is the mean of.

/// Of values that count alike at first, and then for one in so many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    averaged: u32,
    value: f64,
}

impl Mean {
    /// Takes a value in, which counts for one in `most` at the least.
    pub(super) fn take(&mut self, value: f64, most: u32) {
        self.averaged = (self.averaged + 1).min(most);
        self.value += (value - self.value) / f64::from(self.averaged);
    }

    /// `None` before there were so many values.
    pub(super) fn of_at_least(&self, values: u32) -> Option<f64> {
        (self.averaged >= values).then_some(self.value)
    }

    /// `None` before the first value.
    pub(super) fn get(&self) -> Option<f64> {
        self.of_at_least(1)
    }
}
