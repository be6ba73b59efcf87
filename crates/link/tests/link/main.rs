//! The crate from outside.

#![cfg(test)]

mod golden;
mod newer;
mod properties;
