//! What the tools of the tests are worth.
#![cfg(test)]

mod answers;
mod calendar;
mod coalesce;
mod policies;
mod simulator;
mod transcript;
