//! The primitives used by the neighbouring files. The model checker replaces them.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

pub(super) use arc_swap::ArcSwap;
