//! `google.protobuf.Value`: what JSON can say, where the type says `Any`.

use std::ops::RangeInclusive;

use nearcall_core::protobuf::{Fields, Number, Scalar, Wire};
use nearcall_core::{json, sizes};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

use super::making::{Budget, Parts, int};
use super::output::{BOOL, LIST, NULL, NUMBER, Output, STRUCT, TEXT};
use super::strings::{text, type_name, utf8};
use super::trouble::{Result, Trouble, deeper, raised};

/// Writes a Python value into a `Value` that the caller has begun.
pub(super) fn put<O: Output>(value: &Bound<'_, PyAny>, out: &mut O, depth: usize) -> Result<()> {
    deeper(depth)?;
    if value.is_none() {
        out.tag(NULL, Scalar::Enum.wire_type());
        out.null();
    } else if let Ok(value) = value.cast_exact::<PyBool>() {
        out.tag(BOOL, Scalar::Bool.wire_type());
        out.bool(value.is_true());
    } else if let Ok(text) = value.cast_exact::<PyString>() {
        out.tag(TEXT, Scalar::String.wire_type());
        out.text(utf8(text)?);
    } else if value.is_exact_instance_of::<PyInt>() {
        // A longer one would arrive as a float, or as another int.
        let exact = value.extract::<i64>().ok().filter(|int| json::whole(*int as f64) == Some(*int));
        let Some(int) = exact else {
            return Err(Trouble::misfit("an int of more than 53 bits where Any is declared: send it as str"));
        };
        out.tag(NUMBER, Scalar::Double.wire_type());
        out.number(int as f64);
    } else if let Ok(float) = value.cast_exact::<PyFloat>() {
        let number = float.value();
        if O::JSON && !number.is_finite() {
            return Err(Trouble::misfit(format!("{number} is no number in JSON: send it as str, or declare float")));
        }
        out.tag(NUMBER, Scalar::Double.wire_type());
        out.number(number);
    } else if let Ok(list) = value.cast_exact::<PyList>() {
        let whole = out.open(LIST, "[");
        for (index, item) in list.iter().enumerate() {
            out.separate();
            let begin = out.open(1, "");
            put(&item, out, depth + 2).map_err(|trouble| trouble.in_item(index))?;
            out.close(begin, "");
        }
        out.close(whole, "]");
    } else if let Ok(dict) = value.cast_exact::<PyDict>() {
        let whole = out.open(STRUCT, "{");
        for (key, item) in dict.iter() {
            let Ok(name) = key.cast_exact::<PyString>() else {
                let kind = type_name(&key);
                return Err(Trouble::misfit(format!("a dict where Any is declared has keys of type str, not {kind}")));
            };
            out.separate();
            let entry = out.open(1, "");
            out.tag(1, Scalar::String.wire_type());
            out.text(utf8(name)?);
            let begin = out.open(2, ":");
            put(&item, out, depth + 3).map_err(|trouble| trouble.in_key(&key))?;
            out.close(begin, "");
            out.close(entry, "");
        }
        out.close(whole, "}");
    } else {
        let kind = type_name(value);
        return Err(Trouble::misfit(format!(
            "{kind} has no counterpart in JSON where Any is declared: declare its type, or send None, bool, int, float, \
             str, list or dict"
        )));
    }
    Ok(())
}

/// The value of an encoded `Value`. Whole numbers arrive as `int`, as Protobuf's JSON mapping has it.
pub(super) fn read<'py>(
    py: Python<'py>,
    parts: &[&[u8]],
    budget: &mut Budget,
    depth: usize,
) -> Result<Bound<'py, PyAny>> {
    deeper(depth)?;
    let mut found = py.None().into_bound(py);
    // The last field counts. Two lists or structs in a row are merged, as all messages are.
    let (mut last, mut inner) = (0, Parts::new());
    let mut fields = Fields::of_parts(parts);
    while let Some((number, wire)) = fields.next()? {
        match (number, wire) {
            (NULL, Wire::Varint(_)) => found = py.None().into_bound(py),
            (NUMBER, wire) => match Scalar::Double.number(wire)? {
                Some(Number::Float(value)) => found = number_of(py, value),
                _ => continue,
            },
            (TEXT, Wire::Bytes(bytes)) => found = text(py, bytes)?,
            (BOOL, Wire::Varint(value)) => found = PyBool::new(py, value != 0).to_owned().into_any(),
            (STRUCT | LIST, Wire::Bytes(more)) => {
                if last != number {
                    inner.clear();
                }
                add(&mut inner, more, py, budget)?;
            }
            _ => continue,
        }
        last = number;
    }
    budget.charge(match last {
        LIST => sizes::LIST,
        STRUCT => sizes::dict(0),
        NUMBER => sizes::NUMBER,
        TEXT => sizes::TEXT,
        _ => sizes::SHARED,
    })?;
    match last {
        LIST => list(py, &inner, budget, depth + 1),
        STRUCT => dict(py, &inner, budget, depth + 1),
        _ => Ok(found),
    }
}

/// Adds one more part of a message. Every further part counts as a value, because it costs more than the few bytes that
/// it may have.
fn add<'a>(parts: &mut Parts<'a>, more: &'a [u8], py: Python<'_>, budget: &mut Budget) -> Result<()> {
    if !parts.is_empty() {
        budget.take(py, sizes::NUMBER)?;
    }
    if !more.is_empty() {
        parts.push(more);
    }
    Ok(())
}

fn list<'py>(py: Python<'py>, parts: &[&[u8]], budget: &mut Budget, depth: usize) -> Result<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    let mut fields = Fields::of_parts(parts);
    while let Some((number, wire)) = fields.next()? {
        if let (1, Wire::Bytes(item)) = (number, wire) {
            budget.take(py, 0)?;
            let index = list.len();
            let item = read(py, &[item], budget, depth + 1).map_err(|trouble| trouble.in_item(index))?;
            list.append(item).map_err(raised)?;
        }
    }
    Ok(list.into_any())
}

fn dict<'py>(py: Python<'py>, parts: &[&[u8]], budget: &mut Budget, depth: usize) -> Result<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    let mut fields = Fields::of_parts(parts);
    while let Some((number, wire)) = fields.next()? {
        let (1, Wire::Bytes(entry)) = (number, wire) else { continue };
        budget.take(py, sizes::TEXT + sizes::one_key_more(dict.len()))?;
        let (mut key, mut value): (&[u8], _) = (&[], Parts::new());
        let mut pair = Fields::of(entry);
        while let Some((number, wire)) = pair.next()? {
            match (number, wire) {
                (1, Wire::Bytes(text)) => key = text,
                (2, Wire::Bytes(more)) => add(&mut value, more, py, budget)?,
                _ => {}
            }
        }
        let key = text(py, key)?;
        let value = read(py, &value, budget, depth + 2).map_err(|trouble| trouble.in_key(&key))?;
        dict.set_item(key, value).map_err(raised)?;
    }
    Ok(dict.into_any())
}

/// The value of a number in JSON. Written as an integer, it is that integer or is refused. With a fraction or an
/// exponent it is a float, as all numbers are in Protobuf's bytes, and arrives as an int under the same condition,
/// unless it was rounded.
pub(super) fn number_in_text<'py>(py: Python<'py>, text: &str) -> Result<Bound<'py, PyAny>> {
    let whole = json::integer(text);
    if let Some(whole) = whole.filter(|whole| *whole != 0)
        && !text.contains(['.', 'e', 'E'])
    {
        if INTS.contains(&whole) {
            return Ok(int(py, whole));
        }
        return Err(Trouble::misfit(
            "an int beyond 64 bits where Any is declared: send it as a text, or with an exponent if it is a float",
        ));
    }
    let value = json::finite(text).ok_or_else(beyond)?;
    let is_same = whole.is_some_and(|whole| value as i128 == whole);
    Ok(if is_same { number_of(py, value) } else { PyFloat::new(py, value).into_any() })
}

/// No codec carries another integer.
const INTS: RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;

#[cold]
pub(super) fn beyond() -> Box<Trouble> {
    Trouble::misfit("a number that is out of range")
}

fn number_of(py: Python<'_>, value: f64) -> Bound<'_, PyAny> {
    match json::whole(value) {
        // There is no int for the zero below zero.
        Some(number) if number != 0 || value.is_sign_positive() => int(py, number.into()),
        _ => PyFloat::new(py, value).into_any(),
    }
}
