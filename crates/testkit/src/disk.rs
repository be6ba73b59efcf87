//! A small disk that can be filled: a file system in memory, visible only to processes started on it.
//!
//! It needs permission to create a namespace: a mount namespace as root, otherwise also a user namespace.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The file that fills the disk.
const BALLAST: &str = "ballast";

/// The disk. Dropping it removes it.
#[derive(Debug)]
pub struct SmallDisk {
    /// A process that does nothing; the disk exists until it ends.
    holder: Child,
    path: PathBuf,
    is_root: bool,
}

#[expect(
    clippy::expect_used,
    clippy::panic,
    reason = "this is a test's tool: a panic is how it reports"
)]
impl SmallDisk {
    /// A disk of `size_mib` MiB in a new, empty directory at `path`.
    ///
    /// # Panics
    /// If this system does not allow it.
    #[must_use]
    pub fn new(path: &Path, size_mib: u32) -> Self {
        const SCRIPT: &str = r#"mount -t tmpfs -o "size=$1m,mode=700" disk "$0" && echo there && exec sleep infinity"#;
        fs::create_dir_all(path).expect("make a folder for the disk");
        let is_root = fs::metadata("/proc/self")
            .expect("look at this process")
            .uid()
            == 0;
        let mut command = Command::new("unshare");
        command
            .arg(if is_root { "-m" } else { "-rm" })
            .args(["sh", "-c", SCRIPT])
            .arg(path)
            .arg(size_mib.to_string());
        let mut holder = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run unshare");
        let mut line = String::new();
        let said =
            BufReader::new(holder.stdout.take().expect("its output is piped")).read_line(&mut line);
        if said.is_err() || line.trim() != "there" {
            let _ = holder.kill();
            panic!(
                "a file system cannot be mounted in a namespace here: these tests need that (see `man unshare`)"
            );
        }
        Self {
            holder,
            path: path.to_owned(),
            is_root,
        }
    }

    /// The command line that runs another program in the disk's namespace.
    pub(crate) fn enter(&self) -> Vec<String> {
        let pid = self.holder.id().to_string();
        let users: &[&str] = if self.is_root {
            &[]
        } else {
            &["-U", "--preserve-credentials"]
        };
        ["nsenter", "-t", &pid, "-m"]
            .iter()
            .chain(users)
            .map(|word| (*word).to_owned())
            .collect()
    }

    /// The path of the disk from outside its namespace.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let inside = self.path.strip_prefix("/").unwrap_or(&self.path);
        Path::new("/proc")
            .join(self.holder.id().to_string())
            .join("root")
            .join(inside)
    }

    /// Fills it to the last block.
    ///
    /// # Panics
    /// If that fails.
    pub fn fill(&self) {
        let mut file = self.ballast();
        for chunk in [1 << 20, 4096] {
            let bytes = vec![0; chunk];
            loop {
                match file.write_all(&bytes) {
                    Ok(()) => {}
                    Err(why) if why.kind() == ErrorKind::StorageFull => break,
                    Err(why) => panic!("cannot fill the disk: {why}"),
                }
            }
        }
    }

    /// Undoes [`SmallDisk::fill`].
    ///
    /// # Panics
    /// If that fails.
    pub fn make_room(&self) {
        self.ballast().set_len(0).expect("empty the ballast");
    }

    fn ballast(&self) -> File {
        let mut options = OpenOptions::new();
        options
            .append(true)
            .create(true)
            .open(self.path().join(BALLAST))
            .expect("open the ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
