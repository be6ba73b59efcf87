//! The released Python programs of EventMQ against the daemon, unmodified. `tests/install-clients` installs them.
//!
//! The stock JobManager works on `tasks.py`; the stock client and scheduler request jobs. pyzmq, which is libzmq, sends
//! messages that the stock programs never send, and acts as workers where a test must see details. All programs are
//! child processes that a scene directs.
//!
//! A missing program is a failure, never a skip.

mod admin;
mod bridge;
mod crashes;
mod hostile;
mod jobs;
mod peers;
mod publish;
mod routing;
mod schedules;
mod stage;
