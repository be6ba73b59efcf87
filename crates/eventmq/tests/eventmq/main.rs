//! The protocol crate from outside.
#![cfg(test)]

mod properties;
mod speech;
mod transcripts;
