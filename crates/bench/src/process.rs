//! The cost of a process, read from `/proc` (Linux only): CPU time and resident memory. See proc(5).
//!
//! CPU time comes in clock ticks of usually 10 ms, so a window should last a second or more.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// Two thousand connections on either side, and a process's other files.
const OPEN_FILES: u64 = 4096;
/// A process is at rest when its memory has not become less for so long.
const AT_REST: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What counts as less.
const LESS_MIB: f64 = 0.5;

/// CPU time used so far by the server, by the generator, and by the whole machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTimes {
    /// User and system time of the server process, all its threads, ended ones included.
    pub(crate) server: Duration,
    /// The same of this process.
    pub(crate) client: Duration,
    /// Busy time of all cores together, interrupts and stolen time included.
    pub(crate) machine: Duration,
}

impl CpuTimes {
    /// Reads all three now; the server's is zero if its process is not known. [`Error::Io`] if the server has ended or
    /// `/proc` is missing.
    pub(crate) fn now(server_pid: Option<u32>) -> Result<Self, Error> {
        let server = server_pid.map_or(Ok(Duration::ZERO), |pid| used(&pid.to_string()))?;
        let all = read("stat")?;
        let all: Vec<u64> = all.lines().next().into_iter().flat_map(numbers).collect();
        // Not idle, not waiting for a disk, and not the guest time that is part of user.
        let machine = match all[..] {
            [
                user,
                nice,
                system,
                _,
                _,
                interrupts,
                soft_interrupts,
                stolen,
                ..,
            ] => ticks(user + nice + system + interrupts + soft_interrupts + stolen),
            _ => return Err(strange("stat")),
        };
        Ok(Self {
            server,
            client: used("self")?,
            machine,
        })
    }

    /// The CPU time since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            server: self.server.saturating_sub(earlier.server),
            client: self.client.saturating_sub(earlier.client),
            machine: self.machine.saturating_sub(earlier.machine),
        }
    }

    /// The machine's busy time that neither the server nor the generator used.
    pub(crate) fn others(&self) -> Duration {
        self.machine
            .saturating_sub(self.server)
            .saturating_sub(self.client)
    }
}

/// Resident memory of a process, MiB. [`Error::Io`] if the process has ended.
pub(crate) fn resident_mib(pid: u32) -> Result<f64, Error> {
    memory_mib(pid, "VmRSS:")
}

/// The most resident memory of a process so far, MiB. [`Error::Io`] if the process has ended.
pub(crate) fn peak_mib(pid: u32) -> Result<f64, Error> {
    memory_mib(pid, "VmHWM:")
}

fn memory_mib(pid: u32, field: &str) -> Result<f64, Error> {
    let status = read(&format!("{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| numbers(line.strip_prefix(field)?).next());
    Ok(kib.unwrap_or(0) as f64 / 1024.0)
}

/// Resident memory of a process at rest, MiB: once it has not become less for [`AT_REST`]. Allocators give memory back
/// some time after it was freed.
pub(crate) fn resident_at_rest_mib(pid: u32) -> Result<f64, Error> {
    let (mut least, mut since) = (resident_mib(pid)?, Instant::now());
    while since.elapsed() < AT_REST {
        thread::sleep(LOOK_EVERY);
        let now = resident_mib(pid)?;
        if now < least - LESS_MIB {
            (least, since) = (now, Instant::now());
        }
    }
    Ok(least)
}

/// The number of cores available to this process.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The disk space of all files under `folder`, bytes.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(facts) if facts.is_dir() => disk_bytes(&entry.path()),
            Ok(facts) => facts.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// The type of the file system of `folder` (`ext4`, `tmpfs`…).
pub(crate) fn file_system(folder: &Path) -> String {
    let mounts = read("self/mountinfo").unwrap_or_default();
    let folder = folder.canonicalize().unwrap_or_default();
    // The fifth field is the mount point, and the type follows a lone dash. Later mounts hide earlier ones.
    let around = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let point = mount
            .split(' ')
            .nth(4)
            .filter(|point| folder.starts_with(point))?;
        Some((point.len(), kind.split(' ').next()?))
    });
    around
        .max_by_key(|(length, _)| *length)
        .map_or("unknown", |(_, kind)| kind)
        .to_owned()
}

/// Facts that figures depend on, as `(name, value)`: processor, cores, kernel, load.
pub(crate) fn machine_facts() -> Vec<(String, String)> {
    let first_word = |text: String| {
        text.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let cpus = read("cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(String::new(), |(_, model)| model.to_owned());
    let kernel = first_word(read("sys/kernel/osrelease").unwrap_or_default());
    let load = first_word(read("loadavg").unwrap_or_default());
    [
        ("processor", model),
        ("cores", cores().to_string()),
        ("kernel", kernel),
        ("load at the start", load),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Raises this process's limit of open files to at least [`OPEN_FILES`]; servers it starts inherit the limit.
/// [`Error::Usage`] if the hard limit is lower.
pub(crate) fn raise_open_files() -> Result<(), Error> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= OPEN_FILES) {
        return Ok(());
    }
    limit.current = Some(OPEN_FILES);
    setrlimit(Resource::Nofile, limit).map_err(|refusal| {
        Error::Usage(format!(
            "{OPEN_FILES} open files are needed and the hard limit (ulimit -Hn) is lower: {refusal}"
        ))
    })
}

fn read(name: &str) -> Result<String, Error> {
    fs::read_to_string(Path::new("/proc").join(name)).map_err(Error::io("read /proc"))
}

fn strange(name: &str) -> Error {
    Error::io("read /proc")(std::io::Error::other(format!(
        "/proc/{name} has another form"
    )))
}

fn numbers(line: &str) -> impl Iterator<Item = u64> {
    line.split_whitespace().filter_map(|word| word.parse().ok())
}

/// User and system time of a process: fields 14 and 15 of its `stat`. The second is its name in parentheses, which may
/// hold blanks and parentheses, and the third a letter.
fn used(process: &str) -> Result<Duration, Error> {
    let name = format!("{process}/stat");
    let stat = read(&name)?;
    let mut fields = stat
        .rsplit_once(')')
        .into_iter()
        .flat_map(|(_, rest)| rest.split_whitespace())
        .skip(11);
    let mut field = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let (user, system) = field().zip(field()).ok_or_else(|| strange(&name))?;
    Ok(ticks(user + system))
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(count.saturating_mul(1_000_000_000 / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let pid = std::process::id();
        assert!(resident_mib(pid).unwrap() > 0.1);
        assert!(peak_mib(pid).unwrap() > 0.1);
        let before = CpuTimes::now(Some(pid)).unwrap();
        let used = CpuTimes::now(Some(pid)).unwrap().since(&before);
        assert!(used.server <= Duration::from_secs(10), "{used:?}");
    }

    #[test]
    fn disk_bytes_go_down_into_folders() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), vec![1; 10_000]).unwrap();
        assert!(disk_bytes(&folder.path().join("absent")) == 0);
        assert!(disk_bytes(folder.path()) >= 10_000);
        assert_ne!(file_system(folder.path()), "unknown");
    }
}
