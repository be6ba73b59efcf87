//! Whether serving threads poll before they sleep: `"auto"`, `"off"`, or for how long: `"50us"`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum time in microseconds, which is more than any core takes to wake up.
const US_MAX: u64 = 1_000;

/// How a serving thread waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Polling {
    /// It polls briefly while that pays.
    #[default]
    Auto,
    /// It sleeps immediately.
    Off,
    /// It always polls for this long first.
    For(Duration),
}

/// Not a valid value of `server.poll`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid server.poll `{0}`, expected \"auto\", \"off\" or a time from \"1us\" to \"{US_MAX}us\""
)]
pub struct PollingError(String);

impl TryFrom<String> for Polling {
    type Error = PollingError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let time = || {
            text.strip_suffix("us")
                .and_then(|us| us.trim_end().parse().ok())
        };
        match &*text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match time() {
                Some(us @ 1..=US_MAX) => Ok(Self::For(Duration::from_micros(us))),
                Some(_) | None => Err(PollingError(text)),
            },
        }
    }
}

impl From<Polling> for String {
    fn from(polling: Polling) -> Self {
        match polling {
            Polling::Auto => "auto".to_owned(),
            Polling::Off => "off".to_owned(),
            Polling::For(time) => format!("{}us", time.as_micros()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn ways_to_wait_read_and_written() {
        for text in ["auto", "off", "1us", "50us", "1000us"] {
            let value = serde_json::Value::from(text);
            assert_eq!(
                serde_json::to_value(Polling::deserialize(&value).unwrap()).unwrap(),
                value
            );
        }
        for text in [
            "",
            "on",
            "Auto",
            "0us",
            "1001us",
            "50",
            "50ms",
            "-1us",
            "1e2us",
            "99999999999999999999us",
        ] {
            assert_eq!(
                Polling::try_from(text.to_owned()),
                Err(PollingError(text.to_owned()))
            );
        }
    }
}
