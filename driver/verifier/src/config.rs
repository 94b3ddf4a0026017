//! The layers that a program puts on, from one string.

use crate::{Explore, Explorer, Limits, Opener, Report, Verifier, Verify, Versions};
use driver::abi::NDK_VERSION;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The layers to put on; none by default.
///
/// As a string, words with commas between them:
///
/// | Word | Means |
/// | --- | --- |
/// | `verify` | the verifier, whose reports go to standard error, a line each |
/// | `explore=17` | the explorer with this seed |
/// | `limits=small`, `connectx3` or `maximal` | the explorer's limits |
/// | `versions=serving`, `any`, `1.2`, `2.0` or `2.1` | the explorer's versions |
/// | `refuse=5` | of a hundred creations five are refused |
/// | `late=4` | the longest delay of a callback, in milliseconds |
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The verifier.
    pub verify: Option<Verify>,
    /// The explorer, behind the verifier if there are both.
    pub explore: Option<Explore>,
}

/// A word of a configuration that has no meaning.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is none of verify, explore=SEED, and behind that limits=, versions=, refuse=, late=",
            self.0
        )
    }
}

impl std::error::Error for ConfigError {}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            config.add(word).ok_or_else(|| ConfigError(word.to_string()))?;
        }
        Ok(config)
    }
}

impl Config {
    fn add(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match (name, &mut self.explore) {
            ("verify", _) if value.is_empty() => {
                let sink = Arc::new(|report: &Report| {
                    let kind = if report.rule.is_mistake() { "mistake" } else { "note" };
                    eprintln!("ndk-verifier: {kind}: {report}");
                });
                self.verify = Some(Verify { sink: Some(sink), ..Verify::default() });
            }
            ("explore", None) => self.explore = Some(Explore::new(value.parse().ok()?)),
            ("limits", Some(explore)) => explore.limits = limits(value)?,
            ("versions", Some(explore)) => explore.versions = versions(value)?,
            ("refuse", Some(explore)) => {
                explore.refused = value.parse().ok().filter(|&refused| refused <= 100)?;
            }
            ("late", Some(explore)) => explore.late = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

fn limits(name: &str) -> Option<Limits> {
    [Limits::Small, Limits::ConnectX3, Limits::Maximal]
        .into_iter()
        .find(|limits| limits.name() == name)
}

fn versions(name: &str) -> Option<Versions> {
    let highest = |major, minor| Versions::Highest(NDK_VERSION { Major: major, Minor: minor });
    Some(match name {
        "serving" => Versions::Serving,
        "any" => Versions::Any,
        "1.2" => highest(1, 2),
        "2.0" => highest(2, 0),
        "2.1" => highest(2, 1),
        _ => return None,
    })
}

/// Puts the layers of a configuration around an opener: the consumer's calls meet the verifier first.
#[must_use]
pub fn wrap(opener: Arc<dyn Opener>, config: Config) -> Arc<dyn Opener> {
    let opener = match config.explore {
        Some(explore) => Explorer::new(opener, explore),
        None => opener,
    };
    match config.verify {
        Some(verify) => Verifier::new(opener, verify),
        None => opener,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_names_the_layers() {
        let config: Config =
            "verify, explore=17,limits=small,versions=2.0,refuse=5,late=9".parse().unwrap();
        assert!(config.verify.is_some_and(|verify| verify.sink.is_some()));
        let explore = config.explore.unwrap();
        assert_eq!(
            (explore.seed, explore.limits, explore.refused, explore.late),
            (17, Limits::Small, 5, 9)
        );
        assert_eq!(explore.versions, Versions::Highest(NDK_VERSION { Major: 2, Minor: 0 }));
        let none: Config = "".parse().unwrap();
        assert!(none.verify.is_none() && none.explore.is_none());
    }

    #[test]
    fn a_word_without_meaning_is_named() {
        for word in ["verify=1", "explore=x", "limits=small", "explore", "refuse=101", "tiny"] {
            let text = format!("verify,{word}");
            let error = text.parse::<Config>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{word}`")), "{error}");
        }
        assert!("explore=1,limits=tiny".parse::<Config>().is_err());
        assert!("explore=1,refuse=101".parse::<Config>().is_err());
    }
}
