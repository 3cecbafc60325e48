//! Tables that a route manager of RMR pushes: records in messages, with the parts of one table in one message or in several.

use crate::table::id_of_text;

/// The types of messages between a route manager and those whose tables it makes.
pub mod kinds {
    /// Records of a table.
    pub const TABLE: i32 = 20;
    /// Somebody asks for a table.
    pub const REQUEST: i32 = 21;
    /// What became of a table.
    pub const STATE: i32 = 22;
}

/// Bytes of a table that comes in pieces.
const MAX_TABLE_BYTES: usize = 64 << 20;

/// The pieces of a table that have come.
#[derive(Debug, Default)]
pub struct Pushed {
    text: String,
    /// The table was longer than it may be, or no text: the rest of it is passed over.
    spoilt: bool,
}

impl Pushed {
    /// Takes records. Returns the texts of the tables, or changes of tables, that are whole now, and the reasons why others
    /// cannot be used.
    pub fn take(&mut self, payload: &[u8]) -> Vec<Result<String, String>> {
        let mut out = Vec::new();
        // RMR's own tools end a text with a zero.
        let payload = payload.strip_suffix(&[0]).unwrap_or(payload);
        let Ok(records) = std::str::from_utf8(payload) else {
            self.text.clear();
            return vec![Err("<id-missing> its records are not UTF-8".to_owned())];
        };
        for piece in records.split_inclusive(['\n', '\r']) {
            let mut fields = piece.split('|').map(str::trim);
            let is_section = matches!(fields.next(), Some("newrt" | "updatert" | "meid_map"));
            let mark = if is_section { fields.next().unwrap_or_default() } else { "" };
            if matches!(mark, "start" | "begin") {
                if !self.text.is_empty() {
                    out.push(Err(format!("{} table not complete", self.id())));
                }
                self.text.clear();
                self.spoilt = false;
            }
            self.spoilt |= self.text.len() + piece.len() > MAX_TABLE_BYTES;
            // Records outside of a section say nothing.
            if self.spoilt || self.text.is_empty() && mark.is_empty() {
                continue;
            }
            // All bytes are kept as they are, since there may be a sum of them; but a record that ends with its message
            // is a whole one.
            self.text.push_str(piece);
            if !piece.ends_with(['\n', '\r']) {
                self.text.push('\n');
            }
            if mark == "end" {
                out.push(Ok(std::mem::take(&mut self.text)));
            }
        }
        out
    }

    fn id(&self) -> &str {
        named(id_of_text(&self.text))
    }
}

/// What is said to a route manager of a table that came as this text. `problem`: why it is not used.
#[must_use]
pub fn answer(text: &str, problem: Option<&str>) -> String {
    let id = named(id_of_text(text));
    problem.map_or_else(|| format!("OK {id} \n"), |problem| format!("ERR {id} {problem}\n"))
}

fn named(id: &str) -> &str {
    if id.is_empty() { "<id-missing>" } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_in_pieces() {
        let mut pushed = Pushed::default();
        assert_eq!(pushed.take(b"# nothing\nnewrt | start | t1\nrte|1|a:1\n"), []);
        assert_eq!(pushed.take(b"rte|2|a:1\n\0"), []);
        let whole = "newrt | start | t1\nrte|1|a:1\nrte|2|a:1\nnewrt|end|2\n".to_owned();
        assert_eq!(pushed.take(b"newrt|end|2\nmeid_map|start\n"), [Ok(whole.clone())]);
        assert_eq!(pushed.take(b"meid_map|end|0"), [Ok("meid_map|start\nmeid_map|end|0\n".to_owned())]);
        assert_eq!(answer(&whole, None), "OK t1 \n");
        assert_eq!(answer("meid_map|start\n", Some("no")), "ERR <id-missing> no\n");
    }

    #[test]
    fn what_is_left_unfinished_is_told() {
        let mut pushed = Pushed::default();
        assert_eq!(pushed.take(b"rte|1|a:1\nnewrt|start|t1\nrte|1|a:1\n"), []);
        let told = pushed.take(b"newrt|start|t2\nnewrt|end|0\n");
        assert_eq!(told, [Err("t1 table not complete".to_owned()), Ok("newrt|start|t2\nnewrt|end|0\n".to_owned())]);
        assert!(pushed.take(b"\xff")[0].is_err());
    }
}
