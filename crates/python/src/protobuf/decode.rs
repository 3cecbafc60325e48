//! Messages become Python values. All that is read is a peer's.

use nearcall_core::protobuf::{Fields, MAX_DEPTH, Number, Scalar, Wire, packed};
use nearcall_core::{Effort, TableKind, TooMuch};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyTuple};
use smallvec::SmallVec;

use super::plan::{Absent, Element, Field, Form, Kind, Message, Plan, Shape};
use super::trouble::{Result, Trouble, Why, raised, refused};
use super::{anything, text, times};
use crate::callback::Callback;
use crate::interpreter::detach;

/// How many values a message may hold yet.
pub(super) struct Budget {
    left: usize,
}

impl Budget {
    pub(super) fn new(values: usize) -> Self {
        Self { left: values }
    }

    /// Counts one more value. Other threads have their turn now and then: values are made by the million.
    #[inline]
    pub(super) fn take(&mut self, py: Python<'_>) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| Trouble::new(Why::TooMany))?;
        if self.left.is_multiple_of(TURN) {
            detach(py, || ());
        }
        Ok(())
    }
}

/// After so many values other threads have their turn: about a millisecond's worth of those that cost most.
const TURN: usize = 1024;

/// A message's bytes. It may come in several parts: read one after the other they mean what the specification says of merging.
pub(super) type Parts<'a> = SmallVec<[&'a [u8]; 1]>;

/// What has been read of a field.
enum Slot<'a, 'py> {
    Empty,
    Value(Bound<'py, PyAny>),
    /// A message, which is decoded when all its parts are known. They are not copied: a peer may nest them, and each level
    /// would keep a copy.
    Message(Parts<'a>),
    Items(Vec<Bound<'py, PyAny>>),
    Entries(Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>),
}

type Values<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

/// One message that is being decoded, with all those in it.
pub(super) struct Decoding<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) plan: &'a Plan,
    pub(super) budget: Budget,
    /// What its dicts and sets cost so far.
    pub(super) effort: Effort,
}

impl<'py> Decoding<'_, 'py> {
    /// The value of an encoded message.
    pub(super) fn message(&mut self, index: usize, parts: &[&[u8]], depth: usize) -> Result<Bound<'py, PyAny>> {
        if depth > MAX_DEPTH {
            return Err(Trouble::misfit(super::TOO_DEEP));
        }
        let plan = self.plan;
        let message = &plan.messages[index];
        let mut slots: SmallVec<[Slot<'_, 'py>; 8]> = message.fields.iter().map(|_| Slot::Empty).collect();
        let mut fields = Fields::of_parts(parts);
        let mut chosen = None;
        while let Some((number, wire)) = fields.next()? {
            let Some(place) = message.place(number) else { continue };
            let field = &message.fields[place];
            let was_read =
                self.read(field, &mut slots[place], wire, depth).map_err(|trouble| trouble.in_field(&field.shown))?;
            if was_read
                && chosen.replace(place).is_some_and(|last| last != place)
                && matches!(message.form, Form::OneOf)
            {
                // The last member counts, and the one before it is as if it had not been there.
                for (other, slot) in slots.iter_mut().enumerate() {
                    if other != place {
                        *slot = Slot::Empty;
                    }
                }
            }
        }
        match &message.form {
            Form::OneOf => {
                let place = chosen.ok_or_else(|| Trouble::misfit(format!("no member of {} is there", message.name)))?;
                let slot = std::mem::replace(&mut slots[place], Slot::Empty);
                let field = &message.fields[place];
                self.finish(field, slot, depth)
                    .map_err(|trouble| trouble.in_field(&field.shown))?
                    .ok_or_else(|| missing(field))
            }
            Form::Dict => {
                let dict = PyDict::new(self.py);
                for (field, slot) in message.fields.iter().zip(slots) {
                    if let Some(value) =
                        self.finish(field, slot, depth).map_err(|trouble| trouble.in_field(&field.shown))?
                    {
                        dict.set_item(field.name.bind(self.py), value).map_err(raised)?;
                    }
                }
                Ok(dict.into_any())
            }
            _ => {
                let mut values = Values::new();
                for (field, slot) in message.fields.iter().zip(slots) {
                    let value = self.finish(field, slot, depth).map_err(|trouble| trouble.in_field(&field.shown))?;
                    values.push(value.ok_or_else(|| missing(field))?);
                }
                self.make(message, values)
            }
        }
    }

    /// Reads one occurrence of a field. Whether it was one: with another wire type it is a field that is not known here.
    #[inline]
    fn read<'a>(&mut self, field: &Field, slot: &mut Slot<'a, 'py>, wire: Wire<'a>, depth: usize) -> Result<bool> {
        match &field.shape {
            Shape::Implicit | Shape::Presence => self.read_single(&field.element, slot, wire, depth),
            Shape::Map(key) => self.read_entry(key, &field.element, slot, wire, depth),
            _ => self.read_item(&field.element, slot, wire, depth),
        }
    }

    #[inline]
    fn read_single<'a>(
        &mut self,
        element: &Element,
        slot: &mut Slot<'a, 'py>,
        wire: Wire<'a>,
        depth: usize,
    ) -> Result<bool> {
        if is_message(&element.kind) {
            let Wire::Bytes(bytes) = wire else { return Ok(false) };
            match slot {
                Slot::Message(_) if bytes.is_empty() => {}
                Slot::Message(parts) => {
                    self.budget.take(self.py)?;
                    parts.push(bytes);
                }
                _ => {
                    self.budget.take(self.py)?;
                    *slot = Slot::Message(Parts::from_slice(&[bytes]));
                }
            }
            return Ok(true);
        }
        self.budget.take(self.py)?;
        let Some(value) = self.element(element, wire, depth)? else { return Ok(false) };
        *slot = Slot::Value(value);
        Ok(true)
    }

    fn read_item<'a>(
        &mut self,
        element: &Element,
        slot: &mut Slot<'a, 'py>,
        wire: Wire<'a>,
        depth: usize,
    ) -> Result<bool> {
        if matches!(slot, Slot::Empty) {
            *slot = Slot::Items(Vec::new());
        }
        let Slot::Items(items) = slot else { return Ok(false) };
        if let (true, Wire::Bytes(mut bytes)) = (super::encode::is_packed(&element.kind), wire) {
            let scalar = match element.kind {
                Kind::Scalar(scalar) => scalar,
                _ => Scalar::Enum,
            };
            while !bytes.is_empty() {
                self.budget.take(self.py)?;
                let index = items.len();
                let number =
                    packed(scalar, &mut bytes).map_err(|malformed| Box::<Trouble>::from(malformed).in_item(index))?;
                items.push(self.number(element, number).map_err(|trouble| trouble.in_item(index))?);
            }
            return Ok(true);
        }
        self.budget.take(self.py)?;
        let index = items.len();
        let item = self.element(element, wire, depth).map_err(|trouble| trouble.in_item(index))?;
        let found = item.is_some();
        items.extend(item);
        Ok(found)
    }

    /// An entry of a map is a message of a key and a value, either of which may be absent, and then is a zero.
    fn read_entry<'a>(
        &mut self,
        key: &Element,
        element: &Element,
        slot: &mut Slot<'a, 'py>,
        wire: Wire<'a>,
        depth: usize,
    ) -> Result<bool> {
        let Wire::Bytes(bytes) = wire else { return Ok(false) };
        if matches!(slot, Slot::Empty) {
            *slot = Slot::Entries(Vec::new());
        }
        let Slot::Entries(entries) = slot else { return Ok(false) };
        self.budget.take(self.py)?;
        let (mut name, mut value) = (Slot::Empty, Slot::Empty);
        let mut fields = Fields::of(bytes);
        while let Some((number, wire)) = fields.next()? {
            match number {
                1 => self.read_single(key, &mut name, wire, depth)?,
                2 => self.read_single(element, &mut value, wire, depth)?,
                _ => continue,
            };
        }
        let name = match name {
            Slot::Value(name) => name,
            _ => self.zero(key)?,
        };
        let value = self.whole(element, value, depth + 1).map_err(|trouble| trouble.in_key(&name))?;
        let value = match value {
            Some(value) => value,
            None if is_message(&element.kind) => {
                self.decoded(element, &[], depth + 1).map_err(|trouble| trouble.in_key(&name))?
            }
            None => self.zero(element)?,
        };
        entries.push((name, value));
        Ok(true)
    }

    /// Refuses a set whose members a peer has chosen so that they collide.
    fn check_keys(&mut self, shape: &Shape, element: &Element, items: &[Bound<'py, PyAny>]) -> Result<()> {
        if !matches!(shape, Shape::Set | Shape::Frozenset) {
            return Ok(());
        }
        match element.kind {
            // Their hashes hang on a secret of the process, or there are few of them.
            Kind::Enum(_) => Ok(()),
            Kind::Scalar(Scalar::String | Scalar::Bytes | Scalar::Bool) if element.from.is_none() => Ok(()),
            _ => self.check_hashes(TableKind::Set, items.len(), items.iter()),
        }
    }

    /// Refuses a dict or a set of such keys, if all of the message's together would take too long.
    fn check_hashes<'a>(
        &mut self,
        kind: TableKind,
        count: usize,
        keys: impl Iterator<Item = &'a Bound<'py, PyAny>>,
    ) -> Result<()>
    where
        'py: 'a,
    {
        let py = self.py;
        if count <= FEW {
            return Ok(());
        }
        let hash = pyo3::intern!(py, "__hash__");
        let (mut hashes, mut names) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (index, key) in keys.enumerate() {
            if let (true, Ok(number)) = (key.is_exact_instance_of::<PyInt>(), key.extract::<i64>()) {
                names.push(number);
                hashes.push(key.hash().map_err(raised)? as i64);
            } else {
                // Not known to be equal to another one.
                names.push(index as i64);
                let found = key.run_method(hash, []).map_err(|error| refused(py, error))?;
                hashes.push(found.extract().map_err(|error| refused(py, error))?);
            }
        }
        let names: Vec<[u8; 8]> = names.into_iter().map(i64::to_le_bytes).collect();
        self.effort.add(kind, &hashes, |number| &names[number][..], |_, _| false).map_err(|why| match why {
            TooMuch::Memory => raised(PyMemoryError::new_err("no memory to look at the keys of dicts and sets")),
            _ => Trouble::misfit(
                "keys of a dict or a set collide, and building it would take too long; send a list, or keys of type str",
            ),
        })
    }

    /// The value of a field of which everything has been read; `None` if it is absent and that means nothing.
    #[inline]
    fn finish(&mut self, field: &Field, slot: Slot<'_, 'py>, depth: usize) -> Result<Option<Bound<'py, PyAny>>> {
        let value = match (slot, &field.shape) {
            (Slot::Empty, Shape::Implicit | Shape::Presence) => return self.absent(field),
            (Slot::Empty, shape) => match field.absent {
                Absent::Zero => {
                    // It is a value like any other, and one that costs its sender nothing.
                    self.budget.take(self.py)?;
                    collect(self.py, shape, Vec::new())?
                }
                _ => return self.absent(field),
            },
            (Slot::Items(items), shape) => {
                self.check_keys(shape, &field.element, &items)?;
                collect(self.py, shape, items)?
            }
            (Slot::Entries(entries), _) => {
                if let Shape::Map(key) = &field.shape
                    && matches!(key.kind, Kind::Scalar(scalar) if scalar != Scalar::String)
                {
                    self.check_hashes(TableKind::Dict, entries.len(), entries.iter().map(|(key, _)| key))?;
                }
                let dict = PyDict::new(self.py);
                for (key, value) in entries {
                    dict.set_item(key, value).map_err(raised)?;
                }
                dict.into_any()
            }
            (slot, _) => match self.whole(&field.element, slot, depth)? {
                Some(value) => value,
                None => return self.absent(field),
            },
        };
        if let Some(check) = &field.check {
            check.bind(self.py).run([&value]).map_err(|error| refused(self.py, error))?;
        }
        Ok(Some(value))
    }

    fn absent(&mut self, field: &Field) -> Result<Option<Bound<'py, PyAny>>> {
        Ok(Some(match &field.absent {
            Absent::Zero => self.zero(&field.element)?,
            Absent::Value(value) => value.bind(self.py).clone(),
            Absent::Factory(make) => {
                self.budget.take(self.py)?;
                make.bind(self.py).run([]).map_err(raised)?
            }
            Absent::Omit => return Ok(None),
            Absent::Required => return Err(Trouble::misfit("is missing")),
        }))
    }

    fn whole(&mut self, element: &Element, slot: Slot<'_, 'py>, depth: usize) -> Result<Option<Bound<'py, PyAny>>> {
        match slot {
            Slot::Value(value) => Ok(Some(value)),
            Slot::Message(parts) => self.decoded(element, &parts, depth).map(Some),
            _ => Ok(None),
        }
    }

    /// The value of an absent number, text or enum.
    fn zero(&mut self, element: &Element) -> Result<Bound<'py, PyAny>> {
        let wire = match &element.kind {
            Kind::Scalar(scalar) => match scalar.wire_type() {
                1 => Wire::Fixed64(0),
                2 => Wire::Bytes(&[]),
                5 => Wire::Fixed32(0),
                _ => Wire::Varint(0),
            },
            Kind::Enum(_) => Wire::Varint(0),
            _ => return Err(Trouble::misfit("is missing")),
        };
        self.element(element, wire, 0)?.ok_or_else(|| Trouble::misfit("is missing"))
    }

    /// One value; `None` if the wire type is another one.
    #[inline]
    fn element(&mut self, element: &Element, wire: Wire<'_>, depth: usize) -> Result<Option<Bound<'py, PyAny>>> {
        let bytes = match (&element.kind, wire) {
            (Kind::Scalar(scalar), wire) if scalar.is_packed() => {
                return match scalar.number(wire)? {
                    Some(number) => self.number(element, number).map(Some),
                    None => Ok(None),
                };
            }
            (Kind::Enum(_), wire) => {
                return match Scalar::Enum.number(wire)? {
                    Some(number) => self.number(element, number).map(Some),
                    None => Ok(None),
                };
            }
            (_, Wire::Bytes(bytes)) => bytes,
            _ => return Ok(None),
        };
        match element.kind {
            Kind::Scalar(Scalar::String) => text(self.py, bytes).and_then(|value| self.seen(element, value)).map(Some),
            Kind::Scalar(_) => self.seen(element, PyBytes::new(self.py, bytes).into_any()).map(Some),
            _ => self.decoded(element, &[bytes], depth).map(Some),
        }
    }

    /// A message that is whole, of our own or of Google's.
    fn decoded(&mut self, element: &Element, parts: &[&[u8]], depth: usize) -> Result<Bound<'py, PyAny>> {
        let value = match element.kind {
            Kind::Message(index) => self.message(index, parts, depth + 1)?,
            Kind::Timestamp => times::timestamp(self.py, parts)?,
            Kind::Duration => times::duration(self.py, parts)?,
            _ => anything::read(self.py, parts, &mut self.budget, depth + 1)?,
        };
        self.seen(element, value)
    }

    #[inline]
    fn number(&mut self, element: &Element, number: Number) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        let value = match (number, &element.kind) {
            (Number::Int(number), Kind::Enum(members)) => {
                let member = i32::try_from(number).ok().and_then(|number| members.by_number.get(&number));
                match member {
                    Some(member) => member.bind(py).clone(),
                    None if number == 0 => return Err(Trouble::misfit("is missing")),
                    None => return Err(Trouble::misfit(format!("{} has no member {number}", element.name))),
                }
            }
            (Number::Int(number), _) => int(py, number),
            (Number::Float(number), _) => PyFloat::new(py, number).into_any(),
            (Number::Bool(value), _) => PyBool::new(py, value).to_owned().into_any(),
        };
        self.seen(element, value)
    }

    /// What the value becomes, after it was looked at.
    #[inline]
    fn seen(&mut self, element: &Element, mut value: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        if let Some(from) = &element.from {
            value = from.bind(self.py).run([&value]).map_err(|error| refused(self.py, error))?;
        }
        if let Some(check) = &element.check {
            check.bind(self.py).run([&value]).map_err(|error| refused(self.py, error))?;
        }
        Ok(value)
    }

    fn make(&self, message: &Message, mut values: Values<'py>) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        match &message.form {
            Form::Object { class, finish } => {
                let object = new_object(class.bind(py)).map_err(|error| refused(py, error))?;
                for (field, value) in message.fields.iter().zip(&values) {
                    object.set_plainly(field.name.bind(py), value).map_err(|error| refused(py, error))?;
                }
                if let Some(finish) = finish {
                    object.run_method(finish.bind(py), []).map_err(|error| refused(py, error))?;
                }
                Ok(object)
            }
            Form::Call { class, names } => {
                class.bind(py).run_many(&values, Some(names.bind(py))).map_err(|error| refused(py, error))
            }
            Form::Tuple { class: Some(class) } => {
                class.bind(py).run_many(&values, None).map_err(|error| refused(py, error))
            }
            Form::Tuple { class: None } | Form::Arguments => {
                PyTuple::new(py, values).map(Bound::into_any).map_err(raised)
            }
            Form::Only | Form::OneOf | Form::Dict => {
                values.pop().ok_or_else(|| Trouble::misfit("a message without a value"))
            }
        }
    }
}

/// An object of a class without an `__init__` having run, as pickle makes it.
fn new_object<'py>(class: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    class.run_method(pyo3::intern!(py, "__new__"), [class])
}

fn is_message(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(_) | Kind::Timestamp | Kind::Duration | Kind::Any)
}

#[cold]
fn missing(field: &Field) -> Box<Trouble> {
    Trouble::misfit("is missing").in_field(&field.shown)
}

#[inline]
fn int(py: Python<'_>, number: i128) -> Bound<'_, PyAny> {
    let made = match i64::try_from(number) {
        Ok(number) => number.into_pyobject(py),
        Err(_) => (number as u64).into_pyobject(py),
    };
    match made {
        Ok(made) => made.into_any(),
        Err(never) => match never {},
    }
}

fn collect<'py>(py: Python<'py>, shape: &Shape, items: Vec<Bound<'py, PyAny>>) -> Result<Bound<'py, PyAny>> {
    let made = match shape {
        Shape::Tuple => PyTuple::new(py, items).map(Bound::into_any),
        Shape::Map(_) => Ok(PyDict::new(py).into_any()),
        Shape::Set if items.is_empty() => PySet::empty(py).map(Bound::into_any),
        _ => PyList::new(py, items).map(Bound::into_any),
    };
    let made = made.map_err(raised)?;
    let class = match shape {
        Shape::Set => py.get_type::<PySet>(),
        Shape::Frozenset => py.get_type::<PyFrozenSet>(),
        _ => return Ok(made),
    };
    class.as_any().run([&made]).map_err(|error| refused(py, error))
}

/// So few keys cannot take long, however they collide: three steps for each of their bytes.
const FEW: usize = 16;
