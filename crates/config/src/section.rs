//! How a section is written: each key once, with its type and its default.

/// A section of the configuration. Behind each key stands its default; a key without one has its type's, as an empty
/// list. Every key may be left out of the file, and unknown keys are errors.
#[macro_export]
macro_rules! section {
    (
        $(#[$about:meta])*
        $visibility:vis struct $Section:ident { $($(#[$key_about:meta])* pub $key:ident: $Type:ty $(= $default:expr)?,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $visibility struct $Section { $($(#[$key_about])* pub $key: $Type,)* }

        impl Default for $Section {
            fn default() -> Self {
                Self { $($key: $crate::section!(@default $($default)?),)* }
            }
        }
    };
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
}
