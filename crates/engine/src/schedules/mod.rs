//! Schedules: jobs that are pushed repeatedly. [`Schedules`] owns them, sorted by next occurrence.

mod calendar;
mod schedule;
mod table;
mod zone;

pub use calendar::Cron;
pub use schedule::{
    EARLIER_RUNS_MAX, LastRun, NewSchedule, Recurrence, RunEnd, Schedule, ScheduleRef,
};
pub(crate) use table::Schedules;
pub use zone::Zone;
