//! The protocol crate from outside.
#![cfg(test)]

mod envelopes;
mod positions;
mod properties;
mod speech;
mod transcripts;
