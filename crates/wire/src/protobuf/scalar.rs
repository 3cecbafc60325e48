//! Protobuf's scalar types, and the encoding of their numbers.

use super::reader::{Wire, array, varint};
use super::writer::Writer;
use super::{BYTES, FIXED32, FIXED64, VARINT};
use crate::malformed::Malformed;

/// The type of a field that contains no other fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Protobuf's own")]
pub enum Scalar {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    /// Encoded as an `int32`.
    Enum,
    String,
    Bytes,
}

/// A number of any type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer; the integers of all types fit.
    Int(i128),
    /// A `float` or a `double`.
    Float(f64),
    /// A `bool`.
    Bool(bool),
}

impl Scalar {
    /// The type with this name in a `.proto`; also `enum`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "uint32" => Self::Uint32,
            "uint64" => Self::Uint64,
            "sint32" => Self::Sint32,
            "sint64" => Self::Sint64,
            "fixed32" => Self::Fixed32,
            "fixed64" => Self::Fixed64,
            "sfixed32" => Self::Sfixed32,
            "sfixed64" => Self::Sfixed64,
            "float" => Self::Float,
            "double" => Self::Double,
            "enum" => Self::Enum,
            "string" => Self::String,
            "bytes" => Self::Bytes,
            _ => return None,
        })
    }

    /// Its wire type.
    pub fn wire_type(self) -> u8 {
        match self {
            Self::Bool
            | Self::Int32
            | Self::Int64
            | Self::Uint32
            | Self::Uint64
            | Self::Sint32
            | Self::Sint64
            | Self::Enum => VARINT,
            Self::Fixed64 | Self::Sfixed64 | Self::Double => FIXED64,
            Self::Fixed32 | Self::Sfixed32 | Self::Float => FIXED32,
            Self::String | Self::Bytes => BYTES,
        }
    }

    /// Whether it is an integer type of 64 bits.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::Int64 | Self::Uint64 | Self::Sint64 | Self::Fixed64 | Self::Sfixed64)
    }

    /// Whether repeated values of this type are packed into one field.
    pub fn is_packed(self) -> bool {
        self.wire_type() != BYTES
    }

    /// The least and the greatest integer, if it is an integer type.
    pub fn range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::Int32 | Self::Sint32 | Self::Sfixed32 | Self::Enum => (i32::MIN.into(), i32::MAX.into()),
            Self::Int64 | Self::Sint64 | Self::Sfixed64 => (i64::MIN.into(), i64::MAX.into()),
            Self::Uint32 | Self::Fixed32 => (0, u32::MAX.into()),
            Self::Uint64 | Self::Fixed64 => (0, u64::MAX.into()),
            _ => return None,
        })
    }

    /// Appends an integer, without a tag. If the value does not fit, appends nothing and returns `false`.
    #[inline]
    #[must_use]
    pub fn put_int(self, value: i128, out: &mut Writer) -> bool {
        let Some((least, greatest)) = self.range() else { return false };
        if value < least || value > greatest {
            return false;
        }
        match self {
            // A negative int32 is sent as an int64, with all its leading ones.
            Self::Uint32 | Self::Uint64 => out.varint(value as u64),
            Self::Sint32 | Self::Sint64 => {
                let value = value as i64;
                out.varint(((value << 1) ^ (value >> 63)) as u64);
            }
            Self::Fixed32 | Self::Sfixed32 => out.raw(&(value as u32).to_le_bytes()),
            Self::Fixed64 | Self::Sfixed64 => out.raw(&(value as u64).to_le_bytes()),
            _ => out.varint(value as i64 as u64),
        }
        true
    }

    /// Appends a number of the type `float` or `double`, without a tag.
    #[inline]
    pub fn put_float(self, value: f64, out: &mut Writer) {
        if self == Self::Float {
            out.raw(&(value as f32).to_le_bytes());
        } else {
            out.raw(&value.to_le_bytes());
        }
    }

    /// The number in a single field; `None` if the field has another wire type, and so is not of this type.
    ///
    /// # Errors
    ///
    /// The number is outside the type's range.
    #[inline]
    pub fn number(self, wire: Wire<'_>) -> Result<Option<Number>, Malformed> {
        Ok(Some(match (self.wire_type(), wire) {
            (VARINT, Wire::Varint(bits)) => self.of_varint(bits)?,
            (FIXED64, Wire::Fixed64(bits)) => self.of_fixed64(bits),
            (FIXED32, Wire::Fixed32(bits)) => self.of_fixed32(bits),
            _ => return Ok(None),
        }))
    }

    #[inline]
    fn of_varint(self, bits: u64) -> Result<Number, Malformed> {
        let signed = bits.cast_signed();
        let value = match self {
            Self::Bool => return Ok(Number::Bool(bits != 0)),
            Self::Uint32 | Self::Uint64 => i128::from(bits),
            Self::Sint32 | Self::Sint64 => i128::from((bits >> 1).cast_signed() ^ -(signed & 1)),
            _ => i128::from(signed),
        };
        // Other implementations cut off bits that do not fit, which gives a number that was never sent.
        match self.range() {
            Some((least, greatest)) if value < least || value > greatest => {
                Err(Malformed("the number is not one of 32 bits"))
            }
            _ => Ok(Number::Int(value)),
        }
    }

    #[inline]
    fn of_fixed64(self, bits: u64) -> Number {
        match self {
            Self::Double => Number::Float(f64::from_bits(bits)),
            Self::Sfixed64 => Number::Int(bits.cast_signed().into()),
            _ => Number::Int(bits.into()),
        }
    }

    #[inline]
    fn of_fixed32(self, bits: u32) -> Number {
        match self {
            Self::Float => Number::Float(f32::from_bits(bits).into()),
            Self::Sfixed32 => Number::Int(bits.cast_signed().into()),
            _ => Number::Int(bits.into()),
        }
    }
}

/// Takes the next number from a packed field.
///
/// # Errors
///
/// The field is cut off, or the number is outside the type's range.
#[inline]
pub fn packed(scalar: Scalar, bytes: &mut &[u8]) -> Result<Number, Malformed> {
    match scalar.wire_type() {
        VARINT => scalar.of_varint(varint(bytes)?),
        FIXED64 => Ok(scalar.of_fixed64(u64::from_le_bytes(*array(bytes)?))),
        FIXED32 => Ok(scalar.of_fixed32(u32::from_le_bytes(*array(bytes)?))),
        _ => Err(Malformed("only numbers are packed")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fields;
    use super::*;

    const INTEGERS: [Scalar; 11] = [
        Scalar::Int32,
        Scalar::Int64,
        Scalar::Uint32,
        Scalar::Uint64,
        Scalar::Sint32,
        Scalar::Sint64,
        Scalar::Fixed32,
        Scalar::Fixed64,
        Scalar::Sfixed32,
        Scalar::Sfixed64,
        Scalar::Enum,
    ];

    #[test]
    fn integers_come_back_at_both_ends_of_their_range_and_not_beyond() {
        for scalar in INTEGERS {
            let (least, greatest) = scalar.range().expect("integers");
            for value in [least, least + 1, -1, 0, 1, 127, 128, greatest - 1, greatest] {
                let mut out = Writer::default();
                if value < least {
                    assert!(!scalar.put_int(value, &mut out));
                    continue;
                }
                out.tag(1, scalar.wire_type());
                assert!(scalar.put_int(value, &mut out));
                let out = out.into_bytes();
                let (_, wire) = Fields::of(&out).next().expect("well-formed").expect("a field");
                assert_eq!(scalar.number(wire), Ok(Some(Number::Int(value))), "{scalar:?}");
                assert_eq!(packed(scalar, &mut &out[1..]), Ok(Number::Int(value)), "{scalar:?}");
            }
            let mut out = Writer::default();
            assert!(!scalar.put_int(least - 1, &mut out) && !scalar.put_int(greatest + 1, &mut out));
            assert!(out.into_bytes().is_empty());
        }
    }

    #[test]
    fn a_number_beyond_32_bits_is_refused_where_32_are_declared() {
        for scalar in [Scalar::Int32, Scalar::Uint32, Scalar::Sint32, Scalar::Enum] {
            assert!(scalar.number(Wire::Varint(1 << 40)).is_err());
        }
    }

    #[test]
    fn another_wire_type_is_no_value() {
        assert_eq!(Scalar::Int64.number(Wire::Fixed64(1)), Ok(None));
        assert_eq!(Scalar::Double.number(Wire::Varint(1)), Ok(None));
        assert_eq!(Scalar::String.number(Wire::Varint(1)), Ok(None));
    }
}
