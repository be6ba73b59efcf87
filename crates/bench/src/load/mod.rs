//! What every protocol's load has in common: many connections in one thread ([`client`], over sockets of either
//! kind: [`socket`]), what they count together and
//! when the measured window is open ([`crew`]), and what tells one job from another ([`stamp`]).

pub mod client;
pub mod crew;
pub mod socket;
pub mod stamp;
