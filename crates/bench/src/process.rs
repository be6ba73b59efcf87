//! The cost of a process, read from `/proc` (Linux only): CPU time and resident memory. See proc(5).
//!
//! CPU time comes in clock ticks of usually 10 ms, so a window should last a second or more.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::error::Error;

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
    /// Reads all three now. [`Error::Io`] if the server has ended or `/proc` is missing.
    pub(crate) fn now(server_pid: u32) -> Result<Self, Error> {
        let of_process = |path: &str| read(path).map(|text| process_ticks(&text));
        Ok(Self {
            server: ticks(of_process(&format!("/proc/{server_pid}/stat"))?),
            client: ticks(of_process("/proc/self/stat")?),
            machine: ticks(machine_ticks(&read("/proc/stat")?)),
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
        self.machine.saturating_sub(self.server).saturating_sub(self.client)
    }
}

/// Resident memory of a process, MiB. [`Error::Io`] if the process has ended.
pub(crate) fn resident_mib(pid: u32) -> Result<f64, Error> {
    let text = read(&format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(first_number(line) as f64 / 1024.0)
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

/// The type of the file system of `folder` (`ext4`, `tmpfs`…), from `/proc/mounts`.
pub(crate) fn file_system(folder: &Path) -> String {
    let (Ok(folder), Ok(mounts)) = (folder.canonicalize(), read("/proc/mounts")) else {
        return "unknown".to_owned();
    };
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map_or("unknown", |(_, kind)| kind)
        .to_owned()
}

/// Facts that figures depend on, as `(name, value)`: processor, cores, kernel, load.
pub(crate) fn machine_facts() -> Vec<(String, String)> {
    let cpu = read("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = read("/proc/loadavg").unwrap_or_default();
    let fact = |name: &str, value: &str| (name.to_owned(), value.trim_matches([':', '\t', ' ', '\n']).to_owned());
    vec![
        fact("processor", model),
        fact("cores", &cores().to_string()),
        fact("kernel", &kernel),
        fact("load at the start", load.split(' ').next().unwrap_or_default()),
    ]
}

/// Raises this process's limit of open files to at least `wanted`; servers it starts inherit the limit. [`Error::Usage`]
/// if the hard limit is lower.
pub(crate) fn raise_open_files(wanted: u64) -> Result<(), Error> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    limit.current = Some(wanted);
    setrlimit(Resource::Nofile, limit).map_err(|refusal| {
        Error::Usage(format!("{wanted} open files are needed and the hard limit (ulimit -Hn) is lower: {refusal}"))
    })
}

fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::io(format!("read {path}")))
}

/// `utime + stime` of `/proc/PID/stat`. The name in parentheses may contain anything, so counting starts after it.
fn process_ticks(stat: &str) -> u64 {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind_name.split_ascii_whitespace().skip(11).take(2).map(first_number).sum()
}

/// Busy ticks of the first line of `/proc/stat`: user, nice, system, irq, softirq, steal; not idle, not iowait, and not
/// the guest time that is part of user.
fn machine_ticks(stat: &str) -> u64 {
    let line = stat.lines().next().unwrap_or_default();
    let fields = line.split_ascii_whitespace().skip(1).take(8).map(first_number);
    fields.zip(0..).filter(|(_, index)| ![3, 4].contains(index)).map(|(value, _)| value).sum()
}

fn first_number(text: &str) -> u64 {
    text.split_ascii_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(count.saturating_mul(1_000_000_000 / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ticks_skip_a_name_with_spaces_and_parentheses() {
        let stat = "12 (a ) b) S 1 12 12 0 -1 4194560 100 0 0 0 250 17 0 0 20 0 5 0 8 1000 20";
        assert_eq!(process_ticks(stat), 267);
        assert_eq!(process_ticks("garbage"), 0);
    }

    #[test]
    fn machine_ticks_leave_out_waiting_and_guests() {
        assert_eq!(machine_ticks("cpu  1 20 300 4000 50000 600000 7000000 80000000 9 9\ncpu0 5 5\n"), 87_600_321);
    }

    #[test]
    fn this_process_has_memory_and_time() {
        let pid = std::process::id();
        assert!(resident_mib(pid).unwrap() > 0.1);
        let before = CpuTimes::now(pid).unwrap();
        let used = CpuTimes::now(pid).unwrap().since(&before);
        assert!(used.server <= Duration::from_secs(10), "{used:?}");
    }

    #[test]
    fn disk_bytes_go_down_into_folders() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), vec![1; 10_000]).unwrap();
        assert!(disk_bytes(&folder.path().join("absent")) == 0);
        assert!(disk_bytes(folder.path()) >= 10_000);
        assert_ne!(file_system(folder.path()), "");
    }
}
