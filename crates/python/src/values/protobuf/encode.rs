//! Python values become messages, in the format of an [`Output`].

use nearcall_core::protobuf::Scalar;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};

use super::output::{Output, has_quotes};
use super::plan::{Absent, Element, Field, Form, InJson, Kind, Message, Plan, Shape};
use super::strings::{type_name, utf8};
use super::trouble::{Result, Trouble, deeper, raised, refused};
use super::{anything, times};
use crate::gil::callback::Callback;
use crate::values::encoded::{Lent, LentBuffer};

/// One message that is being encoded, with all messages in it.
pub(super) struct Encoding<'a, 'py, O> {
    pub(super) py: Python<'py>,
    pub(super) plan: &'a Plan,
    pub(super) out: &'a mut O,
    /// Long buffers, each with the number of written bytes that come before it.
    pub(super) lent: &'a mut Lent<'py>,
}

/// From this length in bytes on, a buffer is lent. Copying a shorter one takes less time than keeping account of it.
const LEND: usize = 4 << 10;

impl<'py, O: Output> Encoding<'_, 'py, O> {
    /// Appends a message, with its beginning and end.
    #[inline]
    pub(super) fn whole(&mut self, index: usize, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        if O::JSON
            && let Some(in_json) = &self.plan.messages[index].in_json
        {
            return self.in_json(&self.plan.messages[index], in_json, value, depth);
        }
        let begin = self.out.open(0, "{");
        self.message(index, value, depth)?;
        self.out.close(begin, "}");
        Ok(())
    }

    #[cold]
    fn in_json(&mut self, message: &Message, in_json: &InJson, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        match (in_json, &message.form) {
            (InJson::Plain { to, .. }, _) => {
                let value = to.bind(self.py).run([value]).map_err(|error| refused(self.py, error))?;
                let begin = self.out.open(0, "");
                anything::put(&value, self.out, depth)?;
                self.out.close(begin, "");
                Ok(())
            }
            (InJson::Value, Form::Object { class } | Form::Call { class, .. }) => {
                self.fits(message, class, value)?;
                let field = &message.fields[0];
                let item = self.attribute(field, value)?;
                self.element(&field.element, &item, depth)?;
                self.check(field.check.as_ref(), &item)
            }
            (InJson::Value, _) => Err(Self::not_of(message, value)),
        }
    }

    /// Appends the fields of a message.
    pub(super) fn message(&mut self, index: usize, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        deeper(depth)?;
        let message = &self.plan.messages[index];
        match &message.form {
            Form::Object { class } | Form::Call { class, .. } => {
                self.fits(message, class, value)?;
                for field in &message.fields {
                    let item = self.attribute(field, value)?;
                    self.field(field, &item, depth)?;
                }
                Ok(())
            }
            Form::Tuple { class } => {
                let class = class.as_ref().map(|class| class.bind(self.py));
                let fits = |tuple: &Bound<'_, PyTuple>| match class {
                    Some(class) => tuple.get_type().as_any().is(class),
                    None => tuple.len() == message.fields.len(),
                };
                let tuple = value.cast::<PyTuple>().ok().filter(|tuple| fits(tuple));
                let Some(tuple) = tuple else { return Err(Self::not_of(message, value)) };
                self.items(message, tuple, depth)
            }
            Form::Dict => self.dict(message, value, depth),
            Form::Arguments => match value.cast::<PyTuple>() {
                Ok(tuple) => self.items(message, tuple, depth),
                Err(_) => self.dict(message, value, depth),
            },
            Form::Only => self.field(&message.fields[0], value, depth),
            Form::OneOf => self.one_of(message, value, depth),
            Form::Nothing if value.is_none() => Ok(()),
            Form::Nothing => Err(Self::not_of(message, value)),
        }
    }

    /// Refuses an object of another class, and one that holds something that would not be sent.
    fn fits(&self, message: &Message, class: &Py<PyAny>, value: &Bound<'py, PyAny>) -> Result<()> {
        if !value.get_type().as_any().is(class) {
            return Err(Self::not_of(message, value));
        }
        self.check(message.look.as_ref(), value)
    }

    fn attribute(&self, field: &Field, value: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let found = value.attribute(field.name.bind(self.py));
        found.map_err(|error| refused(self.py, error).in_field(&field.shown))
    }

    fn items(&mut self, message: &Message, tuple: &Bound<'py, PyTuple>, depth: usize) -> Result<()> {
        if tuple.len() != message.fields.len() {
            return Err(Self::not_of(message, tuple.as_any()));
        }
        for (field, item) in message.fields.iter().zip(tuple.iter_borrowed()) {
            self.field(field, &item, depth)?;
        }
        Ok(())
    }

    fn dict(&mut self, message: &Message, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        let Ok(dict) = value.cast::<PyDict>() else { return Err(Self::not_of(message, value)) };
        let mut found = 0;
        for field in &message.fields {
            match dict.get_item(field.name.bind(self.py)).map_err(raised)? {
                Some(item) => {
                    found += 1;
                    self.field(field, &item, depth)?;
                }
                // An argument that is not given takes the handler's default, at the server.
                None if matches!(message.form, Form::Arguments) || matches!(field.absent, Absent::Omit) => {}
                None => return Err(Trouble::misfit("is missing").in_field(&field.shown)),
            }
        }
        if found < dict.len() {
            let known = |key: &Bound<'_, PyAny>| {
                message.fields.iter().any(|field| key.eq(field.name.bind(self.py)).unwrap_or(false))
            };
            let other = dict.keys().iter().find(|key| !known(key));
            let other = other.map_or_else(String::new, |key| key.to_string());
            let text = format!("{} has no field '{other}', which would be lost: leave it out", message.name);
            return Err(Trouble::misfit(text));
        }
        Ok(())
    }

    /// Encodes the member of a union that the value belongs to: by the value's own class, else by a base class.
    fn one_of(&mut self, message: &Message, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        let kind = value.get_type();
        let is_exact = |field: &&Field| field.accepts.bind(self.py).iter_borrowed().any(|class| class.is(&kind));
        let is_base = |field: &&Field| value.is_instance(field.accepts.bind(self.py).as_any()).unwrap_or(false);
        let of_floats = |field: &&Field| matches!(field.element.kind, Kind::Scalar(Scalar::Double | Scalar::Float));
        let mut chosen = message.fields.iter().find(is_exact);
        if chosen.is_none() && !value.is_instance_of::<PyBool>() {
            chosen = message.fields.iter().find(is_base);
        }
        // An int may be sent as a float, if a float equals it.
        if chosen.is_none() && value.is_exact_instance_of::<PyInt>() {
            chosen = message.fields.iter().find(of_floats);
        }
        match chosen {
            Some(field) => self.keyed(field, value, depth).map_err(|trouble| trouble.in_field(&field.shown)),
            None => Err(Self::not_of(message, value)),
        }
    }

    #[cold]
    fn not_of(message: &Message, value: &Bound<'py, PyAny>) -> Box<Trouble> {
        Trouble::misfit(format!("expected {}, got {}", message.name, type_name(value)))
    }

    /// Appends one field, unless its absence says the same.
    #[inline]
    fn field(&mut self, field: &Field, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        if field.left_out.iter().any(|skipped| skipped.is(value)) {
            return Ok(());
        }
        let put = match &field.shape {
            Shape::Implicit => self.implicit(field, value, depth),
            Shape::Presence => self.keyed(field, value, depth),
            Shape::Map(key) => self.map(field, key, value, depth),
            Shape::List | Shape::Tuple | Shape::Set | Shape::Frozenset => self.repeated(field, value, depth),
        };
        put.and_then(|()| self.check(field.check.as_ref(), value)).map_err(|trouble| trouble.in_field(&field.shown))
    }

    fn implicit(&mut self, field: &Field, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        let before = self.out.len();
        self.keyed(field, value, depth)?;
        self.out.drop_zero(before, field);
        Ok(())
    }

    /// Appends a field that is there once.
    #[inline]
    fn keyed(&mut self, field: &Field, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        self.out.tag(field.number, field.element.kind.on_wire().wire_type());
        self.key(field);
        self.element(&field.element, value, depth)
    }

    /// In JSON, the name of a field.
    #[inline]
    fn key(&mut self, field: &Field) {
        self.out.separate();
        self.out.raw(&field.json_key);
    }

    fn repeated(&mut self, field: &Field, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        let element = &field.element;
        self.key(field);
        self.out.raw("[");
        let packed = !O::JSON && element.kind.on_wire().is_packed();
        // Where packed numbers begin, if there are any.
        let mut numbers = None;
        let mut put = |this: &mut Self, index: usize, item: &Bound<'py, PyAny>| {
            this.out.separate();
            if packed {
                numbers.get_or_insert_with(|| this.out.open(field.number, ""));
            } else {
                this.out.tag(field.number, element.kind.on_wire().wire_type());
            }
            this.element(element, item, depth).map_err(|trouble| trouble.in_item(index))
        };
        if let (Shape::List, Ok(list)) = (&field.shape, value.cast_exact::<PyList>()) {
            for (index, item) in list.iter().enumerate() {
                put(self, index, &item)?;
            }
        } else {
            if !value.is_instance(field.accepts.bind(self.py).as_any()).map_err(raised)? || is_text(value) {
                return Err(self.not_a(field, value));
            }
            for (index, item) in value.items().map_err(raised)?.enumerate() {
                put(self, index, &item.map_err(raised)?)?;
            }
        }
        if let Some(begin) = numbers {
            self.out.close(begin, "");
        }
        self.out.raw("]");
        Ok(())
    }

    fn map(&mut self, field: &Field, key: &Element, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        let Ok(dict) = value.cast::<PyDict>() else { return Err(self.not_a(field, value)) };
        self.key(field);
        self.out.raw("{");
        let quote = if has_quotes(key) { "" } else { "\"" };
        // All items are taken at once, because encoding a value may run code that changes the dict.
        for pair in dict.items().iter() {
            let (name, item): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract().map_err(raised)?;
            self.out.separate();
            let entry = self.out.open(field.number, quote);
            self.out.tag(1, key.kind.on_wire().wire_type());
            self.element(key, &name, depth).map_err(|trouble| trouble.in_key(&name))?;
            self.out.raw(quote);
            self.out.raw(":");
            self.out.tag(2, field.element.kind.on_wire().wire_type());
            self.element(&field.element, &item, depth + 1).map_err(|trouble| trouble.in_key(&name))?;
            self.out.close(entry, "");
        }
        self.out.raw("}");
        Ok(())
    }

    #[cold]
    fn not_a(&self, field: &Field, value: &Bound<'py, PyAny>) -> Box<Trouble> {
        let expected = field.accepts.bind(self.py).iter().next();
        let expected = expected.and_then(|class| class.cast_into::<PyType>().ok()).and_then(|class| class.name().ok());
        let expected = expected.map_or_else(|| "a container".to_owned(), |name| name.to_string());
        Trouble::misfit(format!("expected {expected}, got {}", type_name(value)))
    }

    fn check(&self, check: Option<&Py<PyAny>>, value: &Bound<'py, PyAny>) -> Result<()> {
        match check {
            None => Ok(()),
            Some(check) => check.bind(self.py).run([value]).map(drop).map_err(|error| refused(self.py, error)),
        }
    }

    /// Appends one value, without a tag.
    #[inline]
    fn element(&mut self, element: &Element, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        self.check(element.check.as_ref(), value)?;
        match &element.to {
            None => self.plain(element, value, depth),
            Some(to) => {
                let value = to.bind(self.py).run([value]).map_err(|error| refused(self.py, error))?;
                self.plain(element, &value, depth)
            }
        }
    }

    #[inline]
    fn plain(&mut self, element: &Element, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        match &element.kind {
            Kind::Scalar(Scalar::String) => {
                let Ok(text) = value.cast::<PyString>() else { return Err(misfit(element, value)) };
                self.out.text(utf8(text)?);
            }
            Kind::Scalar(Scalar::Bytes) => return self.bytes(element, value, depth),
            Kind::Scalar(Scalar::Bool) => return self.bool(element, value),
            Kind::Scalar(scalar @ (Scalar::Float | Scalar::Double)) => return self.float(element, *scalar, value),
            Kind::Scalar(scalar) => return self.int(element, *scalar, value),
            Kind::Enum(members) => {
                let number = members.by_member.get(&value.as_ptr().addr()).copied();
                let number =
                    number.or_else(|| members.number_of_made(value)).ok_or_else(|| without_number(element, value))?;
                self.out.member(members, number);
            }
            Kind::Message(index) => return self.whole(*index, value, depth + 1),
            Kind::Timestamp => {
                let (seconds, nanos) = times::of_datetime(value)?;
                self.out.timestamp(seconds, nanos);
            }
            Kind::Duration => {
                let (seconds, nanos) = times::of_timedelta(value)?;
                self.out.duration(seconds, nanos);
            }
            Kind::Any => {
                let begin = self.out.open(0, "");
                anything::put(value, self.out, depth + 1)?;
                self.out.close(begin, "");
            }
        }
        Ok(())
    }

    fn bytes(&mut self, element: &Element, value: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        if !value.is_instance_of::<PyBytes>() && PyUntypedBuffer::get(value).is_err() {
            return Err(misfit(element, value));
        }
        let lent = LentBuffer::take(value.clone())
            .map_err(|_| Trouble::misfit("the buffer is not C-contiguous: copy it first"))?;
        let bytes = lent.as_slice();
        // Only in the outermost message: the length of an inner one is not known yet, and may move what follows it.
        if depth == 1 && bytes.len() >= LEND && self.out.begin_lent(bytes.len()) {
            self.lent.push((self.out.len(), lent));
        } else {
            self.out.bytes(bytes);
        }
        Ok(())
    }

    #[inline]
    fn bool(&mut self, element: &Element, value: &Bound<'py, PyAny>) -> Result<()> {
        let is_true = match value.cast::<PyBool>() {
            Ok(value) => value.is_true(),
            Err(_) if is_bool_of_numpy(value) => value.is_truthy().map_err(raised)?,
            Err(_) => return Err(misfit(element, value)),
        };
        self.out.bool(is_true);
        Ok(())
    }

    #[inline]
    fn int(&mut self, element: &Element, scalar: Scalar, value: &Bound<'py, PyAny>) -> Result<()> {
        let number = if value.is_exact_instance_of::<PyInt>() {
            wide(value)
        } else if value.is_exact_instance_of::<PyBool>() || value.is_instance_of::<PyFloat>() {
            None
        } else {
            // numpy's integers, and subclasses of int.
            match value.run_method(intern!(self.py, "__index__"), []) {
                Ok(index) if index.is_instance_of::<PyInt>() => wide(&index),
                _ => None,
            }
        };
        match number {
            Some(number) if self.out.int(scalar, number) => Ok(()),
            Some(_) => Err(out_of_range(scalar)),
            None if value.is_instance_of::<PyInt>() && !value.is_exact_instance_of::<PyBool>() => {
                Err(out_of_range(scalar))
            }
            None => Err(misfit(element, value)),
        }
    }

    #[inline]
    fn float(&mut self, element: &Element, scalar: Scalar, value: &Bound<'py, PyAny>) -> Result<()> {
        let number = if let Ok(float) = value.cast::<PyFloat>() {
            float.value()
        } else if value.is_exact_instance_of::<PyInt>() {
            whole_float(value)?
        } else if value.is_exact_instance_of::<PyBool>() || is_text(value) {
            return Err(misfit(element, value));
        } else {
            let float = value.run_method(intern!(self.py, "__float__"), []).map_err(|_| misfit(element, value))?;
            let number = float.cast::<PyFloat>().map_err(|_| misfit(element, value))?.value();
            if !number.is_nan() && !value.eq(float).map_err(raised)? {
                return Err(Trouble::misfit(format!(
                    "a {} that no float equals: send float(...) of it",
                    type_name(value)
                )));
            }
            number
        };
        if scalar == Scalar::Float && !number.is_nan() && f64::from(number as f32) != number {
            return Err(Trouble::misfit(format!("{number} is no number of a 32-bit float")));
        }
        self.out.float(scalar, number);
        Ok(())
    }
}

/// The float that equals an int.
fn whole_float(value: &Bound<'_, PyAny>) -> Result<f64> {
    if let Ok(int) = value.extract::<i64>()
        && (int as f64) as i128 == i128::from(int)
    {
        return Ok(int as f64);
    }
    // One beyond all floats raises an error.
    match value.extract::<f64>() {
        Ok(number) if value.eq(number).map_err(raised)? => Ok(number),
        _ => Err(Trouble::misfit("an int that no float equals: send float(...) of it")),
    }
}

#[inline]
fn wide(value: &Bound<'_, PyAny>) -> Option<i128> {
    match value.extract::<i64>() {
        Ok(number) => Some(number.into()),
        Err(_) => value.extract::<u64>().ok().map(Into::into),
    }
}

/// Python takes texts and bytes for sequences, but they are never meant as lists.
fn is_text(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>()
}

#[cold]
fn is_bool_of_numpy(value: &Bound<'_, PyAny>) -> bool {
    let kind = value.get_type();
    let named = kind.name().is_ok_and(|name| name.to_str().is_ok_and(|name| matches!(name, "bool" | "bool_")));
    named && kind.module().is_ok_and(|module| module.to_str().is_ok_and(|module| module == "numpy"))
}

#[cold]
fn misfit(element: &Element, value: &Bound<'_, PyAny>) -> Box<Trouble> {
    Trouble::misfit(format!("expected {}, got {}", element.name, type_name(value)))
}

/// Protobuf may have no number for a member that the class has made of a value.
#[cold]
fn without_number(element: &Element, value: &Bound<'_, PyAny>) -> Box<Trouble> {
    if !value.get_type().name().is_ok_and(|name| name == element.name.as_str()) {
        return misfit(element, value);
    }
    let shown = value.repr().map_or_else(|_| "it".to_owned(), |shown| shown.to_string());
    Trouble::misfit(format!("{} has no number for {shown}", element.name))
}

#[cold]
fn out_of_range(scalar: Scalar) -> Box<Trouble> {
    let (least, greatest) = scalar.range().unwrap_or((0, 0));
    Trouble::misfit(format!("an int that is not within {least} to {greatest}: send it as str or Decimal"))
}
