//! The compact form of all jobs in a page of memory that are not needed soon.
//!
//! Neighbours are similar, so each job is stored as the difference from the job before it ([`Before`]): ID,
//! queue, rank and times, and the payload, with a short body or the place of a stored one. The rest is a
//! [`Shape`], which is shared with similar jobs. The jobs of a queue usually have one or two shapes.

use super::bodies::SAVED_BYTES;
use super::job::Job;
use super::payload::{Payload, View};
use super::row::{Before, NO_JOB, SHAPES_MAX};
use super::shape::{Shape, extra_bytes};

/// Bytes saved by packing a job without a body in memory, compared to [`Job::weight_bytes`]; for other jobs
/// it is [`SAVED_BYTES`]. Key, name and body are included there, and are in the row.
const JOB_BYTES: u64 = size_of::<Option<Job>>() as u64 + 40;

/// The memory of an entry in the index of keys or of names, which stays. The fixed bytes of `weight_bytes`
/// include it.
const INDEX_BYTES: u64 = 20;

/// Jobs per page. A page is allocated and freed as a unit, so that a drained queue frees memory. A page of
/// this size fills a block of 24 KiB; with another job, the allocator's overhead would require a block of 28
/// KiB.
pub(super) const PAGE: usize = 255;

/// The jobs of a page, with places.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    shapes: Box<[Shape]>,
    bytes: Box<[u8]>,
    /// Bytes that it saves.
    saved: u64,
    /// Bytes of bodies that could be stored on disk instead.
    can_leave: u64,
}

impl Packed {
    /// `None`: a job in the page is leased, or has a large body in memory, or there are too many shapes.
    /// `room` is a buffer for the rows.
    pub(super) fn of(jobs: &[Option<Job>], room: &mut Vec<u8>) -> Option<Self> {
        room.clear();
        let (mut shapes, mut before) = (Vec::<Shape>::new(), Before::default());
        let (mut less, mut can_leave) = (0, 0);
        for job in jobs {
            let Some(job) = job else {
                room.push(NO_JOB);
                continue;
            };
            if job.lease().is_some() {
                return None;
            }
            let number = shapes
                .iter()
                .position(|shape| shape.fits(job))
                .unwrap_or_else(|| {
                    shapes.push(Shape::of(job));
                    shapes.len() - 1
                });
            let shape = shapes.get(number).filter(|_| number < SHAPES_MAX)?;
            let view = job.payload.view();
            before.put(u8::try_from(number).ok()?, shape, job, view, room)?;
            let (bytes, body) = bytes_of(job, view);
            less += bytes;
            can_leave += body;
        }
        let kept = room.len() as u64 + shapes.iter().map(Shape::bytes).sum::<u64>();
        let saved = less.saturating_sub(kept);
        Some(Self {
            shapes: shapes.into(),
            bytes: room.as_slice().into(),
            saved,
            can_leave,
        })
    }

    /// The jobs, by place.
    pub(super) fn jobs(&self) -> Vec<Option<Job>> {
        let (mut jobs, mut bytes, mut before) =
            (Vec::with_capacity(PAGE), &self.bytes[..], Before::default());
        while let Some((first, rest)) = bytes.split_first() {
            bytes = rest;
            jobs.push(if *first == NO_JOB {
                None
            } else {
                before.take(*first, &self.shapes, &mut bytes)
            });
        }
        jobs
    }

    /// Approximate bytes of memory saved.
    pub(super) const fn saved_bytes(&self) -> u64 {
        self.saved
    }

    /// Bytes of bodies that could be stored on disk instead.
    pub(super) const fn can_leave(&self) -> u64 {
        self.can_leave
    }
}

/// Bytes saved by packing a job, not counting the row, and the bytes of the body if that could be
/// stored on disk.
#[inline]
fn bytes_of(job: &Job, view: View<'_>) -> (u64, u64) {
    let payload = &job.payload;
    let (here, body) = match view {
        View::Whole(bytes, body) => (SAVED_BYTES + bytes.len() as u64, body as u64),
        View::Stored(stored) => (payload.len() as u64 - u64::from(stored.len), 0),
        View::Apart => (
            SAVED_BYTES + payload.len() as u64,
            if payload.can_leave() {
                payload.body_len() as u64
            } else {
                0
            },
        ),
    };
    let body = if body < Payload::BODY_BYTES_MIN as u64 {
        0
    } else {
        body
    };
    let indexes = if payload.has_key() { INDEX_BYTES } else { 0 }
        + if payload.name().is_empty() {
            0
        } else {
            INDEX_BYTES
        };
    (
        JOB_BYTES + extra_bytes(job.extra.as_deref()) + here - indexes,
        body,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::ids::{JobId, Priority, Protocol, QueueId, Timestamp};
    use crate::jobs::{Cycle, Expiry, Extra, JobState, KeyUntil, Retry, Stored, Track, Unfit};

    fn packed(jobs: &[Option<Job>]) -> Option<Packed> {
        Packed::of(jobs, &mut Vec::new())
    }

    fn job(id: u64, key: Option<&[u8]>, name: &[u8], body: &[u8]) -> Job {
        Job {
            id: JobId(id),
            queue: QueueId(1),
            protocol: Protocol(0),
            priority: Priority::NORMAL,
            durable: true,
            rank: 1 << 62 | id,
            state: JobState::Ready,
            ready_at: Timestamp(1_700_000_000_000 + id),
            payload: Payload::copy(key, name, body),
            attempts: 0,
            failures: 0,
            retry: Retry::NONE,
            unfit: Unfit::NONE,
            extra: None,
        }
    }

    fn stored(id: u64, at: u64, body: &[u8]) -> Job {
        elsewhere(job(id, None, b"", body), at)
    }

    fn elsewhere(job: Job, at: u64) -> Job {
        let payload = job
            .payload
            .with_stored(Stored::new(at, job.body()).unwrap())
            .unwrap();
        Job { payload, ..job }
    }

    fn with(job: Job, change: impl FnOnce(&mut Extra)) -> Job {
        let mut extra = Extra::default();
        change(&mut extra);
        Job {
            extra: Some(Box::new(extra)),
            ..job
        }
    }

    #[test]
    fn jobs_come_back_as_they_were() {
        let long = [b'k'; 9_000];
        let retried = with(job(u64::MAX >> 2, Some(&long), &long, b""), |extra| {
            extra.losses = 2
        });
        let retried = Job {
            failures: 3,
            state: JobState::Retrying(Timestamp(7)),
            ..retried
        };
        let keyed = job(9, Some(b"key"), b"", &long[..300]);
        let jobs = vec![
            Some(job(5, None, b"", b"")),
            None,
            Some(job(3, Some(b""), b"name", b"short")),
            Some(job(4, Some(b""), b"name", b"a name in a body")),
            Some(stored(900, u64::MAX, &long)),
            Some(stored(4, 0, b"cat.png")),
            Some(retried),
            Some(Job {
                rank: 0,
                ready_at: Timestamp(0),
                ..job(0, Some(b"key"), b"", b"")
            }),
            Some(Job {
                queue: QueueId(u32::MAX),
                ..keyed.clone()
            }),
            Some(Job {
                ready_at: Timestamp::NEVER,
                ..keyed.clone()
            }),
            Some(Job {
                queue: QueueId(0),
                ready_at: Timestamp(1 << 63),
                ..elsewhere(keyed, 7)
            }),
            None,
        ];
        let packed = packed(&jobs).unwrap();
        assert_eq!(packed.jobs(), jobs);
        assert_eq!(packed.shapes.len(), 2);
    }

    /// Random jobs that are alike, or nearly.
    #[test]
    fn pages_of_random_jobs_come_back_as_they_were() {
        for seed in 0..300 {
            let mut rng = Context::new(Timestamp(0), seed);
            let (mut jobs, mut id) = (Vec::new(), rng.roll(1 << 40));
            for _ in 0..PAGE {
                id += if rng.roll(4) == 0 {
                    1 + rng.roll(1 << 20)
                } else {
                    1
                };
                let text = vec![b't'; usize::try_from(rng.roll(1_025)).unwrap()];
                let part = |bytes: u64| {
                    text.get(..usize::try_from(bytes).unwrap())
                        .unwrap_or_default()
                };
                let key = (rng.roll(3) == 0).then(|| part(rng.roll(300)));
                let mut new = job(
                    id,
                    key,
                    part(rng.roll(2) * rng.roll(40)),
                    part(rng.roll(1_025)),
                );
                new.queue = QueueId(u32::try_from(rng.roll(2) * rng.roll(1 << 32)).unwrap());
                new.rank = new.rank.wrapping_add(rng.roll(2) * rng.roll(1 << 30));
                new.ready_at = Timestamp(new.ready_at.0 - rng.roll(3) * rng.roll(200));
                if rng.roll(3) == 0 {
                    new.state = JobState::Scheduled(Timestamp(rng.roll(u64::MAX)));
                }
                if rng.roll(4) == 0 {
                    new = with(new, |extra| {
                        extra.expires = Expiry::By(Timestamp(rng.roll(1 << 41)))
                    });
                }
                if rng.roll(3) == 0 {
                    new = elsewhere(new, rng.roll(u64::MAX));
                }
                jobs.push((rng.roll(9) > 0).then_some(new));
            }
            let packed = packed(&jobs).unwrap();
            assert_eq!(packed.jobs(), jobs, "seed {seed}");
            let leaving = jobs.iter().flatten().filter(|job| job.payload.can_leave());
            assert_eq!(
                packed.can_leave,
                leaving.map(|job| job.body().len() as u64).sum::<u64>(),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn a_job_of_a_long_queue_takes_few_bytes() {
        let (body, key) = ([b'b'; 1_000], [b'k'; 36]);
        let bytes = |job: &dyn Fn(u64) -> Job| {
            let jobs: Vec<_> = (0..255).map(|n| Some(job(n))).collect();
            let packed = packed(&jobs).unwrap();
            assert_eq!(packed.jobs(), jobs);
            (packed.bytes.len() / 255, packed.saved_bytes() / 255)
        };
        let away = |job: Job| {
            let at = job.id.0 * 1_000;
            elsewhere(job, at)
        };
        let plain = |n| job(70_000 + n, None, b"", &body);
        let keyed = |n| job(70_000 + n, Some(&key), b"", &body);
        assert_eq!(bytes(&|n| away(plain(n))), (9, 126));
        assert_eq!(bytes(&|n| away(keyed(n))), (47, 104));
        // A body in memory uses exactly the length.
        assert_eq!(bytes(&|n| plain(n)).0, 1_006);
        let queue = |n: u64| QueueId(u32::try_from(n * 77 % 10_000).unwrap());
        assert_eq!(
            bytes(&|n| Job {
                queue: queue(n),
                ..away(plain(n))
            })
            .0,
            11
        );
        let expiring = |n| {
            with(plain(n), |extra| {
                extra.expires = Expiry::At(Timestamp((1 << 41) + n * 1_000))
            })
        };
        assert_eq!(bytes(&|n| away(expiring(n))).0, 11);
    }

    #[test]
    fn numbers_of_their_own_do_not_make_jobs_unlike() {
        let at = |n: u64| Timestamp((1 << 41) + n * n);
        let plain = |n| job(n, Some(b"key"), b"", b"");
        let kinds: [&dyn Fn(u64) -> Job; 9] = [
            &|n| Job {
                state: JobState::Scheduled(at(n)),
                ..plain(n)
            },
            &|n| Job {
                state: JobState::Retrying(at(n)),
                ..plain(n)
            },
            &|n| Job {
                state: JobState::Dead(at(n)),
                ..plain(n)
            },
            &|n| {
                with(
                    Job {
                        state: JobState::Done(at(n)),
                        ..plain(n)
                    },
                    |extra| extra.expires = Expiry::By(at(n + 9)),
                )
            },
            &|n| with(plain(n), |extra| extra.expires = Expiry::At(at(n))),
            &|n| with(plain(n), |extra| extra.key_until = KeyUntil::EndOr(at(n))),
            &|n| {
                with(plain(n), |extra| {
                    extra.key_until = KeyUntil::StartOr(Timestamp::NEVER)
                })
            },
            &|n| {
                with(plain(n), |extra| {
                    extra.cycle = Some(Cycle {
                        priority: u64::MAX / (n + 1),
                        boost: 1,
                    })
                })
            },
            &|n| {
                with(plain(n), |extra| {
                    extra.track = Some(Track {
                        keep_ms: 9,
                        updated_at: at(n),
                    })
                })
            },
        ];
        for kind in kinds {
            let jobs: Vec<_> = (0..100).map(|n| Some(kind(n))).collect();
            let packed = packed(&jobs).unwrap();
            assert_eq!((packed.jobs(), packed.shapes.len()), (jobs, 1));
        }
        let all: Vec<_> = kinds
            .iter()
            .zip(0..)
            .map(|(kind, n)| Some(kind(n)))
            .collect();
        let packed = packed(&all).unwrap();
        assert_eq!((packed.jobs(), packed.shapes.len()), (all, kinds.len()));
    }

    #[test]
    fn what_packing_saves_is_what_it_takes_less() {
        let page = |job: &dyn Fn(u64) -> Job| {
            packed(&(0..15).map(|n| Some(job(n))).collect::<Vec<_>>()).unwrap()
        };
        let saved = |job: &dyn Fn(u64) -> Job| page(job).saved;
        let alike = saved(&|n| job(n, None, b"", b""));
        // A job with a body in memory also had an allocation for it.
        assert!(alike > 15 * JOB_BYTES, "{alike}");
        let unlike = saved(&|n| Job {
            failures: u32::try_from(n).unwrap(),
            ..job(n, None, b"", b"")
        });
        assert_eq!(
            alike - unlike,
            14 * size_of::<Shape>() as u64,
            "a shape for each of them"
        );
        assert_eq!(
            saved(&|n| job(n, None, b"", &[b'b'; 100])),
            alike,
            "a body takes its bytes, packed or not"
        );
        assert_eq!(
            saved(&|n| job(n, None, b"", &[b'b'; 1_000])),
            alike - 15,
            "and two for a length"
        );
        let keyed = saved(&|n| job(n, Some(b"key"), b"", b""));
        assert_eq!(
            alike - keyed,
            15 * INDEX_BYTES,
            "a key is in an index, which stays"
        );
        let extra = saved(&|n| with(job(n, None, b"", b""), |extra| extra.losses = 1));
        assert_eq!(extra - alike, 14 * 150);
    }

    #[test]
    fn jobs_that_are_needed_are_not_packed() {
        let refused = |job: Job| assert!(packed(&[Some(job)]).is_none());
        refused(job(1, None, b"", &[b'b'; Payload::COPY_MAX + 1]));
        refused(Job {
            state: JobState::Leased(Box::new(lease())),
            ..job(1, None, b"", b"")
        });
        let many = |n| {
            (0..n)
                .map(|n| {
                    Some(Job {
                        failures: n,
                        ..job(1, None, b"", b"")
                    })
                })
                .collect::<Vec<_>>()
        };
        assert!(packed(&many(15)).is_some());
        assert!(packed(&many(16)).is_none());
        // The key is too long for a stored body, or for a payload in one piece.
        for (key, body, leaves) in [
            (254, 1_024, 1_024),
            (300, 47, 0),
            (300, 1_024, 1_024),
            (70_000, 1_024, 0),
        ] {
            let keyed = |body| Some(job(1, Some(&vec![b'k'; key]), b"", &vec![b'b'; body]));
            assert_eq!(
                packed(&[keyed(body)]).unwrap().can_leave,
                leaves,
                "{key} {body}"
            );
            assert!(packed(&[keyed(Payload::COPY_MAX + 1)]).is_none());
        }
    }

    fn lease() -> crate::jobs::Lease {
        let (holder, on_expiry) = (
            crate::jobs::Holder::Named(b"w".as_slice().into()),
            crate::jobs::OnExpiry::Requeue,
        );
        crate::jobs::Lease::new(
            holder,
            crate::ids::Token(1),
            Timestamp(0),
            Timestamp(1),
            on_expiry,
        )
    }
}
