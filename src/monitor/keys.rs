// SPDX-License-Identifier: GPL-2.0-only
//! Which key does what: pure, a key in and an action out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::View;

/// Lines that a page key goes.
const PAGE: usize = 10;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave.
    Quit,
    /// Show the keys.
    Help,
    /// Stand still, or go on.
    Pause,
    /// Sort by the next column, or the one before.
    NextSort,
    /// See `NextSort`.
    LastSort,
    /// Sort the other way round.
    Reverse,
    /// Begin to type a filter.
    EditFilter,
    /// A letter of it.
    Type(char),
    /// Take the last letter back.
    Erase,
    /// Take all back.
    NoFilter,
    /// Move on by so many lines.
    Down(usize),
    /// Move back.
    Up(usize),
    /// Show the policies.
    Policies,
    /// Leave what is shown over the table.
    Back,
    /// Open what is pointed at, or take it.
    Enter,
}

/// What is on the last line, for each view.
pub fn hint(view: &View) -> &'static str {
    match view {
        View::Threads => "? help  s sort  / filter  space pause  Enter why  p policy  q quit",
        View::Filter => "Enter keep  Esc clear",
        View::Story(..) => "arrows scroll  space pause  Esc back  Ctrl-C quit",
        View::Policies(_) => "arrows choose  Enter switch  Esc back",
        View::Help => "Esc back",
    }
}

/// All keys of the table, with what they do.
pub const KEYS: [(&str, &str); 10] = [
    ("Up Down, k j", "choose a thread; PgUp, PgDn, Home, End"),
    ("Enter", "why it is where it is: its phases and last moves"),
    ("s S, > <", "sort by the next column, the one before"),
    ("r", "sort the other way round"),
    (
        "/",
        "only threads with this in their name or id; Esc clears",
    ),
    ("space", "pause, and go on"),
    ("p", "switch the policy, without detaching"),
    ("?, h, F1", "this"),
    ("Esc", "back"),
    ("q, Ctrl-C", "quit"),
];

/// The action of a key, where `view` is on the screen.
pub fn action(view: &View, key: KeyEvent) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
    }
    if *view == View::Filter {
        return match key.code {
            KeyCode::Enter => Some(Action::Enter),
            KeyCode::Esc => Some(Action::NoFilter),
            KeyCode::Backspace => Some(Action::Erase),
            KeyCode::Down => Some(Action::Down(1)),
            KeyCode::Up => Some(Action::Up(1)),
            KeyCode::Char(letter) => Some(Action::Type(letter)),
            _ => None,
        };
    }
    let in_table = *view == View::Threads;
    Some(match key.code {
        KeyCode::Down | KeyCode::Char('j') => Action::Down(1),
        KeyCode::Up | KeyCode::Char('k') => Action::Up(1),
        KeyCode::PageDown => Action::Down(PAGE),
        KeyCode::PageUp => Action::Up(PAGE),
        KeyCode::End | KeyCode::Char('G') => Action::Down(isize::MAX as usize),
        KeyCode::Home | KeyCode::Char('g') => Action::Up(isize::MAX as usize),
        KeyCode::Char(' ') => Action::Pause,
        KeyCode::Esc | KeyCode::Backspace => Action::Back,
        KeyCode::Char('q') if !in_table => Action::Back,
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Enter => Action::Enter,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) if in_table => Action::Help,
        KeyCode::Char('s' | '>') if in_table => Action::NextSort,
        KeyCode::Char('S' | '<') if in_table => Action::LastSort,
        KeyCode::Char('r') if in_table => Action::Reverse,
        KeyCode::Char('/') if in_table => Action::EditFilter,
        KeyCode::Char('p') if in_table => Action::Policies,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(view: View, code: KeyCode) -> Option<Action> {
        action(&view, KeyEvent::from(code))
    }

    #[test]
    fn letters_are_commands_in_the_table_and_text_in_the_filter() {
        let q = KeyCode::Char('q');
        assert_eq!(on(View::Threads, q), Some(Action::Quit));
        assert_eq!(on(View::Filter, q), Some(Action::Type('q')));
        assert_eq!(on(View::Help, q), Some(Action::Back));
        assert_eq!(on(View::Story(1, 0), KeyCode::Char('s')), None);
        assert_eq!(
            on(View::Threads, KeyCode::Char('S')),
            Some(Action::LastSort)
        );
        assert_eq!(
            on(View::Threads, KeyCode::Char('<')),
            Some(Action::LastSort)
        );
    }

    #[test]
    fn control_c_leaves_from_everywhere() {
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let views = [
            View::Threads,
            View::Filter,
            View::Story(1, 0),
            View::Policies(0),
            View::Help,
        ];
        for view in views {
            assert_eq!(action(&view, key), Some(Action::Quit), "{view:?}");
        }
    }
}
