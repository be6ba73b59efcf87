//! Stock clients against the real daemon. `tests/install-clients` installs them. A missing client is a failure, never a skip.
#![cfg(test)]
#![allow(unreachable_pub, reason = "a test program is its own and only user")]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod ended;
mod examples;
mod fleet;
mod interop;
mod interop_curve;
mod interop_eventmq;
mod interop_faktory;
mod interop_metrics;
mod interop_pages;
mod interop_policies;
mod interop_spiderq;
mod openapi;
mod programs;
