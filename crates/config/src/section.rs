//! How a section is written: each key once, with its type and its default.

/// A section of the configuration. Behind each key stands its default; a key without one has its type's, as an empty
/// list. Every key may be left out of the file, and unknown keys are errors.
#[macro_export]
macro_rules! section {
    ($(#[$about:meta])* $visibility:vis struct $Section:ident { $($fields:tt)* }) => {
        $crate::defaults! {
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
            #[serde(default, deny_unknown_fields)]
            $visibility struct $Section { $($fields)* }
        }
    };
}

/// A struct with the defaults of its fields behind them; a field without one has its type's.
#[macro_export]
macro_rules! defaults {
    (
        $(#[$about:meta])*
        $visibility:vis struct $Name:ident {
            $($(#[$field_about:meta])* $field_visibility:vis $field:ident: $Type:ty $(= $default:expr)?,)*
        }
    ) => {
        $(#[$about])*
        $visibility struct $Name { $($(#[$field_about])* $field_visibility $field: $Type,)* }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($field: $crate::defaults!(@value $($default)?),)* }
            }
        }
    };
    (@value) => { Default::default() };
    (@value $default:expr) => { $default };
}
