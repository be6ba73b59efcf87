//! Objects of answers.

/// An object of an answer: each field with its description, its type and its value, so that JSON, OpenAPI and the pages
/// have one source. `with` computes what several fields need.
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

pub(crate) use view;
