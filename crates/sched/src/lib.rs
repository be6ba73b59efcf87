//! Asks the kernel for short time slices. Nothing else: this is the workspace's only unsafe code, because neither the
//! standard library nor `rustix` knows `sched_setattr`.
//!
//! A thread that sleeps for a disk most of the time, and has little to do when it wakes, waits on a busy machine until the
//! one that has the processor has used up its slice: 3 to 4 ms. A thread whose own slices are short is let in at once
//! (Linux 6.12 and later, EEVDF); it gets no more of the processor than others. No privilege is needed.

use std::io;
use std::time::Duration;

/// Makes the slices of the calling thread this short: the kernel takes 0.1 to 100 ms.
///
/// # Errors
///
/// What the kernel says. One that is too old does nothing and says nothing.
#[cfg(target_os = "linux")]
pub fn shorten_slices(slice: Duration) -> io::Result<()> {
    /// `struct sched_attr` of the first version, which every kernel takes.
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
    // SAFETY: the kernel reads `size` bytes behind the pointer, which the structure has, and keeps nothing of it. Thread 0
    // is the calling one.
    let outcome = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The calling thread's niceness, which setting its slices must not change.
#[cfg(target_os = "linux")]
fn nice() -> i32 {
    #[expect(unsafe_code, reason = "no safe wrapper of this call is in reach")]
    // SAFETY: it takes no pointer. An error reads as -1, which is a niceness too: nobody is favoured by it who may not be.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    nice.max(0)
}

/// Elsewhere there is nothing to ask for.
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

    #[test]
    fn the_kernel_takes_a_short_slice_and_keeps_the_niceness() {
        let before = nice();
        shorten_slices(Duration::from_micros(100)).unwrap();
        assert_eq!(nice(), before);
        assert_eq!(shorten_slices(Duration::ZERO).map_err(|error| error.kind()), Ok(()), "the kernel's own choice");
    }
}
