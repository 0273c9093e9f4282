// SPDX-License-Identifier: GPL-2.0-only
//! Text for terminals.

/// Columns of a terminal that everything fits.
pub const WIDTH: usize = 80;

/// Breaks text between words into lines of at most [`WIDTH`] columns, later ones indented.
pub fn wrap(text: &str) -> String {
    hang(text, 0, 2)
}

/// The same for text that begins in column `first` and goes on in column `indent`.
pub fn hang(text: &str, first: usize, indent: usize) -> String {
    let (mut wrapped, mut column) = (String::new(), first);
    // After a comma too: lists of CPUs can be longer than a line.
    for word in text.split_inclusive([' ', ',']) {
        if column + word.trim_end().chars().count() > WIDTH {
            wrapped.truncate(wrapped.trim_end().len());
            wrapped += "\n";
            wrapped += &" ".repeat(indent);
            column = indent;
        }
        wrapped += word;
        column += word.chars().count();
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_broken_between_words() {
        let wrapped = wrap(&"word ".repeat(40));
        assert!(wrapped.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(wrapped.split_whitespace().count(), 40);
    }
}
