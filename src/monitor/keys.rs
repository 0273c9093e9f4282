// SPDX-License-Identifier: GPL-2.0-only
//! Which key does what: pure, a key in and an action out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::app::Screen;

/// Lines that a page key goes.
const PAGE: usize = 10;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAction {
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
    /// Show programs with goals.
    Goals,
    /// Show which program slows down which.
    Beside,
    /// Show power over time.
    Energy,
    /// Leave what is shown over the table.
    Back,
    /// Open what is pointed at, or take it.
    Enter,
}

/// What is on the last line, for each view.
pub fn hint(view: &Screen) -> &'static str {
    match view {
        Screen::Threads => {
            "? help  s sort  / find  Enter why  b pairs  g goals  e energy  p policy  q quit"
        }
        Screen::Filter => "Enter keep  Esc clear",
        Screen::Story(..) | Screen::Goals(_) | Screen::Beside(_) | Screen::Energy(_) => {
            "arrows scroll  space pause  Esc back  Ctrl-C quit"
        }
        Screen::Policies(_) => "arrows choose  Enter switch  Esc back",
        Screen::Help => "Esc back",
    }
}

/// All keys of the table, with what they do.
pub const KEYS: [(&str, &str); 10] = [
    ("Up Down, k j", "choose a thread; PgUp, PgDn, Home, End"),
    ("Enter", "why it is where it is: its phases and last moves"),
    (
        "s S, > <, r",
        "sort by the next column, the one before; the other way",
    ),
    (
        "/",
        "only threads with this in their name or id; Esc clears",
    ),
    ("space", "pause, and go on"),
    (
        "b, g, e",
        "pairs: which slows down which; goals; power over minutes",
    ),
    ("p", "switch the policy, without detaching"),
    ("?, h, F1", "this"),
    ("Esc", "back"),
    ("q, Ctrl-C", "quit"),
];

/// The action of a key, where `view` is on the screen.
pub fn action(view: &Screen, key: KeyEvent) -> Option<KeyAction> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(KeyAction::Quit);
    }
    if *view == Screen::Filter {
        return match key.code {
            KeyCode::Enter => Some(KeyAction::Enter),
            KeyCode::Esc => Some(KeyAction::NoFilter),
            KeyCode::Backspace => Some(KeyAction::Erase),
            KeyCode::Down => Some(KeyAction::Down(1)),
            KeyCode::Up => Some(KeyAction::Up(1)),
            KeyCode::Char(letter) => Some(KeyAction::Type(letter)),
            _ => None,
        };
    }
    let in_table = *view == Screen::Threads;
    Some(match key.code {
        KeyCode::Down | KeyCode::Char('j') => KeyAction::Down(1),
        KeyCode::Up | KeyCode::Char('k') => KeyAction::Up(1),
        KeyCode::PageDown => KeyAction::Down(PAGE),
        KeyCode::PageUp => KeyAction::Up(PAGE),
        KeyCode::End | KeyCode::Char('G') => KeyAction::Down(isize::MAX as usize),
        KeyCode::Char('g') if in_table => KeyAction::Goals,
        KeyCode::Char('b') if in_table => KeyAction::Beside,
        KeyCode::Char('e') if in_table => KeyAction::Energy,
        KeyCode::Home | KeyCode::Char('g') => KeyAction::Up(isize::MAX as usize),
        KeyCode::Char(' ') => KeyAction::Pause,
        KeyCode::Esc | KeyCode::Backspace => KeyAction::Back,
        KeyCode::Char('q') if !in_table => KeyAction::Back,
        KeyCode::Char('q') => KeyAction::Quit,
        KeyCode::Enter => KeyAction::Enter,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) if in_table => KeyAction::Help,
        KeyCode::Char('s' | '>') if in_table => KeyAction::NextSort,
        KeyCode::Char('S' | '<') if in_table => KeyAction::LastSort,
        KeyCode::Char('r') if in_table => KeyAction::Reverse,
        KeyCode::Char('/') if in_table => KeyAction::EditFilter,
        KeyCode::Char('p') if in_table => KeyAction::Policies,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(view: Screen, code: KeyCode) -> Option<KeyAction> {
        action(&view, KeyEvent::from(code))
    }

    #[test]
    fn letters_are_commands_in_the_table_and_text_in_the_filter() {
        let q = KeyCode::Char('q');
        assert_eq!(on(Screen::Threads, q), Some(KeyAction::Quit));
        assert_eq!(on(Screen::Filter, q), Some(KeyAction::Type('q')));
        assert_eq!(on(Screen::Help, q), Some(KeyAction::Back));
        let g = KeyCode::Char('g');
        assert_eq!(on(Screen::Threads, g), Some(KeyAction::Goals));
        let top = Some(KeyAction::Up(isize::MAX as usize));
        assert_eq!(on(Screen::Goals(7), g), top);
        assert_eq!(on(Screen::Story(1, 0), KeyCode::Char('s')), None);
        assert_eq!(
            on(Screen::Threads, KeyCode::Char('S')),
            Some(KeyAction::LastSort)
        );
        assert_eq!(
            on(Screen::Threads, KeyCode::Char('<')),
            Some(KeyAction::LastSort)
        );
    }

    #[test]
    fn control_c_leaves_from_everywhere() {
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let views = [
            Screen::Threads,
            Screen::Filter,
            Screen::Story(1, 0),
            Screen::Goals(0),
            Screen::Beside(0),
            Screen::Energy(0),
            Screen::Policies(0),
            Screen::Help,
        ];
        for view in views {
            assert_eq!(action(&view, key), Some(KeyAction::Quit), "{view:?}");
        }
    }
}
