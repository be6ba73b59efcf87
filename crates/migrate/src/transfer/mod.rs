//! `windlass bridge`: works an old broker empty into a running daemon, and acknowledges there only what is durable
//! here.
//!
//! The bridge is a worker of the old broker and a producer of the daemon, in the protocol of both. Reading order:
//! [`lane`], the way of a job, and what a protocol supplies ([`lane::Old`], [`lane::New`]); [`gearman`], [`faktory`]
//! and [`eventmq`], which supply it; [`tally`], what all lanes share; [`link`], one connection; [`place`], an address.

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "routers send a worker nothing else that counts"
)]
mod eventmq;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other answer ends the connection"
)]
mod faktory;
mod functions;
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other answer ends the connection"
)]
mod gearman;
mod guard;
mod lane;
mod link;
mod place;
mod tally;

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinSet, LocalSet};
use windlass_config::{Failure, Period};
use windlass_zmtp::curve::CurvePublicKey;

pub(crate) use self::eventmq::Scheduling;
use self::lane::{New, Old, work};
pub(crate) use self::place::Place;
use self::place::{Files, Scheme};
use self::tally::Tally;

const HELP: &str = include_str!("../help/bridge.txt").trim_ascii_end();

/// Move all jobs from another broker to this daemon while producers are still connected.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Bridge {
    /// The old broker: `gearman://HOST:PORT`, `faktory://[:PASSWORD@]HOST:PORT` or `eventmq://HOST:PORT`; with
    /// `+tls://` over TLS.
    #[arg(long, value_name = "URL")]
    from: Place,
    /// The daemon, in the same form [default: the protocol's usual port on 127.0.0.1].
    #[arg(long, value_name = "URL")]
    to: Option<Place>,
    /// Only take jobs of this queue; may be repeated.
    #[arg(long, value_name = "NAME")]
    queue: Vec<String>,
    /// Exit when the old broker has had no jobs for this long [default: 10s].
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true, default_missing_value = "10s")]
    until_empty: Option<Period>,
    /// Number of jobs moved concurrently, each over one connection per side.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Wait for the result of each job and report it to the old broker, for clients that wait there.
    #[arg(long)]
    results: bool,
    /// A file with the password of the old broker (Faktory, or the user of an EventMQ router's address).
    #[arg(long, value_name = "FILE")]
    from_password: Option<PathBuf>,
    /// A file with the daemon's password, in the same form.
    #[arg(long, value_name = "FILE")]
    to_password: Option<PathBuf>,
    /// CA certificates to trust for the old broker (PEM) [default: the system's].
    #[arg(long, value_name = "FILE")]
    from_ca: Option<PathBuf>,
    /// CA certificates to trust for the daemon.
    #[arg(long, value_name = "FILE")]
    to_ca: Option<PathBuf>,
    /// Client certificate (PEM), if the old broker requires one.
    #[arg(long, value_name = "FILE", requires = "from_key")]
    from_certificate: Option<PathBuf>,
    /// Private key of the client certificate (PEM, not encrypted).
    #[arg(long, value_name = "FILE", requires = "from_certificate")]
    from_key: Option<PathBuf>,
    /// Client certificate, if the daemon requires one.
    #[arg(long, value_name = "FILE", requires = "to_key")]
    to_certificate: Option<PathBuf>,
    /// Private key of that certificate.
    #[arg(long, value_name = "FILE", requires = "to_certificate")]
    to_key: Option<PathBuf>,
    /// Public key of the old router, if it requires ZeroMQ's CURVE.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from_curve: Option<CurvePublicKey>,
    /// A file with the bridge's secret key, if the old router accepts only known keys [default: a new key].
    #[arg(long, value_name = "FILE", requires = "from_curve")]
    from_curve_secret: Option<PathBuf>,
    /// Public key of the daemon, if its section eventmq has curve_secret_key_file.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to_curve: Option<CurvePublicKey>,
    /// A file with the bridge's secret key, if that section has curve_clients [default: a new key].
    #[arg(long, value_name = "FILE", requires = "to_curve")]
    to_curve_secret: Option<PathBuf>,
}

impl Bridge {
    /// Moves jobs until it is stopped or the old broker is empty.
    ///
    /// # Errors
    ///
    /// [`Failure::Runtime`] for a refused password or two addresses that do not fit, [`Failure::Incomplete`] for jobs
    /// that are left.
    pub fn run(&self) -> Result<(), Failure> {
        let from = self.from.clone().with(Files {
            password: self.from_password.as_deref(),
            ca: self.from_ca.as_deref(),
            certificate: self.from_certificate.as_deref(),
            key: self.from_key.as_deref(),
            curve: self.from_curve,
            curve_secret: self.from_curve_secret.as_deref(),
        })?;
        let to = self
            .to
            .clone()
            .unwrap_or_else(|| Place::local(from.scheme))
            .with(Files {
                password: self.to_password.as_deref(),
                ca: self.to_ca.as_deref(),
                certificate: self.to_certificate.as_deref(),
                key: self.to_key.as_deref(),
                curve: self.to_curve,
                curve_secret: self.to_curve_secret.as_deref(),
            })?;
        from.check_apart(&to)?;
        let tally = Rc::new(Tally::new(
            from,
            to,
            self.queue.clone(),
            self.until_empty.map(Into::into),
            self.results,
        ));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| Failure::Runtime(format!("cannot start: {why}")))?;
        let lanes = usize::from(self.jobs);
        LocalSet::new().block_on(&runtime, async {
            match tally.from.scheme {
                Scheme::Gearman => {
                    run_lanes::<gearman::OldGearman, gearman::NewGearman>(&tally, lanes).await
                }
                Scheme::Faktory => {
                    run_lanes::<faktory::OldFaktory, faktory::NewFaktory>(&tally, lanes).await
                }
                Scheme::Eventmq => {
                    run_lanes::<eventmq::OldEventmq, eventmq::NewEventmq>(&tally, lanes).await
                }
            }
        });
        tally.outcome()
    }
}

/// Runs all lanes to their end. A first SIGTERM or SIGINT lets them finish their jobs; a second one ends the wait for
/// them.
async fn run_lanes<O, N>(tally: &Rc<Tally>, lanes: usize)
where
    O: Old + 'static,
    N: New<Job = O::Job> + 'static,
{
    let crew = match O::crew(tally) {
        Ok(crew) => Rc::new(crew),
        Err(why) => return tally.fail(why.into_text()),
    };
    let mut set = JoinSet::new();
    for _ in 0..lanes {
        set.spawn_local(work::<O, N>(Rc::clone(tally), Rc::clone(&crew)));
    }
    set.spawn_local({
        let tally = Rc::clone(tally);
        async move { tally.report().await }
    });
    let all = async { while set.join_next().await.is_some() {} };
    tokio::select! {
        () = all => {}
        () = stopped_twice(tally) => tally.print("stopped at once; jobs in hand stay with the old broker"),
    }
}

/// Returns at the second signal. The first one stops the lanes.
async fn stopped_twice(tally: &Tally) {
    let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
    let [Ok(mut term), Ok(mut int)] = kinds.map(signal) else {
        // Without handlers the signals end the process, which loses nothing either.
        return std::future::pending().await;
    };
    for _ in 0..2 {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tally.stop();
    }
}
