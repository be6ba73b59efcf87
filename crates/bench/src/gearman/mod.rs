//! Gearman: load for `windlass` and for gearmand.
//!
//! Reading order: [`wire`] (bytes), [`roles`] (kinds of connections), [`shapes`] (the load as data), [`ground`] (one run of one
//! case), [`cases`] (names of the work), [`peers`] (how each server is started), [`admin`] (the server's own count),
//! [`tournament`] (all runs).
//!
//! Spec: the Gearman protocol (`PROTOCOL` in gearmand's sources), sections "Binary Packet" to "Administrative Protocol".

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod ground;
pub mod peers;
pub mod roles;
pub mod shapes;
pub mod tournament;
pub mod wire;
