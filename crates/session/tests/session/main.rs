//! Times of EventMQ's cron expressions.
#![cfg(test)]

mod croniter;
mod interop_croniter;
mod played;
