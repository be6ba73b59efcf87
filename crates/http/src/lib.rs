//! The HTTP port: the API for operators and their programs, web pages, probes, and the pages of Faktory that monitoring
//! reads.
//!
//! It runs on a thread of its own and knows the queue only as a client of it ([`windlass_daemon::client`]): every
//! request is one or more commands of the engine, and an answer leaves when the engine's reply may, so a 2xx answer to
//! a change means that the change is on the disk. Programs without a client library may push and take jobs here; such
//! jobs have the protocol `http`.
//!
//! Reading order: `config` (the section) · `operator_port` (what the server knows of the port) · `serve` (connections and their
//! limits) · `pool` (which of them gives way) · `app` (what all handlers share) · `router` and `access` (a request's
//! role) · `api` (the handlers, by subject) · `guard` (requests of foreign web pages are refused) · `body` (reading
//! requests) · `login` (roles) · `audit` (the record of changes) · `metrics` (for Prometheus) · `site` (web pages) ·
//! `prefix` (their addresses) · `problem` (errors) · `name`, `cursor` and `time` (formats of values). Files import each
//! other in one direction.
//!
//! # Invariants
//!
//! * Everything a peer can make large is bounded before it is allocated: connections, headers, bodies, pages, waiting takes.
//! * No request holds the engine for longer than a visit; a listing is a page.
//! * Bodies and names are bytes: text that is not UTF-8 is shown in base64, never altered.

mod access;
mod api;
mod app;
mod attention;
mod audit;
mod body;
mod by_kind;
mod config;
mod counted;
mod cursor;
mod guard;
mod login;
mod metrics;
mod name;
mod operator_port;
mod params;
mod places;
mod pool;
mod prefix;
mod problem;
mod proxy;
mod reasons;
mod refusing;
mod router;
mod serve;
mod site;
mod survey;
mod time;
mod view;

pub use api::openapi;
pub use config::{Configured, Http, Metrics};
pub use login::{NewLogin, Role, UnknownRole, WrongLine};
