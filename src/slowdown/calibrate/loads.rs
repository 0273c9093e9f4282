// SPDX-License-Identifier: GPL-2.0-only
//! Synthetic loads: pure computation, streaming at a given rate, and a chase of pointers with a
//! given amount of computation between misses.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of a line of the last-level cache.
pub(super) const LINE: usize = 64;
const WORDS_PER_LINE: usize = LINE / size_of::<u64>();

/// Something to do over and over.
pub(super) trait Load: Send {
    /// Does a little of it, some microseconds on real hardware; returns how much that was, in a
    /// unit of its own.
    fn step(&mut self) -> u64;
}

/// What the loads that only compute are called, in the order of [`compute`].
pub(super) const COMPUTE: [&str; 3] = ["integer", "branches", "fp"];

/// A load that lives in registers, by its place in [`COMPUTE`].
pub(super) fn compute(kind: usize) -> Box<dyn Load> {
    match kind {
        0 => Box::new(Integer([1, 2, 3, 4])),
        1 => Box::new(Branches(1)),
        _ => Box::new(Fp([0.1, 0.2, 0.3, 0.4])),
    }
}

const ROUNDS: u64 = 500;

/// Four independent chains, as wide cores like it.
struct Integer([u64; 4]);

impl Load for Integer {
    fn step(&mut self) -> u64 {
        for _ in 0..ROUNDS {
            for x in &mut self.0 {
                *x ^= *x << 13;
                *x ^= *x >> 7;
                *x = black_box(x.wrapping_mul(6_364_136_223_846_793_005));
                *x = x.wrapping_add(*x >> 32);
            }
        }
        ROUNDS
    }
}

/// Branches that nobody can predict.
struct Branches(u64);

impl Load for Branches {
    fn step(&mut self) -> u64 {
        let mut x = self.0;
        let mut sum = 0u64;
        for _ in 0..ROUNDS {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // An opaque value in each arm keeps the compiler from doing without branches.
            if x >> 63 == 0 {
                sum = black_box(sum).wrapping_add(x);
            } else {
                sum ^= black_box(x);
            }
            if x >> 40 & 1 == 0 {
                sum = black_box(sum).rotate_left(3);
            } else {
                sum = sum.wrapping_sub(black_box(x));
            }
        }
        self.0 = x;
        black_box(sum);
        ROUNDS
    }
}

/// Four independent chains of multiplications and additions.
struct Fp([f64; 4]);

impl Load for Fp {
    fn step(&mut self) -> u64 {
        for _ in 0..ROUNDS {
            for x in &mut self.0 {
                *x = black_box(*x * 0.999 + 0.1) * 0.998 + 0.2;
            }
        }
        ROUNDS
    }
}

/// Reads and writes memory, line after line, at most so fast. Work is in bytes.
pub(super) struct Stream<'m> {
    memory: &'m mut [u64],
    at: usize,
    bytes_per_second: f64,
    due: Instant,
}

/// Lines between two looks at the clock.
const BURST: usize = 64;

impl<'m> Stream<'m> {
    /// Over `memory`, of which a whole number of bursts is used; infinite is as fast as it goes.
    pub(super) fn new(memory: &'m mut [u64], bytes_per_second: f64) -> Self {
        Self {
            memory,
            at: 0,
            bytes_per_second,
            due: Instant::now(),
        }
    }
}

impl Load for Stream<'_> {
    fn step(&mut self) -> u64 {
        let words = BURST * WORDS_PER_LINE;
        if self.at + words > self.memory.len() {
            self.at = 0;
        }
        let end = (self.at + words).min(self.memory.len());
        for line in self.memory[self.at..end].chunks_mut(WORDS_PER_LINE) {
            line[0] = black_box(line[0] + 1);
        }
        self.at = end;
        let bytes = BURST * LINE;
        // What is late stays late: to catch up would be a burst.
        self.due = (self.due + wait(bytes, self.bytes_per_second)).max(Instant::now());
        while Instant::now() < self.due {
            // Not asleep: BTR is per second of run time.
            for x in 0..20 {
                black_box(x);
            }
        }
        bytes as u64
    }
}

fn wait(bytes: usize, bytes_per_second: f64) -> Duration {
    let seconds = bytes as f64 / bytes_per_second;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

/// Lines of memory, each of which points to another, in one ring.
#[derive(Clone, Copy)]
pub(super) struct PointerRing<'m>(&'m [u64]);

impl<'m> PointerRing<'m> {
    /// Makes one of `memory`, which is a power of two of lines, in an order that no prefetcher
    /// guesses: a full-period linear congruential sequence, which needs no second pass.
    pub(super) fn new(memory: &'m mut [u64]) -> Self {
        let lines = memory.len() / WORDS_PER_LINE;
        assert!(
            lines.is_power_of_two(),
            "a ring has a power of two of lines"
        );
        let base = memory.as_ptr() as u64;
        for line in 0..lines {
            let next = line.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & (lines - 1);
            memory[line * WORDS_PER_LINE] = base + (next * LINE) as u64;
        }
        Self(memory)
    }
}

/// Follows a ring, each miss waiting for the one before. Work is in misses.
pub(super) struct Chase<'m> {
    at: &'m u64,
    spins: u64,
}

impl<'m> Chase<'m> {
    /// With so many rounds of computation after each miss.
    pub(super) fn new(ring: PointerRing<'m>, spins: u64) -> Self {
        Self {
            at: &ring.0[0],
            spins,
        }
    }
}

impl Load for Chase<'_> {
    fn step(&mut self) -> u64 {
        const MISSES: u64 = 8;
        for _ in 0..MISSES {
            // SAFETY: each line of a ring holds the address of a line of it, and the ring's memory
            // is borrowed for as long as this lives.
            self.at = unsafe { &*(*self.at as *const u64) };
            let mut x = self.spins;
            for _ in 0..self.spins {
                x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        }
        MISSES
    }
}

/// Words in so many lines.
pub(super) fn words(lines: usize) -> usize {
    lines * WORDS_PER_LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chase_comes_by_every_line_once() {
        let mut memory = vec![0; words(1024)];
        let base = memory.as_ptr() as u64;
        let ring = PointerRing::new(&mut memory);
        let (mut at, mut seen) = (0, vec![false; 1024]);
        for _ in 0..1024 {
            assert!(!std::mem::replace(&mut seen[at / LINE], true));
            at = (ring.0[at / size_of::<u64>()] - base) as usize;
        }
        assert_eq!(at, 0);
        assert_eq!(Chase::new(ring, 3).step(), 8);
    }

    #[test]
    fn loads_do_what_they_say_however_little_memory_there_is() {
        let mut memory = vec![0; words(BURST + 3)];
        let mut stream = Stream::new(&mut memory, f64::INFINITY);
        let bytes: u64 = (0..3).map(|_| stream.step()).sum();
        assert_eq!(bytes, 3 * (BURST * LINE) as u64);
        assert_eq!(memory[0], 3);
        assert!((0..COMPUTE.len()).all(|kind| compute(kind).step() > 0));
    }

    #[test]
    fn a_stream_is_no_faster_than_it_should_be() {
        let mut memory = vec![0; words(BURST)];
        let begin = Instant::now();
        let mut stream = Stream::new(&mut memory, 1e6);
        let bytes: u64 = (0..5).map(|_| stream.step()).sum();
        assert!(bytes as f64 / begin.elapsed().as_secs_f64() <= 1.01e6);
    }
}
