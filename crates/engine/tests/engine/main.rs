//! The engine through its commands and events.
#![cfg(test)]

mod acknowledges;
mod adopt;
mod batches;
mod claims;
mod clocks;
mod common;
mod cycle;
mod dead;
mod expiry;
mod flush;
mod isolation;
mod leases;
mod limits;
mod listing;
mod on_dead;
mod order;
mod past;
mod queues;
mod retries;
mod room;
mod rules;
mod scale;
mod schedules;
mod scope;
mod terms;
mod throttles;
mod track;
mod unclaimed;
mod unique;
mod values;
mod waiting;
mod warnings;
mod why;
mod work;
mod workers;
