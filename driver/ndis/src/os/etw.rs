//! Event tracing (ETW): events of the driver, an adapter or a connection, and none per packet.
//!
//! The provider has the name of the service, and its GUID follows from the name (`inf/README.md` has it).
//! An event without a listener costs a comparison. All functions: IRQL <= DISPATCH_LEVEL, unless stated
//! otherwise.
#![allow(
    unsafe_code,
    reason = "the provider must not outlive the image, and addresses are C unions"
)]

use crate::abi::*;
use core::net::SocketAddr;
use driver::platform::Trace;
use rocev2::counters::Counter::*;
use rocev2::qp::{Failure, Refused};
use tracelogging::{define_provider, write_event};

define_provider!(PROVIDER, "ndkrocev2");

// A keyword for each kind, by which a session chooses.
const DRIVER: u64 = 1;
const ADAPTER: u64 = 2;
const CONNECTION: u64 = 4;
const ERROR: u64 = 8;

/// Registers the provider, at load. The driver also works without ETW. PASSIVE_LEVEL.
#[inline(never)]
pub(crate) fn start(ndis_version: u32) {
    // SAFETY: `stop` is called before the image goes.
    let _ = unsafe { PROVIDER.register() };
    write_event!(
        PROVIDER,
        "DriverLoaded",
        level(Informational),
        keyword(DRIVER),
        str8("Version", env!("CARGO_PKG_VERSION")),
        u32_hex("NdisVersion", &ndis_version),
    );
}

/// Unregisters the provider, before the image is unloaded. PASSIVE_LEVEL.
pub(crate) fn stop() {
    write_event!(PROVIDER, "DriverUnloaded", level(Informational), keyword(DRIVER));
    let _ = PROVIDER.unregister();
}

/// An adapter was joined to its NIC.
pub(crate) fn bound(luid: NET_LUID, nic: &[u16], speed: u64) {
    write_event!(
        PROVIDER,
        "Bound",
        level(Informational),
        keyword(ADAPTER),
        u64_hex("Luid", &luid.Value),
        str16("Nic", nic),
        u64("BitsPerSecond", &speed),
    );
}

/// The NIC left its adapter, or the adapter its NIC.
pub(crate) fn unbound(luid: NET_LUID, nic: &[u16]) {
    write_event!(
        PROVIDER,
        "Unbound",
        level(Informational),
        keyword(ADAPTER),
        u64_hex("Luid", &luid.Value),
        str16("Nic", nic),
    );
}

/// NDK of an adapter was enabled or disabled.
pub(crate) fn ndk(luid: NET_LUID, enabled: bool) {
    write_event!(
        PROVIDER,
        "NdkChanged",
        level(Informational),
        keyword(ADAPTER),
        u64_hex("Luid", &luid.Value),
        bool8("Enabled", &enabled),
    );
}

/// A problem that an administrator has to solve; also in the system's event log.
pub(crate) fn problem(name: &str, interface: u32, first: u32, second: u32) {
    write_event!(
        PROVIDER,
        "Misconfigured",
        level(Error),
        keyword(ADAPTER | ERROR),
        str8("Problem", name),
        u32("IfIndex", &interface),
        u32("First", &first),
        u32("Second", &second),
    );
}

/// An event of the core.
pub(super) fn core(event: &Trace<'_>) {
    match *event {
        Trace::Connected { local, remote } => {
            write_event!(
                PROVIDER,
                "Connected",
                level(Informational),
                keyword(CONNECTION),
                socketaddress("Local", bytes(&local.into())),
                socketaddress("Remote", bytes(&remote.into())),
            );
        }
        Trace::Disconnected { local, remote, by, totals } => {
            let total = |counter| totals.map_or(0, |totals| totals.get(counter));
            write_event!(
                PROVIDER,
                "Disconnected",
                level(Informational),
                keyword(CONNECTION),
                socketaddress("Local", bytes(&local.into())),
                socketaddress("Remote", bytes(&remote.into())),
                str8("By", by.name()),
                u64("sent_pkts", &total(SentPkts)),
                u64("sent_bytes", &total(SentBytes)),
                u64("rcvd_pkts", &total(RcvdPkts)),
                u64("rcvd_bytes", &total(RcvdBytes)),
                u64("resent_timer_pkts", &total(ResentTimerPkts)),
                u64("resent_nak_pkts", &total(ResentNakPkts)),
                u64("resent_implied_nak_pkts", &total(ResentImpliedNakPkts)),
                u64("resent_rnr_pkts", &total(ResentRnrPkts)),
                u64("needless_resends", &total(NeedlessResends)),
                u64("local_ack_timeout_err", &total(LocalAckTimeoutErr)),
                u64("packet_seq_err", &total(PacketSeqErr)),
                u64("rcvd_rnr_err", &total(RcvdRnrErr)),
                u64("duplicate_request", &total(DuplicateRequest)),
                u64("out_of_seq_request", &total(OutOfSeqRequest)),
                u64("out_of_buffer", &total(OutOfBuffer)),
                u64("np_cnp_sent", &total(NpCnpSent)),
                u64("rp_cnp_handled", &total(RpCnpHandled)),
                u64("paced_ns", &total(PacedNs)),
            );
        }
        Trace::NotConnected { remote, status } => {
            let none = SOCKADDR_INET::UNSPECIFIED;
            let remote = remote.map_or(none, SOCKADDR_INET::from);
            write_event!(
                PROVIDER,
                "NotConnected",
                level(Warning),
                keyword(CONNECTION),
                socketaddress("Remote", bytes(&remote)),
                win_ntstatus("Status", &status.0),
            );
        }
        Trace::RequestFailed { qpn, status } => {
            write_event!(
                PROVIDER,
                "RequestFailed",
                level(Error),
                keyword(CONNECTION | ERROR),
                u32_hex("Qpn", &qpn.get()),
                win_ntstatus("Status", &status.0),
            );
        }
        Trace::QpFailed { qpn, failure, code } => {
            let (what, nak) = match failure.nak() {
                Some((code, true)) => ("sent NAK", code as u8 | 0x60),
                Some((code, false)) => ("received NAK", code as u8 | 0x60),
                None => ("no NAK", 0),
            };
            let key = match failure {
                Failure::Refused(Refused { key: Some(key), .. }) => key.get(),
                Failure::Refused(_) | Failure::Request { .. } => 0,
            };
            write_event!(
                PROVIDER,
                "QpFailed",
                level(Error),
                keyword(CONNECTION | ERROR),
                u32_hex("Qpn", &qpn.get()),
                str8("By", what),
                u8_hex("Syndrome", &nak),
                u32_hex("Psn", &failure.psn().get()),
                u32_hex("Key", &key),
                u32_hex("ProviderErrorCode", &code),
            );
        }
        Trace::CqOverrun { depth } => {
            write_event!(
                PROVIDER,
                "CqOverrun",
                level(Error),
                keyword(CONNECTION | ERROR),
                u32("Depth", &depth),
            );
        }
        // It is a problem, whose line is the log's.
        Trace::UnitsLost { .. } => {}
    }
}

/// A socket address in the length of its family, as decoders expect it.
fn bytes(address: &SOCKADDR_INET) -> &[u8] {
    let len = match address.socket_addr() {
        Some(SocketAddr::V4(_)) => size_of::<SOCKADDR_IN>(),
        Some(SocketAddr::V6(_)) | None => size_of::<SOCKADDR_INET>(),
    };
    // SAFETY: the union is zero where its member does not reach, and has no padding.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(address).cast(), len) }
}
