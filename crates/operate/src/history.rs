//! Jobs that have ended: listing them, exporting them, and showing one.

use std::collections::HashSet;
use std::io::{self, Write as _};

use hyper::Method;
use serde_json::Value;
use windlass_config::Failure;

use crate::arguments::{History, HistoryAction, Kinds};
use crate::client::{encoded, failure, with_query};
use crate::operator::Operator;
use crate::show::{self, ENDED, ENDED_KINDS, KINDS, at, text};
use crate::terminal::print;

impl History {
    pub(super) async fn run(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let path = with_query("/ended", &self.conditions.parameters());
        if self.action == Some(HistoryAction::Export) {
            return each_page(operator, &path, usize::MAX, |rows| {
                print(
                    &rows
                        .iter()
                        .map(|row| format!("{row}\n"))
                        .collect::<String>(),
                )
            })
            .await;
        }
        if self.action == Some(HistoryAction::Again) {
            return self.again(operator, &path).await;
        }
        if self.rate.is_some() || self.all {
            return Err(failure("--rate and --all are for `history again`"));
        }
        let mut all = Vec::new();
        each_page(operator, &path, self.limit, |rows| {
            all.extend(rows);
            Ok(())
        })
        .await?;
        operator.rows(ENDED, &all)
    }

    /// Pushes the jobs once more, those that ended first before the others. One that is refused does not stop the others.
    async fn again(&self, operator: &mut Operator<'_>, path: &str) -> Result<(), Failure> {
        let mut conditions = self.conditions.parameters().into_iter();
        if !self.all && conditions.all(|(_, value)| value.is_none()) {
            return Err(failure("name conditions, or --all"));
        }
        // A job that was dead, was retried and ended has two rows: the last one counts, which comes first.
        let (mut ids, mut jobs) = (Vec::new(), HashSet::new());
        each_page(operator, path, usize::MAX, |rows| {
            let rows = rows.iter().filter(|row| jobs.insert(text(at(row, "/job"))));
            ids.extend(rows.map(|row| text(at(row, "/id"))));
            Ok(())
        })
        .await?;
        let (mut pushed, mut refused) = (0_u64, 0_u64);
        for id in ids.iter().rev() {
            // Each waits for its turn in the daemon, so the speed does not depend on this program.
            let delay_ms = self
                .rate
                .map_or(0, |rate| pushed.saturating_mul(1_000) / u64::from(rate));
            let path = format!("/ended/{id}/again?delay_ms={delay_ms}");
            match operator.client.change(id, Method::POST, &path).await {
                Ok(_) => pushed += 1,
                Err(why) if operator.client.refusal().is_some() => {
                    refused += 1;
                    let _ = writeln!(io::stderr(), "{why}");
                }
                Err(why) => {
                    return Err(failure(format!("{why}; {pushed} were pushed before")));
                }
            }
        }
        print(&format!("{pushed} pushed, {refused} refused\n"))?;
        if refused > 0 {
            return Err(failure("some jobs were refused"));
        }
        Ok(())
    }
}

impl Kinds {
    pub(super) async fn run(&self, operator: &mut Operator<'_>) -> Result<(), Failure> {
        let Some(since) = self.since else {
            let path = format!("/kinds?span={}", self.span);
            return operator.list(KINDS, &path, &self.by).await;
        };
        let path = format!("/ended/kinds?since={since}");
        operator.list(ENDED_KINDS, &path, &self.by).await
    }
}

/// Passes on the rows of a question, and says once which files cannot be read.
async fn each_page(
    operator: &mut Operator<'_>,
    path: &str,
    rows_max: usize,
    mut each: impl FnMut(Vec<Value>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut is_said = false;
    let each = |rows, page: &Value| {
        let unreadable = at(page, "/unreadable").as_array();
        for file in unreadable.into_iter().flatten().filter(|_| !is_said) {
            let _ = writeln!(io::stderr(), "cannot be read: {}", text(file));
        }
        is_said = true;
        each(rows)
    };
    operator.client.pages(path, rows_max, each).await
}

impl Operator<'_> {
    /// Shows a job: as it is, or if it has ended and the history has it, how it ended.
    pub(crate) async fn job(&mut self, name: &str) -> Result<(), Failure> {
        let found = match self.client.job(name).await {
            Ok(id) => self.client.get(&format!("/jobs/{id}")).await,
            Err(error) => Err(error),
        };
        let why = match found {
            Ok(job) => return self.show(&job, show::job),
            Err(why) => why,
        };
        let by = if name.parse::<u64>().is_ok() {
            "job"
        } else {
            "name"
        };
        let path = format!("/ended?limit=1&{by}={}", encoded(name));
        // A daemon that cannot answer this has said why in its first answer.
        let ended = self.client.get(&path).await.unwrap_or_default();
        let row = at(&ended, "/ended/0");
        if row.is_null() {
            return Err(why);
        }
        self.show(row, show::ended)
    }
}
