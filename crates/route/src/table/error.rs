//! Why a table was refused, in words for whoever wrote it.
use std::fmt;

/// Why a table was refused: where, what is wrong, and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// The line, from 1; 0 if it is the whole text that is wrong.
    pub line: usize,
    /// What is wrong there and what to write instead: one line of text.
    pub what: String,
}

impl TableError {
    pub(super) fn new(line: usize, what: impl Into<String>) -> Self {
        Self { line, what: what.into() }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(to, "line {}: ", self.line)?;
        }
        to.write_str(&self.what)
    }
}

impl std::error::Error for TableError {}

/// Something of a table's text, for an error: in quotes, on one line, and not much of it.
pub(super) fn shown(text: &str) -> String {
    const MAX_CHARACTERS: usize = 60;
    let mut quoted = String::from("`");
    for (number, letter) in text.chars().enumerate() {
        if number == MAX_CHARACTERS {
            quoted.push('…');
            break;
        }
        if letter.is_control() {
            quoted.extend(letter.escape_default());
        } else {
            quoted.push(letter);
        }
    }
    quoted.push('`');
    quoted
}

/// `; did you mean …?`, if one of the words is near enough to be meant.
pub(super) fn did_you_mean(word: &str, words: &[&str]) -> String {
    const LONGEST: usize = 32; // the time grows with the length, which a stranger chooses
    if word.len() > LONGEST {
        return String::new();
    }
    let nearest = words.iter().map(|candidate| (distance(word, candidate), candidate)).min();
    match nearest {
        Some((changes, candidate)) if changes <= candidate.len().div_ceil(3) => {
            format!("; did you mean {}?", shown(candidate))
        }
        _ => String::new(),
    }
}

/// How many letters must be added, left out or changed to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (number, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = number + 1;
        for (column, &opposite) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != opposite);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_its_line_if_it_has_one() {
        assert_eq!(TableError::new(12, "no").to_string(), "line 12: no");
        assert_eq!(TableError::new(0, "too long").to_string(), "too long");
    }

    #[test]
    fn what_is_shown_is_short_and_on_one_line() {
        assert_eq!(shown("a\nb"), "`a\\nb`");
        assert_eq!(shown(&"é".repeat(100)), format!("`{}…`", "é".repeat(60)));
    }

    #[test]
    fn only_a_near_word_is_offered() {
        assert_eq!(did_you_mean("subscripton", &["type", "subscription"]), "; did you mean `subscription`?");
        assert_eq!(did_you_mean("colour", &["type", "subscription"]), "");
        assert_eq!(did_you_mean(&"x".repeat(1 << 20), &["type"]), "");
    }

    #[test]
    fn the_distance_counts_letters() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
