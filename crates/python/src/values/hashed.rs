//! Refuses messages whose dicts and sets would take Python much longer to build than their bytes suggest.

use std::ops::Range;

use nearcall_core::{Effort, Hashed, KeyType, TooMuch, Watch};
use pyo3::exceptions::{PyMemoryError, PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::gil::callback::Callback;
use crate::gil::interpreter::{attach, detach};

/// In a message of at most this many bytes, no keys can do harm.
const SHORT: usize = 2048;
/// From this length in bytes on, a message is checked without the interpreter.
const LONG: usize = 8 * 1024;
/// How many keys are hashed at a time. If Python hashes them, each key takes some microseconds, during which the
/// interpreter runs no other line of Python and no other thread has it.
const BATCH: usize = 256;
/// How many of them are decoded as the keys of one dict, which is quicker than a dict for each, and cannot take long.
const IN_A_DICT: usize = 32;
/// All hashed keys of a message together may be this many times as long as the message: keys may lie in keys.
const MOST_NESTED: usize = 4;

pub(crate) const COLLISIONS: &str =
    "keys of a dict or a set collide, and building it would take too long; send a list, or keys of type str";
pub(crate) const NO_MEMORY: &str = "no memory to look at the keys of dicts and sets";

/// What is known of a type's dicts and sets: `nearcall.codec.hashed.HashedKeys`.
#[derive(Debug)]
pub(crate) struct HashedKeys {
    watch: Watch,
    /// For each type of keys, a Python function from some encoded keys to their hashes.
    hashers: Vec<Py<PyAny>>,
}

/// Raises an error for a message that must not be decoded: a `ValueError` if its keys collide.
#[pyfunction]
pub(crate) fn check_keys(body: &Bound<'_, PyBytes>, hashed: &Bound<'_, PyAny>) -> PyResult<()> {
    HashedKeys::read(hashed)?.check(body)
}

impl HashedKeys {
    pub(crate) fn read(plan: &Bound<'_, PyAny>) -> PyResult<Self> {
        let as_sent: Vec<bool> = plan.getattr("as_sent")?.extract()?;
        let keys = as_sent.iter().map(|&as_sent| if as_sent { KeyType::AsSent } else { KeyType::Converted }).collect();
        let hashers = plan.getattr("hashers")?.cast::<PyTuple>()?.iter().map(Bound::unbind).collect();
        Ok(Self { watch: Watch { lists: plan.getattr("lists")?.extract()?, keys }, hashers })
    }

    #[inline]
    pub(crate) fn check(&self, body: &Bound<'_, PyBytes>) -> PyResult<()> {
        if body.as_bytes().len() <= SHORT { Ok(()) } else { self.check_long(body) }
    }

    fn check_long(&self, body: &Bound<'_, PyBytes>) -> PyResult<()> {
        let (py, bytes) = (body.py(), body.as_bytes());
        let mut effort = Effort::default();
        let mut look = || self.watch.look(bytes, &mut effort);
        let tables = if bytes.len() < LONG { look() } else { detach(py, look) }.map_err(refusal)?;
        let mut hashed = 0;
        for table in tables {
            hashed += table.keys.iter().map(Range::len).sum::<usize>();
            if hashed > MOST_NESTED * bytes.len() {
                return Err(PyRecursionError::new_err("keys are nested too deeply in keys"));
            }
            // The core asks for each type in turn. The keys' real type is one of these; keys that are not of a type
            // cost nothing.
            let mut ask = |number: usize, into: &mut Vec<i64>| {
                attach(|py| hashes(self.watch.keys[number], self.hashers[number].bind(py), bytes, &table, into))
            };
            // Without the interpreter: the steps of the tables take long, and need no Python.
            detach(py, || table.add(bytes, &self.watch.keys, &mut effort, &mut ask)).map_err(|Refusal(why)| why)?;
        }
        Ok(())
    }
}

/// A Python exception that says why a message is refused.
struct Refusal(PyErr);

impl From<TooMuch> for Refusal {
    fn from(why: TooMuch) -> Self {
        Self(refusal(why))
    }
}

impl From<PyErr> for Refusal {
    fn from(why: PyErr) -> Self {
        Self(why)
    }
}

fn refusal(why: TooMuch) -> PyErr {
    match why {
        TooMuch::Collisions => PyValueError::new_err(COLLISIONS),
        TooMuch::Depth => PyRecursionError::new_err("the value is nested too deeply"),
        TooMuch::Memory => PyMemoryError::new_err(NO_MEMORY),
    }
}

/// Adds the hashes of a table's keys, up to the first key that cannot be decoded or hashed: a decoder ends there, too.
/// Returns whether Python was asked.
fn hashes(
    key_type: KeyType,
    hasher: &Bound<'_, PyAny>,
    bytes: &[u8],
    table: &Hashed,
    into: &mut Vec<i64>,
) -> Result<bool, Refusal> {
    let mut asked = false;
    for batch in table.keys.chunks(BATCH) {
        let before = into.len();
        into.extend(batch.iter().map_while(|key| key_type.hash(&bytes[key.clone()])));
        if into.len() - before == batch.len() {
            continue;
        }
        into.truncate(before);
        asked = true;
        let found = match ask(hasher, bytes, batch, IN_A_DICT)? {
            None => ask(hasher, bytes, batch, 1)?,
            found => found,
        };
        if let Some(hashes) = found {
            into.extend(hashes);
            continue;
        }
        for key in batch {
            match ask(hasher, bytes, std::slice::from_ref(key), 1)? {
                Some(hashes) => into.extend(hashes),
                None => return Ok(asked),
            }
        }
    }
    Ok(asked)
}

/// Asks Python for the hashes of some keys. `None` if one of them cannot be decoded or hashed, or equals another of its
/// dict.
fn ask(hasher: &Bound<'_, PyAny>, bytes: &[u8], keys: &[Range<usize>], in_a_dict: usize) -> PyResult<Option<Vec<i64>>> {
    // A list of dicts: keys are decoded in another way than values.
    let mut encoded = vec![0xdd];
    encoded.extend((keys.len().div_ceil(in_a_dict) as u32).to_be_bytes());
    for dict in keys.chunks(in_a_dict) {
        encoded.extend([0xde, 0, dict.len() as u8]);
        for key in dict {
            encoded.extend(&bytes[key.clone()]);
            encoded.push(0xc0);
        }
    }
    let hashes: Option<Vec<i64>> = hasher.run([PyBytes::new(hasher.py(), &encoded).as_any()])?.extract()?;
    Ok(hashes.filter(|hashes| hashes.len() == keys.len()))
}
