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
        // The path of the namespace without a name, which cannot be called so.
        let named = match self.named.as_str() {
            "" => "~",
            named => named,
        };
        let dots = encoded(named).replace("%2E", ".");
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

    /// Repeats a change until it has seen everything. Returns the number of changed things.
    async fn change(
        &self,
        client: &mut Client,
        action: &str,
        dry_run: bool,
    ) -> Result<u64, Failure> {
        let (mut changed, mut cursor) = (0, None);
        let counter = Counter::of(if dry_run { "counted" } else { "changed" });
        loop {
            let parameters = [
                ("cursor", cursor.take()),
                ("dry_run", dry_run.then(|| "true".to_owned())),
            ];
            let path = with_query(&format!("{}/{action}", self.path()), &parameters);
            let answer: Value = client.post(&path).await?.json()?;
            let more = at(&answer, "/changed").as_u64().unwrap_or_default();
            changed += more;
            counter.add(more);
            let Some(next) = at(&answer, "/next").as_str() else {
                return Ok(changed);
            };
            cursor = Some(next.to_owned());
        }
    }
}
