//! Tables of routes: read whole from RMR's text or from TOML, looked up for each message.
//!
//! ```
//! use nearcall_route::table::{Own, Table};
//!
//! let own = Own { names: vec!["app0:43086".to_owned()] };
//! let text = "newrt | start | rt-1\nmse | 1000 | -1 | app1:43086,app2:43086; logger:20311\nnewrt | end | 1\n";
//! let table = Table::parse_text(text, &own, &Table::empty())?;
//! let route = table.lookup(1000, 7).expect("any subscription");
//! let sent: Vec<_> = route.groups.iter().map(|group| &table.endpoints()[group.members[group.next()].0 as usize]).collect();
//! assert_eq!(sent, ["app1:43086", "logger:20311"]);
//! # Ok::<(), nearcall_route::table::TableError>(())
//! ```

mod building;
mod contents;
mod error;
mod from_toml;
mod limits;
mod names;
mod pauses;
mod route;
mod text;
mod writing;

pub use building::Own;
pub use contents::{ANY_SUBSCRIPTION, Entry, Table};
pub use error::TableError;
pub use names::{SCHEMES, check_place};
pub(crate) use names::{check_endpoint, check_reply_address};
pub use route::{EndpointId, Group, Route};
pub use text::id_of_text;

impl Table {
    /// Reads RMR's text: sections one after the other, on top of the table before. `newrt` replaces all its routes, `updatert`
    /// changes some, `meid_map` changes managed entities. `own` is to be the same as for the table before. An error refuses
    /// all of the text.
    pub fn parse_text(text: &str, own: &Own, before: &Self) -> Result<Self, TableError> {
        text::read(text, own, before)
    }

    /// Reads a table from TOML. It is a whole one.
    pub fn parse_toml(text: &str, own: &Own) -> Result<Self, TableError> {
        from_toml::read(text, own)
    }

    /// Writes the table as RMR's text, for senders of any name. Read after the empty table it becomes an equal one; the empty
    /// table itself has no text.
    pub fn to_text(&self) -> String {
        writing::write(self)
    }
}
