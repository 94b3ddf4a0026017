//! A call and the status it ended with.

use std::fmt;

use driver::abi::NTSTATUS;

/// A failed NDK call, inline or by its completion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NdkError {
    /// The status of the provider.
    pub status: NTSTATUS,
    /// The member of the dispatch table, such as `NdkConnect`.
    pub call: &'static str,
}

/// The result of an NDK call.
pub type Result<T, E = NdkError> = std::result::Result<T, E>;

impl NdkError {
    /// Turns the status of `call` into a result: everything that `NT_SUCCESS` accepts is `Ok`.
    ///
    /// # Errors
    /// The status, if it is a warning or an error.
    pub fn check(call: &'static str, status: NTSTATUS) -> Result<()> {
        if status.is_success() {
            Ok(())
        } else {
            std::hint::cold_path();
            Err(Self { status, call })
        }
    }
}

impl fmt::Display for NdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.status)
    }
}

impl std::error::Error for NdkError {}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::abi::{STATUS_HOST_UNREACHABLE, STATUS_PENDING};

    #[test]
    fn an_error_names_its_status() {
        let error = NdkError::check("NdkConnect", STATUS_HOST_UNREACHABLE).unwrap_err();
        assert_eq!(error.to_string(), "NdkConnect: STATUS_HOST_UNREACHABLE");
        let odd = NdkError { status: NTSTATUS(0xC0DE_0001_u32.cast_signed()), call: "NdkSend" };
        assert_eq!(odd.to_string(), "NdkSend: NTSTATUS 0xc0de0001");
        assert_eq!(NdkError::check("NdkSend", STATUS_PENDING), Ok(()));
    }
}
