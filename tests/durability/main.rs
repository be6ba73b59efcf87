//! Kills, damage, full disks and clocks: no acknowledged job is lost.
#![cfg(test)]
#![allow(unreachable_pub, reason = "a test program is its own and only user")]

mod backlog;
mod clocks;
#[path = "../common/mod.rs"]
mod common;
mod crash;
mod damage;
mod ended;
mod full_disk;
mod history;
mod large_backlog;
mod policies;
mod power;
mod returns;
mod slow_disk;
mod tools;
