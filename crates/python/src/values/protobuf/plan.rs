//! What is known of a service's messages, read once from what `nearcall.codec.protobuf` made of its types.

use std::collections::HashMap;

use nearcall_core::protobuf::{MAX_FIELD, Scalar};
use nearcall_core::sizes;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::gil::callback::Callback;

/// The messages of a service. They refer to each other by number, because a type may contain itself.
pub(super) struct Plan {
    pub(super) messages: Vec<Message>,
    /// Makes the exception for a value that does not fit, from a text and a path.
    pub(super) error: Py<PyAny>,
}

/// One message, and the Python type whose values travel in it.
pub(super) struct Message {
    /// The name of the Python type, for error messages.
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) fields: Vec<Field>,
    /// How JSON has it, if not as an object with its fields.
    pub(super) in_json: Option<InJson>,
    /// Makes the value of the values of all fields, in order, in the form's place.
    pub(super) make: Option<Py<PyAny>>,
    /// Lets the value's class look at the value, and raises what that raises.
    pub(super) check: Option<Py<PyAny>>,
    /// Raises an exception if a value holds something that would not be sent.
    pub(super) look: Option<Py<PyAny>>,
    /// The memory of the Python value, apart from those of its fields that are present.
    weight: usize,
    /// For each number below 256, the place of its field, counted from 1; 0 if there is none.
    small: Vec<u16>,
    /// The place of each field by the names that it may have in JSON: JSON's, Protobuf's and Python's.
    names: HashMap<String, usize>,
}

/// How JSON has messages with a form of their own.
pub(super) enum InJson {
    /// As the value of their only field: a wrapped number as that number.
    Value,
    /// As plain data, which two functions make of the value and read: `None`, a bool, number, text, list or dict.
    Plain { to: Py<PyAny>, from: Py<PyAny> },
}

impl InJson {
    fn read(described: &Bound<'_, PyAny>) -> PyResult<Self> {
        if described.is_instance_of::<PyString>() {
            return Ok(Self::Value);
        }
        let (to, from) = described.extract()?;
        Ok(Self::Plain { to, from })
    }
}

/// What a message becomes in Python.
pub(super) enum Form {
    /// An object whose attributes are set: a dataclass.
    Object { class: Py<PyAny> },
    /// An object that its class makes from keyword arguments: a Struct. `names` are the names of the arguments.
    Call { class: Py<PyAny>, names: Py<PyTuple> },
    /// A tuple. `class` makes it if it is a named tuple.
    Tuple { class: Option<Py<PyAny>> },
    /// A dict with these keys.
    Dict,
    /// The arguments of a call: a tuple, or a dict of those that are given.
    Arguments,
    /// The value of the only field.
    Only,
    /// The value of the one field that is present.
    OneOf,
    /// `None`.
    Nothing,
}

/// A field, which carries an attribute, an item or an argument.
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: Py<PyString>,
    /// The name in a path; empty if the message is only there to hold this value.
    pub(super) shown: String,
    /// The text before the field's value in JSON: `"itsName":`.
    pub(super) json_key: String,
    pub(super) shape: Shape,
    pub(super) element: Element,
    /// What the field stands for when it is absent.
    pub(super) absent: Absent,
    /// Python has no default for the field, even if Protobuf has one.
    pub(super) required: bool,
    /// Values that are sent by leaving the field out.
    pub(super) left_out: Vec<Py<PyAny>>,
    /// Called with the field's whole value; raises if the value is not allowed.
    pub(super) check: Option<Py<PyAny>>,
    /// The classes whose values may be sent in the field.
    pub(super) accepts: Py<PyTuple>,
}

/// How often a field may be present, and what its values become together.
pub(super) enum Shape {
    /// At most once; a zero is not sent.
    Implicit,
    /// At most once; an absent field differs from a zero.
    Presence,
    List,
    Tuple,
    Set,
    Frozenset,
    Map(Box<Element>),
}

/// What an absent field stands for.
pub(super) enum Absent {
    Zero,
    Value(Py<PyAny>),
    Factory(Py<PyAny>),
    /// Nothing: the dict lacks the key.
    Omit,
    /// The field must be present.
    Required,
}

/// One value of a field.
pub(super) struct Element {
    pub(super) kind: Kind,
    /// Converts a value to what is sent.
    pub(super) to: Option<Py<PyAny>>,
    /// Converts what was sent to the value.
    pub(super) from: Option<Py<PyAny>>,
    /// Makes the value from numbers in lists, which JSON may have in place of the value's message.
    pub(super) from_list: Option<Py<PyAny>>,
    /// Called with the value; raises if the value is not allowed.
    pub(super) check: Option<Py<PyAny>>,
    /// The name of the Python type, for error messages.
    pub(super) name: String,
    /// The memory of a value, if it is no message of the plan.
    weight: usize,
}

/// What an element is on the wire.
pub(super) enum Kind {
    Scalar(Scalar),
    Enum(Members),
    Message(usize),
    Timestamp,
    Duration,
    /// `google.protobuf.Value`.
    Any,
}

impl Kind {
    /// What it is like in Protobuf's bytes: an enum is a number, and every message is bytes.
    #[inline]
    pub(super) fn on_wire(&self) -> Scalar {
        match self {
            Self::Scalar(scalar) => *scalar,
            Self::Enum(_) => Scalar::Enum,
            _ => Scalar::Bytes,
        }
    }
}

/// The members of an enum. `by_number` keeps them alive, so their addresses in `by_member` stay valid.
pub(super) struct Members {
    pub(super) by_number: HashMap<i32, Py<PyAny>>,
    pub(super) by_member: HashMap<usize, i32>,
    /// By both names of each member, Protobuf's and Python's.
    by_name: HashMap<String, i32>,
    /// The class, if it is open: it makes members of other numbers, too.
    pub(super) open: Option<Py<PyAny>>,
    /// Protobuf's names, by number.
    names: HashMap<i32, String>,
}

impl Plan {
    /// Whether a value of a message, or one in it, is looked at by its class.
    pub(super) fn checks(&self, index: usize) -> bool {
        let (mut seen, mut waiting) = (vec![false; self.messages.len()], vec![index]);
        while let Some(index) = waiting.pop() {
            if std::mem::replace(&mut seen[index], true) {
                continue;
            }
            let message = &self.messages[index];
            if message.check.is_some() {
                return true;
            }
            waiting.extend(message.fields.iter().filter_map(|field| match field.element.kind {
                Kind::Message(index) => Some(index),
                _ => None,
            }));
        }
        false
    }

    pub(super) fn read(messages: &Bound<'_, PyAny>, error: Py<PyAny>) -> PyResult<Self> {
        let messages = messages.items()?.map(|message| Message::read(&message?)).collect::<PyResult<Vec<_>>>()?;
        let plan = Self { messages, error };
        for field in plan.messages.iter().flat_map(|message| &message.fields) {
            if let Kind::Message(index) = field.element.kind
                && index >= plan.messages.len()
            {
                return Err(PyValueError::new_err("a field refers to a message that is not there"));
            }
        }
        Ok(plan)
    }

    /// The memory of an element's value, apart from what is in it.
    #[inline]
    pub(super) fn weight(&self, element: &Element) -> usize {
        match element.kind {
            Kind::Message(index) => element.weight + self.messages[index].weight,
            _ => element.weight,
        }
    }
}

impl Shape {
    /// The memory of a container of so many values, which are not in it.
    pub(super) fn weight(&self, count: usize) -> usize {
        match self {
            Self::Set | Self::Frozenset => sizes::set(count),
            Self::Map(_) => sizes::dict(count),
            _ => sizes::LIST,
        }
    }
}

impl Message {
    fn read(described: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class: Option<Py<PyAny>> = described.getattr("cls")?.extract()?;
        let form: String = described.getattr("form")?.extract()?;
        let mut fields =
            described.getattr("fields")?.items()?.map(|field| Field::read(&field?)).collect::<PyResult<Vec<_>>>()?;
        let needed = || class.as_ref().map(|class| class.clone_ref(described.py())).ok_or_else(|| no(&form));
        let form = match form.as_str() {
            "object" => Form::Object { class: needed()? },
            "call" => {
                let names = fields.iter().map(|field| field.name.bind(described.py()));
                Form::Call { class: needed()?, names: PyTuple::new(described.py(), names)?.unbind() }
            }
            "tuple" => Form::Tuple { class },
            "dict" => Form::Dict,
            "arguments" => Form::Arguments,
            "only" if fields.len() == 1 => Form::Only,
            "oneof" => Form::OneOf,
            "nothing" => Form::Nothing,
            other => return Err(no(other)),
        };
        if matches!(form, Form::Only | Form::OneOf) {
            for field in &mut fields {
                field.shown.clear();
            }
        }
        let mut small = Vec::new();
        for (place, field) in fields.iter().enumerate() {
            if field.number == 0 || field.number > MAX_FIELD {
                return Err(PyValueError::new_err(format!("{} is no number of a field", field.number)));
            }
            let number = field.number as usize;
            if number < 256 {
                small.resize(small.len().max(number + 1), 0);
                small[number] = u16::try_from(place + 1).map_err(|_| PyValueError::new_err("too many fields"))?;
            }
        }
        let mut names = HashMap::new();
        for attribute in ["json_name", "proto_name", "name"] {
            for (place, field) in described.getattr("fields")?.items()?.enumerate() {
                names.entry(field?.getattr(attribute)?.extract()?).or_insert(place);
            }
        }
        let in_json: Option<Bound<'_, PyAny>> = described.getattr("in_json")?.extract()?;
        let in_json = in_json.map(|described| InJson::read(&described)).transpose()?;
        if matches!(in_json, Some(InJson::Value)) && fields.len() != 1 {
            return Err(no("value"));
        }
        Ok(Self {
            name: described.getattr("name")?.extract()?,
            form,
            fields,
            in_json,
            make: described.getattr("make")?.extract()?,
            check: described.getattr("check")?.extract()?,
            look: described.getattr("look")?.extract()?,
            weight: described.getattr("weight")?.extract()?,
            small,
            names,
        })
    }

    /// The place of the field with this number.
    #[inline]
    pub(super) fn place(&self, number: u32) -> Option<usize> {
        if number < 256 {
            return usize::from(*self.small.get(number as usize)?).checked_sub(1);
        }
        self.fields.iter().position(|field| field.number == number)
    }

    /// The place of a field by its name in JSON. `next` is the place that is looked at first.
    #[inline]
    pub(super) fn named(&self, name: &str, next: usize) -> Option<usize> {
        if self.fields.get(next).is_some_and(|field| field.json_name() == name) {
            return Some(next);
        }
        self.names.get(name).copied()
    }
}

impl Field {
    /// The field's name in JSON, as it is written.
    #[inline]
    pub(super) fn json_name(&self) -> &str {
        &self.json_key[1..self.json_key.len() - 2]
    }

    fn read(described: &Bound<'_, PyAny>) -> PyResult<Self> {
        let shape: String = described.getattr("shape")?.extract()?;
        let shape = match shape.as_str() {
            "implicit" => Shape::Implicit,
            "presence" => Shape::Presence,
            "list" => Shape::List,
            "tuple" => Shape::Tuple,
            "set" => Shape::Set,
            "frozenset" => Shape::Frozenset,
            "map" => Shape::Map(Box::new(Element::read(&described.getattr("key")?)?)),
            other => return Err(no(other)),
        };
        let (absent, value): (String, Py<PyAny>) = described.getattr("absent")?.extract()?;
        let absent = match absent.as_str() {
            "zero" => Absent::Zero,
            "value" => Absent::Value(value),
            "factory" => Absent::Factory(value),
            "omit" => Absent::Omit,
            "required" => Absent::Required,
            other => return Err(no(other)),
        };
        let name: Bound<'_, PyString> = described.getattr("name")?.cast_into()?;
        Ok(Self {
            number: described.getattr("number")?.extract()?,
            name: PyString::intern(described.py(), name.to_str()?).unbind(),
            shown: name.to_str()?.to_owned(),
            json_key: format!("\"{}\":", described.getattr("json_name")?.cast::<PyString>()?.to_str()?),
            required: described.getattr("required")?.extract()?,
            shape,
            element: Element::read(&described.getattr("element")?)?,
            absent,
            left_out: described.getattr("left_out")?.extract()?,
            check: described.getattr("check")?.extract()?,
            accepts: described.getattr("accepts")?.cast_into::<PyTuple>()?.unbind(),
        })
    }
}

impl Element {
    fn read(described: &Bound<'_, PyAny>) -> PyResult<Self> {
        let kind = described.getattr("kind")?;
        let kind = if let Ok(index) = kind.extract::<usize>() {
            Kind::Message(index)
        } else if let Ok(members) = kind.cast::<PyDict>() {
            let open = described.getattr("open_class")?.extract()?;
            Kind::Enum(Members::read(members, &described.getattr("member_names")?, open)?)
        } else {
            match kind.cast::<PyString>()?.to_str()? {
                "timestamp" => Kind::Timestamp,
                "duration" => Kind::Duration,
                "any" => Kind::Any,
                name => Kind::Scalar(Scalar::named(name).ok_or_else(|| no(name))?),
            }
        };
        let weight = match &kind {
            // What a function makes of a value is an object of its own.
            _ if !described.getattr("from_")?.is_none() => sizes::OBJECT,
            Kind::Scalar(Scalar::Bool) | Kind::Enum(_) | Kind::Message(_) => sizes::SHARED,
            Kind::Scalar(Scalar::String) => sizes::TEXT,
            Kind::Scalar(Scalar::Bytes) | Kind::Timestamp | Kind::Duration => sizes::BYTES,
            Kind::Scalar(_) => sizes::NUMBER,
            // Depends on what is there.
            Kind::Any => 0,
        };
        Ok(Self {
            kind,
            to: described.getattr("to")?.extract()?,
            from: described.getattr("from_")?.extract()?,
            from_list: described.getattr("from_list")?.extract()?,
            check: described.getattr("check")?.extract()?,
            name: described.getattr("name")?.extract()?,
            weight,
        })
    }
}

impl Members {
    /// `names` are numbers, each with Protobuf's and Python's name of the member.
    fn read(members: &Bound<'_, PyDict>, names: &Bound<'_, PyAny>, open: Option<Py<PyAny>>) -> PyResult<Self> {
        let (mut by_number, mut by_member) = (HashMap::new(), HashMap::new());
        for (number, member) in members.iter() {
            let number: i32 = number.extract()?;
            by_member.insert(member.as_ptr().addr(), number);
            by_number.insert(number, member.unbind());
        }
        let names: Vec<(i32, String, String)> = names.extract()?;
        let mut by_name: HashMap<_, _> = names.iter().map(|(number, _, name)| (name.clone(), *number)).collect();
        by_name.extend(names.iter().map(|(number, name, _)| (name.clone(), *number)));
        let names = names.into_iter().map(|(number, name, _)| (number, name)).collect();
        Ok(Self { by_number, by_member, by_name, open, names })
    }

    /// The number of a member that the class of an open enum has made from a number.
    #[cold]
    pub(super) fn number_of_made(&self, value: &Bound<'_, PyAny>) -> Option<i32> {
        let class = self.open.as_ref()?.bind(value.py());
        if !value.get_type().is(class) {
            return None;
        }
        value.getattr(intern!(value.py(), "value")).and_then(|number| number.extract()).ok()
    }

    /// The number of the member with this name.
    pub(super) fn number(&self, name: &str) -> Option<i32> {
        self.by_name.get(name).copied()
    }

    /// Protobuf's name of the member with this number.
    pub(super) fn name(&self, number: i32) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }
}

fn no(name: &str) -> PyErr {
    PyValueError::new_err(format!("{name:?} is not known to the compiled codec"))
}
