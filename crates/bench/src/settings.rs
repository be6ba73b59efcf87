//! Options that all protocols share: runs, their length, the programs, the disk; and facts that figures depend on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::load::client::Idle;
use crate::load::driver::Plan;
use crate::process;

/// Two thousand connections on either side, and a process's other files.
const OPEN_FILES: u64 = 4096;
/// The unmeasured beginning of a timed run, as a share of the window, and its least length.
const WARM_SHARE: f64 = 0.2;
const WARM_SECONDS_MIN: f64 = 0.2;
/// More than an hour per run must be a typing error.
const SECONDS_MAX: f64 = 3600.0;
/// More jobs in one queue must be a typing error.
const JOBS_MAX: u64 = 50_000_000;

/// The options.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Runs per case and peer.
    pub runs: usize,
    /// Length of a steady load's window, s.
    pub seconds: f64,
    /// Jobs in a steady load's window, instead of a time.
    pub jobs: Option<u64>,
    /// How the generator waits for events.
    pub idle: Idle,
    /// The daemon's path, if not beside this program.
    pub windlass_bin: Option<PathBuf>,
    /// The folder for the servers' data.
    pub data_root: PathBuf,
}

impl Settings {
    /// The length of steady loads.
    ///
    /// # Errors
    /// [`Error::Usage`] for a time out of range.
    pub fn plan(&self) -> Result<Plan, Error> {
        if let Some(window) = self.jobs {
            return Ok(Plan::Counted { warm: window / 10, window });
        }
        if !(0.05..=SECONDS_MAX).contains(&self.seconds) {
            return Err(Error::Usage(format!("{} seconds are too few or too many", self.seconds)));
        }
        let warm = (self.seconds * WARM_SHARE).max(WARM_SECONDS_MIN);
        Ok(Plan::Timed { warm: Duration::from_secs_f64(warm), window: Duration::from_secs_f64(self.seconds) })
    }

    /// Facts on machine, disk and plan. Also raises the limit of open files as the cases require.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn facts(&self, plan: &Plan) -> Result<Vec<(String, String)>, Error> {
        process::raise_open_files(OPEN_FILES)?;
        let mut facts = process::machine_facts();
        facts.push(("data on".to_owned(), disk(&self.data_root)));
        let length = match plan {
            Plan::Timed { warm, window } => format!("{window:?} after {warm:?} of warming up"),
            Plan::Counted { warm, window } => format!("{window} jobs after {warm} to warm up"),
        };
        facts.push(("runs".to_owned(), format!("{}, interleaved; steady loads: {length}", self.runs)));
        Ok(facts)
    }
}

fn disk(root: &Path) -> String {
    let kind = process::file_system(root);
    let note = if kind == "tmpfs" { " (memory: what is written there is never on a disk)" } else { "" };
    format!("{kind}{note}, {}", root.display())
}

/// A number of jobs in the notation of case names: `500`, `100k`, `1m`.
pub fn count_of(text: &str) -> Option<u64> {
    let scaled = [("k", 1_000), ("m", 1_000_000)]
        .into_iter()
        .find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, scale)));
    let (digits, scale): (&str, u64) = scaled.unwrap_or((text, 1));
    let count = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    (1..=JOBS_MAX).contains(&count).then_some(count)
}
