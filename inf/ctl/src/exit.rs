//! How the program ends, by the codes that Windows' own installers end with.

use std::fmt;

/// The ends that a caller tells apart. Usage that is not understood is clap's: 2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    Done,
    Failed,
    /// Done, and Windows is to be restarted before all of it is so.
    RestartNeeded,
    /// Nothing was changed, since Windows is to be restarted first.
    RestartFirst,
    /// This machine cannot show what was asked for, so nothing is shown.
    Skipped,
}

impl Exit {
    /// `ERROR_SUCCESS_REBOOT_REQUIRED` and `ERROR_FAIL_NOACTION_REBOOT` are of
    /// [the list](https://learn.microsoft.com/windows/win32/debug/system-error-codes).
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::RestartNeeded => 3010,
            Self::RestartFirst => 350,
            // As the release, where this machine lacks something.
            Self::Skipped => 77,
        }
    }

    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if error.is::<RestartFirst>() { Self::RestartFirst } else { Self::Failed }
    }
}

/// Nothing is changed while Windows waits for a restart: what is half removed would be met again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RestartFirst {
    /// In words.
    pub(crate) asked_by: String,
}

impl fmt::Display for RestartFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked_by } = self;
        write!(
            f,
            "Windows waits for a restart ({asked_by}): restart it, then give the same command again"
        )
    }
}

impl std::error::Error for RestartFirst {}

/// `ERROR_SERVICE_MARKED_FOR_DELETE`, as functions of Win32 and of COM tell it.
const MARKED_FOR_DELETION: [&str; 2] = ["0x00000430", "0x80070430"];

/// Adds what mends an error, where its number says no more than Windows' sentence does.
pub(crate) fn with_remedy(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    if MARKED_FOR_DELETION.iter().any(|number| text.contains(number)) {
        return error.context(
            "the service is marked for deletion since it was last removed: \
             restart Windows, then install again",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit codes are Windows', and a refusal keeps its own through the contexts around it.
    #[test]
    fn a_refusal_is_told_from_a_failure() {
        let refused = RestartFirst { asked_by: "INetCfg".into() };
        let error = anyhow::Error::new(refused).context("around it");
        assert_eq!(Exit::of(&error).code(), 350);
        assert_eq!(Exit::of(&anyhow::anyhow!("another")).code(), 1);
        assert_eq!(Exit::RestartNeeded.code(), 3010);
    }

    #[test]
    fn a_service_that_is_to_be_deleted_has_its_remedy() {
        for number in MARKED_FOR_DELETION {
            let error = anyhow::anyhow!("INetCfgClassSetup::Install: ... ({number})");
            let text = format!("{:#}", with_remedy(error.context("could not install")));
            assert!(text.starts_with("the service is marked for deletion"), "{text}");
            assert!(text.contains("restart Windows") && text.contains(number), "{text}");
        }
        let other = with_remedy(anyhow::anyhow!("0x80070005"));
        assert_eq!(format!("{other:#}"), "0x80070005");
    }
}
