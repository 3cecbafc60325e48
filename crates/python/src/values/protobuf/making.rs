//! Makes Python values from what was read of a message's bytes or its JSON.

use nearcall_core::protobuf::{Number, Scalar};
use nearcall_core::server::ValueBudget;
use nearcall_core::{Effort, Keys, TableKind, TooMuch, sizes};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};
use smallvec::SmallVec;

use super::plan::{Absent, Element, Field, Form, Kind, Members, Message, Plan, Shape};
use super::trouble::{Result, Trouble, Why, raised, refused};
use crate::gil::callback::Callback;
use crate::gil::interpreter::{Turns, detach};
use crate::values::hashed::{COLLISIONS, NO_MEMORY};

/// How many more values a message may hold, and what they take in memory.
pub(super) struct Budget<'a> {
    left: usize,
    /// Bytes that are charged to `memory` and not taken yet.
    paid: usize,
    memory: Option<ValueBudget<'a>>,
    /// Values and skipped fields since other threads were last thought of.
    steps: usize,
    turns: Turns,
}

/// After this many values the loop asks whether other threads should have their turn.
const FEW_STEPS: usize = 256;

/// Bytes that are charged together, beforehand.
const CHARGED: usize = 16 * 1024;

impl<'a> Budget<'a> {
    pub(super) fn new(max_values: usize, memory: Option<ValueBudget<'a>>) -> Self {
        Self { left: max_values, paid: 0, memory, steps: 0, turns: Turns::new() }
    }

    /// Counts one more value, which takes so many bytes. Other threads have their turn now and then: values are made by
    /// the million.
    #[inline]
    pub(super) fn take(&mut self, py: Python<'_>, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| Trouble::new(Why::TooMany))?;
        self.charge(bytes)?;
        self.step(py);
        Ok(())
    }

    /// Charges memory that a value takes beyond what was said when it was counted.
    #[inline]
    pub(super) fn charge(&mut self, bytes: usize) -> Result<()> {
        if let Some(memory) = &self.memory {
            self.paid = match self.paid.checked_sub(bytes) {
                Some(paid) => paid,
                None if memory.add(bytes + CHARGED) => self.paid + CHARGED,
                None => return Err(Trouble::new(Why::TooMuchMemory)),
            };
        }
        Ok(())
    }

    /// Counts something that costs time and makes no value, so that other threads have their turn here, too.
    #[inline]
    pub(super) fn step(&mut self, py: Python<'_>) {
        self.steps += 1;
        if self.steps >= FEW_STEPS {
            self.steps = 0;
            self.turns.give(py);
        }
    }
}

/// A message's bytes, which may come in several parts. Reading the parts one after the other merges them as the
/// specification says.
pub(super) type Parts<'a> = SmallVec<[&'a [u8]; 1]>;

/// What was found of a field.
pub(super) enum Found<'py> {
    Empty,
    Value(Bound<'py, PyAny>),
    Items(Vec<Bound<'py, PyAny>>),
    Entries(Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>),
}

type Values<'py> = SmallVec<[Bound<'py, PyAny>; 8]>;

/// One message that is being decoded, with all messages in it.
pub(super) struct Making<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) plan: &'a Plan,
    pub(super) budget: Budget<'a>,
    /// What the message's dicts and sets have cost so far.
    effort: Effort,
    /// Fields without a default in Python must be present, even zeros.
    pub(super) strict: bool,
    /// A map must not have a key twice.
    pub(super) distinct: bool,
    /// The classes of the values look at them. What they look at is thrown away, because they may change it.
    checking: bool,
}

impl<'a, 'py> Making<'a, 'py> {
    pub(super) fn new(py: Python<'py>, plan: &'a Plan, budget: Budget<'a>, checking: bool) -> Self {
        Self { py, plan, budget, effort: Effort::default(), strict: false, distinct: false, checking }
    }

    /// Makes the value of a message that was read completely. `found` is called once for each field, and returns what
    /// was read of it. `chosen` is the place of the member of a `oneof` that is present.
    pub(super) fn assemble(
        &mut self,
        message: &Message,
        chosen: Option<usize>,
        mut found: impl FnMut(&mut Self, usize, &Field) -> Result<Found<'py>>,
    ) -> Result<Bound<'py, PyAny>> {
        let mut finished = |this: &mut Self, place: usize| {
            let field = &message.fields[place];
            let value = found(this, place, field).and_then(|found| this.finish(field, found));
            value.map_err(|trouble| trouble.in_field(&field.shown))
        };
        match &message.form {
            Form::OneOf => {
                let place = chosen.ok_or_else(|| Trouble::misfit(format!("no member of {} is there", message.name)))?;
                finished(self, place)?.ok_or_else(|| missing(&message.fields[place]))
            }
            Form::Dict => {
                let dict = PyDict::new(self.py);
                for (place, field) in message.fields.iter().enumerate() {
                    if let Some(value) = finished(self, place)? {
                        dict.set_item(field.name.bind(self.py), value).map_err(raised)?;
                    }
                }
                Ok(dict.into_any())
            }
            _ => {
                let mut values = Values::new();
                for (place, field) in message.fields.iter().enumerate() {
                    values.push(finished(self, place)?.ok_or_else(|| missing(field))?);
                }
                self.make(message, values)
            }
        }
    }

    /// Makes the value of a field that was read completely; `None` if the field is absent and stands for nothing.
    #[inline]
    fn finish(&mut self, field: &Field, found: Found<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let value = match (found, &field.shape) {
            (Found::Value(value), _) => value,
            (Found::Empty, _) if self.strict && field.required => return Err(Trouble::misfit("is missing")),
            (Found::Empty, Shape::Implicit | Shape::Presence) => return self.absent(field),
            (Found::Empty, shape) => match field.absent {
                Absent::Zero => {
                    // An empty container counts as a value like any other: it costs its sender nothing.
                    self.budget.take(self.py, shape.weight(0))?;
                    collect(self.py, shape, Vec::new())?
                }
                _ => return self.absent(field),
            },
            (Found::Items(items), shape) => {
                self.budget.charge(shape.weight(items.len()))?;
                self.check_keys(shape, &field.element, &items)?;
                collect(self.py, shape, items)?
            }
            (Found::Entries(entries), shape) => {
                if let Shape::Map(key) = shape
                    && matches!(key.kind, Kind::Scalar(scalar) if scalar != Scalar::String)
                {
                    self.check_hashes(TableKind::Dict, entries.len(), entries.iter().map(|(key, _)| key))?;
                }
                let (count, dict) = (entries.len(), PyDict::new(self.py));
                self.budget.charge(sizes::dict(count))?;
                for (key, value) in entries {
                    self.budget.step(self.py);
                    dict.set_item(key, value).map_err(raised)?;
                }
                if self.distinct && dict.len() < count {
                    return Err(Trouble::misfit("a key is there twice"));
                }
                dict.into_any()
            }
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
                self.budget.take(self.py, sizes::OBJECT)?;
                make.bind(self.py).run([]).map_err(raised)?
            }
            Absent::Omit => return Ok(None),
            Absent::Required => return Err(Trouble::misfit("is missing")),
        }))
    }

    /// The value of an absent number, text or enum.
    pub(super) fn zero(&mut self, element: &Element) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        match &element.kind {
            Kind::Scalar(Scalar::String) => self.seen(element, PyString::new(py, "").into_any()),
            Kind::Scalar(Scalar::Bytes) => self.seen(element, PyBytes::new(py, b"").into_any()),
            Kind::Scalar(Scalar::Float | Scalar::Double) => self.number(element, Number::Float(0.0)),
            Kind::Scalar(Scalar::Bool) => self.number(element, Number::Bool(false)),
            Kind::Enum(members) if !members.by_number.contains_key(&0) => Err(Trouble::misfit("is missing")),
            Kind::Scalar(_) | Kind::Enum(_) => self.number(element, Number::Int(0)),
            _ => Err(Trouble::misfit("is missing")),
        }
    }

    /// Refuses a set whose members a peer has chosen so that they collide.
    fn check_keys(&mut self, shape: &Shape, element: &Element, items: &[Bound<'py, PyAny>]) -> Result<()> {
        if !matches!(shape, Shape::Set | Shape::Frozenset) {
            return Ok(());
        }
        match element.kind {
            // The hashes of these values depend on a secret of the process, or there are few such values.
            Kind::Enum(Members { open: None, .. }) => Ok(()),
            Kind::Scalar(Scalar::String | Scalar::Bytes | Scalar::Bool) if element.from.is_none() => Ok(()),
            _ => self.check_hashes(TableKind::Set, items.len(), items.iter()),
        }
    }

    /// Refuses a dict or a set with these keys, if all dicts and sets of the message together would take too long to
    /// build.
    fn check_hashes<'k>(
        &mut self,
        kind: TableKind,
        count: usize,
        keys: impl Iterator<Item = &'k Bound<'py, PyAny>>,
    ) -> Result<()>
    where
        'py: 'k,
    {
        let py = self.py;
        if count <= FEW {
            return Ok(());
        }
        let hash = pyo3::intern!(py, "__hash__");
        let (mut hashes, mut names) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for (index, key) in keys.enumerate() {
            self.budget.step(py);
            if let (true, Ok(number)) = (key.is_exact_instance_of::<PyInt>(), key.extract::<i64>()) {
                names.push(number);
                hashes.push(key.hash().map_err(raised)? as i64);
            } else {
                // Counts as different from all other keys.
                names.push(index as i64);
                let found = key.run_method(hash, []).map_err(|error| refused(py, error))?;
                hashes.push(found.extract().map_err(|error| refused(py, error))?);
            }
        }
        let names: Vec<[u8; 8]> = names.into_iter().map(i64::to_le_bytes).collect();
        let effort = &mut self.effort;
        // Without the interpreter: this may take a tenth of a second, and needs no Python.
        let keys = Keys {
            random: 0,
            hashes: &hashes,
            bytes: |number: usize| &names[number][..],
            same: |_, _| false,
            exact: false,
        };
        let added = detach(py, || effort.add(kind, &keys));
        added.map_err(|why| match why {
            TooMuch::Memory => raised(PyMemoryError::new_err(NO_MEMORY)),
            _ => Trouble::misfit(COLLISIONS),
        })
    }

    /// The value of a number.
    #[inline]
    pub(super) fn number(&mut self, element: &Element, number: Number) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        let value = match (number, &element.kind) {
            (Number::Int(number), Kind::Enum(members)) => {
                let member = i32::try_from(number).ok().and_then(|number| members.by_number.get(&number));
                match member {
                    Some(member) => member.bind(py).clone(),
                    // It stands for no value: an open enum makes nothing of it.
                    None if number == 0 => return Err(no_member(element, 0)),
                    None => self.made_by_class(element, members, number)?,
                }
            }
            (Number::Int(number), _) => int(py, number),
            (Number::Float(number), _) => PyFloat::new(py, number).into_any(),
            (Number::Bool(value), _) => PyBool::new(py, value).to_owned().into_any(),
        };
        self.seen(element, value)
    }

    /// The member that an open enum makes of a number.
    #[cold]
    fn made_by_class(&self, element: &Element, members: &Members, number: i128) -> Result<Bound<'py, PyAny>> {
        let unknown = || no_member(element, number);
        let (Ok(number), Some(class)) = (i32::try_from(number), &members.open) else { return Err(unknown()) };
        let made = class.bind(self.py).run([&int(self.py, number.into())]).map_err(|error| refused(self.py, error))?;
        // The class may return another member: then the received value is not the sent one.
        if members.number_of_made(&made) == Some(number) { Ok(made) } else { Err(unknown()) }
    }

    /// Converts a received value, and checks the result.
    #[inline]
    pub(super) fn seen(&mut self, element: &Element, mut value: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        if let Some(from) = &element.from {
            value = from.bind(self.py).run([&value]).map_err(|error| refused(self.py, error))?;
        }
        if let Some(check) = &element.check {
            check.bind(self.py).run([&value]).map_err(|error| refused(self.py, error))?;
        }
        Ok(value)
    }

    fn make(&self, message: &Message, values: Values<'py>) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        let made = match &message.make {
            Some(make) => make.bind(py).run_many(&values, None).map_err(|error| refused(py, error))?,
            None => self.make_of_form(message, values)?,
        };
        if let Some(check) = message.check.as_ref().filter(|_| self.checking) {
            check.bind(py).run([&made]).map_err(|error| refused(py, error))?;
        }
        Ok(made)
    }

    fn make_of_form(&self, message: &Message, mut values: Values<'py>) -> Result<Bound<'py, PyAny>> {
        let py = self.py;
        match &message.form {
            Form::Object { class } => {
                let object = new_object(class.bind(py)).map_err(|error| refused(py, error))?;
                for (field, value) in message.fields.iter().zip(&values) {
                    object.set_plainly(field.name.bind(py), value).map_err(|error| refused(py, error))?;
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
            Form::Nothing => Ok(py.None().into_bound(py)),
            Form::Only | Form::OneOf | Form::Dict => {
                values.pop().ok_or_else(|| Trouble::misfit("a message without a value"))
            }
        }
    }
}

/// Makes an object of a class without running its `__init__`, as pickle does.
fn new_object<'py>(class: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    class.run_method(pyo3::intern!(py, "__new__"), [class])
}

pub(super) fn is_message(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(_) | Kind::Timestamp | Kind::Duration | Kind::Any)
}

#[cold]
fn no_member(element: &Element, number: i128) -> Box<Trouble> {
    Trouble::misfit(format!("{} has no member {number}", element.name))
}

#[cold]
fn missing(field: &Field) -> Box<Trouble> {
    Trouble::misfit("is missing").in_field(&field.shown)
}

#[inline]
pub(super) fn int(py: Python<'_>, number: i128) -> Bound<'_, PyAny> {
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

/// This few keys cannot take long, even if they all collide: three steps for each of their bytes.
const FEW: usize = 16;
