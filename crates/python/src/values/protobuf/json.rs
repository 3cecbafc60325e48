//! Protobuf's JSON becomes Python values. A peer wrote all of this JSON.
//!
//! `serde_json` finds the tokens and hands each to a [`Reader`], which knows from the plan what is expected there.
//! Nothing is built in between, and every value is counted before it is made.

use std::borrow::Cow;
use std::fmt;

use nearcall_core::json::{self, Numeral};
use nearcall_core::protobuf::{MAX_DEPTH, Number, Scalar};
use nearcall_core::{shown, sizes};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::making::{Budget, Found, Making, int};
use super::plan::{Element, Field, Form, InJson, Kind, Members, Message, Plan, Shape};
use super::trouble::{Result, Trouble, raised, refused};
use super::{anything, times};
use crate::gil::callback::Callback;

/// The value of a message in JSON. No bytes at all are a message without fields.
///
/// `strict`: unknown names are refused rather than skipped, and fields without a default in Python must be present.
pub(super) fn read<'py>(
    py: Python<'py>,
    plan: &Plan,
    index: usize,
    bytes: &[u8],
    budget: Budget<'_>,
    strict: bool,
    checking: bool,
) -> Result<Bound<'py, PyAny>> {
    let text = std::str::from_utf8(bytes).map_err(|_| Trouble::misfit("the JSON is not valid UTF-8"))?;
    let making = Making::of_json(py, plan, budget, strict).checking(checking);
    let mut reading = Reading { making, trouble: None };
    let mut tokens = serde_json::Deserializer::from_str(if text.is_empty() { "{}" } else { text });
    // This module counts how deep messages are; the plan limits what is between two messages.
    tokens.disable_recursion_limit();
    let read = Reader { reading: &mut reading, expected: Expected::Whole(index), depth: 0 }.deserialize(&mut tokens);
    match (read.and_then(|found| tokens.end().map(|()| found)), reading.trouble) {
        (Ok(Found::Value(value)), _) => Ok(value),
        (_, Some(trouble)) => Err(trouble),
        (Err(error), None) => Err(malformed(&error)),
        (Ok(_), None) => Err(Trouble::misfit("expected an object")),
    }
}

#[cold]
fn malformed(error: &dyn fmt::Display) -> Box<Trouble> {
    Trouble::misfit(format!("the JSON is malformed: {error}"))
}

/// One text that is being read.
struct Reading<'a, 'py> {
    making: Making<'a, 'py>,
    /// Why the reading ended. An error of `serde` has no room for a `Trouble`.
    trouble: Option<Box<Trouble>>,
}

impl Reading<'_, '_> {
    /// Keeps the trouble, and makes an error that ends the reading.
    #[cold]
    fn stop<E: Error>(&mut self, trouble: Box<Trouble>) -> E {
        self.trouble = Some(trouble);
        E::custom("")
    }

    /// Adds a step to the path of what ended the reading of a value.
    #[cold]
    fn within<E: Error>(&mut self, error: E, step: impl FnOnce(Box<Trouble>) -> Box<Trouble>) -> E {
        let trouble = self.trouble.take().unwrap_or_else(|| malformed(&error));
        self.trouble = Some(step(trouble));
        error
    }
}

/// What the plan says of the next value.
#[derive(Clone, Copy)]
enum Expected<'a> {
    /// The outermost message.
    Whole(usize),
    Field(&'a Field),
    /// An item, or the value of a map's entry.
    Element(&'a Element),
    /// Whatever JSON has.
    Anything,
}

/// What a value is in JSON.
#[derive(Clone, Copy)]
enum Token<'t> {
    Null,
    Bool(bool),
    Number(Numeral),
    Text(&'t str),
    Array,
    Object,
}

impl Token<'_> {
    /// The memory of the value of a token where anything may be.
    fn weight(self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Array | Self::Object => sizes::SHARED,
            Self::Number(_) => sizes::NUMBER,
            Self::Text(_) => sizes::TEXT,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::Array => "a list",
            Self::Object => "an object",
        }
    }
}

/// Reads one value, which is `depth` messages deep.
struct Reader<'r, 'a, 'py> {
    reading: &'r mut Reading<'a, 'py>,
    expected: Expected<'a>,
    depth: usize,
}

type Read<'py, E> = std::result::Result<Found<'py>, E>;

impl<'de, 'py> DeserializeSeed<'de> for Reader<'_, '_, 'py> {
    type Value = Found<'py>;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(mut self, tokens: D) -> Read<'py, D::Error> {
        if let Expected::Field(Field { shape: Shape::Implicit | Shape::Presence, element, .. })
        | Expected::Element(element) = self.expected
            && matches!(element.kind, Kind::Any)
        {
            (self.expected, self.depth) = (Expected::Anything, self.depth + 1);
        }
        let plan = self.reading.making.plan;
        if let Some(in_json) = self.message_index().and_then(|index| plan.messages[index].in_json.as_ref()) {
            return self.in_json(in_json, tokens);
        }
        let making = &mut self.reading.making;
        let counted = match self.expected {
            Expected::Whole(_) => Ok(()),
            // What a value takes is charged when its kind is known, and a container when it is complete.
            Expected::Anything => anything::deeper(self.depth).and_then(|()| making.budget.take(making.py, 0)),
            Expected::Field(Field { shape: Shape::Implicit | Shape::Presence, element, .. })
            | Expected::Element(element) => making.budget.take(making.py, making.plan.weight(element)),
            Expected::Field(_) => making.budget.take(making.py, 0),
        };
        match counted {
            Ok(()) => tokens.deserialize_any(self),
            Err(trouble) => Err(self.reading.stop(trouble)),
        }
    }
}

impl<'de, 'py> Visitor<'de> for Reader<'_, '_, 'py> {
    type Value = Found<'py>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Read<'py, E> {
        self.single(Token::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Read<'py, E> {
        self.single(Token::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Read<'py, E> {
        self.single(Token::Number(Numeral::Int(value.into())))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Read<'py, E> {
        self.single(Token::Number(Numeral::Int(value.into())))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Read<'py, E> {
        self.single(Token::Number(Numeral::Float(value)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Read<'py, E> {
        self.single(Token::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Read<'py, A::Error> {
        match self.expected {
            Expected::Field(field) => match field.shape {
                Shape::Implicit | Shape::Presence => self.numbers(&field.element, items),
                Shape::Map(_) => self.single(Token::Array),
                _ => self.items(&field.element, items),
            },
            Expected::Element(element) => self.numbers(element, items),
            Expected::Anything => self.list(items),
            Expected::Whole(_) => self.single(Token::Array),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Read<'py, A::Error> {
        match self.expected {
            Expected::Whole(index) => self.message(index, entries),
            Expected::Field(Field { shape: Shape::Map(key), element, .. }) => self.entries(key, element, entries),
            Expected::Field(Field { shape: Shape::Implicit | Shape::Presence, element, .. })
            | Expected::Element(element) => match element.kind {
                Kind::Message(index) => {
                    let Self { reading, depth, expected } = self;
                    let message = Reader { reading: &mut *reading, expected, depth }.message(index, entries)?;
                    let Found::Value(message) = message else { return Ok(message) };
                    let seen = reading.making.seen(element, message).map(Found::Value);
                    seen.map_err(|trouble| reading.stop(trouble))
                }
                _ => self.single(Token::Object),
            },
            Expected::Field(_) => self.single(Token::Object),
            Expected::Anything => self.dict(entries),
        }
    }
}

impl<'a, 'py> Reader<'_, 'a, 'py> {
    /// The message that is expected, if it is one.
    #[inline]
    fn message_index(&self) -> Option<usize> {
        match self.expected {
            Expected::Whole(index) => Some(index),
            Expected::Field(Field { shape: Shape::Implicit | Shape::Presence, element, .. })
            | Expected::Element(element) => match element.kind {
                Kind::Message(index) => Some(index),
                _ => None,
            },
            Expected::Field(_) | Expected::Anything => None,
        }
    }

    /// Reads a message that has a form of its own.
    #[cold]
    fn in_json<'de, D: Deserializer<'de>>(self, in_json: &InJson, tokens: D) -> Read<'py, D::Error> {
        let Self { reading, depth, expected } = self;
        let found =
            Reader { reading: &mut *reading, expected: Expected::Anything, depth: depth + 1 }.deserialize(tokens)?;
        let Found::Value(value) = found else { return Ok(found) };
        if value.is_none() {
            // As if the field were absent.
            let empty = matches!(expected, Expected::Field(_));
            return if empty { Ok(Found::Empty) } else { Err(reading.stop(misfit("a message", Token::Null))) };
        }
        let py = reading.making.py;
        let made = in_json.from.bind(py).run([&value]).map_err(|error| refused(py, error));
        let seen = made.and_then(|value| match expected {
            Expected::Field(Field { element, .. }) | Expected::Element(element) => reading.making.seen(element, value),
            _ => Ok(value),
        });
        seen.map(Found::Value).map_err(|trouble| reading.stop(trouble))
    }

    /// A value that holds no others, or one that is of the wrong kind.
    #[inline]
    fn single<E: Error>(self, token: Token<'_>) -> Read<'py, E> {
        let making = &mut self.reading.making;
        let found = match (self.expected, token) {
            (Expected::Anything, token) => {
                let charged = making.budget.charge(token.weight());
                charged.map(|()| Found::Value(plain(making.py, token)))
            }
            // `null`: as if the field were absent.
            (Expected::Field(_), Token::Null) => Ok(Found::Empty),
            (Expected::Field(field), token) => match field.shape {
                Shape::Implicit | Shape::Presence => scalar(making, &field.element, token).map(Found::Value),
                Shape::Map(_) => Err(misfit("an object", token)),
                _ => Err(misfit("a list", token)),
            },
            (Expected::Element(element), token) => scalar(making, element, token).map(Found::Value),
            (Expected::Whole(_), token) => Err(misfit("an object", token)),
        };
        found.map_err(|trouble| self.reading.stop(trouble))
    }

    fn message<'de, A: MapAccess<'de>>(self, index: usize, mut entries: A) -> Read<'py, A::Error> {
        let Self { reading, depth, .. } = self;
        let depth = depth + 1;
        if depth > MAX_DEPTH {
            return Err(reading.stop(Trouble::too_deep()));
        }
        let plan = reading.making.plan;
        let message = &plan.messages[index];
        // `None` until a field occurs. A field that occurs twice is an error, because one of its values would be lost.
        let mut slots: SmallVec<[Option<Found<'py>>; 8]> = message.fields.iter().map(|_| None).collect();
        let (mut chosen, mut next) = (None, 0);
        while let Some(name) = entries.next_key_seed(Name)? {
            let Some(place) = message.named(&name, next) else {
                if reading.making.strict {
                    return Err(reading.stop(no_field(message, &name)));
                }
                reading.making.budget.step(reading.making.py);
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            next = place + 1;
            let field = &message.fields[place];
            let reader = Reader { reading: &mut *reading, expected: Expected::Field(field), depth };
            let found = match entries.next_value_seed(reader) {
                Ok(_) if slots[place].is_some() => {
                    return Err(reading.stop(Trouble::misfit("is there twice").in_field(&field.shown)));
                }
                Ok(found) => found,
                Err(error) => return Err(reading.within(error, |trouble| trouble.in_field(&field.shown))),
            };
            if matches!(message.form, Form::OneOf) && !matches!(found, Found::Empty) && chosen.replace(place).is_some()
            {
                let text = format!("two members of {} are there, and it has one", message.name);
                return Err(reading.stop(Trouble::misfit(text)));
            }
            slots[place] = Some(found);
        }
        let value =
            reading.making.assemble(message, chosen, |_, place, _| Ok(slots[place].take().unwrap_or(Found::Empty)));
        value.map(Found::Value).map_err(|trouble| reading.stop(trouble))
    }

    /// The items of a field.
    fn items<'de, A: SeqAccess<'de>>(self, element: &'a Element, mut items: A) -> Read<'py, A::Error> {
        let Self { reading, depth, .. } = self;
        let mut found = Vec::new();
        loop {
            let reader = Reader { reading: &mut *reading, expected: Expected::Element(element), depth };
            match items.next_element_seed(reader) {
                Ok(Some(Found::Value(item))) => found.push(item),
                Ok(_) => return Ok(Found::Items(found)),
                Err(error) => return Err(reading.within(error, |trouble| trouble.in_item(found.len()))),
            }
        }
    }

    /// The entries of a field.
    fn entries<'de, A: MapAccess<'de>>(
        self,
        key: &'a Element,
        element: &'a Element,
        mut entries: A,
    ) -> Read<'py, A::Error> {
        let Self { reading, depth, .. } = self;
        let mut found = Vec::new();
        while let Some(text) = entries.next_key_seed(Name)? {
            let name = map_key(&mut reading.making, key, &text).map_err(|trouble| reading.stop(trouble))?;
            let reader = Reader { reading: &mut *reading, expected: Expected::Element(element), depth: depth + 1 };
            match entries.next_value_seed(reader) {
                Ok(Found::Value(value)) => found.push((name, value)),
                Ok(_) => {}
                Err(error) => return Err(reading.within(error, |trouble| trouble.in_key(&name))),
            }
        }
        Ok(Found::Entries(found))
    }

    /// Reads a list where one value is expected: only the numbers of an array may come like that.
    fn numbers<'de, A: SeqAccess<'de>>(self, element: &'a Element, items: A) -> Read<'py, A::Error> {
        let Some(from_list) = &element.from_list else { return self.single(Token::Array) };
        let Self { reading, depth, .. } = self;
        let list = Reader { reading: &mut *reading, expected: Expected::Anything, depth }.list(items)?;
        let Found::Value(list) = list else { return Ok(list) };
        let py = reading.making.py;
        let made = from_list.bind(py).run([&list]).map_err(|error| refused(py, error));
        made.map(Found::Value).map_err(|trouble| reading.stop(trouble))
    }

    /// A list where anything may be, at the depth that it has in a `google.protobuf.Value`.
    fn list<'de, A: SeqAccess<'de>>(self, mut items: A) -> Read<'py, A::Error> {
        let Self { reading, depth, .. } = self;
        let list = PyList::empty(reading.making.py);
        reading.making.budget.charge(sizes::LIST).map_err(|trouble| reading.stop(trouble))?;
        loop {
            let reader = Reader { reading: &mut *reading, expected: Expected::Anything, depth: depth + 2 };
            let item = match items.next_element_seed(reader) {
                Ok(Some(Found::Value(item))) => item,
                Ok(_) => return Ok(Found::Value(list.into_any())),
                Err(error) => return Err(reading.within(error, |trouble| trouble.in_item(list.len()))),
            };
            list.append(item).map_err(|error| reading.stop(raised(error)))?;
        }
    }

    /// An object where anything may be.
    fn dict<'de, A: MapAccess<'de>>(self, mut entries: A) -> Read<'py, A::Error> {
        let Self { reading, depth, .. } = self;
        let dict = PyDict::new(reading.making.py);
        let mut count = 0;
        reading.making.budget.charge(sizes::dict(0)).map_err(|trouble| reading.stop(trouble))?;
        while let Some(name) = entries.next_key_seed(Name)? {
            let name = PyString::new(reading.making.py, &name);
            let more = sizes::TEXT + sizes::one_key_more(count);
            reading.making.budget.charge(more).map_err(|trouble| reading.stop(trouble))?;
            let reader = Reader { reading: &mut *reading, expected: Expected::Anything, depth: depth + 3 };
            let value = match entries.next_value_seed(reader) {
                Ok(Found::Value(value)) => value,
                Ok(_) => continue,
                Err(error) => return Err(reading.within(error, |trouble| trouble.in_key(name.as_any()))),
            };
            dict.set_item(&name, value).map_err(|error| reading.stop(raised(error)))?;
            count += 1;
            if dict.len() < count {
                return Err(reading.stop(Trouble::misfit("is there twice").in_key(name.as_any())));
            }
        }
        Ok(Found::Value(dict.into_any()))
    }
}

/// Reads the name of a field, or a key.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, tokens: D) -> std::result::Result<Self::Value, D::Error> {
        tokens.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> std::result::Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> std::result::Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cold]
fn no_field(message: &Message, name: &str) -> Box<Trouble> {
    let known: Vec<&str> = message.fields.iter().map(Field::json_name).take(LISTED).collect();
    let known = if known.is_empty() { "there are none".to_owned() } else { format!("known: {}", known.join(", ")) };
    Trouble::misfit(format!("no field is called {} ({known})", quoted(name)))
}

/// How many names an error lists.
const LISTED: usize = 20;

/// The key of a map's entry.
fn map_key<'py>(making: &mut Making<'_, 'py>, key: &Element, text: &str) -> Result<Bound<'py, PyAny>> {
    let token = match (&key.kind, text) {
        (Kind::Scalar(Scalar::Bool), "true") => Token::Bool(true),
        (Kind::Scalar(Scalar::Bool), "false") => Token::Bool(false),
        _ => Token::Text(text),
    };
    let weight = making.plan.weight(key);
    let value = making.budget.take(making.py, weight).and_then(|()| scalar(making, key, token));
    value.map_err(|trouble| trouble.in_key(PyString::new(making.py, text).as_any()))
}

/// The value of a token where anything may be.
fn plain<'py>(py: Python<'py>, token: Token<'_>) -> Bound<'py, PyAny> {
    match token {
        Token::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Token::Number(Numeral::Int(value)) => int(py, value),
        // As when it is read from Protobuf's bytes, where all numbers are floats.
        Token::Number(Numeral::Float(value)) => anything::number_of(py, value),
        Token::Text(text) => PyString::new(py, text).into_any(),
        Token::Null | Token::Array | Token::Object => py.None().into_bound(py),
    }
}

/// The value of one token.
#[inline]
fn scalar<'py>(making: &mut Making<'_, 'py>, element: &Element, token: Token<'_>) -> Result<Bound<'py, PyAny>> {
    let py = making.py;
    let value = match (&element.kind, token) {
        (Kind::Scalar(Scalar::Bool), Token::Bool(value)) => return making.number(element, Number::Bool(value)),
        (Kind::Scalar(Scalar::String), Token::Text(text)) => PyString::new(py, text).into_any(),
        (Kind::Scalar(Scalar::Bytes), Token::Text(text)) => PyBytes::new(py, &json::base64(text)?).into_any(),
        (Kind::Scalar(Scalar::Double), Token::Number(_) | Token::Text(_)) => {
            PyFloat::new(py, float(element, token)?).into_any()
        }
        (Kind::Scalar(Scalar::Float), Token::Number(_) | Token::Text(_)) => {
            let wide = float(element, token)?;
            let value = wide as f32;
            if value.is_infinite() && wide.is_finite() {
                return Err(Trouble::misfit("a number that is too large for a 32-bit float"));
            }
            PyFloat::new(py, value.into()).into_any()
        }
        (Kind::Enum(members), Token::Text(name)) => return making.number(element, member(element, members, name)?),
        (Kind::Enum(_), Token::Number(_)) => return making.number(element, integer(element, Scalar::Enum, token)?),
        (Kind::Scalar(scalar), Token::Number(_) | Token::Text(_)) if scalar.range().is_some() => {
            return making.number(element, integer(element, *scalar, token)?);
        }
        (Kind::Timestamp, Token::Text(text)) => times::datetime(py, json::timestamp(text)?)?,
        (Kind::Duration, Token::Text(text)) => times::timedelta(py, json::duration(text)?)?,
        (_, token) => return Err(misfit(&element.name, token)),
    };
    making.seen(element, value)
}

fn float(element: &Element, token: Token<'_>) -> Result<f64> {
    match token {
        Token::Number(Numeral::Int(value)) => Ok(value as f64),
        Token::Number(Numeral::Float(value)) => Ok(value),
        Token::Text(text) => json::float(text).ok_or_else(|| not(element, text)),
        token => Err(misfit(&element.name, token)),
    }
}

fn integer(element: &Element, scalar: Scalar, token: Token<'_>) -> Result<Number> {
    let numeral = match token {
        Token::Number(numeral) => numeral,
        Token::Text(text) => json::number(text).ok_or_else(|| not(element, text))?,
        token => return Err(misfit(&element.name, token)),
    };
    let (least, greatest) = scalar.range().unwrap_or((0, 0));
    let value = match numeral {
        Numeral::Int(value) => value,
        Numeral::Float(value) => match json::whole(value) {
            Some(value) => value.into(),
            None if value.fract() != 0.0 => return Err(not(element, &value.to_string())),
            None if value > least as f64 && value < greatest as f64 => {
                return Err(Trouble::misfit("an int of that size must be written without a fraction or an exponent"));
            }
            None => i128::MAX,
        },
    };
    if value < least || value > greatest {
        return Err(Trouble::misfit(format!("an int that is not within {least} to {greatest}")));
    }
    Ok(Number::Int(value))
}

fn member(element: &Element, members: &Members, name: &str) -> Result<Number> {
    let number = members
        .number(name)
        .ok_or_else(|| Trouble::misfit(format!("{} has no member {}", element.name, quoted(name))))?;
    Ok(Number::Int(number.into()))
}

/// The beginning of a peer's text, for error messages.
#[cold]
fn quoted(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("'{}...'", shown(&text[..end])),
        None => format!("'{}'", shown(text)),
    }
}

#[cold]
fn not(element: &Element, text: &str) -> Box<Trouble> {
    Trouble::misfit(format!("expected {}, got {}", element.name, quoted(text)))
}

#[cold]
fn misfit(expected: &str, token: Token<'_>) -> Box<Trouble> {
    Trouble::misfit(format!("expected {expected}, got {}", token.name()))
}
