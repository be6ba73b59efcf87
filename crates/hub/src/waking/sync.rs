//! What the files beside are made of. The model checker has its own.

pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

pub(super) use arc_swap::ArcSwap;
