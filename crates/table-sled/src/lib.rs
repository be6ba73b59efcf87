//! The table of a data directory, in sled: see [the store's page](../../store/README.md).
//!
//! sled, because the project's owner asked for it. The seam is the trait [`Table`](windlass_store::Table): another table
//! in files takes the place of this crate as a whole.
//!
//! Reading order: `table` (one writer, its syncs, and the folders) · `file` (reads sled's log without sled).

mod file;
mod table;

pub use table::SledTables;
