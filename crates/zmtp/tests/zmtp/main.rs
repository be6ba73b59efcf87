//! ZMTP peers from outside.
#![cfg(test)]

mod curve;
mod properties;
mod transcripts;
