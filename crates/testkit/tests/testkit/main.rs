//! What the tools of the tests are worth.
#![cfg(test)]

mod calendar;
mod simulator;
mod transcript;
