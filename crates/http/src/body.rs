//! Limits of request bodies: length, time to arrive, and total bytes being received.
//!
//! A body that was received is no longer included, because it becomes a job, and the engine limits those.

use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::problem::Problem;

/// The time limit for a body to arrive, including the wait for space.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bodies up to this size are always accepted.
const SMALL_BYTES: usize = 64 << 10;

/// The space for all longer bodies together, or the limit of a single body if that is larger.
const LARGE_BYTES: usize = 16 << 20;

/// The bodies of all connections.
#[derive(Debug)]
pub(crate) struct Bodies {
    bytes_max: usize,
    /// A permit for each byte.
    large: Semaphore,
}

impl Bodies {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            large: Semaphore::new(bytes_max.max(LARGE_BYTES)),
        }
    }

    /// Reads the body of a request. Waits for space before reading any of it.
    pub(crate) async fn read(&self, request: Request) -> Result<Bytes, Problem> {
        let announced = request
            .headers()
            .get("content-length")
            .and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = announced.unwrap_or(self.bytes_max);
        if bytes > self.bytes_max {
            return Err(self.too_large());
        }
        let arrives = async {
            let _room = self.room(bytes).await;
            // The body is longer than announced, or the peer has disconnected.
            axum::body::to_bytes(request.into_body(), self.bytes_max)
                .await
                .map_err(|_| self.too_large())
        };
        let late = || {
            Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_incomplete",
                "the body did not arrive in time",
            )
        };
        tokio::time::timeout(PATIENCE, arrives)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn room(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes <= SMALL_BYTES {
            return None;
        }
        self.large
            .acquire_many(u32::try_from(bytes).unwrap_or(u32::MAX))
            .await
            .ok()
    }

    fn too_large(&self) -> Problem {
        let detail = format!(
            "the body is longer than http.body_bytes_max, {} bytes",
            self.bytes_max
        );
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    }
}
