//! Listings: a page of rows at a time.

use serde::Deserialize;
use utoipa::IntoParams;
use windlass_engine::Cursor;

use crate::cursor::CursorText;

/// Which page of a listing.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// `next` of the page before; nothing for the first one.
    pub(crate) cursor: Option<CursorText>,
    /// The most rows, 1 to 1000; 100 if it is left out.
    pub(crate) limit: Option<u32>,
}

impl Page {
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor.unwrap_or_default().0
    }
}

/// A listing: the path, then the page of its rows, which the engine's query of this name has.
macro_rules! listing {
    (
        $(#[$about:meta])*
        $path:literal, $tag:literal, $operation:literal;
        $(#[$page_about:meta])*
        $Page:ident { $rows:ident: Vec<$Row:ident> } = $Kind:ident { $($field:ident: $value:expr)? }
    ) => {
        $(#[$page_about])*
        #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
        pub(crate) struct $Page {
            /// The rows.
            pub(crate) $rows: Vec<$Row>,
            /// The cursor of the next page; null at the end.
            pub(crate) next: Option<crate::cursor::CursorText>,
        }

        $(#[$about])*
        #[utoipa::path(get, path = $path, tag = $tag, operation_id = $operation, params(crate::api::listing::Page),
            responses((status = 200, body = $Page), (status = 400, body = crate::problem::Problem))
        )]
        pub(crate) async fn list(
            app: crate::app::Shared,
            crate::params::Params(page): crate::params::Params<crate::api::listing::Page>,
        ) -> crate::problem::Outcome<axum::Json<$Page>> {
            let (after, limit) = (page.cursor(), crate::params::rows(page.limit)?);
            let query = windlass_engine::Query::$Kind { $($field: $value,)? after, limit };
            let windlass_engine::Reply::$Kind { rows, next } = app.ask(query).await? else {
                return Err(crate::problem::Problem::unexpected());
            };
            let now = app.now();
            let $rows = rows.iter().map(|row| $Row::of(row, &app, now)).collect();
            Ok(axum::Json($Page { $rows, next: next.map(crate::cursor::CursorText) }))
        }
    };
}

pub(crate) use listing;
