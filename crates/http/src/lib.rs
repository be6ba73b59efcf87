//! The HTTP port: the API for operators and programs, web pages, probes, and the pages of Faktory that
//! monitoring reads.
//!
//! It has a separate thread and is an ordinary client of the queue ([`windlass_daemon::client`]). Every
//! request is translated to one or more commands of the engine, and the response is sent when the engine's
//! reply may be sent, so a 2xx response to a change guarantees that the change is on the disk. Programs
//! without a client library may push and take jobs here; such jobs have the protocol `http`.
//!
//! Reading order: `config` (the section) · `operator_port` (the interface for the server) · `serve`
//! (connections and their limits) · `pool` (eviction of connections) · `app` (the state shared by all
//! handlers, and `client`, their clients of the engine) · `router` and `access` (a request's role) ·
//! `namespace` (the part of the daemon that a request is about) · `sight` (what a role
//! sees of bodies) · `api` (the handlers, by subject) · `guard` (refuses
//! requests of foreign web pages) · `body` (reading requests) · `login` (roles) · `audit` (the record of
//! changes) · `metrics` (for Prometheus) · `site` (web pages) · `prefix` (page addresses) · `problem`
//! (errors) · `name`, `cursor` and `time` (formats of values). Files import each other in one direction.
//!
//! # Invariants
//!
//! * Everything a peer can make large is limited before it is allocated: connections, headers, bodies, pages,
//!   waiting takes.
//! * No request holds the engine's lock for longer than a visit; a listing returns a page.
//! * Bodies and names are bytes: text that is not UTF-8 is shown in base64, never altered.

mod access;
mod api;
mod app;
mod attention;
mod audit;
mod body;
mod by_kind;
mod client;
mod config;
mod counted;
mod cursor;
mod guard;
mod login;
mod metrics;
mod name;
mod namespace;
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
mod sight;
mod site;
mod survey;
mod time;
mod view;

pub use api::openapi;
pub use config::{Configured, Http, Metrics};
pub use login::{Grant, NewLogin, Role, UnknownGrant, UnknownRole, WrongLine};
