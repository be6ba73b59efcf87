//! What the tools of the tests are worth.
#![cfg(test)]

mod answers;
mod calendar;
mod simulator;
mod transcript;
