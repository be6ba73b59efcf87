//! A memory cgroup for the daemon under test, where this system lets one be made: as root, with cgroups of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A group of processes that may have so much memory, page cache included. It is gone when this is dropped, if those are.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

impl MemoryGroup {
    /// A group that may have so many bytes. `None` if none can be made here.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("{name}-{}", std::process::id());
        if root.join("memory/memory.limit_in_bytes").exists() {
            return Self::make(root.join("memory").join(name), Version::One, "memory.limit_in_bytes", bytes);
        }
        // The controller is passed on to children only if that is asked for.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        Self::make(root.join(name), Version::Two, "memory.max", bytes)
    }

    fn make(path: PathBuf, version: Version, limit: &str, bytes: u64) -> Option<Self> {
        fs::create_dir(&path).ok()?;
        let group = Self { path, version };
        fs::write(group.path.join(limit), bytes.to_string()).ok()?;
        // What does not fit must not go to a swap file instead. Where there is none, these may be missing.
        let swap = if version == Version::One { "memory.swappiness" } else { "memory.swap.max" };
        let _ = fs::write(group.path.join(swap), "0");
        Some(group)
    }

    /// The words that run another program in it, in the same process.
    pub(crate) fn enter(&self) -> Vec<String> {
        let script = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        ["sh", "-c", script].map(str::to_owned).into_iter().chain([self.path.display().to_string()]).collect()
    }

    /// How many of its processes the kernel has killed because they would have had more.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let file = if self.version == Version::One { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|count| count.trim().parse().ok()).unwrap_or_default()
    }

    /// The most it has had at once, page cache included; 0 where the system does not say.
    #[must_use]
    pub fn peak(&self) -> u64 {
        let file = if self.version == Version::One { "memory.max_usage_in_bytes" } else { "memory.peak" };
        fs::read_to_string(self.path.join(file)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just been killed is in it for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
