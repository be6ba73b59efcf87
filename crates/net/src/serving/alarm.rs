//! Wakes a sleeping thread after some microseconds, because the timeouts of `mio` are whole
//! milliseconds.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer among a thread's sockets.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

/// Its event, which only wakes the thread.
pub(super) const ALARM: Token = Token(usize::MAX - 1);

impl Alarm {
    pub(super) fn new(registry: &Registry) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        registry.register(&mut SourceFd(&timer.as_raw_fd()), ALARM, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Wakes the thread after this time, at most a second, replacing the previous timer.
    pub(super) fn set(&self, time: Duration) -> io::Result<()> {
        let ns = time
            .clamp(Duration::from_nanos(1), Duration::from_millis(999))
            .subsec_nanos();
        let (never, once) = (
            Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            Timespec {
                tv_sec: 0,
                tv_nsec: ns.into(),
            },
        );
        timerfd_settime(
            &self.0,
            TimerfdTimerFlags::empty(),
            &Itimerspec {
                it_interval: never,
                it_value: once,
            },
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn it_wakes_a_thread_each_time_it_is_set() {
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
        let alarm = Alarm::new(poll.registry()).unwrap();
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        for time in [
            Duration::from_micros(20),
            Duration::ZERO,
            Duration::from_micros(1),
        ] {
            alarm.set(time).unwrap();
            poll.poll(&mut events, None).unwrap();
            assert!(
                events.iter().all(|event| event.token() == ALARM) && !events.is_empty(),
                "{time:?}"
            );
        }
    }
}
