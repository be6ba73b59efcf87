//! The cost of a process, read from `/proc` (Linux only): CPU time and resident memory. See proc(5).
//!
//! CPU time comes in clock ticks of usually 10 ms, so a window should last a second or more.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use procfs::process::Process;
use procfs::{CpuInfo, Current as _, CurrentSI as _, KernelStats, LoadAverage, ProcError};

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
        let of = |process: Result<Process, ProcError>| {
            let stat = process.and_then(|process| process.stat()).map_err(unread)?;
            Ok(ticks(stat.utime + stat.stime))
        };
        let all = KernelStats::current().map_err(unread)?.total;
        // Not idle, not waiting for a disk, and not the guest time that is part of user.
        let interrupts = [all.irq, all.softirq, all.steal].iter().flatten().sum::<u64>();
        let machine = ticks(all.user + all.nice + all.system + interrupts);
        let server = server_pid.map_or(Ok(Duration::ZERO), |pid| of(process(pid)))?;
        Ok(Self { server, client: of(Process::myself())?, machine })
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
    let status = process(pid).and_then(|process| process.status()).map_err(unread)?;
    Ok(status.vmrss.unwrap_or(0) as f64 / 1024.0)
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
    let mounts = Process::myself().and_then(|process| process.mountinfo()).map(|mounts| mounts.0).unwrap_or_default();
    let folder = folder.canonicalize().unwrap_or_default();
    let around = mounts.into_iter().filter(|mount| folder.starts_with(&mount.mount_point));
    around.max_by_key(|mount| mount.mount_point.as_os_str().len()).map_or("unknown".to_owned(), |mount| mount.fs_type)
}

/// Facts that figures depend on, as `(name, value)`: processor, cores, kernel, load.
pub(crate) fn machine_facts() -> Vec<(String, String)> {
    let model = CpuInfo::current().ok().and_then(|cpu| cpu.model_name(0).map(str::to_owned)).unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let load = LoadAverage::current().map(|load| load.one.to_string()).unwrap_or_default();
    [("processor", model), ("cores", cores().to_string()), ("kernel", kernel), ("load at the start", load)]
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
        Error::Usage(format!("{OPEN_FILES} open files are needed and the hard limit (ulimit -Hn) is lower: {refusal}"))
    })
}

fn process(pid: u32) -> Result<Process, ProcError> {
    Process::new(i32::try_from(pid).unwrap_or(i32::MAX))
}

fn unread(error: ProcError) -> Error {
    Error::io("read /proc")(std::io::Error::other(error))
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
        assert_ne!(file_system(folder.path()), "");
    }
}
