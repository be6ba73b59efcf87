//! Taking the lease: who has it, whether this process may have it, and waiting until it is free.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use windlass_store::{Error, Holder, Overflow};

use crate::address::Target;
use crate::early::EarlyRead;
use crate::hand_over::{self, Stage};
use crate::lease::{
    Begun, DatabaseTime, Lease, NOW_MS, PARTS, Row, as_ms, own_part, since_boot_ms,
};
use crate::link::Link;
use crate::names::refused;

/// After so many renewals that did not come, the table is read early.
const MISSED: u32 = 2;
/// A look at the lease counts for this part of it. A database that stands still does later what it was asked before: the
/// holder, whose renewals stood still, too, must not lose the lease to that.
const STALE: u32 = 2;
/// How often a lease that another daemon has is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Takes the lease, over a link whose opening has begun then. Waits for a lease that is not renewed to run out, and begins to read the table then.
///
/// # Errors
///
/// [`Error::InUse`] with the holder's name, if the holder renews it.
pub(crate) fn take(
    link: &Link,
    target: &Target,
    overflow: Option<&Overflow>,
    begun: Instant,
) -> Result<(Arc<Lease>, Option<EarlyRead>), Error> {
    let mut early = None;
    let (mut first, mut told, began) = (None, 0, Instant::now());
    check(link, target)?;
    // The database may have stood still: its holder gets the time to renew the lease.
    let is_slow = begun.elapsed() > target.lease / STALE;
    let head_start = if is_slow {
        target.lease
    } else {
        Duration::ZERO
    };
    loop {
        let sent = since_boot_ms();
        let found = Row::read(link)?;
        let Row {
            holder,
            until,
            stage,
            now,
        } = found
            .ok_or_else(|| Error::damaged(&target.place, "the row of its lease is missing"))?;
        let is_late = || since_boot_ms().saturating_sub(sent) > as_ms(target.lease / STALE);
        let taken = if is_late() || began.elapsed() < head_start {
            None
        } else {
            take_if_free(link, target, &now)?
        };
        if let Some(taken) = taken {
            let until = sent.saturating_add(own_part(target.lease));
            return Ok((Arc::new(Lease::new(taken, target.clone(), until)), early));
        }
        if is_late() {
            let (doing, place) = ("taking the lease of", target.place.clone());
            return Err(Error::Io {
                doing,
                place,
                why: std::io::Error::other("the database has answered late"),
            });
        }
        let is_renewed = first.get_or_insert_with(|| until.clone()) != &until;
        // The holder may have another time in its settings.
        if stage == Stage::None
            && (is_renewed || began.elapsed() > target.lease.saturating_mul(PARTS))
        {
            return Err(in_use(&target.place, &holder));
        }
        if stage != Stage::None || began.elapsed() > target.lease / PARTS * MISSED {
            let early = early.get_or_insert_with(|| EarlyRead::begin(target, overflow));
            let (at, progress) = (
                if early.is_finished() {
                    Stage::Ready
                } else {
                    Stage::Reading
                },
                early.progress(),
            );
            let is_news = stage < at || progress != told;
            if (Stage::Offered..=at).contains(&stage) && is_news {
                told = progress;
                hand_over::answer(link, at, progress)?;
            }
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// How this process names itself to others. One of a cluster names its address, too: in containers, the rest may be the
/// same for all.
fn holder(address: &str) -> String {
    let (uname, process) = (rustix::system::uname(), std::process::id());
    let host = uname.nodename().to_string_lossy();
    if address.is_empty() {
        format!("{host} (process {process})")
    } else {
        format!("{host} (process {process}, {address})")
    }
}

/// The holder of the lease; `None`: it is free.
pub(crate) fn present_holder(link: &Link) -> Result<Option<Holder>, Error> {
    let look = format!(
        "SELECT holder, link, epoch FROM {} lease
         WHERE id = 1 AND until >= clock_timestamp()",
        link.lease()
    );
    let rows = link.query("reading the lease of", &look, &[])?;
    Ok(rows.first().map(|row| {
        let epoch: i64 = row.get(2);
        Holder {
            name: row.get(0),
            link: row.get(1),
            epoch: epoch.unsigned_abs(),
        }
    }))
}

/// The name of the cluster that the store belongs to; empty if it belongs to none.
fn owner(link: &Link) -> Result<String, Error> {
    let look = format!("SELECT cluster FROM {} WHERE id = 1", link.lease());
    let rows = link.query("reading the lease of", &look, &[])?;
    Ok(rows.first().and_then(|row| row.get(0)).unwrap_or_default())
}

/// Refuses a cluster's store to a daemon that is part of none: the cluster's daemons would find no way to it.
pub(crate) fn admit(link: &Link, target: &Target) -> Result<(), Error> {
    let cluster = owner(link)?;
    if cluster.is_empty() || !target.cluster.is_empty() {
        return Ok(());
    }
    let why = format!(
        "the store belongs to the cluster {cluster:?}, and this daemon is part of none (cluster.listen): a daemon that is to \
         have the store alone takes it with UPDATE {} SET cluster = '' while no daemon runs",
        link.lease()
    );
    Err(refused(&target.place, why))
}

/// Refuses settings with which this daemon could not follow or succeed the present holder: that of another length of the
/// lease, and that of a daemon elsewhere which has this daemon's address.
pub(crate) fn compare(link: &Link, target: &Target) -> Result<(), Error> {
    let look = format!(
        "SELECT holder, link, lease_ms FROM {}
         WHERE id = 1 AND until >= clock_timestamp()",
        link.lease()
    );
    let rows = link.query("reading the lease of", &look, &[])?;
    let Some(row) = rows.first().filter(|_| !target.cluster.is_empty()) else {
        return Ok(());
    };
    let (name, address): (String, String) = (row.get(0), row.get(1));
    let lease_ms = row
        .get::<_, Option<i64>>(2)
        .and_then(|ms| u64::try_from(ms).ok())
        .unwrap_or_default();
    if lease_ms != 0 && lease_ms != as_ms(target.lease) {
        let own_ms = as_ms(target.lease);
        let why = format!(
            "postgres.lease is {own_ms} ms here, and {lease_ms} ms at {name}, which leads: set the same at all"
        );
        return Err(refused(&target.place, why));
    }
    let uname = rustix::system::uname();
    if address == target.link
        && !name.starts_with(&format!("{} (", uname.nodename().to_string_lossy()))
    {
        let why = format!(
            "{name} leads under this daemon's address, {address} (cluster.address): each daemon needs its own"
        );
        return Err(refused(&target.place, why));
    }
    Ok(())
}

/// Refuses a store that belongs to another cluster, or whose holder speaks another version of the links.
pub(crate) fn check(link: &Link, target: &Target) -> Result<(), Error> {
    if target.cluster.is_empty() {
        return Ok(());
    }
    let cluster = owner(link)?;
    if !cluster.is_empty() && cluster != target.cluster {
        return Err(refused(
            &target.place,
            format!(
                "the store belongs to the cluster {cluster:?} (cluster.name), not to {:?}; a cluster that is renamed takes its \
                 store along with UPDATE {} SET cluster = '' while no daemon runs",
                target.cluster,
                link.lease()
            ),
        ));
    }
    let look = format!(
        "SELECT holder, link_version FROM {} lease
         WHERE id = 1 AND until >= clock_timestamp() AND link_version <> $1",
        link.lease()
    );
    let own = i64::from(target.speaks);
    let rows = link.query("reading the lease of", &look, &[&own])?;
    let Some(row) = rows.first() else {
        return Ok(());
    };
    let (name, version): (String, i64) = (row.get(0), row.get(1));
    let why = format!(
        "{name} leads with version {version} of the link between daemons, and this program speaks version {own}: stop all \
         daemons of the cluster, then start the new ones"
    );
    Err(refused(&target.place, why))
}

/// The error for a store that a daemon has.
pub(crate) fn in_use(place: &str, holder: &str) -> Error {
    Error::InUse {
        place: place.to_owned(),
        holder: format!(": {holder}"),
    }
}

/// Takes a lease that is free, unless the look at it, at the database's time `seen`, is too old. Returns what it
/// begins with.
fn take_if_free(link: &Link, target: &Target, seen: &str) -> Result<Option<Begun>, Error> {
    let sent = since_boot_ms();
    let take = format!(
        "UPDATE {} SET epoch = epoch + 1, holder = $1, link = $3, hand_over = 0,
             until = clock_timestamp() + $2::bigint * interval '1 millisecond',
             lease_ms = $2,
             cluster = CASE WHEN $4::text = '' THEN cluster ELSE $4 END, link_version = $5::bigint
         WHERE id = 1 AND until < clock_timestamp() AND ($4 = '' OR cluster IN ('', $4))
             AND clock_timestamp() < $6::text::timestamptz + $2::bigint * interval '1 millisecond' / {STALE}
         RETURNING epoch, {NOW_MS}, edges",
        link.lease()
    );
    let ms = i64::try_from(as_ms(target.lease)).unwrap_or(i64::MAX);
    let Target {
        link: address,
        cluster,
        speaks,
        ..
    } = target;
    let taken = link.query(
        "taking the lease of",
        &take,
        &[
            &holder(address),
            &ms,
            address,
            cluster,
            &i64::from(*speaks),
            &seen,
        ],
    )?;
    let begun = |row: &tokio_postgres::Row| {
        let (epoch, now, edges) = (
            row.get(0),
            DatabaseTime::answered(sent, row.get(1)),
            row.get(2),
        );
        Begun { epoch, now, edges }
    };
    Ok(taken.first().map(begun))
}
