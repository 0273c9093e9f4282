// SPDX-License-Identifier: GPL-2.0-or-later
//! Whole numbers on the command line: which there may be is said in words, and not in those of the standard library.

use std::ops::RangeBounds;

/// Takes whole numbers within these bounds, as the value parser of an option.
pub fn whole<T>(
    bounds: impl RangeBounds<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: Copy + PartialOrd + std::str::FromStr + std::fmt::Display + Send + Sync + 'static,
{
    move |text| {
        use std::ops::Bound::{Included, Unbounded};
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| match (bounds.start_bound(), bounds.end_bound()) {
            (Included(least), Included(most)) => {
                format!("must be a whole number from {least} to {most}")
            }
            (Included(least), Unbounded) => format!("must be a whole number, {least} or more"),
            _ => "must be a whole number".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_number_is_said_in_words() {
        let percent = whole::<u8>(0..=100);
        assert_eq!(percent("100"), Ok(100));
        for wrong in ["101", "-1", "", "a", "1.5", "99999999999999999999"] {
            let said = Err("must be a whole number from 0 to 100".to_string());
            assert_eq!(percent(wrong), said, "{wrong}");
        }
        let id = whole::<u32>(1..);
        assert_eq!(id("4294967295"), Ok(u32::MAX));
        assert_eq!(id("0"), Err("must be a whole number, 1 or more".into()));
    }
}
