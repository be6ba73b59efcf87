//! Bytes to values.

use std::cell::Cell;

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::{Deserialize, de};

use crate::error::DecodeError;
use crate::reader::Reader;

/// Values that contain themselves (conditions, say) nest at most this deep: a reader has only so much stack.
pub const DEPTH_MAX: u32 = 64;

/// Values of a sequence take at most so many bytes of memory for each byte that there is to read, beyond
/// [`SEQUENCES_BYTES`]. A value that is all zeros takes one byte, so a list of large ones would take a hundred times what a
/// peer has sent.
const SEQUENCES_TIMES: usize = 40;
/// See [`SEQUENCES_TIMES`].
const SEQUENCES_BYTES: usize = 64 << 10;

/// What is read in place of a field that is not there. The longest value that is all zeros is an array of 32 bytes.
static ZEROS: [u8; 64] = [0; 64];

/// Reads the value at the front of the reader.
///
/// # Errors
///
/// The bytes are no value of this type.
pub fn decode<'de, T: Deserialize<'de>>(from: &mut Reader<'de>) -> Result<T, DecodeError> {
    let room = from.left().saturating_mul(SEQUENCES_TIMES);
    let room = Cell::new(room.saturating_add(SEQUENCES_BYTES));
    T::deserialize(Decoder {
        from,
        depth: 0,
        room: &room,
    })
}

struct Decoder<'a, 'de> {
    from: &'a mut Reader<'de>,
    depth: u32,
    /// Bytes of memory that sequences may still take.
    room: &'a Cell<usize>,
}

impl<'de> Decoder<'_, 'de> {
    /// For a value inside this one.
    fn inner(&mut self) -> Result<Decoder<'_, 'de>, DecodeError> {
        if self.depth >= DEPTH_MAX {
            return Err(DecodeError::Range {
                field: "nesting",
                value: self.depth.into(),
            });
        }
        Ok(Decoder {
            from: self.from,
            depth: self.depth + 1,
            room: self.room,
        })
    }

    fn count(&mut self) -> Result<usize, DecodeError> {
        let count = self.from.u64()?;
        // Each value takes at least a byte.
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.from.left())
            .ok_or(DecodeError::Short)
    }

    fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        let value = self.from.u64()?;
        T::try_from(value).map_err(|_| DecodeError::Range {
            field: "a number",
            value,
        })
    }

    fn narrow_signed<T: TryFrom<i64>>(&mut self) -> Result<T, DecodeError> {
        let value = self.from.i64()?;
        T::try_from(value).map_err(|_| DecodeError::Range {
            field: "a number",
            value: value.cast_unsigned(),
        })
    }

    fn str(&mut self) -> Result<&'de str, DecodeError> {
        std::str::from_utf8(self.from.bytes()?)
            .map_err(|_| DecodeError::Refused("a text that is not UTF-8".into()))
    }

    fn fields(&mut self, known: usize) -> Result<Fields<'_, 'de>, DecodeError> {
        let depth = self.inner()?.depth;
        let length = self.from.u64()?;
        let mut from = Reader::new(self.from.slice(length)?);
        let set = if length > 0 { from.u64()? } else { 0 };
        Ok(Fields {
            from,
            depth,
            room: self.room,
            set,
            left: known,
        })
    }
}

/// The fields of a struct, in order.
struct Fields<'a, 'de> {
    from: Reader<'de>,
    depth: u32,
    room: &'a Cell<usize>,
    /// The lowest bit is that of the next field.
    set: u64,
    /// Fields that the reader's type has and that are not read.
    left: usize,
}

impl<'de> SeqAccess<'de> for Fields<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let is_set = self.set & 1 == 1;
        self.set >>= 1;
        let mut zeros = Reader::new(&ZEROS);
        let from = if is_set { &mut self.from } else { &mut zeros };
        let decoder = Decoder {
            from,
            depth: self.depth,
            room: self.room,
        };
        seed.deserialize(decoder).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// Values that follow each other.
struct Values<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    left: usize,
}

impl<'de> Values<'_, 'de> {
    /// For the next value, which takes this much memory.
    fn next(&mut self, bytes: usize) -> Result<Option<Decoder<'_, 'de>>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let room = self.decoder.room;
        room.set(room.get().checked_sub(bytes).ok_or(DecodeError::Range {
            field: "values that take much memory",
            value: left as u64,
        })?);
        Ok(Some(self.one()))
    }

    fn one(&mut self) -> Decoder<'_, 'de> {
        Decoder {
            from: self.decoder.from,
            depth: self.decoder.depth,
            room: self.decoder.room,
        }
    }
}

impl<'de> SeqAccess<'de> for Values<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let next = self.next(size_of::<T::Value>())?;
        next.map(|next| seed.deserialize(next)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Values<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeError> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, DecodeError> {
        seed.deserialize(self.one())
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'a, 'de> EnumAccess<'de> for Decoder<'a, 'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(
        mut self,
        seed: V,
    ) -> Result<(V::Value, Self), DecodeError> {
        let depth = self.inner()?.depth;
        let index: u32 = self.narrow()?;
        let index: U32Deserializer<DecodeError> = index.into_deserializer();
        Ok((seed.deserialize(index)?, Decoder { depth, ..self }))
    }
}

impl<'de> VariantAccess<'de> for Decoder<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, DecodeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_struct("", fields, visitor)
    }
}

/// Numbers of each width.
macro_rules! numbers {
    ($($name:ident $visit:ident $read:ident;)*) => {$(
        fn $name<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
            visitor.$visit(self.$read()?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Decoder<'_, 'de> {
    type Error = DecodeError;

    fn is_human_readable(&self) -> bool {
        false
    }

    numbers! {
        deserialize_u16 visit_u16 narrow;
        deserialize_u32 visit_u32 narrow;
        deserialize_i8 visit_i8 narrow_signed;
        deserialize_i16 visit_i16 narrow_signed;
        deserialize_i32 visit_i32 narrow_signed;
        deserialize_str visit_borrowed_str str;
        deserialize_string visit_borrowed_str str;
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_u8(self.from.u8()?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_u64(self.from.u64()?)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_i64(self.from.i64()?)
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let low = self.from.u64()?;
        let high = self.from.u64()?;
        visitor.visit_u128(u128::from(low) | u128::from(high) << 64)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_bool(self.from.below("a bool", 2)? == 1)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_f64(f64::from_bits(self.from.u64()?.swap_bytes()))
    }

    fn deserialize_char<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let value: u32 = self.narrow()?;
        visitor.visit_char(char::from_u32(value).ok_or(DecodeError::Range {
            field: "a character",
            value: value.into(),
        })?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_bytes(self.from.bytes()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.from.below("an option", 2)? == 0 {
            visitor.visit_none()
        } else {
            visitor.visit_some(self.inner()?)
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let left = self.count()?;
        let decoder = self.inner()?;
        visitor.visit_seq(Values { decoder, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        mut self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let decoder = self.inner()?;
        visitor.visit_seq(Values { decoder, left })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let left = self.count()?;
        let decoder = self.inner()?;
        visitor.visit_map(Values { decoder, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_seq(self.fields(fields.len())?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_enum(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeError> {
        Err(de::Error::custom("a type that asks what there is"))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_any(visitor)
    }
}
