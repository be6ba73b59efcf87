//! Values to bytes.

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use crate::error::Unsupported;
use crate::number::{Number, put_bytes, put_i64, put_u64};

/// A newtype struct of this name is the byte string at the end of a value, or a number: its length, if its bytes are not at
/// hand. The caller of [`encode_sharing`] may have to append it.
pub const TAIL: &str = "$tail";

/// For a struct with more fields two bytes of length are expected, because it is rarely shorter than 128 bytes.
const FEW_FIELDS: usize = 8;

/// Fields that a byte has bits for.
const PER_BYTE: usize = 7;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// Bytes at the end of the value that are not written yet.
    pub shared: usize,
}

/// Appends a value.
///
/// # Errors
///
/// The type has a part that this format has not. What was written is cut off again.
pub fn encode<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), Unsupported> {
    let begin = out.len();
    if encode_sharing(value, usize::MAX, out)?.shared > 0 {
        out.truncate(begin);
        return Err(Unsupported("bytes that are not at hand".into()));
    }
    Ok(())
}

/// Appends a value, without its [`TAIL`] if that is longer than `copied_max` bytes or not at hand. The caller appends it.
///
/// # Errors
///
/// The type has a part that this format has not, or something follows the byte string. What was written is cut off again.
pub fn encode_sharing<T: Serialize + ?Sized>(
    value: &T,
    copied_max: usize,
    out: &mut Vec<u8>,
) -> Result<Encoded, Unsupported> {
    let begin = out.len();
    let mut encoder = Encoder {
        out,
        copied_max,
        in_tail: false,
        shared: 0,
    };
    match value.serialize(&mut encoder) {
        Ok(()) => Ok(Encoded {
            shared: encoder.shared,
        }),
        Err(error) => {
            out.truncate(begin);
            Err(error)
        }
    }
}

struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    copied_max: usize,
    /// The next value is a [`TAIL`].
    in_tail: bool,
    /// Bytes of the tail, if it was left out.
    shared: usize,
}

impl<'b> Encoder<'b> {
    fn number(&mut self, value: u64) -> Result<(), Unsupported> {
        put_u64(self.out, value);
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Unsupported> {
        if self.in_tail && bytes.len() > self.copied_max {
            put_u64(self.out, bytes.len() as u64);
            self.shared = bytes.len();
        } else {
            put_bytes(self.out, bytes);
        }
        Ok(())
    }

    fn begin(&mut self, fields: usize) -> Result<Fields<'_, 'b>, Unsupported> {
        if fields > u64::BITS as usize {
            return Err(Unsupported("a struct of more than 64 fields".into()));
        }
        let begin = self.out.len();
        let length = if fields > FEW_FIELDS { 2 } else { 1 };
        let fields_at = begin + length + fields.div_ceil(PER_BYTE);
        self.out.resize(fields_at, 0);
        Ok(Fields {
            encoder: self,
            begin,
            fields_at,
            next: 0,
            set: 0,
        })
    }
}

/// A struct whose fields are being written.
struct Fields<'a, 'b> {
    encoder: &'a mut Encoder<'b>,
    begin: usize,
    /// Where the fields stand until the struct is complete.
    fields_at: usize,
    /// The bit of the next field.
    next: u32,
    set: u64,
}

impl Fields<'_, '_> {
    fn field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        if self.encoder.shared > 0 {
            return Err(Unsupported(
                "something follows bytes that are not copied".into(),
            ));
        }
        let before = self.encoder.out.len();
        value.serialize(&mut *self.encoder)?;
        let out = &mut *self.encoder.out;
        let is_zero = out.len() == before + 1 && out.last() == Some(&0);
        if is_zero {
            out.truncate(before);
        } else {
            self.set |= 1 << self.next;
        }
        self.next += 1;
        Ok(())
    }

    /// Writes how long the struct is and which fields are there in front of them. They move if the room was a wrong guess.
    fn finish(self) {
        let Encoder { out, shared, .. } = self.encoder;
        if self.set == 0 {
            out.truncate(self.begin);
            out.push(0);
            return;
        }
        let fields = out.len() - self.fields_at;
        let bits = Number::of(self.set);
        let length = Number::of((bits.len() + fields + *shared) as u64);
        let fields_at = self.begin + length.len() + bits.len();
        if fields_at != self.fields_at {
            let grown = out.len().max(fields_at + fields);
            out.resize(grown, 0);
            out.copy_within(self.fields_at..self.fields_at + fields, fields_at);
            out.truncate(fields_at + fields);
        }
        if let Some(place) = out.get_mut(self.begin..fields_at) {
            let (length_place, bits_place) = place.split_at_mut(length.len());
            length_place.copy_from_slice(&length);
            bits_place.copy_from_slice(&bits);
        }
    }
}

impl<'a, 'b> Serializer for &'a mut Encoder<'b> {
    type Ok = ();
    type Error = Unsupported;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Fields<'a, 'b>;
    type SerializeStructVariant = Fields<'a, 'b>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, v: bool) -> Result<(), Unsupported> {
        self.number(v.into())
    }

    fn serialize_i8(self, v: i8) -> Result<(), Unsupported> {
        self.serialize_i64(v.into())
    }

    fn serialize_i16(self, v: i16) -> Result<(), Unsupported> {
        self.serialize_i64(v.into())
    }

    fn serialize_i32(self, v: i32) -> Result<(), Unsupported> {
        self.serialize_i64(v.into())
    }

    fn serialize_i64(self, v: i64) -> Result<(), Unsupported> {
        put_i64(self.out, v);
        Ok(())
    }

    /// A byte as it is: so a sequence of bytes is written like a byte string.
    fn serialize_u8(self, v: u8) -> Result<(), Unsupported> {
        self.out.push(v);
        Ok(())
    }

    fn serialize_u16(self, v: u16) -> Result<(), Unsupported> {
        self.number(v.into())
    }

    fn serialize_u32(self, v: u32) -> Result<(), Unsupported> {
        self.number(v.into())
    }

    fn serialize_u64(self, v: u64) -> Result<(), Unsupported> {
        if self.in_tail {
            self.shared = usize::try_from(v).unwrap_or(usize::MAX);
        }
        self.number(v)
    }

    fn serialize_u128(self, v: u128) -> Result<(), Unsupported> {
        for half in [v & u128::from(u64::MAX), v >> u64::BITS] {
            put_u64(self.out, u64::try_from(half).unwrap_or_default());
        }
        Ok(())
    }

    fn serialize_f32(self, v: f32) -> Result<(), Unsupported> {
        self.serialize_f64(v.into())
    }

    /// The bytes of most fractions end with zeros: turned round, those are not written.
    fn serialize_f64(self, v: f64) -> Result<(), Unsupported> {
        self.number(v.to_bits().swap_bytes())
    }

    fn serialize_char(self, v: char) -> Result<(), Unsupported> {
        self.number(u64::from(u32::from(v)))
    }

    fn serialize_str(self, v: &str) -> Result<(), Unsupported> {
        self.bytes(v.as_bytes())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), Unsupported> {
        self.bytes(v)
    }

    fn serialize_none(self) -> Result<(), Unsupported> {
        self.number(0)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unsupported> {
        self.number(1)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unsupported> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unsupported> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
    ) -> Result<(), Unsupported> {
        self.number(index.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Unsupported> {
        self.in_tail = name == TAIL;
        value.serialize(&mut *self)?;
        self.in_tail = false;
        Ok(())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unsupported> {
        self.number(index.into())?;
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self, Unsupported> {
        let len = len.ok_or_else(|| Unsupported("a sequence of unknown length".into()))?;
        self.number(len as u64)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Unsupported> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Unsupported> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unsupported> {
        self.number(index.into())?;
        Ok(self)
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self, Unsupported> {
        self.serialize_seq(len)
    }

    fn serialize_struct(self, _: &'static str, len: usize) -> Result<Fields<'a, 'b>, Unsupported> {
        self.begin(len)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        len: usize,
    ) -> Result<Fields<'a, 'b>, Unsupported> {
        put_u64(self.out, index.into());
        self.begin(len)
    }
}

/// The parts of what has no length of its own follow each other.
macro_rules! parts {
    ($($of:ident $each:ident),*) => {$(
        impl $of for &mut Encoder<'_> {
            type Ok = ();
            type Error = Unsupported;

            fn $each<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Unsupported> {
                Ok(())
            }
        }
    )*};
}

parts!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field);

impl SerializeMap for &mut Encoder<'_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unsupported> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsupported> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Unsupported> {
        Ok(())
    }
}

macro_rules! fields {
    ($($of:ident),*) => {$(
        impl $of for Fields<'_, '_> {
            type Ok = ();
            type Error = Unsupported;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), Unsupported> {
                self.field(value)
            }

            fn end(self) -> Result<(), Unsupported> {
                self.finish();
                Ok(())
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);
