//! Commands about many jobs: listing them, and changing them by number or by conditions.

use std::io::{self, Write as _};

use hyper::Method;
use serde_json::{Value, json};
use windlass_config::{Failure, counted};

use crate::arguments::{Conditions, Jobs, LosingJobs, RetriedJobs, SomeJobs};
use crate::client::{Client, encoded, failure, with_query};
use crate::counter::Counter;
use crate::operator::Operator;
use crate::show::{DEAD, JOBS, RETRYING, at, many, sort};
use crate::terminal::confirm;

/// Maximum number of jobs changed per request, so that a long change can be followed and stopped.
const STEP: u64 = 100_000;

/// Minimum number of jobs to read for sorting.
const SORTED_MAX: usize = 10_000;

/// Maximum number of job numbers per request.
const IDS_MAX: usize = 500;

impl Conditions {
    /// Shows dead or retrying jobs by error and kind.
    pub(super) async fn failures(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let found = operator
            .client
            .get(&with_query("/dead", &self.parameters()))
            .await?;
        let groups = at(&found, "/groups")
            .as_array()
            .cloned()
            .unwrap_or_default();
        if groups.is_empty() {
            self.check_queue(&mut operator.client).await?;
        }
        let (columns, which) = match self.state.as_deref() {
            Some("retrying") => (RETRYING, "are tried next"),
            Some(_) | None => (DEAD, "died last"),
        };
        operator.rows(columns, &groups)?;
        if *at(&found, "/is_complete") == false {
            let _ = writeln!(
                io::stderr(),
                "there are more: these are the errors of the jobs that {which}"
            );
        }
        if let Some(others @ 1..) = at(&found, "/other_jobs").as_u64() {
            let _ = writeln!(
                io::stderr(),
                "of further errors and kinds: {}",
                counted(others, "job")
            );
        }
        Ok(())
    }

    /// Reports a queue that does not exist, because nothing was found and its name may be mistyped.
    async fn check_queue(&self, client: &mut Client) -> Result<(), Failure> {
        match self
            .parameters()
            .into_iter()
            .find(|(name, _)| *name == "queue")
        {
            Some((_, Some(queue))) => client
                .get(&format!("/queues/{}", encoded(&queue)))
                .await
                .map(drop),
            _ => Ok(()),
        }
    }

    fn is_empty(&self) -> bool {
        self.parameters().iter().all(|(_, value)| value.is_none())
    }
}

impl Jobs {
    pub(super) async fn run(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let parameters = [
            self.conditions.parameters(),
            vec![("order", self.order.clone())],
        ]
        .concat();
        let path = with_query("/jobs", &parameters);
        let rows_max = if self.limit == 0 {
            usize::MAX
        } else {
            self.limit
        };
        let looked_at = if self.by.sort.is_some() {
            rows_max.max(SORTED_MAX)
        } else {
            rows_max
        };
        let mut rows = operator.client.rows(&path, looked_at).await?;
        if rows.is_empty() {
            self.conditions.check_queue(&mut operator.client).await?;
        }
        self.by
            .sort
            .iter()
            .try_for_each(|column| sort(JOBS, &mut rows, column))?;
        rows.truncate(rows_max);
        operator.rows(JOBS, &rows)
    }
}

impl SomeJobs {
    /// Changes jobs, and shows the ones that were named, or else their number.
    pub(super) async fn change(
        &self,
        operator: &mut Operator<'_>,
        action: &str,
        anew: Option<&RetriedJobs>,
    ) -> Result<(), Failure> {
        let anew = anew.filter(|it| it.rate.is_some() || it.to.is_some());
        if !self.is_list() || anew.is_some() {
            let changed = self
                .change_many(&mut operator.client, action, anew, self.dry_run)
                .await?;
            let shown = json!({"changed": changed, "dry_run": self.dry_run});
            return operator.show(&shown, shown_change);
        }
        let mut rows = Vec::new();
        for id in &self.ids {
            let path = format!("/jobs/{id}/{action}");
            rows.push(
                operator
                    .client
                    .change(&format!("job {id}"), Method::POST, &path)
                    .await?
                    .json()?,
            );
        }
        operator.rows(JOBS, &rows)
    }

    /// Whether jobs are selected only by number.
    fn is_list(&self) -> bool {
        !self.ids.is_empty() && self.conditions.is_empty() && !self.dry_run && self.limit.is_none()
    }

    /// Changes or counts all matching jobs, in steps.
    async fn change_many(
        &self,
        client: &mut Client,
        action: &str,
        anew: Option<&RetriedJobs>,
        dry_run: bool,
    ) -> Result<u64, Failure> {
        if self.ids.is_empty() && self.conditions.is_empty() && !self.all {
            return Err(failure(
                "no jobs selected: give numbers, conditions or --all",
            ));
        }
        let (mut changed, counter) = (
            0,
            Counter::of(if dry_run {
                "jobs counted"
            } else {
                "jobs changed"
            }),
        );
        let numbers =
            |ids: &[u64]| Some(ids.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
        let lists = if self.ids.is_empty() {
            vec![None]
        } else {
            self.ids.chunks(IDS_MAX).map(numbers).collect()
        };
        let rate = anew.and_then(|it| it.rate);
        let mut delay_ms = rate.map(|_| 0);
        for ids in lists {
            let mut cursor = None;
            loop {
                let step = STEP.min(
                    self.limit
                        .map_or(u64::MAX, |limit| limit.saturating_sub(changed)),
                );
                if step == 0 {
                    return Ok(changed);
                }
                let mut parameters = self.conditions.parameters();
                parameters.extend([
                    ("ids", ids.clone()),
                    ("all", Some(self.all.to_string())),
                    ("dry_run", Some(dry_run.to_string())),
                    ("limit", Some(step.to_string())),
                    ("cursor", cursor.take()),
                    ("rate", rate.map(|rate| rate.to_string())),
                    ("delay_ms", delay_ms.map(|ms| ms.to_string())),
                    ("to", anew.and_then(|it| it.to.clone())),
                ]);
                let answer: Value = client
                    .post(&with_query(&format!("/jobs/{action}"), &parameters))
                    .await?
                    .json()?;
                let more = at(&answer, "/changed").as_u64().unwrap_or_default();
                changed += more;
                counter.add(more);
                delay_ms = at(&answer, "/delay_ms").as_u64();
                let Some(next) = at(&answer, "/next").as_str() else {
                    break;
                };
                cursor = Some(next.to_owned());
            }
        }
        Ok(changed)
    }
}

fn shown_change(answer: &Value) -> String {
    let done = if *at(answer, "/dry_run") == true {
        "would change"
    } else {
        "changed"
    };
    format!("{} {done}\n", many(at(answer, "/changed"), "job"))
}

impl RetriedJobs {
    /// Makes jobs ready, immediately or one after another.
    pub(super) async fn change(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        self.jobs.change(operator, "retry", Some(self)).await
    }
}

impl LosingJobs {
    /// Removes jobs, after asking for confirmation with their number.
    pub(super) async fn change(
        &self,
        operator: &mut Operator<'_>,
        action: &str,
    ) -> Result<(), Failure> {
        let jobs = &self.jobs;
        if jobs.dry_run {
            return jobs.change(operator, action, None).await;
        }
        let many = match (jobs.is_list(), self.yes) {
            (true, _) => jobs.ids.len() as u64,
            (false, true) => 0,
            (false, false) => {
                jobs.change_many(&mut operator.client, action, None, true)
                    .await?
            }
        };
        confirm(self.yes, &format!("Remove {}?", counted(many, "job")))?;
        if !jobs.is_list() {
            return jobs.change(operator, action, None).await;
        }
        for id in &jobs.ids {
            let (method, path) = match action {
                "delete" => (Method::DELETE, format!("/jobs/{id}")),
                action => (Method::POST, format!("/jobs/{id}/{action}")),
            };
            operator
                .client
                .change(&format!("job {id}"), method, &path)
                .await?;
        }
        Ok(())
    }
}
