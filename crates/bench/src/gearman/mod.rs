//! Gearman: load for `windlass` and for gearmand.
//!
//! Reading order: [`wire`] (bytes), [`roles`] (kinds of connections), [`shapes`] (the load as data), [`run`] (one run of one
//! case), [`cases`] (names of the work), [`peers`] (how each server is started), [`admin`] (the server's own count),
//! [`comparison`] (all runs).
//!
//! Spec: the Gearman protocol (`PROTOCOL` in gearmand's sources), sections "Binary Packet" to "Administrative Protocol".

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod comparison;
pub mod peers;
pub mod roles;
pub mod run;
pub mod shapes;
pub mod wire;
