// SPDX-License-Identifier: GPL-2.0-only
//! Ranking threads by comparisons of two (topology-aware-ml-2024, section 4.1), each comparison
//! made once as long as both threads are known as they are. No memory is allocated after the start.

use std::cmp::Ordering;

/// Ranks at most a given number of threads, each in a place of its own.
#[derive(Clone, Debug)]
pub struct Ranking {
    places: usize,
    /// By two places: whether the first is greater, once that was asked.
    known: Vec<Option<bool>>,
    order: Vec<u32>,
    merged: Vec<u32>,
}

impl Ranking {
    /// For so many places.
    pub fn new(places: usize) -> Self {
        Self {
            places,
            known: vec![None; places * places],
            order: Vec::with_capacity(places),
            merged: Vec::with_capacity(places),
        }
    }

    /// What is in a place has changed: what was said of it no longer holds.
    pub fn forget(&mut self, place: usize) {
        for other in 0..self.places {
            self.known[place * self.places + other] = None;
            self.known[other * self.places + place] = None;
        }
    }

    /// The places given, greatest first. `greater` may contradict itself over several, as learnt
    /// comparisons do: the order is then one in which each is not less than the next, by its word,
    /// as far as merging has asked. At most n log2 n questions.
    pub fn rank(
        &mut self,
        places: impl IntoIterator<Item = usize>,
        mut greater: impl FnMut(usize, usize) -> bool,
    ) -> &[u32] {
        self.order.clear();
        self.order
            .extend(places.into_iter().map(|place| place as u32));
        let number = self.order.len();
        let mut run = 1;
        while run < number {
            self.merged.clear();
            let mut begin = 0;
            while begin < number {
                let middle = (begin + run).min(number);
                let end = (begin + 2 * run).min(number);
                let (mut left, mut right) = (begin, middle);
                while left < middle || right < end {
                    let take_right = left == middle
                        || (right < end
                            && self.greater(self.order[right], self.order[left], &mut greater)
                                == Ordering::Greater);
                    let next = if take_right { &mut right } else { &mut left };
                    self.merged.push(self.order[*next]);
                    *next += 1;
                }
                begin = end;
            }
            std::mem::swap(&mut self.order, &mut self.merged);
            run *= 2;
        }
        &self.order
    }

    fn greater(&mut self, a: u32, b: u32, ask: &mut impl FnMut(usize, usize) -> bool) -> Ordering {
        let (a, b) = (a as usize, b as usize);
        let cell = a * self.places + b;
        let said = match self.known[cell] {
            Some(known) => known,
            None => {
                let said = ask(a, b);
                self.known[cell] = Some(said);
                self.known[b * self.places + a] = Some(!said);
                said
            }
        };
        if said {
            Ordering::Greater
        } else {
            Ordering::Less
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_ranked_with_few_questions_and_none_twice() {
        let value = |place: usize| (place * 37) % 64;
        let mut ranking = Ranking::new(64);
        let mut asked = 0;
        let mut greater = |a: usize, b: usize| {
            asked += 1;
            value(a) > value(b)
        };
        let ranked: Vec<usize> = ranking
            .rank(0..64, &mut greater)
            .iter()
            .map(|&place| value(place as usize))
            .collect();
        assert!(ranked.is_sorted_by(|a, b| a > b));
        let first = asked;
        assert!(first <= 64 * 6, "{first}");
        let mut greater = |a: usize, b: usize| {
            asked += 1;
            value(a) > value(b)
        };
        ranking.rank(0..64, &mut greater);
        ranking.forget(5);
        ranking.rank(0..64, &mut greater);
        assert!(asked > first && asked <= first + 63);
    }

    #[test]
    fn contradictions_still_give_an_order() {
        // Rock, paper, scissors.
        let mut ranking = Ranking::new(3);
        let mut ranked = ranking.rank(0..3, |a, b| a == (b + 1) % 3).to_vec();
        ranked.sort_unstable();
        assert_eq!(ranked, [0, 1, 2]);
    }

    #[test]
    fn who_is_left_out_has_no_rank() {
        let mut ranking = Ranking::new(8);
        assert_eq!(ranking.rank([6, 2, 7], |a, b| a > b), [7, 6, 2]);
        assert!(ranking.rank([], |_, _| true).is_empty());
    }
}
