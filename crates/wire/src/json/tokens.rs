//! Finds the tokens of a JSON text. A number stays as it is written, because no type of the machine holds all of them.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use super::texts::numeral;

/// What a value begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token<'t> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it is written.
    Number(&'t str),
    /// A text, without its quotes and escapes.
    Text(Cow<'t, str>),
    /// The bracket before the items of an array: [`Tokens::item`] goes from one to the next.
    Array,
    /// The bracket before the entries of an object: [`Tokens::key`] goes from one to the next.
    Object,
}

/// A JSON text, and how far it is read. An error says what is wrong with the text, and where.
#[derive(Debug)]
pub struct Tokens<'t> {
    text: &'t str,
    at: usize,
}

/// The bytes that are looked at together, where a text goes on.
const TOGETHER: usize = 16;

impl<'t> Tokens<'t> {
    /// Begins to read a text.
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// The next value, or how it begins.
    ///
    /// # Errors
    ///
    /// No value is there.
    #[inline]
    pub fn token(&mut self) -> Result<Token<'t>, String> {
        match self.peek() {
            Some(b'"') => self.string().map(Token::Text),
            Some(b'{') => Ok(self.take(1, Token::Object)),
            Some(b'[') => Ok(self.take(1, Token::Array)),
            Some(b't') if self.rest().starts_with("true") => Ok(self.take(4, Token::Bool(true))),
            Some(b'f') if self.rest().starts_with("false") => Ok(self.take(5, Token::Bool(false))),
            Some(b'n') if self.rest().starts_with("null") => Ok(self.take(4, Token::Null)),
            Some(b'-' | b'0'..=b'9') => match numeral(self.rest().as_bytes()) {
                Some(len) => Ok(self.take(len, Token::Number(&self.rest()[..len]))),
                None => Err(self.malformed()),
            },
            _ => Err(self.malformed()),
        }
    }

    /// Whether an array has another item, behind its bracket (`first`) or behind another item.
    ///
    /// # Errors
    ///
    /// Neither a comma nor the array's end is there.
    #[inline]
    pub fn item(&mut self, first: bool) -> Result<bool, String> {
        match self.peek() {
            Some(b']') => Ok(self.take(1, false)),
            Some(b',') if !first => Ok(self.take(1, true)),
            Some(_) if first => Ok(true),
            _ => Err(self.malformed()),
        }
    }

    /// The key of an object's next entry, behind its bracket (`first`) or behind another entry. Its value follows.
    ///
    /// # Errors
    ///
    /// Neither a key nor the object's end is there.
    #[inline]
    pub fn key(&mut self, first: bool) -> Result<Option<Cow<'t, str>>, String> {
        match self.peek() {
            Some(b'}') => return Ok(self.take(1, None)),
            Some(b',') if !first => self.at += 1,
            Some(_) if first => {}
            _ => return Err(self.malformed()),
        }
        if self.peek() != Some(b'"') {
            return Err(self.malformed());
        }
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.malformed());
        }
        Ok(self.take(1, Some(key)))
    }

    /// Goes past a value, however deep it is.
    ///
    /// # Errors
    ///
    /// No value is there.
    pub fn skip(&mut self) -> Result<(), String> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {
                self.at += values.byte_offset();
                Ok(())
            }
            _ => Err(self.malformed()),
        }
    }

    /// Whatever follows the outermost value is an error.
    ///
    /// # Errors
    ///
    /// Something follows.
    pub fn end(mut self) -> Result<(), String> {
        if self.peek().is_some() { Err(self.malformed()) } else { Ok(()) }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take<T>(&mut self, len: usize, found: T) -> T {
        self.at += len;
        found
    }

    /// The next byte that is no blank.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            let next = *self.text.as_bytes().get(self.at)?;
            if !matches!(next, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(next);
            }
            self.at += 1;
        }
    }

    /// The text whose quote is next.
    #[inline]
    fn string(&mut self) -> Result<Cow<'t, str>, String> {
        let begin = self.at + 1;
        let end = begin + plain(&self.text.as_bytes()[begin..]);
        match self.text.as_bytes().get(end) {
            Some(b'"') => {
                self.at = end + 1;
                Ok(Cow::Borrowed(&self.text[begin..end]))
            }
            Some(b'\\') => self.escaped(end).map(Cow::Owned),
            _ => Err(self.malformed()),
        }
    }

    /// The text whose quote is next, and whose first escape is at `end`.
    fn escaped(&mut self, mut end: usize) -> Result<String, String> {
        let bytes = self.text.as_bytes();
        while bytes.get(end) == Some(&b'\\') {
            end = bytes.len().min(end + 2);
            end += plain(&bytes[end..]);
        }
        let quoted = self.text.get(self.at..=end).ok_or_else(|| self.malformed())?;
        let text = serde_json::from_str(quoted).map_err(|_| self.malformed())?;
        self.at = end + 1;
        Ok(text)
    }

    /// What is wrong with the text. `serde_json` reads it from the beginning and has words for it.
    #[cold]
    fn malformed(&self) -> String {
        let why = match serde_json::from_str::<IgnoredAny>(self.text) {
            Err(error) => error.to_string(),
            // The only thing that it does not look at in a text which it skips.
            Ok(_) => format!("half of a surrogate pair in the text that begins at byte {}", self.at),
        };
        format!("the JSON is malformed: {why}")
    }
}

/// How many bytes of a text come before its end, its first escape or a control character.
#[inline]
fn plain(bytes: &[u8]) -> usize {
    // As numbers, not as bools with a branch for each byte: the compiler looks at many of them at once.
    let ends = |byte: u8| u8::from(byte == b'"') | u8::from(byte == b'\\') | u8::from(byte < b' ');
    let none_ends = |bytes: &&[u8]| bytes.iter().fold(0, |any, &byte| any | ends(byte)) == 0;
    let skipped = TOGETHER * bytes.chunks_exact(TOGETHER).take_while(none_ends).count();
    let rest = &bytes[skipped..];
    skipped + rest.iter().position(|&byte| ends(byte) > 0).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All tokens of a text; a container is closed by a token of its own kind.
    fn all(text: &str) -> Result<Vec<Token<'_>>, String> {
        let (mut tokens, mut found) = (Tokens::new(text), Vec::new());
        value(&mut tokens, &mut found)?;
        tokens.end().map(|()| found)
    }

    fn value<'t>(tokens: &mut Tokens<'t>, found: &mut Vec<Token<'t>>) -> Result<(), String> {
        let token = tokens.token()?;
        found.push(token.clone());
        let mut first = true;
        match token {
            Token::Array => {
                while tokens.item(first)? {
                    value(tokens, found)?;
                    first = false;
                }
                found.push(token);
            }
            Token::Object => {
                while let Some(key) = tokens.key(first)? {
                    found.push(Token::Text(key));
                    value(tokens, found)?;
                    first = false;
                }
                found.push(token);
            }
            _ => {}
        }
        Ok(())
    }

    fn text(text: &str) -> Token<'_> {
        Token::Text(Cow::Borrowed(text))
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        let found = all(" [ 1 , -0.50,1E+2 , {\"a\" :[ ] } ]\n").expect("it is JSON");
        let number = Token::Number;
        let inner = [Token::Object, text("a"), Token::Array, Token::Array, Token::Object];
        let mut expected = vec![Token::Array, number("1"), number("-0.50"), number("1E+2")];
        expected.extend(inner);
        expected.push(Token::Array);
        assert_eq!(found, expected);
    }

    #[test]
    fn texts_end_at_their_quote() {
        for len in 0..40 {
            let long = "\u{e9}".repeat(len);
            let escaped = format!("{long}\\\"\\\\{long}\\u00e9\\ud83d\\ude00{long}");
            let plain = format!("{long}\"\\{long}\u{e9}\u{1f600}{long}");
            let json = format!("[\"{long}\",\"{escaped}\",\"\"]");
            let expected = [Token::Array, text(&long), text(&plain), text(""), Token::Array];
            assert_eq!(all(&json).as_deref(), Ok(&expected[..]), "{json}");
        }
    }

    #[test]
    fn a_text_is_json_if_another_reader_says_so() {
        let texts = [
            "",
            " ",
            "1",
            "01",
            "-",
            "-1",
            "1.",
            ".5",
            "1.5",
            "1e",
            "1e5",
            "1e+",
            "1E-5",
            "--1",
            "+1",
            "1 2",
            "nul",
            "null",
            "nulls",
            "true",
            "tru",
            "false",
            "\"",
            "\"a",
            "\"a\\",
            "\"a\\\"",
            "\"\\\"\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u0041\"",
            "\"a\nb\"",
            "\"\u{7f}\"",
            "[",
            "]",
            "[]",
            "[,]",
            "[1,]",
            "[1 2]",
            "[1,2]",
            "[1}",
            "{",
            "{}",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1,}",
            "{\"a\":1,\"b\":2}",
            "{\"a\" 1}",
            "{1:1}",
            "{]",
            "[[[]]]",
            "\u{feff}1",
            "\u{a0}1",
            "[1]x",
            "{\"a\\u00e9\":[\"\\n\"]}",
            "\"\\\\",
            "\"\u{e9}\\\u{e9}\"",
        ];
        for json in texts {
            let expected = serde_json::from_str::<IgnoredAny>(json).map(drop).map_err(|error| error.to_string());
            let found = all(json).map(drop).map_err(|why| why.replace("the JSON is malformed: ", ""));
            assert_eq!(found, expected, "{json:?}");
            let mut skipped = Tokens::new(json);
            assert_eq!(skipped.skip().and_then(|()| skipped.end()).is_ok(), expected.is_ok(), "{json:?}");
        }
    }

    #[test]
    fn half_of_a_pair_is_no_text() {
        for json in [r#""\ud800""#, r#"["a\udc00\ud800"]"#, r#"{"\ud83d":1}"#] {
            let why = all(json).expect_err("no text has that");
            assert!(why.starts_with("the JSON is malformed: half of a surrogate pair"), "{why}");
        }
    }

    #[test]
    fn what_is_skipped_may_be_deep() {
        let deep = format!("[{}{}, 7]", "[".repeat(1_000_000), "]".repeat(1_000_000));
        let mut tokens = Tokens::new(&deep);
        assert_eq!(tokens.token(), Ok(Token::Array));
        assert_eq!(tokens.item(true), Ok(true));
        assert_eq!(tokens.skip(), Ok(()));
        assert_eq!((tokens.item(false), tokens.token()), (Ok(true), Ok(Token::Number("7"))));
        assert_eq!((tokens.item(false), tokens.end()), (Ok(false), Ok(())));
    }
}
