//! The crate from outside.

#![cfg(test)]

mod dice;
mod golden;
mod newer;
mod properties;
