//! Parts that every protocol's load shares: many connections in one thread ([`client`], over sockets of either kind:
//! [`socket`]), their common counters and the measured window ([`driver`]), and the identity of jobs ([`stamp`]).

pub mod client;
pub mod driver;
pub mod socket;
pub mod stamp;
