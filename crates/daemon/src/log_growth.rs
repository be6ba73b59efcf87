//! Warns when the log grows because checkpoints fall behind, and logs when they have caught up. The
//! checkpoint thread may be busy, so another thread checks.

/// The daemon warns when the log is this many times larger than the size that triggers a
/// checkpoint.
const WARN_MULTIPLE: u64 = 4;

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogSizes {
    /// The log not yet in a checkpoint.
    pub(crate) behind: u64,
    /// The size that triggers a checkpoint.
    pub(crate) due: u64,
    /// The log on disk.
    pub(crate) log: u64,
    /// The table.
    pub(crate) table: u64,
    /// Free space of the disk, if the store is on one.
    pub(crate) free: Option<u64>,
}

/// Whether the warning was logged.
#[derive(Debug, Default)]
pub(crate) struct LogGrowth {
    is_large: bool,
}

impl LogGrowth {
    pub(crate) fn log(&mut self, sizes: &LogSizes) {
        let LogSizes {
            behind,
            due,
            log,
            table,
            free,
        } = *sizes;
        if !self.is_large && behind > WARN_MULTIPLE.saturating_mul(due) {
            self.is_large = true;
            tracing::warn!(
                behind_bytes = behind,
                due_bytes = due,
                log_bytes = log,
                table_bytes = table,
                free_bytes = free,
                "checkpoints are falling behind: the log grows, and a restart takes longer"
            );
        } else if self.is_large && behind <= due {
            self.is_large = false;
            tracing::info!(
                behind_bytes = behind,
                log_bytes = log,
                "checkpoints have caught up"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Log;
    use crate::logging::tests::captured;

    #[test]
    fn a_log_that_grows_is_one_warning_until_it_is_small_again() {
        let mut growth = LogGrowth::default();
        let table = [
            (400, ""),
            (401, "behind_bytes=401"),
            (9_000, ""),
            (101, ""),
            (100, "caught up"),
            (401, "falling behind"),
        ];
        for (behind, expected) in table {
            let sizes = LogSizes {
                behind,
                due: 100,
                log: 800,
                table: 50,
                free: Some(7),
            };
            let said = captured(&Log::default(), || growth.log(&sizes));
            assert_eq!(
                (said.is_empty(), said.contains(expected)),
                (expected.is_empty(), true),
                "{behind}: {said}"
            );
        }
    }
}
