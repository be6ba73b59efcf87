//! A store in PostgreSQL, or in a database that speaks its protocol and has row locks: the log, the table, and the
//! lease of the daemon that has them.
//!
//! [`Database`] is all of it: the address of a database, which opens as a [`windlass_store::Opened`] like a data
//! directory does.
//!
//! Reading order: the README (tables, what the database must promise) · `address` (where it is) · `link` (one
//! connection, used from threads without a runtime) · `tls` · `schema` (tables and their version) · `lease` (which
//! daemon has the store) · `log`, `tail`, `table` (the three traits of the store) · `database` (opening) · `early`,
//! `hand_over` (what is read before the lease is free) · `edges` (whom a successor waits for) · `history` (rows of ended
//! jobs).
//!
//! # Invariants
//!
//! * Whatever is written is written under the lease: the same statement or transaction locks the lease's row and
//!   compares its epoch. A successor's take-over changes the epoch, so it waits for what was written before it, and
//!   refuses what comes after.
//! * A commit is one row and one statement. When its answer is lost, the row is looked up: a row that is there is not
//!   written twice.
//! * A checkpoint is one transaction: the table is always exactly at its point.
//! * While the lease is not certain by this process's own clock, nothing is acknowledged.

mod address;
mod database;
mod early;
mod edges;
mod hand_over;
mod history;
mod lease;
mod link;
mod log;
mod names;
mod schema;
mod table;
mod tail;
mod taking;
mod tls;

pub use address::{Address, AddressError, SslMode};
pub use database::Database;
