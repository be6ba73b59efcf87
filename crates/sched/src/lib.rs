//! Asks the kernel for short time slices. This is the workspace's only unsafe code, because neither the standard
//! library nor `rustix` wraps `sched_setattr`.
//!
//! A thread that mostly sleeps for a disk, and has little to do when it wakes, waits on a busy machine until the
//! running thread has used up its slice: 3 to 4 ms. A thread whose own slices are short is scheduled at once (Linux
//! 6.12 and later, EEVDF) and gets no more of the processor than others. No privilege is needed.

use std::io;
use std::time::Duration;

/// Sets the length of the calling thread's slices. The kernel accepts 0.1 to 100 ms.
///
/// # Errors
///
/// The kernel's error. A kernel that is too old ignores the request without an error.
#[cfg(target_os = "linux")]
pub fn shorten_slices(slice: Duration) -> io::Result<()> {
    /// The first version of `struct sched_attr`, which every kernel accepts.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    const SIZE: u32 = 48;
    const _: () = assert!(size_of::<Attributes>() == SIZE as usize);
    let attributes = Attributes {
        size: SIZE,
        policy: 0,
        flags: 0,
        nice: nice(),
        priority: 0,
        runtime_ns: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        deadline_ns: 0,
        period_ns: 0,
    };
    #[expect(unsafe_code, reason = "no safe wrapper of this call exists")]
    // SAFETY: the kernel reads `size` bytes behind the pointer, all of them in the structure, and keeps no reference to
    // it. Thread 0 is the calling thread.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The calling thread's niceness, which setting its slices must not change.
#[cfg(target_os = "linux")]
fn nice() -> i32 {
    #[expect(unsafe_code, reason = "no safe wrapper of this call is in reach")]
    // SAFETY: the call takes no pointer. It cannot fail for the calling thread; -1 is a valid niceness.
    unsafe {
        libc::getpriority(libc::PRIO_PROCESS, 0)
    }
}

/// Other systems have no such call.
///
/// # Errors
///
/// None.
#[cfg(not(target_os = "linux"))]
pub fn shorten_slices(_: Duration) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The niceness at which a test runs in a process of its own.
    const AT_NICENESS: &str = "WINDLASS_SCHED_NICENESS";

    /// What the kernel reports of the calling thread's slice, in nanoseconds; `None` if the kernel has no slices to
    /// set.
    fn slice_ns() -> Option<u64> {
        let report = std::fs::read_to_string("/proc/thread-self/sched").ok()?;
        let line = report.lines().find(|line| line.starts_with("se.slice "))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    #[test]
    fn the_kernel_takes_a_short_slice_and_its_own_choice_again() {
        let own = slice_ns();
        shorten_slices(Duration::from_micros(100)).unwrap();
        assert_eq!(slice_ns(), own.map(|_| 100_000));
        shorten_slices(Duration::ZERO).unwrap();
        assert_eq!(slice_ns(), own);
    }

    #[test]
    fn a_slice_changes_no_niceness() {
        let Ok(expected) = std::env::var(AT_NICENESS) else {
            let niceness = (nice() + 3).min(19).to_string();
            let mut command = std::process::Command::new("nice");
            command
                .args(["-n", "3"])
                .arg(std::env::current_exe().unwrap())
                .env(AT_NICENESS, niceness);
            let output = command
                .args(["--exact", "tests::a_slice_changes_no_niceness"])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said.contains("1 passed"),
                "{said}"
            );
            return;
        };
        assert_eq!(nice().to_string(), expected);
        shorten_slices(Duration::from_micros(100)).unwrap();
        assert_eq!(nice().to_string(), expected);
    }
}
