//! `windlass top`: shows the daemon on a terminal, and pauses queues. `view` is the state, `draw`
//! renders it; the terminal and the connection are here.

mod draw;
mod view;

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use windlass_config::{Failure, Period};

use self::view::{Action, Seen, View};
use crate::client::{Client, DataDir, failure};
use crate::operator::Operator;

pub(super) async fn run(
    operator: &mut Operator<'_>,
    every: Period,
    data_dir: DataDir,
) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(failure(
            "top requires a terminal: in scripts, use windlass status and windlass queues",
        ));
    }
    let mut view = View::default();
    view.update(look(&mut operator.client).await?);
    let mut terminal = ratatui::try_init().map_err(failure)?;
    let outcome = show(operator, &mut terminal, &mut view, every, data_dir).await;
    ratatui::restore();
    outcome
}

/// Runs until the operator quits. If the daemon does not respond, requests are retried.
async fn show(
    operator: &mut Operator<'_>,
    terminal: &mut DefaultTerminal,
    view: &mut View,
    every: Period,
    data_dir: DataDir,
) -> Result<(), Failure> {
    let every = Duration::from(every).max(Duration::from_millis(100));
    let mut due = Instant::now() + every;
    loop {
        terminal
            .draw(|frame| draw::draw(view, frame))
            .map_err(failure)?;
        // Nothing else runs meanwhile, so this thread may block.
        let action =
            match event::poll(due.saturating_duration_since(Instant::now())).map_err(failure)? {
                true => pressed(view, &event::read().map_err(failure)?),
                false => Action::Look,
            };
        match action {
            Action::Quit => return Ok(()),
            Action::None => continue,
            Action::Post(path) => view.note(operator.client.post(&path).await.err()),
            Action::Look => {}
        }
        match look(&mut operator.client).await {
            Ok(seen) => view.update(seen),
            Err(why) => {
                view.note(Some(why));
                if let Ok(again) = operator.ask.connect(data_dir).await {
                    operator.client = again;
                }
            }
        }
        due = Instant::now() + every;
    }
}

fn pressed(view: &mut View, event: &Event) -> Action {
    event
        .as_key_press_event()
        .map_or(Action::None, |key| view.press(key))
}

async fn look(client: &mut Client) -> Result<Seen, Failure> {
    let status = client.get("/status").await?;
    let queues = client.rows("/queues", usize::MAX).await?;
    let workers = client.rows("/workers", usize::MAX).await?;
    Ok(Seen {
        status,
        queues,
        workers,
        at: Instant::now(),
    })
}
