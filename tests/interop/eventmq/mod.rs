//! Scenes, and the tools to play them.

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
