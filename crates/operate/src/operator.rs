//! A command's connection to the daemon, and the output of responses.

use serde_json::Value;

use crate::arguments::{Ask, Sort};
use crate::client::Client;
use crate::show::{Column, sort, table};
use crate::terminal::{print, width};
use windlass_config::Failure;

/// A connection, and the options of the command.
#[derive(Debug)]
pub(crate) struct Operator<'a> {
    pub(crate) ask: &'a Ask,
    pub(crate) client: Client,
}

impl Operator<'_> {
    /// Prints one object, for people in the format of `form`.
    pub(crate) fn show(
        &self,
        value: &Value,
        form: impl Fn(&Value) -> String,
    ) -> Result<(), Failure> {
        print(&if self.ask.json {
            format!("{value}\n")
        } else {
            form(value)
        })
    }

    pub(crate) fn rows(&self, columns: &[Column], rows: &[Value]) -> Result<(), Failure> {
        let lines = || rows.iter().map(|row| format!("{row}\n")).collect();
        print(&if self.ask.json {
            lines()
        } else {
            table(
                columns,
                rows,
                if self.ask.wide { usize::MAX } else { width() },
            )
        })
    }

    /// Requests one object and prints it.
    pub(crate) async fn object(
        &mut self,
        path: &str,
        form: fn(&Value) -> String,
    ) -> Result<(), Failure> {
        let value = self.client.get(path).await?;
        self.show(&value, form)
    }

    /// Requests all rows of a listing and prints them.
    pub(crate) async fn list(
        &mut self,
        columns: &[Column],
        path: &str,
        by: &Sort,
    ) -> Result<(), Failure> {
        let mut rows = self.client.rows(path, usize::MAX).await?;
        by.sort
            .iter()
            .try_for_each(|column| sort(columns, &mut rows, column))?;
        self.rows(columns, &rows)
    }
}
