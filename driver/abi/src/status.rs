//! `NTSTATUS`: the status codes that cross this interface.

use core::fmt;

/// A Windows status code. The two highest bits are the severity: 0 success, 1 information,
/// 2 warning, 3 error.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
#[repr(transparent)]
#[must_use]
pub struct NTSTATUS(pub i32);

/// NDIS handlers return the same numbers under another name.
pub type NDIS_STATUS = NTSTATUS;

macro_rules! statuses {
    ($($name:ident = $value:literal,)+) => {
        $(
            #[doc = concat!("`", stringify!($value), "`")]
            pub const $name: NTSTATUS = NTSTATUS(($value as u32).cast_signed());
        )+

        impl NTSTATUS {
            /// The name of a code of this interface, as the headers spell it.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $($name => Some(stringify!($name)),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    STATUS_SUCCESS = 0x0000_0000,
    STATUS_PENDING = 0x0000_0103,
    STATUS_BUFFER_OVERFLOW = 0x8000_0005,
    STATUS_DEVICE_BUSY = 0x8000_0011,
    STATUS_NO_MORE_ENTRIES = 0x8000_001A,
    STATUS_ACCESS_VIOLATION = 0xC000_0005,
    STATUS_INVALID_PARAMETER = 0xC000_000D,
    STATUS_INVALID_DEVICE_REQUEST = 0xC000_0010,
    STATUS_BUFFER_TOO_SMALL = 0xC000_0023,
    STATUS_INVALID_PARAMETER_MIX = 0xC000_0030,
    STATUS_DATA_OVERRUN = 0xC000_003C,
    STATUS_DATA_ERROR = 0xC000_003E,
    STATUS_SHARING_VIOLATION = 0xC000_0043,
    STATUS_INSUFFICIENT_RESOURCES = 0xC000_009A,
    STATUS_DEVICE_NOT_READY = 0xC000_00A3,
    STATUS_IO_TIMEOUT = 0xC000_00B5,
    STATUS_NOT_SUPPORTED = 0xC000_00BB,
    STATUS_BAD_NETWORK_NAME = 0xC000_00CC,
    STATUS_INTERNAL_ERROR = 0xC000_00E5,
    STATUS_CANCELLED = 0xC000_0120,
    STATUS_REMOTE_RESOURCES = 0xC000_013D,
    STATUS_INVALID_ADDRESS = 0xC000_0141,
    STATUS_INVALID_DEVICE_STATE = 0xC000_0184,
    STATUS_INVALID_BUFFER_SIZE = 0xC000_0206,
    STATUS_TOO_MANY_ADDRESSES = 0xC000_0209,
    STATUS_ADDRESS_ALREADY_EXISTS = 0xC000_020A,
    STATUS_CONNECTION_DISCONNECTED = 0xC000_020C,
    STATUS_CONNECTION_REFUSED = 0xC000_0236,
    STATUS_CONNECTION_INVALID = 0xC000_023A,
    STATUS_CONNECTION_ACTIVE = 0xC000_023B,
    STATUS_NETWORK_UNREACHABLE = 0xC000_023C,
    STATUS_HOST_UNREACHABLE = 0xC000_023D,
    STATUS_REQUEST_ABORTED = 0xC000_0240,
    STATUS_CONNECTION_ABORTED = 0xC000_0241,
    STATUS_DEVICE_REMOVED = 0xC000_02B6,
    STATUS_IMPLEMENTATION_LIMIT = 0xC000_042B,
    NDIS_STATUS_BAD_VERSION = 0xC001_0004,
    NDIS_STATUS_ADAPTER_NOT_READY = 0xC001_0011,
}

/// Same number as [`STATUS_SUCCESS`].
pub const NDIS_STATUS_SUCCESS: NDIS_STATUS = STATUS_SUCCESS;
/// Same number as [`STATUS_INSUFFICIENT_RESOURCES`].
pub const NDIS_STATUS_RESOURCES: NDIS_STATUS = STATUS_INSUFFICIENT_RESOURCES;

impl NTSTATUS {
    /// `NT_SUCCESS`: success or information, which includes [`STATUS_PENDING`].
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 >= 0
    }

    /// `Ok` if [`NTSTATUS::is_success`], else the status itself.
    ///
    /// # Errors
    /// The status, when it is a warning or an error.
    pub const fn ok(self) -> Result<(), Self> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}

/// The shape of a provider function: convert, call a method, map its answer.
impl From<Result<(), NTSTATUS>> for NTSTATUS {
    fn from(result: Result<(), NTSTATUS>) -> Self {
        match result {
            Ok(()) => STATUS_SUCCESS,
            Err(status) => status,
        }
    }
}

impl fmt::Display for NTSTATUS {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "NTSTATUS {:#010x}", self.0),
        }
    }
}

impl fmt::Debug for NTSTATUS {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_success_and_information_are_success() {
        assert!(STATUS_SUCCESS.is_success() && STATUS_PENDING.is_success());
        assert!(!STATUS_BUFFER_OVERFLOW.is_success() && !STATUS_CANCELLED.is_success());
        assert_eq!(STATUS_CANCELLED.name(), Some("STATUS_CANCELLED"));
    }
}
