//! `/metrics` for Prometheus. Everything is read during a scrape, and costs nothing between scrapes.
//!
//! Reading order: `figures` (the data, by queue) · `page` (the text) · `daemon` (the daemon's part of the
//! text). No label contains a worker, a job or a client, and the number of queues with separate series is
//! limited. The series of a queue are removed with the queue.

mod daemon;
mod figures;
mod page;

pub(crate) use figures::Series;
pub(crate) use page::{OPEN_METRICS, OfEngine, PLAIN, Scraped, text};
