//! What is asked for whatever the protocol: runs, their length, the programs, the disk; and the facts figures depend on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::load::client::Idle;
use crate::load::crew::Plan;
use crate::process;

/// Two thousand connections on either side, and what else a process has open.
const OPEN_FILES: u64 = 4096;
/// The unmeasured beginning of a timed run, as a share of the window, and its least length.
const WARM_SHARE: f64 = 0.2;
const WARM_SECONDS_MIN: f64 = 0.2;
/// More than an hour per run is a slip of the finger.
const SECONDS_MAX: f64 = 3600.0;
/// More jobs than that in one queue are not a benchmark but an accident.
const JOBS_MAX: u64 = 50_000_000;

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Runs per case and peer.
    pub runs: usize,
    /// Length of a steady load's window, s.
    pub seconds: f64,
    /// Jobs in a steady load's window, instead of a time.
    pub jobs: Option<u64>,
    /// What the generator does between events.
    pub idle: Idle,
    /// Where the daemon is, if not beside this program.
    pub windlass_bin: Option<PathBuf>,
    /// The folder under which servers keep their data.
    pub data_root: PathBuf,
}

impl Settings {
    /// How long steady loads are.
    ///
    /// # Errors
    /// [`Error::Usage`] for a time that makes no sense.
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

    /// Machine, disk and plan; lets this process open as many files as the cases need.
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

/// A number of jobs as case names have it: `500`, `100k`, `1m`.
pub fn count_of(text: &str) -> Option<u64> {
    let scaled = [("k", 1_000), ("m", 1_000_000)]
        .into_iter()
        .find_map(|(suffix, scale)| Some((text.strip_suffix(suffix)?, scale)));
    let (digits, scale): (&str, u64) = scaled.unwrap_or((text, 1));
    let count = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    (1..=JOBS_MAX).contains(&count).then_some(count)
}
