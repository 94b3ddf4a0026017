//! The system's event log and the trace, for problems that an administrator has to solve.
#![allow(unsafe_code, reason = "calls NDIS")]

use crate::abi::imports::NdisWriteErrorLogEntry;
use crate::abi::*;
use crate::os::etw;

/// A problem. The discriminant is the first value of the event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Problem {
    /// `LowerAdapter` names no NIC.
    NoLowerAdapter = 1,
    /// The NIC's MTU is smaller than the adapter's. Values: the NIC's, the adapter's.
    LowerMtuTooSmall = 2,
    /// In mode Inherit the NIC has another address than the adapter was started with.
    AddressDiffers = 3,
    /// The RoCE frame size does not fit the MTU. Values: configured, in use.
    FrameSizeReduced = 4,
    /// `NetworkAddress` is no address of a station.
    BadNetworkAddress = 5,
    /// The NIC refused the packet filter. Value: its status.
    FilterRefused = 6,
    /// The NIC could not be opened. Value: the status.
    OpenFailed = 7,
}

impl Problem {
    /// The name in the trace.
    const fn name(self) -> &'static str {
        match self {
            Self::NoLowerAdapter => "NoLowerAdapter",
            Self::LowerMtuTooSmall => "LowerMtuTooSmall",
            Self::AddressDiffers => "AddressDiffers",
            Self::FrameSizeReduced => "FrameSizeReduced",
            Self::BadNetworkAddress => "BadNetworkAddress",
            Self::FilterRefused => "FilterRefused",
            Self::OpenFailed => "OpenFailed",
        }
    }

    const fn code(self) -> ULONG {
        match self {
            Self::NoLowerAdapter => NDIS_ERROR_CODE_MISSING_CONFIGURATION_PARAMETER,
            Self::LowerMtuTooSmall | Self::FrameSizeReduced => {
                NDIS_ERROR_CODE_UNSUPPORTED_CONFIGURATION
            }
            Self::AddressDiffers | Self::BadNetworkAddress => NDIS_ERROR_CODE_NETWORK_ADDRESS,
            Self::FilterRefused | Self::OpenFailed => NDIS_ERROR_CODE_ADAPTER_NOT_FOUND,
        }
    }
}

/// Writes one event into log and trace. IRQL <= DISPATCH_LEVEL.
pub(crate) fn report(adapter: NDIS_HANDLE, problem: Problem, first: u32, second: u32) {
    etw::problem(problem.name(), first, second);
    let code = problem.code();
    // SAFETY: three values follow their count.
    unsafe { NdisWriteErrorLogEntry(adapter, code, 3, problem as u32, first, second) };
}
