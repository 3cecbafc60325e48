//! RMR's form of a table: records of fields, in sections that begin and end.
//!
//! The rules are those of RMR 4.9's sources. Where RMR drops a record silently, takes a letter for a word or reads a number out of
//! anything, this refuses the text: what its writer meant would not happen, and nobody would know.
use std::sync::Arc;

use md5::{Digest, Md5};
use memchr::{memchr, memchr_iter, memchr2};
use smallvec::SmallVec;

use super::building::{Builder, Own};
use super::contents::{ANY_SUBSCRIPTION, Table};
use super::error::{TableError, did_you_mean, shown};
use super::limits::{MAX_SENDERS, MAX_TEXT};
use super::names::{BLANKS, BY_ENTITY, check_sender};
use super::pauses::Pauses;
use super::route::Target;

/// What sections begin and end with, and then what lies in them.
const RECORDS: [&str; 8] = ["newrt", "updatert", "meid_map", "mse", "rte", "del", "mme_ar", "mme_del"];
/// The most fields of a record, with one more to see that there are too many.
const FIELDS: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `newrt`: all routes.
    Whole,
    /// `updatert`: routes that come to those there are, or go.
    Update,
    /// `meid_map`: managed entities.
    Entities,
}

struct Section<'a> {
    kind: Kind,
    name: &'a str,
    /// Where it began.
    line: usize,
    /// Its records, start and end not among them.
    count: u64,
    /// Where they begin in the text.
    records: usize,
}

/// Reads all sections of a text on top of the table before.
pub(super) fn read(text: &str, own: &Own, before: &Table) -> Result<Table, TableError> {
    if text.len() > MAX_TEXT {
        return Err(TableError::new(0, format!("the table has {} bytes, and may have {MAX_TEXT}", text.len())));
    }
    let mut reader = Reader { text, table: Builder::after(before, own), last: None, section: None, sections: 0 };
    let mut line = 0;
    let mut pauses = Pauses::default();
    for record in records(text) {
        pauses.one_done();
        line = record.line;
        reader.record(&record).map_err(|what| TableError::new(line, what))?;
    }
    if let Some(Section { name, line: began, .. }) = reader.section {
        let what =
            format!("the text ends within the section that `{name}` began on line {began}: write `{name} | end`");
        return Err(TableError::new(line, what));
    }
    if reader.sections == 0 {
        return Err(TableError::new(
            0,
            "there is no table: it begins with `newrt | start` and ends with `newrt | end`",
        ));
    }
    reader.table.finish().map_err(|what| TableError::new(line, what))
}

/// The id that the last section of a text begins with, or `""`: for an answer about a text that was refused.
pub fn id_of_text(text: &str) -> &str {
    let mut id = "";
    for record in records(text) {
        let mut fields = record.fields();
        let names_section = fields.next().is_some_and(|name| kind_of(name).is_some());
        if names_section && matches!(fields.next(), Some("start" | "begin")) {
            id = fields.next().unwrap_or_default();
        }
    }
    id
}

/// What stands between two ends of records, the comment not: it may be blank.
struct Record<'a> {
    line: usize,
    text: &'a str,
    /// Where it begins in the whole text, and where the next one does.
    start: usize,
    next: usize,
    /// Whether it has an end.
    ended: bool,
}

impl<'a> Record<'a> {
    fn fields(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = Some(self.text);
        std::iter::from_fn(move || {
            let text = rest.take()?;
            let end = memchr(b'|', text.as_bytes());
            rest = end.map(|end| &text[end + 1..]);
            Some(trimmed(&text[..end.unwrap_or(text.len())]))
        })
        .take(FIELDS)
    }
}

/// A text without the blanks at its ends. They are bytes of their own, which are found sooner than letters.
fn trimmed(text: &str) -> &str {
    let is_text = |byte: &u8| !is_blank(*byte);
    let bytes = text.as_bytes();
    let Some(first) = bytes.iter().position(is_text) else { return "" };
    let last = bytes.iter().rposition(is_text).expect("there is a first");
    &text[first..=last]
}

fn is_blank(byte: u8) -> bool {
    BLANKS.contains(&char::from(byte))
}

/// Divides a text at LF, CRLF and CR.
fn records(text: &str) -> impl Iterator<Item = Record<'_>> {
    let (mut line, mut start) = (0, 0);
    std::iter::from_fn(move || {
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let end = memchr2(b'\n', b'\r', rest.as_bytes());
        let content = &rest[..end.unwrap_or(rest.len())];
        let ends = end.map_or(0, |end| if rest[end..].starts_with("\r\n") { 2 } else { 1 });
        let begins = start;
        line += 1;
        start += content.len() + ends;
        let text = trimmed(without_comment(content));
        Some(Record { line, text, start: begins, next: start, ended: end.is_some() })
    })
}

/// A comment begins at a `#` that is the first letter of a record or comes after a blank.
fn without_comment(record: &str) -> &str {
    let bytes = record.as_bytes();
    let begins = |&place: &usize| place == 0 || is_blank(bytes[place - 1]);
    memchr_iter(b'#', bytes).find(begins).map_or(record, |place| &record[..place])
}

fn kind_of(name: &str) -> Option<Kind> {
    match name {
        "newrt" => Some(Kind::Whole),
        "updatert" => Some(Kind::Update),
        "meid_map" => Some(Kind::Entities),
        _ => None,
    }
}

struct Reader<'a> {
    text: &'a str,
    table: Builder<'a>,
    /// Groups without turns of an entry for all senders, and what they say: most entries say the same as their neighbours.
    last: Option<(&'a str, Arc<Target>)>,
    section: Option<Section<'a>>,
    /// How many have ended.
    sections: usize,
}

impl<'a> Reader<'a> {
    fn record(&mut self, record: &Record<'a>) -> Result<(), String> {
        if record.text.is_empty() {
            return Ok(());
        }
        // RMR 4.9 takes one in spite of what its documentation says, and so may take `newrt | end` for `newrt | end | 12`.
        if !record.ended {
            return Err(format!("{} has no end of line: the text was cut off", shown(record.text)));
        }
        let fields: SmallVec<[&str; FIELDS]> = record.fields().collect();
        let (name, fields) = fields.split_first().expect("a text has a first part");
        if let Some(kind) = kind_of(name) {
            return match fields.first() {
                Some(&("start" | "begin")) => self.start(kind, name, &fields[1..], record),
                Some(&"end") => self.end(kind, name, &fields[1..], record),
                // RMR takes all but `end` for a start.
                Some(other) => {
                    let meant = did_you_mean(other, &["start", "end"]);
                    Err(format!("`{name} |` is followed by `start` or `end`, not by {}{meant}", shown(other)))
                }
                None => Err(format!("`{name}` is followed by `| start` or `| end`")),
            };
        }
        let of_entities = match *name {
            "mse" | "rte" | "del" => false,
            "mme_ar" | "mme_del" => true,
            "" => return Err("the record has no name before its first `|`".to_owned()),
            _ => {
                let meant = did_you_mean(name, &RECORDS);
                return Err(format!("{} is no record: there are {}{meant}", shown(name), RECORDS.join(", ")));
            }
        };
        match &mut self.section {
            Some(section) if (section.kind == Kind::Entities) == of_entities => section.count += 1,
            // RMR passes over it; within another section it takes it.
            _ if of_entities => return Err(format!("`{name}` lies between `meid_map | start` and `meid_map | end`")),
            _ => {
                return Err(format!(
                    "`{name}` lies between `newrt | start` and `newrt | end`, or the two of `updatert`"
                ));
            }
        }
        match *name {
            "mse" => self.mse(fields),
            "rte" => self.rte(fields),
            "del" => self.del(fields),
            "mme_ar" => self.mme_ar(fields),
            _ => self.mme_del(fields),
        }
    }

    fn start(&mut self, kind: Kind, name: &'a str, rest: &[&str], record: &Record<'a>) -> Result<(), String> {
        if let Some(Section { name, line, .. }) = &self.section {
            // RMR drops what it has of that one, and begins anew.
            return Err(format!(
                "the section that `{name}` began on line {line} has no end: write `{name} | end` first"
            ));
        }
        let id = match rest {
            [] | [""] => None,
            [id] | [id, ""] => Some(id),
            _ => return Err(format!("`{name} | start` is followed by an id and nothing else")),
        };
        match kind {
            Kind::Whole => {
                self.table.begin_anew();
                self.last = None;
            }
            // RMR passes over it without a word. There, a table from a file does not count as one.
            Kind::Update if !self.table.complete => {
                return Err(
                    "there is no table yet that `updatert` could change: send a whole one, with `newrt`".to_owned()
                );
            }
            Kind::Update => self.table.keep_routes(),
            Kind::Entities => {}
        }
        match id {
            Some(id) => self.table.set_id(id)?,
            None if kind == Kind::Whole => self.table.set_id("")?,
            // RMR forgets the id at a map without one, and uses it in answers only. Here it names the routes in force.
            None => {}
        }
        self.section = Some(Section { kind, name, line: record.line, count: 0, records: record.next });
        Ok(())
    }

    fn end(&mut self, kind: Kind, name: &str, rest: &[&str], record: &Record<'a>) -> Result<(), String> {
        let Some(section) = self.section.take() else {
            return Err(format!("`{name} | end` has no `{name} | start` before it"));
        };
        if section.kind != kind {
            // RMR ends whatever there is.
            let (began, line) = (section.name, section.line);
            return Err(format!(
                "`{name} | end` ends the section that `{began}` began on line {line}: write `{began} | end`"
            ));
        }
        let (most, form) = match kind {
            Kind::Entities => (2, "a count and an MD5 sum"),
            Kind::Whole | Kind::Update => (1, "a count"),
        };
        if rest.len() > most {
            return Err(format!("`{name} | end` is followed by {form}, and nothing else"));
        }
        if let Some(count) = rest.first() {
            // An empty one is no missing one: it may have been cut off. RMR takes it for 0.
            if count.is_empty() {
                return Err(format!("the count of records is missing: write a number, or `{name} | end` alone"));
            }
            let expected: u64 =
                count.parse().map_err(|_| format!("{} is no count of records: write a number", shown(count)))?;
            let found = section.count;
            if expected != found {
                return Err(format!(
                    "records expected: {expected}, records found: {found}; the table is not complete, and none of it is used"
                ));
            }
        }
        if let Some(expected) = rest.get(1) {
            // RMR has documented this and does not check it. The records are hashed as they came, with the ends of lines.
            let sum = Md5::digest(&self.text[section.records..record.start]);
            let sum = format!("{:032x}", u128::from_be_bytes(sum.into()));
            if !expected.eq_ignore_ascii_case(&sum) {
                return Err(format!(
                    "the records have the MD5 sum {sum}, not {}: they have been changed",
                    shown(expected)
                ));
            }
        }
        self.sections += 1;
        Ok(())
    }

    /// `mse | type[,sender…] | subscription | groups`
    fn mse(&mut self, fields: &[&'a str]) -> Result<(), String> {
        let Some([to, subscription, groups]) = exactly(fields) else {
            return Err("write `mse | type | subscription | endpoints`, with -1 for any subscription".to_owned());
        };
        self.entry(to, number(subscription, "subscription")?, groups)
    }

    /// `rte | type[,sender…] | groups [| subscription]`: RMR's older form. The subscription comes last there, and is left out
    /// mostly; an empty one, which RMR takes for 0, is refused.
    fn rte(&mut self, fields: &[&'a str]) -> Result<(), String> {
        let (to, groups, subscription) = match fields {
            [to, groups] => (to, groups, ANY_SUBSCRIPTION),
            [to, groups, subscription] | [to, groups, subscription, ""] => {
                (to, groups, number(subscription, "subscription")?)
            }
            _ => return Err("write `rte | type | endpoints`".to_owned()),
        };
        self.entry(to, subscription, groups)
    }

    /// `del | type[,sender…] | subscription`
    fn del(&mut self, fields: &[&str]) -> Result<(), String> {
        let Some([from, subscription]) = exactly(fields) else {
            return Err("write `del | type | subscription`, with -1 for the entry of any subscription".to_owned());
        };
        let (kind, senders) = kind_and_senders(from)?;
        self.table.delete(kind, number(subscription, "subscription")?, &senders)
    }

    fn entry(&mut self, to: &str, subscription: i32, groups: &'a str) -> Result<(), String> {
        let (kind, senders) = kind_and_senders(to)?;
        let is_for_all = senders.is_empty();
        let target = match &self.last {
            Some((text, target)) if is_for_all && *text == groups => Arc::clone(target),
            _ => {
                let target = Arc::new(self.target(groups)?);
                if is_for_all && !target.has_turns() {
                    self.last = Some((groups, Arc::clone(&target)));
                }
                target
            }
        };
        self.table.put(kind, subscription, &senders, target)
    }

    /// Groups, divided by `;`, of members, divided by `,`; or `%meid` alone. RMR passes over what follows that.
    fn target(&mut self, groups: &str) -> Result<Target, String> {
        if groups == BY_ENTITY {
            return Ok(Target::by_entity());
        }
        if groups.is_empty() {
            return Err("the entry names no endpoint: write `host:port`, a URL, or `%meid`".to_owned());
        }
        let mut all = Vec::new();
        for group in groups.split(';') {
            let mut members = Vec::new();
            for member in group.split(',') {
                // RMR keeps the blanks, so that such a member is never reached; of an empty one it makes a member that is none.
                let member = trimmed(member);
                if member == BY_ENTITY {
                    return Err(format!(
                        "`{BY_ENTITY}` stands alone: the message goes to its entity's owner, and to nobody else"
                    ));
                }
                members.push(self.table.endpoint(member)?);
            }
            all.push(members);
        }
        Ok(self.table.target(all))
    }

    /// `mme_ar | owner | entity entity…`
    fn mme_ar(&mut self, fields: &[&str]) -> Result<(), String> {
        const FORM: &str = "write `mme_ar | endpoint | meid meid…`";
        let Some([owner, entities]) = exactly(fields) else { return Err(FORM.to_owned()) };
        let owner = self.table.endpoint(owner)?;
        if entities.is_empty() {
            return Err(FORM.to_owned());
        }
        words(entities).try_for_each(|entity| self.table.own_entity(entity, owner).map(drop))
    }

    /// `mme_del | entity entity…`
    fn mme_del(&mut self, fields: &[&str]) -> Result<(), String> {
        match exactly(fields) {
            Some([entities]) if !entities.is_empty() => {
                words(entities).try_for_each(|entity| self.table.disown_entity(entity))
            }
            _ => Err("write `mme_del | meid meid…`".to_owned()),
        }
    }
}

/// The fields of a record that has this many. A `|` at its end begins none. RMR passes over all fields too many; others than
/// this are refused here.
fn exactly<'a, const N: usize>(fields: &[&'a str]) -> Option<[&'a str; N]> {
    let (fields, rest) = fields.split_first_chunk()?;
    matches!(rest, [] | [""]).then_some(*fields)
}

/// RMR divides at each single blank, and takes at most 128.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(BLANKS).filter(|word| !word.is_empty())
}

/// `type[,sender…]`
fn kind_and_senders(field: &str) -> Result<(i32, Vec<&str>), String> {
    let mut parts = field.split(',').map(trimmed);
    let kind = number(parts.next().unwrap_or_default(), "message type")?;
    let senders: Vec<_> = parts.take(MAX_SENDERS + 1).collect();
    if senders.len() > MAX_SENDERS {
        return Err(format!(
            "the entry has too many senders: it may have {MAX_SENDERS}; write the others into a second one"
        ));
    }
    senders.iter().try_for_each(|sender| check_sender(sender))?;
    Ok((kind, senders))
}

/// A number as messages have it. RMR reads `12abc` as 12 and `abc` as 0; its documentation ends at 32000, its wire does not.
fn number(text: &str, what: &str) -> Result<i32, String> {
    if text.is_empty() {
        return Err(format!("the {what} is missing: write a number"));
    }
    text.parse().map_err(|_| format!("{} is no {what}: write a number, from {} to {}", shown(text), i32::MIN, i32::MAX))
}
