//! `windlass explain`: exit codes, and the codes in the daemon's answers, with what to do about them.

use windlass_config::Failure;

/// A code, its meaning, and what to do.
struct Explanation<'a>(&'a str, &'a str, &'a str);

/// Exit codes, error codes of the API, and the reasons why a job does not run: the rows of the chapter, which is the only
/// place that has them.
fn all() -> impl Iterator<Item = Explanation<'static>> {
    include_str!("../../../docs/codes.md")
        .lines()
        .filter_map(|row| {
            let (code, rest) = row
                .strip_prefix("| `")?
                .strip_suffix(" |")?
                .split_once("` | ")?;
            let (meaning, advice) = rest.split_once(" |")?;
            Some(Explanation(code, meaning, advice.trim_start()))
        })
}

/// The explanation of a code, or of all.
///
/// # Errors
///
/// The code is unknown.
pub(crate) fn explain(code: Option<&str>) -> Result<String, Failure> {
    let Some(code) = code else {
        return Ok(all().map(|explanation| explanation.line()).collect());
    };
    let unknown = || {
        format!(
            "the code {} is unknown; `windlass explain` lists all",
            code.escape_debug()
        )
    };
    let found = all().find(|Explanation(name, ..)| *name == code);
    found
        .map(|explanation| explanation.text())
        .ok_or_else(|| Failure::Runtime(unknown()))
}

impl Explanation<'_> {
    fn line(&self) -> String {
        let Self(code, meaning, _) = self;
        format!("{code:22}{meaning}\n")
    }

    fn text(&self) -> String {
        let Self(code, meaning, advice) = self;
        let advice = if advice.is_empty() {
            String::new()
        } else {
            format!("{advice}\n")
        };
        format!("{code}: {meaning}\n{advice}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_explained_once() {
        let codes: BTreeSet<&str> = all().map(|Explanation(code, ..)| code).collect();
        assert_eq!((codes.len(), all().count()), (48, 48));
        assert!(
            explain(Some("4"))
                .unwrap()
                .contains("`windlass verify DIR`")
        );
        assert!(
            explain(Some("nothing"))
                .unwrap_err()
                .to_string()
                .contains("`windlass explain` lists all")
        );
        assert_eq!(explain(None).unwrap().lines().count(), codes.len());
        assert_eq!(
            explain(Some("0")).unwrap(),
            "0: done, or stopped by a signal\n"
        );
    }

    /// So has each state of a job that is a reason not to run, and each reason of its own.
    #[test]
    fn every_reason_has_an_explanation() {
        let source = include_str!("../../http/src/api/detail.rs");
        let listed = source
            .lines()
            .find(|line| line.contains("`leased`, "))
            .unwrap();
        let reasons: Vec<&str> = listed.split('`').skip(1).step_by(2).collect();
        assert!(reasons.len() > 8, "{listed}");
        for reason in reasons {
            assert!(explain(Some(reason)).is_ok(), "{reason}");
        }
    }

    /// Each refusal of the engine has a code of the API, and each code an explanation.
    #[test]
    fn every_refusal_has_an_explanation() {
        let source = [
            include_str!("../../engine/src/refusal.rs"),
            include_str!("../../http/src/problem.rs"),
        ]
        .concat();
        let is_code = |word: &&str| {
            word.contains('_')
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        let codes: Vec<&str> = source
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(is_code)
            .collect();
        assert!(codes.len() > 10, "{codes:?}");
        for code in codes {
            assert!(explain(Some(code)).is_ok(), "{code}");
        }
    }
}
