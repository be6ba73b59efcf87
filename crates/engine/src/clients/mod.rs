//! Connections, named workers, and how they wait for work. [`Clients`] and [`Workers`] own them; [`Waiters`]
//! owns every wait. [`Watchers`] are clients that watch jobs.

mod client;
mod table;
mod waiters;
mod watchers;
mod workers;

pub(crate) use client::{Client, Served, TakesFrom};
pub(crate) use table::Clients;
pub(crate) use waiters::Waiters;
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) use waiters::check as check_waiters;
pub(crate) use watchers::{Watchers, watcher_bytes};
pub(crate) use workers::{Worker, Workers};
