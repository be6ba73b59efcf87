//! Makes a value of any type that can be read: where a format would read, this throws dice. Enums can be steered, so
//! that each of their variants is made once.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a type for which no dice can be thrown is an error of the test"
)]

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer,
    MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// Why no value was made.
pub type Error = serde::de::value::Error;

/// Numbers that only look random, and the choices for steered enums.
#[derive(Debug)]
pub struct Dice {
    state: u64,
    /// Everything optional is there, and lists have one element.
    full: bool,
    /// In place of any text, one of these, and in place of any number one that is likely to name something.
    words: &'static [&'static str],
    /// Numbers are 0.
    is_still: bool,
    /// The variants that the next steered enums take.
    path: Vec<u32>,
    /// Names of the enums that are steered.
    steered: &'static [&'static str],
    /// What was chosen: the enum's index, the number of its variants, and the variant's name.
    taken: Vec<(u32, u32, &'static str)>,
}

impl Dice {
    /// Dice of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            state: seed,
            full: false,
            words: &[],
            is_still: false,
            path: Vec::new(),
            steered: &[],
            taken: Vec::new(),
        }
    }

    /// Dice for commands that concern each other: they have these names, and numbers that are small or near a time.
    #[must_use]
    pub fn of_words(seed: u64, words: &'static [&'static str]) -> Self {
        Self {
            words,
            ..Self::new(seed)
        }
    }

    /// The next value.
    ///
    /// # Errors
    ///
    /// The type refuses what the dice show.
    pub fn make<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        T::deserialize(&mut *self)
    }

    fn next(&mut self) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.state ^ (self.state >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 29)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Mostly small, sometimes any number of this size.
    fn number(&mut self, bits: u32) -> u64 {
        if self.is_still {
            return 0;
        }
        if !self.words.is_empty() {
            let below = [4, 64, 64, 4_000][usize::try_from(self.below(4)).unwrap()];
            return self.below(below);
        }
        let many = [3, 7, 14, bits][usize::try_from(self.below(4)).unwrap()].min(bits);
        self.next() >> (64 - many)
    }

    fn text(&mut self) -> Vec<u8> {
        if !self.words.is_empty() {
            let index = self.below(self.words.len() as u64);
            return self.words[usize::try_from(index).unwrap()].into();
        }
        let many = [0, 1, 5, 20][usize::try_from(self.below(4)).unwrap()];
        (0..many)
            .map(|_| b'a' + u8::try_from(self.below(26)).unwrap())
            .collect()
    }

    fn variant(&mut self, name: &'static str, variants: &'static [&'static str]) -> u32 {
        let many = u32::try_from(variants.len()).unwrap();
        // Faktory's delays are random: two engines that throw a different number of dice would differ.
        if !self.words.is_empty() && name == "Backoff" {
            return u32::try_from(self.below(3)).unwrap();
        }
        if !self.steered.contains(&name) {
            return u32::try_from(self.below(many.into())).unwrap();
        }
        let index = self.path.get(self.taken.len()).copied().unwrap_or(0);
        self.taken.push((index, many, variants[index as usize]));
        index
    }
}

/// One value for each way through the steered enums, with the names of the variants on the way.
pub fn each_variant<T: DeserializeOwned>(steered: &'static [&'static str]) -> Vec<(String, T)> {
    let mut all = Vec::new();
    let mut path = Vec::new();
    loop {
        let mut taken = Vec::new();
        let value = (1..100).find_map(|seed| {
            let mut dice = Dice {
                full: true,
                path: path.clone(),
                steered,
                ..Dice::new(seed)
            };
            let value = dice.make().ok();
            taken = dice.taken;
            value
        });
        let names: Vec<_> = taken.iter().map(|(_, _, name)| *name).collect();
        all.push((names.join("."), value.expect("dice make a value")));
        // The next way: the last choice that has another variant takes it.
        while taken
            .last()
            .is_some_and(|(index, many, _)| index + 1 == *many)
        {
            taken.pop();
        }
        path = taken.iter().map(|(index, ..)| *index).collect();
        match path.last_mut() {
            Some(last) => *last += 1,
            None => return all,
        }
    }
}

macro_rules! numbers {
    ($($method:ident, $visit:ident, $type:ty, $bits:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.number($bits);
            visitor.$visit(<$type>::try_from(number & (<$type>::MAX as u64)).unwrap())
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Dice {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a type that does not know itself"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.below(2) == 1)
    }

    /// Small enough to be a priority.
    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(1 + u8::try_from(self.below(9)).unwrap())
    }

    numbers! {
        deserialize_u16, visit_u16, u16, 16;
        deserialize_u64, visit_u64, u64, 64;
        deserialize_i32, visit_i32, i32, 31;
        deserialize_i64, visit_i64, i64, 63;
    }

    /// Small enough to be the number of an edge.
    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u32(1 + u32::try_from(self.number(23)).unwrap())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(String::from_utf8(self.text()).unwrap())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.text())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if !self.full && self.below(2) == 0 {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = if self.full { 1 } else { self.below(4) };
        visitor.visit_seq(Several { dice: self, left })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = if self.full { 1 } else { self.below(4) };
        visitor.visit_map(Several { dice: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Several {
            dice: self,
            left: len as u64,
        })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // Only the engine that gave a cursor understands it.
        self.is_still = !self.words.is_empty() && name == "Cursor";
        let value = self.deserialize_tuple(len, visitor);
        self.is_still = false;
        value
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant = self.variant(name, variants);
        visitor.visit_enum(Chosen {
            dice: self,
            variant,
        })
    }

    forward_to_deserialize_any! { i8 i16 i128 u128 f32 f64 char unit unit_struct identifier ignored_any }
}

/// This many elements.
struct Several<'a> {
    dice: &'a mut Dice,
    left: u64,
}

impl<'de> SeqAccess<'de> for Several<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        seed.deserialize(&mut *self.dice).map(Some)
    }
}

impl<'de> MapAccess<'de> for Several<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.dice)
    }
}

struct Chosen<'a> {
    dice: &'a mut Dice,
    variant: u32,
}

impl<'de, 'a> EnumAccess<'de> for Chosen<'a> {
    type Error = Error;
    type Variant = &'a mut Dice;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, &'a mut Dice), Error> {
        let variant: U32Deserializer<Error> = self.variant.into_deserializer();
        Ok((seed.deserialize(variant)?, self.dice))
    }
}

impl<'de> VariantAccess<'de> for &mut Dice {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}
