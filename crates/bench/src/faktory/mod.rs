//! Faktory's work protocol (FWP): load for `windlass`.
//!
//! Reading order: [`wire`] (bytes), [`roles`] (kinds of connections), [`cases`] (the load as data, and its names), [`run`]
//! (one run of one case), [`admin`] (the server's own count).
//!
//! Spec: Faktory Work Protocol.

#[cfg(test)]
mod accounting;
pub mod admin;
pub mod cases;
pub mod roles;
pub mod run;
pub mod wire;
