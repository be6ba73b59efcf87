//! Objects of responses, and handlers of requests about a single object.

/// An object of a response: each field with a description, a type and a value, so that JSON, OpenAPI and the
/// pages have the same source. `with` computes values that several fields need.
macro_rules! view {
    (
        $(#[$about:meta])*
        $name:ident($($from:ident: $From:ty),*) $(with { $($prepare:tt)* })? {
            $($(#[$field_about:meta])* $field:ident: $Type:ty = $value:expr,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
        pub(crate) struct $name {
            $($(#[$field_about])* pub(crate) $field: $Type,)*
        }

        impl $name {
            pub(crate) fn of($($from: $From),*) -> Self {
                $($($prepare)*)?
                Self { $($field: $value,)* }
            }
        }
    };
}

/// Handlers of requests about an object that the path names. Refusals repeat that name. Each is preceded by
/// the method, path, tag and operation ID, the status of success with the type of the response, and the
/// statuses of refusals.
macro_rules! of_one {
    ($(
        $(#[$about:meta])*
        $method:ident $path:literal $tag:literal $operation:literal $ok:literal $($Body:ty)? $(, $refused:literal)*;
        $visibility:vis fn $name:ident($app:ident, $thing:ident: $Type:ty) -> $Answer:ty $body:block
    )+) => {$(
        $(#[$about])*
        #[utoipa::path($method, path = $path, tag = $tag, operation_id = $operation, responses(
            (status = $ok $(, body = $Body)?) $(, (status = $refused, body = crate::problem::Problem))*
        ))]
        $visibility async fn $name(
            $app: crate::app::Shared,
            crate::params::Segments($thing): crate::params::Segments<$Type>,
        ) -> crate::problem::Outcome<$Answer> {
            let named = $thing.to_string();
            let answer: crate::problem::Outcome<$Answer> = async move $body.await;
            answer.map_err(|problem| problem.about(&named))
        }
    )+};
}

pub(crate) use {of_one, view};
