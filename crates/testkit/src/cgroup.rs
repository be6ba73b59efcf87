//! A memory cgroup for the daemon under test. Creating one needs root and cgroups of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A group of processes with a memory limit, page cache included. Dropping it removes the group, unless processes are
/// still in it.
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
    /// Creates a group with a limit of `bytes`. `None` if this system does not allow it.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("{name}-{}", std::process::id());
        if root.join("memory/memory.limit_in_bytes").exists() {
            return Self::make(
                root.join("memory").join(name),
                Version::One,
                "memory.limit_in_bytes",
                bytes,
            );
        }
        // Children get the controller only on request.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        Self::make(root.join(name), Version::Two, "memory.max", bytes)
    }

    fn make(path: PathBuf, version: Version, limit: &str, bytes: u64) -> Option<Self> {
        fs::create_dir(&path).ok()?;
        let group = Self { path, version };
        fs::write(group.path.join(limit), bytes.to_string()).ok()?;
        // Memory beyond the limit must not go to swap. Without swap, these files may be missing.
        let swap = if version == Version::One {
            "memory.swappiness"
        } else {
            "memory.swap.max"
        };
        let _ = fs::write(group.path.join(swap), "0");
        Some(group)
    }

    /// The command line that runs another program in the group, in the same process.
    pub(crate) fn enter(&self) -> Vec<String> {
        let script = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        ["sh", "-c", script]
            .map(str::to_owned)
            .into_iter()
            .chain([self.path.display().to_string()])
            .collect()
    }

    /// How many of its processes the kernel has killed for exceeding the limit.
    #[must_use]
    pub fn kills(&self) -> u64 {
        let file = if self.version == Version::One {
            "memory.oom_control"
        } else {
            "memory.events"
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or_default()
    }

    /// The group's peak memory use, page cache included; 0 if the system does not report it.
    #[must_use]
    pub fn peak(&self) -> u64 {
        let file = if self.version == Version::One {
            "memory.max_usage_in_bytes"
        } else {
            "memory.peak"
        };
        fs::read_to_string(self.path.join(file))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_default()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that has just been killed stays in the group for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
