//! Limits and security: hostile clients harm only themselves.
#![cfg(test)]
#![allow(unreachable_pub, reason = "a test program is its own and only user")]

mod bounds;
#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod fair;
mod large;
mod names;
mod security;
mod storms;
