//! Protobuf's JSON becomes Python values. A peer wrote all of this JSON.
//!
//! [`Tokens`] finds the tokens, and a [`Reading`] knows from the plan what is expected of each. Nothing is built in
//! between, and every value is counted before it is made.

use nearcall_core::json::{self, Token, Tokens};
use nearcall_core::protobuf::{Number, Scalar};
use nearcall_core::{shown, sizes};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString};
use smallvec::SmallVec;

use super::making::{Budget, Found, Making};
use super::plan::{Element, Field, Form, InJson, Kind, Message, Plan, Shape};
use super::trouble::{Result, Trouble, deeper, raised, refused};
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
    let tokens = Tokens::new(if text.is_empty() { "{}" } else { text });
    let mut making = Making::new(py, plan, budget, checking);
    (making.strict, making.distinct) = (strict, true);
    let mut reading = Reading { making, tokens };
    let value = reading.one(Expected::Whole(index), 0)?;
    reading.tokens.end()?;
    Ok(value)
}

/// One text that is being read.
struct Reading<'a, 'py> {
    making: Making<'a, 'py>,
    tokens: Tokens<'a>,
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

impl<'a> Expected<'a> {
    /// The only value that there is, if not several of them are expected, or what the plan says nothing of.
    #[inline]
    fn element(self) -> Option<&'a Element> {
        match self {
            Self::Field(Field { shape: Shape::Implicit | Shape::Presence, element, .. }) | Self::Element(element) => {
                Some(element)
            }
            _ => None,
        }
    }
}

/// The memory of the value of a token where anything may be.
fn weight(token: &Token<'_>) -> usize {
    match token {
        Token::Null | Token::Bool(_) | Token::Array | Token::Object => sizes::SHARED,
        Token::Number(_) => sizes::NUMBER,
        Token::Text(_) => sizes::TEXT,
    }
}

fn kind_of(token: &Token<'_>) -> &'static str {
    match token {
        Token::Null => "null",
        Token::Bool(_) => "a bool",
        Token::Number(_) => "a number",
        Token::Text(_) => "a text",
        Token::Array => "a list",
        Token::Object => "an object",
    }
}

impl<'a, 'py> Reading<'a, 'py> {
    /// Reads one value, which is `depth` messages deep.
    fn value(&mut self, mut expected: Expected<'a>, mut depth: usize) -> Result<Found<'py>> {
        let (plan, making) = (self.making.plan, &mut self.making);
        let element = expected.element();
        if element.is_some_and(|element| matches!(element.kind, Kind::Any)) {
            (expected, depth) = (Expected::Anything, depth + 1);
        }
        let message = match (expected, element.map(|element| &element.kind)) {
            (Expected::Whole(index), _) | (_, Some(&Kind::Message(index))) => Some(&plan.messages[index]),
            _ => None,
        };
        if let Some(message) = message
            && let Some(form) = &message.in_json
        {
            return self.in_json(message, form, expected, depth);
        }
        match (expected, element) {
            (Expected::Whole(_), _) => {}
            // What a value takes is charged when its kind is known, and a container when it is complete.
            (Expected::Anything, _) => {
                deeper(depth)?;
                making.budget.take(making.py, 0)?;
            }
            (_, Some(element)) => making.budget.take(making.py, plan.weight(element))?,
            (_, None) => making.budget.take(making.py, 0)?,
        }
        match (self.tokens.token()?, expected) {
            (Token::Array, Expected::Anything) => self.list(depth).map(Found::Value),
            (Token::Array, Expected::Field(Field { shape, element, .. })) if is_listed(shape) => {
                self.items(element, depth)
            }
            (Token::Object, Expected::Anything) => self.dict(depth).map(Found::Value),
            (Token::Object, Expected::Field(Field { shape: Shape::Map(key), element, .. })) => {
                self.entries(key, element, depth)
            }
            (token @ Token::Array, _) => match element.and_then(|element| element.from_list.as_ref()) {
                Some(from_list) => self.numbers(from_list, depth),
                None => self.single(expected, &token),
            },
            (token @ Token::Object, _) => match (message, element) {
                (None, _) => self.single(expected, &token),
                (Some(message), None) => self.message(message, depth).map(Found::Value),
                (Some(message), Some(element)) => {
                    let value = self.message(message, depth)?;
                    self.making.seen(element, value).map(Found::Value)
                }
            },
            (token, _) => self.single(expected, &token),
        }
    }

    /// Reads a value in whose place nothing else may be.
    fn one(&mut self, expected: Expected<'a>, depth: usize) -> Result<Bound<'py, PyAny>> {
        match self.value(expected, depth)? {
            Found::Value(value) => Ok(value),
            _ => Err(Trouble::misfit("is missing")),
        }
    }

    /// Reads a message that has a form of its own.
    #[cold]
    fn in_json(
        &mut self,
        message: &'a Message,
        form: &InJson,
        expected: Expected<'a>,
        depth: usize,
    ) -> Result<Found<'py>> {
        let (py, element) = (self.making.py, expected.element());
        let value = match form {
            InJson::Value => {
                let weight = element.map_or(0, |element| self.making.plan.weight(element));
                self.making.budget.charge(weight)?;
                match self.value(Expected::Field(&message.fields[0]), depth + 1)? {
                    Found::Empty => None,
                    found => {
                        let mut found = Some(found);
                        let taken = |_: &mut Making<'a, 'py>, _, _: &Field| Ok(found.take().unwrap_or(Found::Empty));
                        Some(self.making.assemble(message, None, taken)?)
                    }
                }
            }
            InJson::Plain { from, .. } => {
                let value = self.one(Expected::Anything, depth + 1)?;
                let made = || from.bind(py).run([&value]).map_err(|error| refused(py, error));
                if value.is_none() { None } else { Some(made()?) }
            }
        };
        match (value, element) {
            (Some(value), Some(element)) => self.making.seen(element, value).map(Found::Value),
            (Some(value), None) => Ok(Found::Value(value)),
            // `null`: as if the field were absent.
            (None, _) if matches!(expected, Expected::Field(_)) => Ok(Found::Empty),
            (None, _) => Err(misfit("a message", &Token::Null)),
        }
    }

    /// A value that holds no others, or one that is of the wrong kind.
    #[inline]
    fn single(&mut self, expected: Expected<'a>, token: &Token<'_>) -> Result<Found<'py>> {
        if let (Expected::Field(field), Token::Null) = (expected, token) {
            return self.null(field);
        }
        let making = &mut self.making;
        match (expected, token) {
            (Expected::Anything, token) => {
                making.budget.charge(weight(token))?;
                plain(making.py, token).map(Found::Value)
            }
            (Expected::Field(field), token) => match field.shape {
                Shape::Implicit | Shape::Presence => scalar(making, &field.element, token).map(Found::Value),
                Shape::Map(_) => Err(misfit("an object", token)),
                _ => Err(misfit("a list", token)),
            },
            (Expected::Element(element), token) => scalar(making, element, token).map(Found::Value),
            (Expected::Whole(_), token) => Err(misfit("an object", token)),
        }
    }

    /// What `null` stands for in the place of a field. For Protobuf the field is absent. Who writes JSON by hand means
    /// `None`, where the field has a message for it because its default is another.
    #[cold]
    fn null(&mut self, field: &'a Field) -> Result<Found<'py>> {
        let making = &mut self.making;
        let (py, plan) = (making.py, making.plan);
        if let (true, Shape::Implicit | Shape::Presence, &Kind::Message(index)) =
            (making.strict, &field.shape, &field.element.kind)
            && let message @ Message { form: Form::Only, .. } = &plan.messages[index]
            && message.fields[0].left_out.iter().any(|each| each.is_none(py))
        {
            let none = making.assemble(message, None, |_, _, _| Ok(Found::Empty))?;
            return making.seen(&field.element, none).map(Found::Value);
        }
        Ok(Found::Empty)
    }

    /// The fields of a message whose bracket was read.
    fn message(&mut self, message: &'a Message, depth: usize) -> Result<Bound<'py, PyAny>> {
        let depth = depth + 1;
        deeper(depth)?;
        // `None` until a field occurs. A field that occurs twice is an error, because one of its values would be lost.
        let mut slots: SmallVec<[Option<Found<'py>>; 8]> = message.fields.iter().map(|_| None).collect();
        let (mut chosen, mut next, mut first) = (None, 0, true);
        while let Some(name) = self.tokens.key(first)? {
            first = false;
            let Some(place) = message.named(&name, next) else {
                if self.making.strict {
                    return Err(no_field(message, &name));
                }
                self.making.budget.step(self.making.py);
                self.tokens.skip()?;
                continue;
            };
            next = place + 1;
            let field = &message.fields[place];
            let found = match self.value(Expected::Field(field), depth) {
                Ok(_) if slots[place].is_some() => Err(Trouble::misfit("is there twice")),
                found => found,
            };
            let found = found.map_err(|trouble| trouble.in_field(&field.shown))?;
            if matches!(message.form, Form::OneOf) && !matches!(found, Found::Empty) && chosen.replace(place).is_some()
            {
                let text = format!("two members of {} are there, and it has one", message.name);
                return Err(Trouble::misfit(text));
            }
            slots[place] = Some(found);
        }
        self.making.assemble(message, chosen, |_, place, _| Ok(slots[place].take().unwrap_or(Found::Empty)))
    }

    /// The items of a field whose bracket was read.
    fn items(&mut self, element: &'a Element, depth: usize) -> Result<Found<'py>> {
        let mut found = Vec::new();
        while self.tokens.item(found.is_empty()).map_err(|why| Trouble::misfit(why).in_item(found.len()))? {
            let item = self.one(Expected::Element(element), depth);
            found.push(item.map_err(|trouble| trouble.in_item(found.len()))?);
        }
        Ok(Found::Items(found))
    }

    /// The entries of a field whose bracket was read.
    fn entries(&mut self, key: &'a Element, element: &'a Element, depth: usize) -> Result<Found<'py>> {
        let mut found = Vec::new();
        while let Some(text) = self.tokens.key(found.is_empty())? {
            let name = map_key(&mut self.making, key, &text)?;
            let value = self.one(Expected::Element(element), depth + 1).map_err(|trouble| trouble.in_key(&name))?;
            found.push((name, value));
        }
        Ok(Found::Entries(found))
    }

    /// A list in the place of an array, whose numbers it has. Its bracket was read.
    fn numbers(&mut self, from_list: &Py<PyAny>, depth: usize) -> Result<Found<'py>> {
        let list = self.list(depth)?;
        let py = self.making.py;
        from_list.bind(py).run([&list]).map(Found::Value).map_err(|error| refused(py, error))
    }

    /// A list where anything may be, at the depth that it has in a `google.protobuf.Value`. Its bracket was read.
    fn list(&mut self, depth: usize) -> Result<Bound<'py, PyAny>> {
        let list = PyList::empty(self.making.py);
        self.making.budget.charge(sizes::LIST)?;
        while self.tokens.item(list.is_empty()).map_err(|why| Trouble::misfit(why).in_item(list.len()))? {
            let item = self.one(Expected::Anything, depth + 2).map_err(|trouble| trouble.in_item(list.len()))?;
            list.append(item).map_err(raised)?;
        }
        Ok(list.into_any())
    }

    /// An object where anything may be. Its bracket was read.
    fn dict(&mut self, depth: usize) -> Result<Bound<'py, PyAny>> {
        let dict = PyDict::new(self.making.py);
        let mut count = 0;
        self.making.budget.charge(sizes::dict(0))?;
        while let Some(name) = self.tokens.key(count == 0)? {
            let name = PyString::new(self.making.py, &name);
            self.making.budget.charge(sizes::TEXT + sizes::one_key_more(count))?;
            let value = self.one(Expected::Anything, depth + 3).map_err(|trouble| trouble.in_key(name.as_any()))?;
            dict.set_item(&name, value).map_err(raised)?;
            count += 1;
            if dict.len() < count {
                return Err(Trouble::misfit("is there twice").in_key(name.as_any()));
            }
        }
        Ok(dict.into_any())
    }
}

/// Whether a field's values are the items of a list.
fn is_listed(shape: &Shape) -> bool {
    !matches!(shape, Shape::Implicit | Shape::Presence | Shape::Map(_))
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
        _ => Token::Text(text.into()),
    };
    let weight = making.plan.weight(key);
    let value = making.budget.take(making.py, weight).and_then(|()| scalar(making, key, &token));
    value.map_err(|trouble| trouble.in_key(PyString::new(making.py, text).as_any()))
}

/// The value of a token where anything may be.
fn plain<'py>(py: Python<'py>, token: &Token<'_>) -> Result<Bound<'py, PyAny>> {
    Ok(match token {
        Token::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Token::Number(number) => anything::number_in_text(py, number)?,
        Token::Text(text) => PyString::new(py, text).into_any(),
        Token::Null | Token::Array | Token::Object => py.None().into_bound(py),
    })
}

/// The value of one token.
#[inline]
fn scalar<'py>(making: &mut Making<'_, 'py>, element: &Element, token: &Token<'_>) -> Result<Bound<'py, PyAny>> {
    let py = making.py;
    let value = match (&element.kind, token) {
        (Kind::Scalar(Scalar::Bool), Token::Bool(value)) => return making.number(element, Number::Bool(*value)),
        (Kind::Scalar(Scalar::String), Token::Text(text)) => PyString::new(py, text).into_any(),
        (Kind::Scalar(Scalar::Bytes), Token::Text(text)) => PyBytes::new(py, &json::base64(text)?).into_any(),
        (Kind::Scalar(Scalar::Double), token) => PyFloat::new(py, float(element, token)?).into_any(),
        (Kind::Scalar(Scalar::Float), token) => {
            let wide = float(element, token)?;
            let value = wide as f32;
            if value.is_infinite() && wide.is_finite() {
                return Err(Trouble::misfit("a number that is too large for a 32-bit float"));
            }
            PyFloat::new(py, value.into()).into_any()
        }
        (Kind::Enum(members), Token::Text(name)) => {
            let unknown = || Trouble::misfit(format!("{} has no member {}", element.name, quoted(name)));
            let number = members.number(name).ok_or_else(unknown)?;
            return making.number(element, Number::Int(number.into()));
        }
        (Kind::Enum(_), token) => return making.number(element, integer(element, Scalar::Enum, token)?),
        (Kind::Scalar(scalar), token) if scalar.range().is_some() => {
            return making.number(element, integer(element, *scalar, token)?);
        }
        (Kind::Timestamp, Token::Text(text)) => times::datetime(py, in_micros(making, json::timestamp(text)?)?)?,
        (Kind::Duration, Token::Text(text)) => times::timedelta(py, in_micros(making, json::duration(text)?)?)?,
        (Kind::Scalar(Scalar::String | Scalar::Bytes) | Kind::Timestamp | Kind::Duration, Token::Number(_)) => {
            return Err(Trouble::misfit(format!("expected {}, got a number: send a text", element.name)));
        }
        (_, token) => return Err(misfit(&element.name, token)),
    };
    making.seen(element, value)
}

/// Seconds and nanoseconds of a time. What Python does not hold of it is refused where people write it. Elsewhere it is
/// cut off, as of Protobuf's bytes: other languages send nanoseconds with every time, and those who read it here cannot
/// change that.
fn in_micros(making: &Making<'_, '_>, time: (i64, i64)) -> Result<(i64, i64)> {
    if making.strict && time.1 % 1000 != 0 {
        return Err(Trouble::misfit(
            "more than six digits of a second, which Python does not hold: round to microseconds",
        ));
    }
    Ok(time)
}

fn float(element: &Element, token: &Token<'_>) -> Result<f64> {
    match token {
        Token::Number(number) => json::finite(number).ok_or_else(anything::beyond),
        Token::Text(text) => json::float(text).ok_or_else(|| not(element, text)),
        token => Err(misfit(&element.name, token)),
    }
}

fn integer(element: &Element, scalar: Scalar, token: &Token<'_>) -> Result<Number> {
    let number = match token {
        Token::Number(number) => *number,
        Token::Text(text) if json::is_number(text) => &**text,
        Token::Text(text) => return Err(not(element, text)),
        token => return Err(misfit(&element.name, token)),
    };
    let value = json::integer(number).ok_or_else(|| not(element, number))?;
    let (least, greatest) = scalar.range().unwrap_or((0, 0));
    if value < least || value > greatest {
        return Err(Trouble::misfit(format!("an int that is not within {least} to {greatest}")));
    }
    Ok(Number::Int(value))
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
fn misfit(expected: &str, token: &Token<'_>) -> Box<Trouble> {
    Trouble::misfit(format!("expected {expected}, got {}", kind_of(token)))
}
