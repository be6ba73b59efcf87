//! `queues.NAME.on_dead`: the job that reports a dead job to the workers of another queue.
//!
//! Dead jobs whose type and queue are those of an `on_dead` rule are not reported, wherever that
//! rule is, because workers that fail on reports would otherwise receive endless reports of
//! reports.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_bridge::Bridge;
use windlass_engine::date::moment_text;
use windlass_engine::{Calls, Engine, Job, NewJob, Patterns, Timestamp};
use windlass_session::jid::jid_of;
use windlass_session::protocol::Protocol;

use crate::config::{self, Config, OnDead};
use crate::protocols;

/// Maximum length of a dead job's text in its report, so that a report is never too large to be
/// pushed or read.
const TEXT_BYTES_MAX: usize = 1_024;

/// The rules of all queues that have one.
#[derive(Debug)]
struct Reports {
    /// An entry without a rule overrides those of less specific patterns.
    by_queue: Patterns<Option<OnDead>>,
    protocols: Vec<Arc<dyn Protocol>>,
    bridge: Bridge,
}

/// Sets the rules of a configuration.
pub(crate) fn set(engine: &mut Engine, config: &Config) {
    let rules = config
        .queues
        .iter()
        .map(|(queue, rules)| (queue.clone().into(), rules.on_dead.clone()));
    let by_queue: Patterns<Option<OnDead>> = rules.collect();
    let has_rules = by_queue.iter().any(|(_, rule)| rule.is_some());
    let reports = Reports {
        by_queue,
        protocols: config.protocols.clone(),
        bridge: protocols::bridge(config),
    };
    engine.set_on_dead(has_rules.then(|| Arc::new(reports) as Arc<dyn windlass_engine::OnDead>));
}

impl windlass_engine::OnDead for Reports {
    fn job(&self, dead: &Job, queue: &[u8], setting: &[u8], wall: Timestamp) -> Option<NewJob> {
        let rule = self.by_queue.find(setting)?.as_ref()?;
        // The body of a leased job is in memory.
        let body = dead.payload.stored().is_none().then(|| dead.body());
        let calls = body.map_or(Calls::Unknown, |body| {
            self.bridge.calls(dead.protocol, body)
        });
        let is_report = |rule: &OnDead| {
            rule.queue.as_bytes() == queue
                && matches!(&calls, Calls::Named(name) if *name == rule.jobtype)
        };
        if self
            .by_queue
            .iter()
            .filter_map(|(_, rule)| rule.as_ref())
            .any(is_report)
        {
            return None;
        }
        let about = self.about(dead, queue, &calls, wall).to_string();
        // Already validated with the configuration.
        config::reporter(&self.protocols, rule, &about).ok()
    }
}

impl Reports {
    fn about(&self, dead: &Job, queue: &[u8], calls: &Calls<'_>, wall: Timestamp) -> Value {
        let failure = dead
            .extra
            .as_deref()
            .and_then(|extra| extra.failure.as_deref());
        let jobtype = match calls {
            Calls::Named(name) => Some(text(name.as_bytes())),
            Calls::Queue => Some(text(queue)),
            Calls::Unknown => None,
        };
        let jid = if dead.name().is_empty() {
            jid_of(dead.id.0)
        } else {
            text(dead.name())
        };
        json!({
            "id": dead.id.0,
            "jid": jid,
            "queue": text(queue),
            "protocol": self.bridge.name(dead.protocol),
            "jobtype": jobtype,
            "errtype": failure.map(|failure| text(&failure.kind)),
            "message": failure.map(|failure| text(&failure.message)),
            "attempts": dead.attempts,
            "failures": dead.failures,
            "died_at": moment_text(wall),
        })
    }
}

/// The start of a text.
fn text(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes)).into_owned();
    // The cut may be inside a character.
    if bytes.len() > TEXT_BYTES_MAX {
        head.trim_end_matches('\u{fffd}').to_owned()
    } else {
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(text(b"a\xff"), "a\u{fffd}");
        assert_eq!(
            text(&[b"a".repeat(TEXT_BYTES_MAX - 1), "é".into()].concat()),
            "a".repeat(TEXT_BYTES_MAX - 1)
        );
    }
}
