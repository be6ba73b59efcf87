//! Commands about namespaces as a whole.

use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};
use windlass_config::Failure;

use crate::arguments::{Namespace, NamespaceAction};
use crate::client::{Client, encoded, failure, with_query};
use crate::counter::Counter;
use crate::operator::Operator;
use crate::show::{NAMESPACES, at, many};
use crate::terminal::confirm;

impl Namespace {
    pub(super) async fn run(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let parameters = self.quota.parameters();
        let is_set = self.action == NamespaceAction::Set;
        if !is_set && parameters.iter().any(|(_, value)| value.is_some()) {
            return Err(failure("limits are for `namespace set`"));
        }
        let way = self.queue.as_ref().zip(self.to.as_ref());
        let is_move = self.action == NamespaceAction::Move;
        if is_move != way.is_some() || self.queue.is_some() != self.to.is_some() {
            return Err(failure(
                "`namespace move` needs --queue and --to, which are for nothing else",
            ));
        }
        let path = self.path();
        match self.action {
            NamespaceAction::Set => {
                let path = with_query(&path, &parameters);
                let row = operator.client.send(Method::PUT, &path, Bytes::new());
                let row = row.await?.json()?;
                operator.rows(NAMESPACES, &[row])
            }
            NamespaceAction::Remove => {
                confirm(self.yes, &format!("Remove the namespace {}?", self.named))?;
                let removed = operator.client.send(Method::DELETE, &path, Bytes::new());
                removed.await.map(drop)
            }
            NamespaceAction::Pause => self.show(operator, "pause", "queue", "paused").await,
            NamespaceAction::Resume => self.show(operator, "resume", "queue", "resumed").await,
            NamespaceAction::Move => {
                let path = self.queue.as_deref().map(encoded).unwrap_or_default();
                let way = [
                    ("namespace", Some(self.named.clone())),
                    ("to", self.to.as_deref().map(in_path)),
                ];
                let path = format!("/queues/{path}/move");
                let (moved, last) = repeat(&mut operator.client, &path, &way, "moved").await?;
                let left = at(&last, "/left").clone();
                operator.show(&json!({"changed": moved, "left": left}), |it| {
                    let left = many(at(it, "/left"), "job");
                    format!("{} moved, {left} left\n", many(at(it, "/changed"), "job"))
                })
            }
            NamespaceAction::Empty => {
                if !self.yes {
                    let found = self.change(&mut operator.client, "empty", true).await?;
                    let jobs = many(&found.into(), "job");
                    confirm(false, &format!("Remove {jobs} of {}?", self.named))?;
                }
                self.show(operator, "empty", "job", "removed").await
            }
        }
    }

    fn path(&self) -> String {
        let dots = encoded(&in_path(&self.named)).replace("%2E", ".");
        format!("/namespaces/{dots}")
    }

    async fn show(
        &self,
        operator: &mut Operator<'_>,
        action: &str,
        thing: &str,
        done: &str,
    ) -> Result<(), Failure> {
        let changed = self.change(&mut operator.client, action, false).await?;
        operator.show(&json!({"changed": changed}), |it| {
            format!("{} {done}\n", many(at(it, "/changed"), thing))
        })
    }

    /// Returns the number of changed things.
    async fn change(
        &self,
        client: &mut Client,
        action: &str,
        dry_run: bool,
    ) -> Result<u64, Failure> {
        let parameters = [("dry_run", dry_run.then(|| "true".to_owned()))];
        let path = format!("{}/{action}", self.path());
        let counted = if dry_run { "counted" } else { "changed" };
        Ok(repeat(client, &path, &parameters, counted).await?.0)
    }
}

/// What a path calls a namespace: the one without a name cannot be called so.
fn in_path(name: &str) -> String {
    if name.is_empty() { "~" } else { name }.to_owned()
}

/// Repeats a change until it has seen everything. Returns the number of changed things, and the last answer.
async fn repeat(
    client: &mut Client,
    path: &str,
    parameters: &[(&'static str, Option<String>)],
    done: &'static str,
) -> Result<(u64, Value), Failure> {
    let mut parameters = parameters.to_vec();
    let mut changed = 0;
    let counter = Counter::of(done);
    loop {
        let answer: Value = client.post(&with_query(path, &parameters)).await?.json()?;
        let more = at(&answer, "/changed").as_u64().unwrap_or_default();
        changed += more;
        counter.add(more);
        let Some(next) = at(&answer, "/next").as_str() else {
            return Ok((changed, answer));
        };
        parameters.retain(|(name, _)| *name != "cursor");
        parameters.push(("cursor", Some(next.to_owned())));
    }
}
