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

/// A word of a configuration that has no meaning, and what would have one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConfigError {
    word: String,
    rule: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.word, self.rule)
    }
}

impl std::error::Error for ConfigError {}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            config.add(word).map_err(|rule| ConfigError { word: word.to_string(), rule })?;
        }
        Ok(config)
    }
}

impl Config {
    /// The same, whose reports on standard error begin with `name`: which of the providers of a process it is.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        if let Some(verify) = &mut self.verify {
            verify.name = name.into();
        }
        self
    }

    /// An error is the rule that the word breaks.
    fn add(&mut self, word: &str) -> Result<(), &'static str> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match (name, &mut self.explore) {
            ("verify", _) if word == name => {
                let sink =
                    Arc::new(|name: &str, report: &Report| eprintln!("{}", line(name, report)));
                self.verify = Some(Verify { sink: Some(sink), ..Verify::default() });
                Ok(())
            }
            ("verify", _) => Err("verify has no value"),
            ("explore", None) => {
                let seed = value.parse().map_err(|_| "explore= has a seed, a number from 0")?;
                self.explore = Some(Explore::new(seed));
                Ok(())
            }
            ("explore", Some(_)) => Err("explore= stands once"),
            (_, Some(explore)) => adjust(explore, name, value),
            ("limits" | "versions" | "refuse" | "late", None) => {
                Err("the word stands behind explore=SEED")
            }
            _ => Err(WORDS),
        }
    }
}

/// A report as it goes to standard error.
fn line(name: &str, report: &Report) -> String {
    let kind = if report.rule.is_mistake() { "mistake" } else { "note" };
    let colon = if name.is_empty() { "" } else { ": " };
    format!("{name}{colon}ndk-verifier: {kind}: {report}")
}

/// The words that there are.
const WORDS: &str = "not one of verify, explore=SEED, and behind that limits=NAME, versions=NAME, refuse=PERCENT, \
    late=MILLISECONDS";

/// A word about the explorer. An error is the rule that it breaks.
fn adjust(explore: &mut Explore, name: &str, value: &str) -> Result<(), &'static str> {
    match name {
        "limits" => {
            explore.limits = limits(value).ok_or("limits= is small, connectx3 or maximal")?;
        }
        "versions" => {
            explore.versions =
                versions(value).ok_or("versions= is serving, any, 1.2, 2.0 or 2.1")?;
        }
        "refuse" => {
            let refused = value.parse().ok().filter(|&refused| refused <= 100);
            explore.refused = refused.ok_or("refuse= has a percentage, a number from 0 to 100")?;
        }
        "late" => {
            explore.late =
                value.parse().map_err(|_| "late= has milliseconds, a number from 0 to 255")?;
        }
        _ => return Err(WORDS),
    }
    Ok(())
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

/// Puts the layers of a configuration around an opener: the consumer's calls meet the verifier first. With it, for its
/// reports, the verifier if there is one.
#[must_use]
pub fn wrap(opener: Arc<dyn Opener>, config: Config) -> (Arc<dyn Opener>, Option<Arc<Verifier>>) {
    let opener = match config.explore {
        Some(explore) => Explorer::new(opener, explore),
        None => opener,
    };
    match config.verify {
        Some(verify) => {
            let verifier = Verifier::new(opener, verify);
            (Arc::<Verifier>::clone(&verifier), Some(verifier))
        }
        None => (opener, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

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
    fn a_line_begins_with_the_name() {
        let config = "verify".parse::<Config>().unwrap().named("10.0.0.1");
        assert_eq!(config.verify.unwrap().name, "10.0.0.1");
        let report = Report {
            rule: Rule::ClosedTwice,
            call: "NdkCloseCq",
            object: "CQ 1 of adapter 1".into(),
            detail: "it was closed before".into(),
        };
        assert!(
            line("10.0.0.1", &report).starts_with("10.0.0.1: ndk-verifier: mistake: NdkCloseCq")
        );
        assert!(line("", &report).starts_with("ndk-verifier: mistake: NdkCloseCq"));
    }

    #[test]
    fn each_value_that_an_error_names_is_taken() {
        for word in ["limits=small", "limits=connectx3", "limits=maximal", "refuse=0", "refuse=100"]
        {
            assert!(format!("explore=0,{word}").parse::<Config>().is_ok(), "{word}");
        }
        for word in ["serving", "any", "1.2", "2.0", "2.1"] {
            assert!(format!("explore=0,versions={word}").parse::<Config>().is_ok(), "{word}");
        }
        assert!("explore=0,late=255".parse::<Config>().is_ok());
    }

    #[test]
    fn a_word_without_meaning_is_named_with_what_has_one() {
        for (text, told) in [
            ("verify=1", "`verify=1`: verify has no value"),
            ("verify,explore=x", "`explore=x`: explore= has a seed"),
            ("explore", "`explore`: explore= has a seed"),
            ("explore=1,explore=2", "`explore=2`: explore= stands once"),
            ("verify,limits=small", "`limits=small`: the word stands behind explore=SEED"),
            ("explore=1,limits=1", "`limits=1`: limits= is small, connectx3 or maximal"),
            ("explore=1,versions=3", "`versions=3`: versions= is serving, any, 1.2, 2.0 or 2.1"),
            ("explore=1,refuse=101", "`refuse=101`: refuse= has a percentage"),
            ("explore=1,late=-1", "`late=-1`: late= has milliseconds"),
            ("tiny", "`tiny`: not one of verify, explore=SEED"),
            ("explore=1,tiny", "`tiny`: not one of verify, explore=SEED"),
        ] {
            let error = text.parse::<Config>().unwrap_err().to_string();
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }
}
