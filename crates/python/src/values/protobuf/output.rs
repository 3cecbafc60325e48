//! The formats in which values are written: Protobuf's bytes, or its JSON. [`super::encode`] walks values along a plan
//! in the same way for both.

use nearcall_core::json;
use nearcall_core::protobuf::{Scalar, Writer};

use super::plan::{Element, Field, Kind, Members};
use super::trouble::{Result, Trouble};

// The fields of a `google.protobuf.Value`.
pub(super) const NULL: u32 = 1;
pub(super) const NUMBER: u32 = 2;
pub(super) const TEXT: u32 = 3;
pub(super) const BOOL: u32 = 4;
pub(super) const STRUCT: u32 = 5;
pub(super) const LIST: u32 = 6;

/// Takes the parts of a message in order. The result of an `open_` method goes to the `close_` method of the same name.
pub(super) trait Output {
    /// It writes JSON, in which some messages have forms of their own.
    const JSON: bool;

    fn open_message(&mut self) -> usize;
    fn close_message(&mut self, begin: usize);

    /// How many bytes are written so far.
    fn len(&self) -> usize;
    /// A field's value follows.
    fn key(&mut self, field: &Field);
    /// A field was written from `before` on. A zero may be removed again, because its absence says the same.
    fn drop_zero(&mut self, before: usize, field: &Field);

    fn open_list(&mut self, field: &Field) -> List;
    fn item(&mut self, list: &mut List, field: &Field);
    fn close_list(&mut self, list: List);

    fn open_map(&mut self, field: &Field);
    fn close_map(&mut self);
    fn open_entry(&mut self, field: &Field) -> usize;
    fn close_entry(&mut self, begin: usize);
    fn begin_key(&mut self, key: &Element);
    fn end_key(&mut self, key: &Element);
    /// The value of an entry follows its key.
    fn begin_value(&mut self, element: &Element);

    fn text(&mut self, text: &str);
    fn bytes(&mut self, bytes: &[u8]);
    /// `len` bytes follow that are lent, and not written here. Returns `false` if the format cannot lend bytes.
    #[must_use]
    fn begin_lent(&mut self, len: usize) -> bool;
    fn bool(&mut self, value: bool);
    /// Returns `false` if the type cannot hold the value; then nothing was written.
    #[must_use]
    fn int(&mut self, scalar: Scalar, value: i128) -> bool;
    fn float(&mut self, scalar: Scalar, value: f64);
    fn member(&mut self, members: &Members, number: i32);
    fn timestamp(&mut self, seconds: i64, nanos: i64);
    fn duration(&mut self, seconds: i64, nanos: i64);

    /// A `google.protobuf.Value` follows.
    fn open_any(&mut self) -> usize;
    fn close_any(&mut self, begin: usize);
    fn any_null(&mut self);
    fn any_bool(&mut self, value: bool);
    fn any_text(&mut self, text: &str);
    fn any_number(&mut self, value: f64) -> Result<()>;
    fn open_any_list(&mut self) -> usize;
    fn open_any_item(&mut self) -> usize;
    fn close_any_item(&mut self, begin: usize);
    fn close_any_list(&mut self, begin: usize);
    fn open_any_dict(&mut self) -> usize;
    /// The value of a key follows. Returns where the entry and the value begin.
    fn open_any_entry(&mut self, key: &str) -> (usize, usize);
    fn close_any_entry(&mut self, begin: (usize, usize));
    fn close_any_dict(&mut self, begin: usize);
}

/// Where the packed numbers of a list begin, if there are any.
pub(super) type List = Option<usize>;

impl Output for Writer {
    const JSON: bool = false;

    #[inline]
    fn open_message(&mut self) -> usize {
        self.open()
    }

    #[inline]
    fn close_message(&mut self, begin: usize) {
        self.close(begin);
    }

    #[inline]
    fn len(&self) -> usize {
        self.written()
    }

    #[inline]
    fn key(&mut self, field: &Field) {
        self.tag(field.number, wire_type(&field.element.kind));
    }

    #[inline]
    fn drop_zero(&mut self, before: usize, field: &Field) {
        // A value of zero bytes only is a zero, which need not be sent.
        let written = self.since(before);
        let width = match field.element.kind {
            Kind::Scalar(scalar) => match scalar.wire_type() {
                1 => 8,
                5 => 4,
                _ => 1,
            },
            _ => 1,
        };
        if let Some((tag, zeros)) = written.split_at_checked(written.len().saturating_sub(width))
            && zeros.iter().all(|&byte| byte == 0)
            && tag.len() == tag_len(field.number)
        {
            self.truncate(before);
        }
    }

    #[inline]
    fn open_list(&mut self, _: &Field) -> List {
        None
    }

    #[inline]
    fn item(&mut self, list: &mut List, field: &Field) {
        if !is_packed(&field.element.kind) {
            self.key(field);
        } else if list.is_none() {
            self.bytes_tag(field.number);
            *list = Some(self.open());
        }
    }

    #[inline]
    fn close_list(&mut self, list: List) {
        if let Some(begin) = list {
            self.close(begin);
        }
    }

    fn open_map(&mut self, _: &Field) {}

    fn close_map(&mut self) {}

    fn open_entry(&mut self, field: &Field) -> usize {
        self.bytes_tag(field.number);
        self.open()
    }

    fn close_entry(&mut self, begin: usize) {
        self.close(begin);
    }

    fn begin_key(&mut self, key: &Element) {
        self.tag(1, wire_type(&key.kind));
    }

    fn end_key(&mut self, _: &Element) {}

    fn begin_value(&mut self, element: &Element) {
        self.tag(2, wire_type(&element.kind));
    }

    #[inline]
    fn text(&mut self, text: &str) {
        Writer::bytes(self, text.as_bytes());
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        Writer::bytes(self, bytes);
    }

    fn begin_lent(&mut self, len: usize) -> bool {
        self.varint(len as u64);
        true
    }

    #[inline]
    fn bool(&mut self, value: bool) {
        self.varint(value.into());
    }

    #[inline]
    fn int(&mut self, scalar: Scalar, value: i128) -> bool {
        scalar.put_int(value, self)
    }

    #[inline]
    fn float(&mut self, scalar: Scalar, value: f64) {
        scalar.put_float(value, self);
    }

    #[inline]
    fn member(&mut self, _: &Members, number: i32) {
        self.varint(i64::from(number) as u64);
    }

    fn timestamp(&mut self, seconds: i64, nanos: i64) {
        let begin = self.open();
        if seconds != 0 {
            self.varint_tag(1);
            self.varint(seconds as u64);
        }
        if nanos != 0 {
            self.varint_tag(2);
            self.varint(nanos as u64);
        }
        self.close(begin);
    }

    fn duration(&mut self, seconds: i64, nanos: i64) {
        self.timestamp(seconds, nanos);
    }

    fn open_any(&mut self) -> usize {
        self.open()
    }

    fn close_any(&mut self, begin: usize) {
        self.close(begin);
    }

    fn any_null(&mut self) {
        self.varint_tag(NULL);
        self.varint(0);
    }

    fn any_bool(&mut self, value: bool) {
        self.varint_tag(BOOL);
        self.varint(value.into());
    }

    fn any_text(&mut self, text: &str) {
        self.bytes_tag(TEXT);
        self.text(text);
    }

    fn any_number(&mut self, value: f64) -> Result<()> {
        self.tag(NUMBER, Scalar::Double.wire_type());
        Scalar::Double.put_float(value, self);
        Ok(())
    }

    fn open_any_list(&mut self) -> usize {
        self.bytes_tag(LIST);
        self.open()
    }

    fn open_any_item(&mut self) -> usize {
        self.bytes_tag(1);
        self.open()
    }

    fn close_any_item(&mut self, begin: usize) {
        self.close(begin);
    }

    fn close_any_list(&mut self, begin: usize) {
        self.close(begin);
    }

    fn open_any_dict(&mut self) -> usize {
        self.bytes_tag(STRUCT);
        self.open()
    }

    fn open_any_entry(&mut self, key: &str) -> (usize, usize) {
        self.bytes_tag(1);
        let entry = self.open();
        self.bytes_tag(1);
        self.text(key);
        self.bytes_tag(2);
        (entry, self.open())
    }

    fn close_any_entry(&mut self, (entry, begin): (usize, usize)) {
        self.close(begin);
        self.close(entry);
    }

    fn close_any_dict(&mut self, begin: usize) {
        self.close(begin);
    }
}

fn wire_type(kind: &Kind) -> u8 {
    match kind {
        Kind::Scalar(scalar) => scalar.wire_type(),
        Kind::Enum(_) => Scalar::Enum.wire_type(),
        _ => Scalar::Bytes.wire_type(),
    }
}

pub(super) fn is_packed(kind: &Kind) -> bool {
    match kind {
        Kind::Scalar(scalar) => scalar.is_packed(),
        Kind::Enum(_) => true,
        _ => false,
    }
}

/// How many bytes a field's tag has.
fn tag_len(number: u32) -> usize {
    (32 - (number << 3).leading_zeros() as usize).div_ceil(7)
}

/// No part of JSON has a length in front, so no positions are kept: the `open_` methods return 0. Zeros are written:
/// people who read or write JSON look for them, and all other readers must accept them.
impl Output for json::Writer {
    const JSON: bool = true;

    #[inline]
    fn open_message(&mut self) -> usize {
        self.raw("{");
        0
    }

    #[inline]
    fn close_message(&mut self, _: usize) {
        self.raw("}");
    }

    #[inline]
    fn len(&self) -> usize {
        self.as_bytes().len()
    }

    #[inline]
    fn key(&mut self, field: &Field) {
        self.separate();
        self.raw(&field.json_key);
    }

    fn drop_zero(&mut self, _: usize, _: &Field) {}

    fn open_list(&mut self, field: &Field) -> List {
        self.key(field);
        self.raw("[");
        None
    }

    #[inline]
    fn item(&mut self, _: &mut List, _: &Field) {
        self.separate();
    }

    fn close_list(&mut self, _: List) {
        self.raw("]");
    }

    fn open_map(&mut self, field: &Field) {
        self.key(field);
        self.raw("{");
    }

    fn close_map(&mut self) {
        self.raw("}");
    }

    fn open_entry(&mut self, _: &Field) -> usize {
        self.separate();
        0
    }

    fn close_entry(&mut self, _: usize) {}

    fn begin_key(&mut self, key: &Element) {
        if !has_quotes(key) {
            self.raw("\"");
        }
    }

    fn end_key(&mut self, key: &Element) {
        self.raw(if has_quotes(key) { ":" } else { "\":" });
    }

    fn begin_value(&mut self, _: &Element) {}

    #[inline]
    fn text(&mut self, text: &str) {
        json::Writer::text(self, text);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.base64(bytes);
    }

    fn begin_lent(&mut self, _: usize) -> bool {
        false
    }

    fn bool(&mut self, value: bool) {
        json::Writer::bool(self, value);
    }

    #[inline]
    fn int(&mut self, scalar: Scalar, value: i128) -> bool {
        json::Writer::int(self, scalar, value)
    }

    #[inline]
    fn float(&mut self, scalar: Scalar, value: f64) {
        json::Writer::float(self, scalar, value);
    }

    fn member(&mut self, members: &Members, number: i32) {
        match members.name(number) {
            Some(name) => json::Writer::text(self, name),
            // A member that an open enum has made: any number of an enum fits.
            None => {
                let _ = json::Writer::int(self, Scalar::Enum, number.into());
            }
        }
    }

    fn timestamp(&mut self, seconds: i64, nanos: i64) {
        json::Writer::timestamp(self, seconds, nanos);
    }

    fn duration(&mut self, seconds: i64, nanos: i64) {
        json::Writer::duration(self, seconds, nanos);
    }

    fn open_any(&mut self) -> usize {
        0
    }

    fn close_any(&mut self, _: usize) {}

    fn any_null(&mut self) {
        self.raw("null");
    }

    fn any_bool(&mut self, value: bool) {
        json::Writer::bool(self, value);
    }

    fn any_text(&mut self, text: &str) {
        json::Writer::text(self, text);
    }

    fn any_number(&mut self, value: f64) -> Result<()> {
        if !value.is_finite() {
            return Err(Trouble::misfit(format!("{value} is no number in JSON: send it as str, or declare float")));
        }
        self.number(value);
        Ok(())
    }

    fn open_any_list(&mut self) -> usize {
        self.raw("[");
        0
    }

    fn open_any_item(&mut self) -> usize {
        self.separate();
        0
    }

    fn close_any_item(&mut self, _: usize) {}

    fn close_any_list(&mut self, _: usize) {
        self.raw("]");
    }

    fn open_any_dict(&mut self) -> usize {
        self.raw("{");
        0
    }

    fn open_any_entry(&mut self, key: &str) -> (usize, usize) {
        self.separate();
        json::Writer::text(self, key);
        self.raw(":");
        (0, 0)
    }

    fn close_any_entry(&mut self, _: (usize, usize)) {}

    fn close_any_dict(&mut self, _: usize) {
        self.raw("}");
    }
}

/// Whether a key of a map is in quotes already, as values of its type are.
fn has_quotes(key: &Element) -> bool {
    matches!(key.kind, Kind::Scalar(scalar) if scalar == Scalar::String || scalar.is_wide())
}
