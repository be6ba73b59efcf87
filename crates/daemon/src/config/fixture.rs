//! Configurations for tests, from the text of a file: the sections that tests set, with all protocols.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use windlass_config::Period;
use windlass_eventmq::config::Eventmq;
use windlass_faktory::config::Faktory;
use windlass_gearman::config::Gearman;
use windlass_spiderq::config::Spiderq;
use windlass_zmtp::Zmtp;

use super::{Config, Durability, Limits, Namespaces, Queue, Server};

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    durability: Durability,
    commit_interval: Period,
    server: Server,
    limits: Limits,
    queues: BTreeMap<String, Queue>,
    namespaces: Namespaces,
    faktory: Faktory,
    gearman: Gearman,
    spiderq: Spiderq,
    eventmq: Eventmq,
    zmtp: Zmtp,
}

impl Default for File {
    fn default() -> Self {
        let Config {
            durability,
            commit_interval,
            server,
            limits,
            queues,
            namespaces,
            ..
        } = Config::default();
        Self {
            durability,
            commit_interval,
            server,
            limits,
            queues,
            namespaces,
            faktory: Faktory::default(),
            gearman: Gearman::default(),
            spiderq: Spiderq::default(),
            eventmq: Eventmq::default(),
            zmtp: Zmtp::default(),
        }
    }
}

/// Parses this text, with defaults for everything else.
pub(crate) fn config(text: &str) -> Config {
    let File {
        durability,
        commit_interval,
        server,
        limits,
        queues,
        namespaces,
        faktory,
        gearman,
        spiderq,
        eventmq,
        zmtp,
    } = toml::from_str(text).unwrap();
    let protocols: Vec<Arc<dyn windlass_session::protocol::Protocol>> = vec![
        Arc::new(faktory),
        Arc::new(gearman),
        Arc::new(Spiderq {
            zmtp: zmtp.clone(),
            ..spiderq
        }),
        Arc::new(Eventmq { zmtp, ..eventmq }),
    ];
    Config {
        durability,
        commit_interval,
        server,
        limits,
        queues,
        namespaces,
        protocols,
        ..Config::default()
    }
}
