//! The protocol crate from outside.
#![cfg(test)]

mod client;
mod envelopes;
mod positions;
mod properties;
mod speech;
mod transcripts;
mod wire;
