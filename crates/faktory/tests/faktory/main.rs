//! The protocol crate from outside.
#![cfg(test)]

mod canonical;
mod properties;
mod speech;
mod transcripts;
