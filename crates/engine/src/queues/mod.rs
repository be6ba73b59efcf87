//! Queues. [`Queues`] owns all of them: settings, the order of ready jobs, the slots of throttles, and the
//! waiting clients.
//!
//! Reading order: `queue` (the data) · `ready` (the order of ready jobs) · `ahead` (the part loaded in
//! advance) · `audience`, `bridge` (which clients see which jobs) · `consumers`, `unclaimed` (which clients
//! wait where) · `throttle`, `rules`, `patterns`, `ruled`, `figures` · `policy`, `policies` (which ready job
//! may start now) · `names` (the limit of names) · `table` (the owner) · `check`.

mod ahead;
mod audience;
mod bridge;
#[cfg(any(test, debug_assertions, feature = "testing"))]
mod check;
mod consumers;
mod figures;
mod moves;
mod names;
mod patterns;
mod policies;
mod policy;
mod queue;
mod ready;
mod ruled;
mod rules;
mod table;
mod throttle;
mod unclaimed;

pub(crate) use ahead::Ahead;
pub use bridge::Bridge;
pub(crate) use consumers::{Consumers, WaitKey, WaitsAs};
pub use figures::{Histogram, QueueFigures};
pub use patterns::{Patterns, is_pattern, matches};
pub(crate) use policy::{Facts, KEY_BYTES_MAX, Starts};
pub use policy::{Hold, KeyRow, KeySource, OwnPolicy, Policy, PolicyRow, Rate, SavedRates};
pub use queue::{Queue, QueueImage};
pub(crate) use ready::SortKey;
pub use rules::{Coalesce, Codec, QueueRules, QueueSettings, READ_KEY};
pub(crate) use table::Queues;
pub use throttle::Throttle;
pub(crate) use throttle::Whose;
