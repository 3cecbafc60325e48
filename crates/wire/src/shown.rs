//! Makes text from a peer or a file fit to be shown in a terminal or a log.

use std::fmt::Write as _;

/// The most characters that are kept of a text.
const LONGEST: usize = 1000;

/// The text on one line, cut if it is too long, with escapes for everything that a terminal would obey.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    for char in chars.by_ref().take(LONGEST) {
        if char.is_control() || turns_or_hides(char) {
            out.extend(char.escape_default());
        } else {
            out.push(char);
        }
    }
    let rest = chars.count();
    if rest > 0 {
        // Writing to a string does not fail.
        let _ = write!(out, "... ({rest} characters more)");
    }
    out
}

/// Whether a character changes the direction of writing, ends a line, or is invisible.
fn turns_or_hides(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(shown("größer \u{1b}[2J\n\u{9b}1m\u{202e}"), "größer \\u{1b}[2J\\n\\u{9b}1m\\u{202e}");
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let cut = shown(&"ä".repeat(5000));
        assert!(cut.starts_with("ää") && cut.ends_with("ä... (4000 characters more)"), "{cut}");
    }
}
