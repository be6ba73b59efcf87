//! An EventMQ job: `["run", {"path", "callable", "args", "kwargs", "class_args", "class_kwargs"}]`.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;
use windlass_bridge::json::{self, Members, Unexpected};

/// A call with its arguments. A key that is missing or `null` is `None`.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    /// A module, or `module:Class`.
    pub(crate) path: Cow<'a, str>,
    /// A function of it, or a method.
    pub(crate) callable: Cow<'a, str>,
    /// A list.
    pub(crate) args: Option<&'a RawValue>,
    /// An object.
    pub(crate) kwargs: Option<&'a RawValue>,
    /// A list.
    pub(crate) class_args: Option<&'a RawValue>,
    /// An object.
    pub(crate) class_kwargs: Option<&'a RawValue>,
    /// The whole object, with keys unknown here.
    pub(crate) whole: &'a RawValue,
}

impl<'a> Run<'a> {
    /// `None` if the body is not such a job.
    pub(crate) fn read(body: &'a [u8]) -> Option<Self> {
        let [run, whole] = json::pair(json::value(body)?)?;
        if json::text(run)? != "run" {
            return None;
        }
        let mut found = [None; 6];
        let each = |key: &str, value: &'a RawValue| {
            if let Some(place) = KEYS
                .iter()
                .position(|known| *known == key)
                .and_then(|at| found.get_mut(at))
            {
                *place = Some(value).filter(|value| value.get() != "null");
            }
            Ok(())
        };
        json::members(whole, each).ok()?;
        let [path, callable, args, kwargs, class_args, class_kwargs] = found;
        let lists = [args, class_args].into_iter().flatten().all(json::is_list);
        let objects = [kwargs, class_kwargs]
            .into_iter()
            .flatten()
            .all(json::is_object);
        let word = |value: Option<&'a RawValue>| {
            value.and_then(json::text).filter(|word| !word.is_empty())
        };
        let (path, callable) = (word(path)?, word(callable)?);
        (lists && objects).then_some(Self {
            path,
            callable,
            args,
            kwargs,
            class_args,
            class_kwargs,
            whole,
        })
    }
}

/// The path and the callable of a job. Reading ends behind the later of them, so the arguments may be cut off, or be no
/// arguments.
pub(crate) fn names(body: &[u8]) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let mut names = Names::default();
    // Ends with an error where reading ends early.
    let _ = serde_json::Deserializer::from_slice(body).deserialize_seq(&mut names);
    let word = |value: Option<_>| value.and_then(json::text).filter(|word| !word.is_empty());
    Some((word(names.path)?, word(names.callable)?))
}

/// What is found of a job's names.
#[derive(Default)]
struct Names<'a> {
    path: Option<&'a RawValue>,
    callable: Option<&'a RawValue>,
}

impl<'a> Visitor<'a> for &mut Names<'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a job")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut job: A) -> Result<(), A::Error> {
        if job.next_element::<Cow<'_, str>>()?.as_deref() != Some("run") {
            return Err(A::Error::custom("no job"));
        }
        job.next_element_seed(self).map(drop)
    }
}

impl<'a> DeserializeSeed<'a> for &mut Names<'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, object: D) -> Result<(), D::Error> {
        object.deserialize_map(Members(|key: &str, value: &'a RawValue| {
            match key {
                "path" => self.path = Some(value),
                "callable" => self.callable = Some(value),
                _ => {}
            }
            if self.path.is_some() && self.callable.is_some() {
                Err(Unexpected)
            } else {
                Ok(())
            }
        }))
    }
}

/// The keys of a job, in the order of [`Run`].
const KEYS: [&str; 6] = [
    "path",
    "callable",
    "args",
    "kwargs",
    "class_args",
    "class_kwargs",
];

/// Appends the members of an object that are not part of a [`Run`], each after a comma.
pub(crate) fn put_unknown(object: &RawValue, out: &mut Vec<u8>) {
    let each = |key: &str, value: &RawValue| {
        if !KEYS.contains(&key) {
            out.extend_from_slice(b",");
            json::quote(key, out);
            out.extend_from_slice(b":");
            out.extend_from_slice(value.get().as_bytes());
        }
        Ok(())
    };
    // Cannot fail: the object was read before.
    let _ = json::members(object, each);
}
