//! One fleet: jobs that cross protocols. Stock clients at both ends of the real daemon, a row for each producer, worker
//! and condition (`fleet/table.rs`). `tests/install-clients` installs them.
//!
//! A missing client is a failure, never a skip.

mod apart;
mod payloads;
mod peers;
mod scenes;
mod stage;
mod table;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

use peers::Protocol;
use stage::{Fleet, Stage};
use table::{Cell, Condition, Row, rows};

/// The number of rows played at the same time: each mostly waits.
const AT_ONCE: usize = 8;

fn stage<'a>(fleet: &'a Fleet, row: &Row) -> Stage<'a> {
    let pair = format!("{}-{}", row.from.name(), row.to.name());
    if row.condition == Condition::LeaseExpired {
        return fleet.hasty_stage(&pair);
    }
    if row.condition == Condition::IllegalName {
        return fleet.stage(&format!("no fwp/größe {pair}"));
    }
    fleet.stage(&format!("{pair}.{:?}", row.condition))
}

#[test]
fn every_producer_and_worker_in_every_condition() {
    let rows = rows();
    let combinations: BTreeSet<_> = rows
        .iter()
        .map(|row| (row.from, row.to, row.condition))
        .collect();
    assert_eq!(
        combinations.len(),
        Protocol::ALL.len() * Protocol::ALL.len() * Condition::ALL.len()
    );
    let fleet = Fleet::start();
    let next = Mutex::new(rows.iter());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(row) = next.lock().unwrap().next() else {
                        return;
                    };
                    if let Err(why) =
                        catch_unwind(AssertUnwindSafe(|| scenes::play(row, &stage(&fleet, row))))
                    {
                        failures.lock().unwrap().push(format!(
                            "{} to {}, {:?}: {}",
                            row.from.name(),
                            row.to.name(),
                            row.condition,
                            said(&*why)
                        ));
                    }
                }
            });
        }
    });
    for row in &rows {
        if let Cell::None(why) = row.cell {
            println!(
                "no row: {} to {}, {:?}: {why}",
                row.from.name(),
                row.to.name(),
                row.condition
            );
        }
    }
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} rows:\n{}\n{}",
        failures.len(),
        failures.join("\n"),
        fleet.log_text()
    );
}

#[test]
fn cases_outside_the_table() {
    let fleet = Fleet::start();
    apart::codecs(&fleet);
    apart::misfits(&fleet);
    apart::two_fleets_on_one_name(&fleet);
    apart::a_bridge_that_is_missing_is_told_of(&fleet);
    apart::a_queue_without_a_bridge(&fleet);
    apart::an_alias(&fleet);
    apart::debians_gearman(&fleet);
    apart::a_name_that_gearman_cannot_have(&fleet);
    apart::a_result_that_is_kept(&fleet);
    apart::entries_of_spiderq(&fleet);
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()))
        .unwrap_or_default()
}
