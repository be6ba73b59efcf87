//! `/metrics`: what Prometheus scrapes. Everything is read when it is scraped; between scrapes this costs nothing.
//!
//! Reading order: `figures` (what is read, by queue) · `page` (its text) · `daemon` (the daemon's part of it). No label
//! has a worker, a job or a client, and the number of queues with series of their own is bounded. The series of a queue
//! end with the queue.

mod daemon;
mod figures;
mod page;

pub(crate) use figures::Series;
pub(crate) use page::{OPEN_METRICS, OfEngine, PLAIN, Scraped, text};
