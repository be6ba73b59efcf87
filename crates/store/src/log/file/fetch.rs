//! Single records of the log, read by place.

use super::{Shared, WINDOW_BYTES, Window};
use crate::files::at;
use crate::store::{Error, Span};
use std::os::unix::fs::FileExt as _;
use std::sync::PoisonError;

impl Shared {
    pub(super) fn fetch_one(
        &self,
        Span { place, len }: Span,
        into: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (number, begin) = (
            place.0 >> 32,
            usize::try_from(place.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX),
        );
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = window.segment == number
            && window.at <= begin
            && begin + len <= window.at + window.bytes.len();
        if !inside {
            let segment = self
                .state()
                .segments
                .iter()
                .find(|segment| segment.header.number == number)
                .cloned();
            let Some(segment) = segment else {
                let what = format!("segment {number} of the log is missing");
                return Err(Error::damaged(self.folder.display(), what));
            };
            let used = usize::try_from(segment.used).unwrap_or(usize::MAX);
            let wanted = len.max(WINDOW_BYTES).min(used.saturating_sub(begin));
            window.bytes.resize(wanted, 0);
            (window.segment, window.at) = (0, begin);
            segment
                .file
                .read_exact_at(&mut window.bytes, begin as u64)
                .map_err(at("reading", &segment.path))?;
            window.segment = number;
        }
        let Some(bytes) = window.bytes.get(begin - window.at..begin - window.at + len) else {
            let what = format!(
                "segment {number} of the log ends before byte {}",
                begin + len
            );
            return Err(Error::damaged(self.folder.display(), what));
        };
        into.extend_from_slice(bytes);
        if window.bytes.len() > WINDOW_BYTES {
            *window = Window::default();
        }
        Ok(())
    }
}
