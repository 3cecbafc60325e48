//! The formats in which values are written: Protobuf's bytes, or its JSON. [`super::encode`] walks values along a plan
//! in the same way for both.

use nearcall_core::json;
use nearcall_core::protobuf::{Scalar, Writer};

use super::plan::{Element, Field, Kind, Members};

// The fields of a `google.protobuf.Value`.
pub(super) const NULL: u32 = 1;
pub(super) const NUMBER: u32 = 2;
pub(super) const TEXT: u32 = 3;
pub(super) const BOOL: u32 = 4;
pub(super) const STRUCT: u32 = 5;
pub(super) const LIST: u32 = 6;

/// Takes the parts of a message in order. Each format takes what it needs: only Protobuf's bytes have tags and lengths, only
/// JSON has names, brackets and commas.
pub(super) trait Output {
    /// It writes JSON, in which some messages have forms of their own.
    const JSON: bool;

    /// Begins what has an end: a bracket in JSON; in Protobuf's bytes a length, behind the tag of a field if its number is not
    /// 0. Returns what [`close`](Self::close) needs.
    fn open(&mut self, field: u32, bracket: &str) -> usize;
    fn close(&mut self, begin: usize, bracket: &str);
    /// In Protobuf's bytes, a value of a field follows.
    fn tag(&mut self, field: u32, wire_type: u8);
    /// In JSON, a bracket, a quote, or a key that needs no escapes.
    fn raw(&mut self, json: &str);
    /// In JSON, a comma, unless the first key or item follows.
    fn separate(&mut self);
    /// How many bytes are written so far.
    fn len(&self) -> usize;
    /// A field was written from `before` on. A zero may be removed again, because its absence says the same.
    fn drop_zero(&mut self, before: usize, field: &Field);

    fn null(&mut self);
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
    /// A finite number in a `google.protobuf.Value`.
    fn number(&mut self, value: f64);
    fn member(&mut self, members: &Members, number: i32);
    fn timestamp(&mut self, seconds: i64, nanos: i64);
    fn duration(&mut self, seconds: i64, nanos: i64);
}

impl Output for Writer {
    const JSON: bool = false;

    #[inline]
    fn open(&mut self, field: u32, _: &str) -> usize {
        if field > 0 {
            self.bytes_tag(field);
        }
        Writer::open(self)
    }

    #[inline]
    fn close(&mut self, begin: usize, _: &str) {
        Writer::close(self, begin);
    }

    #[inline]
    fn tag(&mut self, field: u32, wire_type: u8) {
        Writer::tag(self, field, wire_type);
    }

    #[inline]
    fn raw(&mut self, _: &str) {}

    #[inline]
    fn separate(&mut self) {}

    #[inline]
    fn len(&self) -> usize {
        self.written()
    }

    #[inline]
    fn drop_zero(&mut self, before: usize, field: &Field) {
        // A value of zero bytes only is a zero, which need not be sent.
        let written = self.since(before);
        let width = match field.element.kind.on_wire().wire_type() {
            1 => 8,
            5 => 4,
            _ => 1,
        };
        if let Some((tag, zeros)) = written.split_at_checked(written.len().saturating_sub(width))
            && zeros.iter().all(|&byte| byte == 0)
            && tag.len() == tag_len(field.number)
        {
            self.truncate(before);
        }
    }

    fn null(&mut self) {
        self.varint(0);
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

    fn number(&mut self, value: f64) {
        Scalar::Double.put_float(value, self);
    }

    #[inline]
    fn member(&mut self, _: &Members, number: i32) {
        self.varint(i64::from(number) as u64);
    }

    fn timestamp(&mut self, seconds: i64, nanos: i64) {
        let begin = Writer::open(self);
        if seconds != 0 {
            self.varint_tag(1);
            self.varint(seconds as u64);
        }
        if nanos != 0 {
            self.varint_tag(2);
            self.varint(nanos as u64);
        }
        Writer::close(self, begin);
    }

    fn duration(&mut self, seconds: i64, nanos: i64) {
        self.timestamp(seconds, nanos);
    }
}

/// How many bytes a field's tag has.
fn tag_len(number: u32) -> usize {
    (32 - (number << 3).leading_zeros() as usize).div_ceil(7)
}

/// No part of JSON has a length in front, so no positions are kept. Zeros are written: people who read or write JSON look
/// for them, and all other readers must accept them.
impl Output for json::Writer {
    const JSON: bool = true;

    #[inline]
    fn open(&mut self, _: u32, bracket: &str) -> usize {
        self.raw(bracket);
        0
    }

    #[inline]
    fn close(&mut self, _: usize, bracket: &str) {
        self.raw(bracket);
    }

    #[inline]
    fn tag(&mut self, _: u32, _: u8) {}

    #[inline]
    fn raw(&mut self, json: &str) {
        json::Writer::raw(self, json);
    }

    #[inline]
    fn separate(&mut self) {
        json::Writer::separate(self);
    }

    #[inline]
    fn len(&self) -> usize {
        self.as_bytes().len()
    }

    fn drop_zero(&mut self, _: usize, _: &Field) {}

    fn null(&mut self) {
        self.raw("null");
    }

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

    fn number(&mut self, value: f64) {
        json::Writer::number(self, value);
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
}

/// Whether a key of a map is in quotes already, as values of its type are.
pub(super) fn has_quotes(key: &Element) -> bool {
    matches!(key.kind, Kind::Scalar(scalar) if scalar == Scalar::String || scalar.is_wide())
}
