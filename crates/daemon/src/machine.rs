//! The memory that this process may use.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory of the machine in bytes, or of the control group if that is less. `None`: unknown.
pub(crate) fn memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups)
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits
        .chain(
            fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|text| total(&text)),
        )
        .min()
}

/// Size of the disk of a directory, which need not exist, in bytes. `None`: unknown.
pub(crate) fn disk(directory: &Path) -> Option<u64> {
    let directory = std::path::absolute(directory).ok()?;
    let about = directory
        .ancestors()
        .find_map(|there| rustix::fs::statvfs(there).ok())?;
    Some(about.f_blocks.saturating_mul(about.f_frsize)).filter(|bytes| *bytes > 0)
}

/// The files that may contain a limit: those of the process's group in each hierarchy, and of its
/// parent groups.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let above = Path::new(group.trim_start_matches('/')).ancestors();
        files.extend(above.map(|group| Path::new(root).join(group).join(file)));
    }
    files
}

/// The total memory in the text of `/proc/meminfo`.
fn total(text: &str) -> Option<u64> {
    let kib: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()?;
    kib.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_group_and_of_those_above_it_counts() {
        let table: [(&str, &[&str]); 4] = [
            ("0::/\n", &["/sys/fs/cgroup/memory.max"]),
            (
                "0::/a/b\n",
                &[
                    "/sys/fs/cgroup/a/b/memory.max",
                    "/sys/fs/cgroup/a/memory.max",
                    "/sys/fs/cgroup/memory.max",
                ],
            ),
            (
                "7:cpu:/x\n3:memory,cpuset:/a\n",
                &[
                    "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                ],
            ),
            ("nonsense", &[]),
        ];
        for (groups, files) in table {
            assert_eq!(
                limit_files(groups),
                files.iter().map(PathBuf::from).collect::<Vec<_>>(),
                "{groups}"
            );
        }
    }

    #[test]
    fn the_disk_of_a_directory_is_known_before_the_directory_exists() {
        let home = tempfile::tempdir().unwrap();
        let there = disk(home.path());
        assert!(there.is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(disk(&home.path().join("not/yet")), there);
    }

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(
            total("MemTotal:       24000 kB\nMemFree: 7 kB\n"),
            Some(24_576_000)
        );
        assert_eq!(total("MemFree: 7 kB\n"), None);
        assert!(memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
