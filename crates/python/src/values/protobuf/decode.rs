//! Protobuf's bytes become Python values. A peer wrote all of these bytes.

use nearcall_core::protobuf::{Fields, Scalar, Wire, packed};
use nearcall_core::sizes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smallvec::SmallVec;

use super::making::{Found, Making, Parts, is_message};
use super::plan::{Element, Field, Form, Kind, Shape};
use super::strings::text;
use super::trouble::{Result, Trouble, deeper};
use super::{anything, times};

/// What has been read of a field.
enum Slot<'a, 'py> {
    Found(Found<'py>),
    /// A message, which is decoded when all its parts are known. The parts are not copied: a peer may nest messages,
    /// and each level would keep a copy.
    Message(Parts<'a>),
}

impl Slot<'_, '_> {
    const EMPTY: Self = Self::Found(Found::Empty);
}

impl<'py> Making<'_, 'py> {
    /// The value of an encoded message.
    pub(super) fn message(&mut self, index: usize, parts: &[&[u8]], depth: usize) -> Result<Bound<'py, PyAny>> {
        deeper(depth)?;
        let plan = self.plan;
        let message = &plan.messages[index];
        let mut slots: SmallVec<[Slot<'_, 'py>; 8]> = message.fields.iter().map(|_| Slot::EMPTY).collect();
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
                // The last member counts, and the member before it counts as absent.
                for (other, slot) in slots.iter_mut().enumerate() {
                    if other != place {
                        *slot = Slot::EMPTY;
                    }
                }
            }
        }
        self.assemble(message, chosen, |this, place, field| {
            let slot = std::mem::replace(&mut slots[place], Slot::EMPTY);
            this.found(&field.element, slot, depth)
        })
    }

    /// Reads one occurrence of a field. Returns whether it was one: with another wire type it is an unknown field.
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
                    self.budget.take(self.py, sizes::NUMBER)?;
                    parts.push(bytes);
                }
                Slot::Found(_) => {
                    self.budget.take(self.py, self.plan.weight(element))?;
                    *slot = Slot::Message(Parts::from_slice(&[bytes]));
                }
            }
            return Ok(true);
        }
        self.budget.take(self.py, self.plan.weight(element))?;
        let Some(value) = self.element(element, wire, depth)? else { return Ok(false) };
        *slot = Slot::Found(Found::Value(value));
        Ok(true)
    }

    fn read_item<'a>(
        &mut self,
        element: &Element,
        slot: &mut Slot<'a, 'py>,
        wire: Wire<'a>,
        depth: usize,
    ) -> Result<bool> {
        if matches!(slot, Slot::Found(Found::Empty)) {
            *slot = Slot::Found(Found::Items(Vec::new()));
        }
        let Slot::Found(Found::Items(items)) = slot else { return Ok(false) };
        let scalar = element.kind.on_wire();
        if let (true, Wire::Bytes(mut bytes)) = (scalar.is_packed(), wire) {
            while !bytes.is_empty() {
                self.budget.take(self.py, self.plan.weight(element))?;
                let index = items.len();
                let number =
                    packed(scalar, &mut bytes).map_err(|malformed| Box::<Trouble>::from(malformed).in_item(index))?;
                items.push(self.number(element, number).map_err(|trouble| trouble.in_item(index))?);
            }
            return Ok(true);
        }
        self.budget.take(self.py, self.plan.weight(element))?;
        let index = items.len();
        let item = self.element(element, wire, depth).map_err(|trouble| trouble.in_item(index))?;
        let found = item.is_some();
        items.extend(item);
        Ok(found)
    }

    /// An entry of a map is a message of a key and a value. A key or a value that is absent is a zero.
    fn read_entry<'a>(
        &mut self,
        key: &Element,
        element: &Element,
        slot: &mut Slot<'a, 'py>,
        wire: Wire<'a>,
        depth: usize,
    ) -> Result<bool> {
        let Wire::Bytes(bytes) = wire else { return Ok(false) };
        if matches!(slot, Slot::Found(Found::Empty)) {
            *slot = Slot::Found(Found::Entries(Vec::new()));
        }
        let Slot::Found(Found::Entries(entries)) = slot else { return Ok(false) };
        // What the key and the value take is charged where they are read, and the dict when it is complete.
        self.budget.take(self.py, 2 * sizes::SHARED)?;
        let (mut name, mut value) = (Slot::EMPTY, Slot::EMPTY);
        let mut fields = Fields::of(bytes);
        while let Some((number, wire)) = fields.next()? {
            match number {
                1 => self.read_single(key, &mut name, wire, depth)?,
                2 => self.read_single(element, &mut value, wire, depth)?,
                _ => continue,
            };
        }
        let name = match name {
            Slot::Found(Found::Value(name)) => name,
            _ => self.zero(key)?,
        };
        let value = self.found(element, value, depth + 1).map_err(|trouble| trouble.in_key(&name))?;
        let value = if let Found::Value(value) = value {
            value
        } else {
            self.budget.charge(self.plan.weight(element))?;
            if is_message(&element.kind) {
                self.decoded(element, &[], depth + 1).map_err(|trouble| trouble.in_key(&name))?
            } else {
                self.zero(element)?
            }
        };
        entries.push((name, value));
        Ok(true)
    }

    fn found(&mut self, element: &Element, slot: Slot<'_, 'py>, depth: usize) -> Result<Found<'py>> {
        match slot {
            Slot::Found(found) => Ok(found),
            Slot::Message(parts) => self.decoded(element, &parts, depth).map(Found::Value),
        }
    }

    /// Decodes one value; `None` if the wire type does not fit.
    #[inline]
    fn element(&mut self, element: &Element, wire: Wire<'_>, depth: usize) -> Result<Option<Bound<'py, PyAny>>> {
        let scalar = element.kind.on_wire();
        if scalar.is_packed() {
            let number = scalar.number(wire)?;
            return number.map(|number| self.number(element, number)).transpose();
        }
        let Wire::Bytes(bytes) = wire else { return Ok(None) };
        match element.kind {
            Kind::Scalar(Scalar::String) => text(self.py, bytes).and_then(|value| self.seen(element, value)).map(Some),
            Kind::Scalar(_) => self.seen(element, PyBytes::new(self.py, bytes).into_any()).map(Some),
            _ => self.decoded(element, &[bytes], depth).map(Some),
        }
    }

    /// Decodes a message of which all parts are known: one of the plan's, or one of Google's.
    fn decoded(&mut self, element: &Element, parts: &[&[u8]], depth: usize) -> Result<Bound<'py, PyAny>> {
        let value = match element.kind {
            Kind::Message(index) => self.message(index, parts, depth + 1)?,
            Kind::Timestamp => times::datetime(self.py, times::numbers(parts)?)?,
            Kind::Duration => times::timedelta(self.py, times::numbers(parts)?)?,
            _ => anything::read(self.py, parts, &mut self.budget, depth + 1)?,
        };
        self.seen(element, value)
    }
}
