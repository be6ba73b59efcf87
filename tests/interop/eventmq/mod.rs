//! Scenes, and what they are played with.

mod admin;
mod crashes;
mod hostile;
mod jobs;
mod peers;
mod publish;
mod routing;
mod schedules;
mod stage;
