//! The pages of Faktory that monitoring reads: `/stats`, which is INFO's object, and `/health`, which costs the queue
//! nothing.

use std::fmt::Write as _;
use std::sync::Arc;

use windlass_session::protocol::{Figures, Page};

use super::ask::Gathered;
use super::info::info_text;
use super::{FAKTORY_VERSION, Settings};
use crate::wire::health_object;

/// All pages.
pub fn pages(settings: &Arc<Settings>) -> Vec<Arc<dyn Page>> {
    vec![
        Arc::new(StatsPage(Arc::clone(settings))),
        Arc::new(HealthPage(Arc::clone(settings))),
    ]
}

#[derive(Debug)]
struct StatsPage(Arc<Settings>);

#[derive(Debug)]
struct HealthPage(Arc<Settings>);

impl Page for StatsPage {
    fn path(&self) -> &'static str {
        "/stats"
    }

    fn needs_figures(&self) -> bool {
        true
    }

    fn text(&self, figures: &Figures) -> String {
        let gathered = Gathered::of(figures.stats.clone(), &figures.queues);
        let info = info_text(&self.0, &gathered, figures.now, figures.wall);
        let mut text = info.before_queues();
        let mut comma = "";
        for member in gathered.members() {
            let _ = write!(text, "{comma}{}", String::from_utf8_lossy(member));
            comma = ",";
        }
        text.push_str(&info.after_queues());
        text
    }
}

impl Page for HealthPage {
    fn path(&self) -> &'static str {
        "/health"
    }

    fn needs_figures(&self) -> bool {
        false
    }

    fn text(&self, figures: &Figures) -> String {
        let Settings {
            shared, section, ..
        } = &*self.0;
        health_object(
            figures.wall.0,
            shared.commands(),
            shared.connections(),
            &section.description,
            FAKTORY_VERSION,
        )
    }
}
