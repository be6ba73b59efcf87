//! Listings: a page of rows at a time, as the engine has them, or sorted by a field.

use std::cmp::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use windlass_engine::Cursor;

use super::pace::Pace;
use crate::cursor::CursorText;
use crate::params::{ROWS_MAX, rows};
use crate::problem::{Outcome, Problem};

/// Which page of a listing.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// `next` of the page before; nothing for the first one.
    pub(crate) cursor: Option<CursorText>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    pub(crate) limit: Option<u32>,
    /// A field by which the rows are sorted, as `name` or `states.ready`; with a `-` in front the largest comes first. Rows
    /// without a value are the last.
    pub(crate) sort: Option<String>,
}

/// How long rows are collected before they are sorted.
const COLLECT_MAX: Duration = Duration::from_millis(300);

/// The rows of a page.
pub(crate) struct Rows<T> {
    pub(crate) rows: Vec<T>,
    pub(crate) next: Option<CursorText>,
    /// The number of rows, if they were sorted.
    pub(crate) found: usize,
    /// If the rows were sorted: true if there was enough time to sort all of them.
    pub(crate) sorted_all: Option<bool>,
}

/// A page of the rows that `fetch` returns from a cursor on.
pub(crate) async fn page_of<T: Serialize, F: Future<Output = Outcome<(Vec<T>, Option<Cursor>)>>>(
    Page {
        cursor,
        limit,
        sort,
    }: Page,
    fetch: impl Fn(Cursor, u32) -> F,
) -> Outcome<Rows<T>> {
    let (limit, Cursor(first, second)) = (rows(limit)?, cursor.unwrap_or_default().0);
    let Some(sort) = sort.filter(|sort| !sort.is_empty()) else {
        let (rows, next) = fetch(Cursor(first, second), limit).await?;
        return Ok(Rows {
            found: rows.len(),
            rows,
            next: next.map(CursorText),
            sorted_all: None,
        });
    };
    let (mut all, mut next, pace) = (Vec::new(), Some(Cursor::default()), Pace::new(COLLECT_MAX));
    while let Some(after) = next.take() {
        let (more, rest) = fetch(after, ROWS_MAX).await?;
        all.extend(more);
        next = rest;
        if !pace.goes_on().await {
            break;
        }
    }
    sorted(all, &sort, first, limit).map(|found| Rows {
        sorted_all: Some(next.is_none()),
        ..found
    })
}

/// Sorts these rows, which are all rows, by a field. Returns a page with this offset and size.
pub(crate) fn sorted<T: Serialize>(
    rows: Vec<T>,
    sort: &str,
    first: u64,
    limit: u32,
) -> Outcome<Rows<T>> {
    let (field, is_falling) = sort
        .strip_prefix('-')
        .map_or((sort, false), |field| (field, true));
    let mut all = rows
        .into_iter()
        .map(|row| Ok((key(&row, field)?, row)))
        .collect::<Outcome<Vec<_>>>()?;
    // Rows without a value are last in either direction.
    all.sort_by(|((missing, one), _), ((other_missing, other), _)| {
        let order = one.partial_cmp(other).unwrap_or(Ordering::Equal);
        missing
            .cmp(other_missing)
            .then(if is_falling { order.reverse() } else { order })
    });
    let (found, end) = (all.len(), first.saturating_add(limit.into()));
    let rows = all
        .into_iter()
        .skip(usize::try_from(first).unwrap_or(usize::MAX))
        .take(limit as usize);
    let rows = rows.map(|(_, row)| row).collect();
    let next = (end < found as u64).then_some(CursorText(Cursor(end, 0)));
    Ok(Rows {
        rows,
        next,
        found,
        sorted_all: Some(true),
    })
}

/// `true` if a row has no value in a field, and the number or the text of the value.
fn key(row: &impl Serialize, field: &str) -> Outcome<(bool, (f64, String))> {
    let (name, inner) = field.split_once('.').unwrap_or((field, ""));
    let row = serde_json::to_value(row).unwrap_or_default();
    // Rows of the namespace without a name do not have it.
    let of_unnamed = (name == "namespace").then_some(&serde_json::Value::Null);
    let field = row
        .get(name)
        .or(of_unnamed)
        .ok_or_else(|| Problem::bad_request(format!("sort: there is no field {name}")))?;
    let value = field.get(inner).unwrap_or(field);
    let number = value
        .as_f64()
        .or(value.as_bool().map(|is_so| f64::from(u8::from(is_so))));
    let text = value.as_str().map(str::to_lowercase);
    Ok((
        number.is_none() && text.is_none(),
        (number.unwrap_or_default(), text.unwrap_or_default()),
    ))
}

/// The response type for a page of rows.
macro_rules! page_type {
    ($(#[$about:meta])* $Page:ident { $rows:ident: Vec<$Row:ident> }) => {
        $(#[$about])*
        #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
        pub(crate) struct $Page {
            /// The rows.
            pub(crate) $rows: Vec<$Row>,
            /// The cursor of the next page; null at the end. A page that is not the last may be short, or empty.
            pub(crate) next: Option<crate::cursor::CursorText>,
            /// Only with `sort`: whether all rows were sorted. They are collected for 300 ms.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub(crate) sorted_all: Option<bool>,
        }

        impl From<crate::api::listing::Rows<$Row>> for axum::Json<$Page> {
            fn from(found: crate::api::listing::Rows<$Row>) -> Self {
                Self($Page { $rows: found.rows, next: found.next, sorted_all: found.sorted_all })
            }
        }
    };
}

/// A listing: the path, the type of the page, and the engine's query that returns the rows.
macro_rules! listing {
    (
        $(#[$about:meta])*
        $path:literal, $tag:literal, $operation:literal;
        $(#[$page_about:meta])*
        $Page:ident { $rows:ident: Vec<$Row:ident> } = $Kind:ident { $($field:ident: $value:expr)? }
    ) => {
        crate::api::listing::page_type! { $(#[$page_about])* $Page { $rows: Vec<$Row> } }

        $(#[$about])*
        #[utoipa::path(get, path = $path, tag = $tag, operation_id = $operation, params(crate::api::listing::Page),
            responses((status = 200, body = $Page), (status = 400, body = crate::problem::Problem))
        )]
        pub(crate) async fn list(
            app: crate::app::Shared,
            crate::params::Params(page): crate::params::Params<crate::api::listing::Page>,
        ) -> crate::problem::Outcome<axum::Json<$Page>> {
            let app = &app;
            let fetch = |after, limit| async move {
                let query = windlass_engine::Query::$Kind { $($field: $value,)? after, limit };
                let windlass_engine::Reply::$Kind { rows, next } = app.ask(query).await? else {
                    return Err(crate::problem::Problem::unexpected());
                };
                let now = app.now();
                Ok((rows.iter().map(|row| $Row::of(row, app, now)).collect(), next))
            };
            crate::api::listing::page_of(page, fetch).await.map(Into::into)
        }
    };
}

pub(crate) use {listing, page_type};

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_are_sorted_by_a_field_over_all_pages() {
        let names = ["b", "C", "", "a"].map(|name| Some(name).filter(|name| !name.is_empty()));
        let table: [(&str, &[Option<&str>]); 4] = [
            ("name", &[Some("a"), Some("b"), Some("C"), None]),
            ("-name", &[Some("C"), Some("b"), Some("a"), None]),
            ("number", &[Some("a"), None, Some("C"), Some("b")]),
            ("-inner.ready", &[Some("a"), None, Some("C"), Some("b")]),
        ];
        // One row per page of the engine, and two per page of the response.
        let fetch = async |Cursor(at, _): Cursor, _| {
            let (index, rank) = (usize::try_from(at).unwrap(), i32::try_from(at).unwrap());
            let row = serde_json::json!({"name": names[index], "number": -rank, "inner": {"ready": rank}});
            Ok((vec![row], (at < 3).then_some(Cursor(at + 1, 0))))
        };
        for (sort, expected) in table {
            let mut shown = Vec::new();
            for cursor in [0, 2] {
                let page = Page {
                    cursor: Some(CursorText(Cursor(cursor, 0))),
                    limit: Some(2),
                    sort: Some(sort.to_owned()),
                };
                let found = page_of(page, fetch).await.unwrap();
                assert_eq!(
                    (found.found, found.sorted_all, found.next.is_some()),
                    (4, Some(true), cursor == 0),
                    "{sort}"
                );
                shown.extend(
                    found
                        .rows
                        .into_iter()
                        .map(|row| row["name"].as_str().map(str::to_owned)),
                );
            }
            assert_eq!(
                shown.iter().map(Option::as_deref).collect::<Vec<_>>(),
                expected,
                "{sort}"
            );
        }
        let page = |sort: &str| Page {
            sort: Some(sort.to_owned()),
            ..Page::default()
        };
        assert_eq!(
            page_of(page("nothing"), fetch)
                .await
                .err()
                .map(|it| it.status),
            Some(400.try_into().unwrap())
        );
        assert_eq!(
            page_of(page(""), fetch).await.unwrap().sorted_all,
            None,
            "as the engine has them"
        );
    }
}
