//! Converts a job for a worker of another protocol, and that worker's result for the job's own clients: the neutral
//! form in between. Each protocol's crate has two columns: [`Origin`] reads its jobs into the neutral form, and a
//! function of its own writes its workers' jobs from it. No protocol is named here.
//!
//! **Contract.** Pure: bytes in, bytes out. The engine keeps a job's body as its producer sent it; it is converted when
//! it goes to a worker of another protocol. A worker of the job's own protocol gets the unchanged bytes, which are not
//! parsed. A job that cannot be converted is an [`Unconvertible`] whose text is the violated rule; such a job must end
//! visibly. JSON is cut out, never re-serialized: numbers, escapes and unknown keys stay as they were. No input makes
//! this code panic, recurse, or take more memory than a small multiple of the input's size.
//!
//! **Reading order.** The crate's README has the tables. [`Job`], the input; [`Call`], the neutral form; [`Bridge`],
//! all protocols' origins; [`json`], values that stay text.

pub mod json;
mod unconvertible;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;
use windlass_engine::{Calls, JobReader, KeySource, Priority, Protocol, Protocols, Taken};

pub use windlass_engine::Codec;

pub use unconvertible::{Fault, Unconvertible, Why};

/// What a job calls is looked for in this many bytes of its body at most: reading them takes some ten microseconds.
pub const CALL_READ_MAX: usize = 64 << 10;

/// The parts of a job that matter to a worker of another protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job<'a> {
    /// The protocol of the job's producer.
    pub protocol: Protocol,
    /// The job's queue.
    pub queue: &'a [u8],
    /// The producer's bytes.
    pub body: &'a [u8],
    /// The queue's codec.
    pub codec: Codec,
    /// The job's coalescing key; empty if it has none.
    pub key: &'a [u8],
    /// The job's priority.
    pub priority: Priority,
}

/// A job in the terms of no protocol: a name, arguments, and data that its origin attaches.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// What to call.
    pub name: Cow<'a, str>,
    /// A list; `None` for an empty one.
    pub args: Option<&'a RawValue>,
    /// Keyword arguments, unless they are part of the metadata. Not checked: a value of any kind but `null`.
    pub kwargs: Option<&'a RawValue>,
    /// An object: a protocol's own data is in the member with the protocol's name.
    pub metadata: Option<Cow<'a, RawValue>>,
}

/// A protocol's jobs and results, read into neutral forms.
pub trait Origin: Send + Sync + fmt::Debug {
    /// The job as bytes.
    ///
    /// # Errors
    ///
    /// The job has no such form under its queue's codec.
    fn bytes<'a>(&self, job: &Job<'a>) -> Result<Cow<'a, [u8]>, Fault>;

    /// The job as a call. `None`: its body is bytes, whatever they mean.
    ///
    /// # Errors
    ///
    /// The body is not one of the protocol's jobs, or the queue's codec has no rule for it.
    fn call<'a>(&self, job: &Job<'a>) -> Result<Option<Call<'a>>, Fault>;

    /// What one of the protocol's jobs calls. The engine asks at every hand-out, under its lock, so this reads no more of
    /// the body than it needs, and at most [`CALL_READ_MAX`] bytes.
    fn calls<'a>(&self, _body: &'a [u8]) -> Calls<'a> {
        Calls::Queue
    }

    /// A result of the protocol's workers as bytes.
    fn result<'a>(&self, result: &'a [u8]) -> Cow<'a, [u8]>;

    /// Why workers of the protocol, whose number is `own`, cannot have a job; `None` if they can. Without rules of its
    /// own: the job has no form as bytes.
    fn misfit(&self, bridge: &Bridge, job: &Job<'_>, own: Protocol) -> Option<Unconvertible> {
        bridge.bytes(job, own).err()
    }

    /// Whether one of the protocol's jobs has this type: [`JobReader::has_type`].
    fn has_type(&self, _job: &windlass_engine::Job, _name: &str) -> bool {
        false
    }

    /// The text of one of the protocol's jobs: [`JobReader::text`].
    fn text(&self, _job: &windlass_engine::Job, _skew_ms: i64) -> Option<Vec<u8>> {
        None
    }

    /// The key at a JSON pointer in one of the protocol's jobs: [`JobReader::key`].
    fn key(&self, body: &[u8], at: &KeySource) -> Option<Vec<u8>> {
        json::key(body, pointer(at)?)
    }

    /// Where the producer's arguments are in the body of one of the protocol's jobs: JSON pointers. The empty one: all of it.
    fn arguments(&self) -> &'static [&'static str] {
        &[""]
    }

    /// The bytes that the producer has sent in one of the protocol's jobs: [`JobReader::sent`].
    fn sent<'a>(&self, body: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(body)
    }
}

/// The JSON pointer of a source that has one.
pub fn pointer(at: &KeySource) -> Option<&str> {
    match at {
        KeySource::Args(pointer) | KeySource::Custom(pointer) => Some(pointer),
        KeySource::Unique(_) | KeySource::Prefix(_) | KeySource::Header(_) => None,
    }
}

/// The jobs of a protocol whose bodies and results are bytes, whatever they mean.
#[derive(Clone, Copy, Debug)]
pub struct Opaque;

impl Origin for Opaque {
    fn bytes<'a>(&self, job: &Job<'a>) -> Result<Cow<'a, [u8]>, Fault> {
        Ok(Cow::Borrowed(job.body))
    }

    fn call<'a>(&self, _job: &Job<'a>) -> Result<Option<Call<'a>>, Fault> {
        Ok(None)
    }

    fn result<'a>(&self, result: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(result)
    }
}

/// One protocol on the bridge.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its number.
    pub protocol: Protocol,
    /// Its name, in texts of errors and in `custom._origin`.
    pub name: &'static str,
    /// How its jobs are read; `None` if they never cross.
    pub origin: Option<Arc<dyn Origin>>,
}

/// All protocols on the bridge.
#[derive(Clone, Debug, Default)]
pub struct Bridge {
    sides: Vec<Side>,
}

impl Bridge {
    /// A bridge between these protocols.
    pub const fn new(sides: Vec<Side>) -> Self {
        Self { sides }
    }

    /// The name of a protocol.
    pub fn name(&self, protocol: Protocol) -> &'static str {
        self.side(protocol).map_or("unknown", |side| side.name)
    }

    /// The names of some protocols; none if they are all.
    pub fn names(&self, of: Protocols) -> Vec<&'static str> {
        let named = self
            .sides
            .iter()
            .filter(|side| of != Protocols::ALL && of.has(side.protocol));
        named.map(|side| side.name).collect()
    }

    /// All protocols, with their names.
    pub fn protocols(&self) -> impl Iterator<Item = (Protocol, &'static str)> {
        self.sides.iter().map(|side| (side.protocol, side.name))
    }

    /// The protocol with this name.
    pub fn protocol(&self, name: &str) -> Option<Protocol> {
        self.sides
            .iter()
            .find(|side| side.name == name)
            .map(|side| side.protocol)
    }

    /// A job as bytes, for a worker of `to`.
    ///
    /// # Errors
    ///
    /// The violated rule.
    pub fn bytes<'a>(&self, job: &Job<'a>, to: Protocol) -> Result<Cow<'a, [u8]>, Unconvertible> {
        self.read(job, to, |origin| origin.bytes(job))
    }

    /// A job as a call, for a worker of `to`. `None`: its body is bytes.
    ///
    /// # Errors
    ///
    /// The violated rule.
    pub fn call<'a>(&self, job: &Job<'a>, to: Protocol) -> Result<Option<Call<'a>>, Unconvertible> {
        self.read(job, to, |origin| origin.call(job))
    }

    /// What a job with this body calls.
    pub fn calls<'a>(&self, protocol: Protocol, body: &'a [u8]) -> Calls<'a> {
        self.origin(protocol)
            .map_or(Calls::Queue, |origin| origin.calls(body))
    }

    /// A body in which the arguments are replaced that stand at these JSON pointers ([`json::tokens`]). `None`: the body is no
    /// JSON, so nobody can tell where they are.
    pub fn hidden(&self, protocol: Protocol, body: &[u8], pointers: &[&str]) -> Option<String> {
        let origin = self.origin(protocol).unwrap_or(&Opaque);
        let below = |root: &&str| {
            let root = json::tokens(root);
            let path = move |pointer: &&str| [root.clone(), json::tokens(pointer)].concat();
            pointers.iter().map(path)
        };
        let paths: Vec<Vec<String>> = origin.arguments().iter().flat_map(below).collect();
        let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
        let mut out = String::with_capacity(body.len());
        json::put_hidden(json::value(body)?, &paths, &mut out);
        Some(out)
    }

    /// A result of a worker of `from` as bytes. `None`: results of that protocol are not converted.
    pub fn result<'a>(&self, from: Protocol, result: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        Some(self.origin(from)?.result(result))
    }

    /// Why workers of a protocol cannot have a job; `None` if they can.
    pub fn misfit(&self, job: &Job<'_>, to: Protocol) -> Option<Unconvertible> {
        self.origin(to)?.misfit(self, job, to)
    }

    /// The error for a job that cannot go to a worker of `to`.
    pub fn unconvertible(&self, job: &Job<'_>, to: Protocol, fault: Fault) -> Unconvertible {
        let codec = fault.depends_on_codec.then_some(job.codec);
        Unconvertible {
            from: self.name(job.protocol),
            to: self.name(to),
            codec,
            why: fault.why,
        }
    }

    fn read<T>(
        &self,
        job: &Job<'_>,
        to: Protocol,
        read: impl FnOnce(&dyn Origin) -> Result<T, Fault>,
    ) -> Result<T, Unconvertible> {
        let origin = self.origin(job.protocol).ok_or(Fault::of(Why::Apart));
        origin
            .and_then(read)
            .map_err(|fault| self.unconvertible(job, to, fault))
    }

    fn origin(&self, protocol: Protocol) -> Option<&dyn Origin> {
        self.side(protocol)?.origin.as_deref()
    }

    fn side(&self, protocol: Protocol) -> Option<&Side> {
        self.sides.iter().find(|side| side.protocol == protocol)
    }
}

impl JobReader for Bridge {
    fn calls<'a>(&self, job: &'a windlass_engine::Job) -> Calls<'a> {
        Self::calls(self, job.protocol, job.body())
    }

    fn is_by_queue(&self, protocol: Protocol) -> bool {
        self.calls(protocol, &[]) == Calls::Queue
    }

    fn has_type(&self, job: &windlass_engine::Job, name: &str) -> bool {
        self.origin(job.protocol)
            .is_some_and(|origin| origin.has_type(job, name))
    }

    fn text(&self, job: &windlass_engine::Job, skew_ms: i64) -> Option<Vec<u8>> {
        self.origin(job.protocol)?.text(job, skew_ms)
    }

    fn key(&self, protocol: Protocol, body: &[u8], at: &KeySource) -> Option<Vec<u8>> {
        // Jobs that never cross are read as bytes, too.
        self.origin(protocol).unwrap_or(&Opaque).key(body, at)
    }

    fn sent<'a>(&self, protocol: Protocol, body: &'a [u8]) -> Cow<'a, [u8]> {
        self.origin(protocol).unwrap_or(&Opaque).sent(body)
    }
}

impl<'a> From<&'a Taken> for Job<'a> {
    fn from(job: &'a Taken) -> Self {
        Self {
            protocol: job.protocol,
            queue: &job.queue,
            body: &job.body,
            codec: job.codec,
            key: &job.key,
            priority: job.priority,
        }
    }
}
