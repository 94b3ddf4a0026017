//! Everything that a miniport must answer, and rooms that are too small for the answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Host;
use crate::ndis::nic::Nic;
use crate::ndis::oid::{self, Answer};
use crate::ndis::vnic::Vnic;
use crate::ndis::{NOT_SUPPORTED, eventually};

use super::{add, add_with, expect_ready, finish, set_ndk};

const INVALID_LENGTH: i32 = 0xC001_0014_u32.cast_signed();
const INVALID_DATA: i32 = 0xC001_0015_u32.cast_signed();
const BUFFER_TOO_SHORT: i32 = 0xC001_0016_u32.cast_signed();

/// A request, and the bytes of its answer or of what it sets.
type Row = (u32, u32);

/// What is queried, of the pages "Mandatory OIDs for miniport drivers", "Ethernet statistics OIDs" and "NDKPI OIDs".
const QUERIES: &[Row] = &[
    (0x0001_0209, 12),           // OID_GEN_INTERRUPT_MODERATION
    (0x0001_0111, 4),            // OID_GEN_MAXIMUM_TOTAL_SIZE
    (0x0001_010B, 4),            // OID_GEN_RECEIVE_BLOCK_SIZE
    (0x0001_0109, 4),            // OID_GEN_RECEIVE_BUFFER_SPACE
    (oid::GEN_STATISTICS, 0x98), // OID_GEN_STATISTICS
    (0x0001_010A, 4),            // OID_GEN_TRANSMIT_BLOCK_SIZE
    (0x0001_0108, 4),            // OID_GEN_TRANSMIT_BUFFER_SPACE
    (0x0001_010D, 20),           // OID_GEN_VENDOR_DESCRIPTION
    (0x0001_0116, 4),            // OID_GEN_VENDOR_DRIVER_VERSION
    (0x0001_010C, 4),            // OID_GEN_VENDOR_ID
    (oid::GEN_CURRENT_PACKET_FILTER, 4),
    (oid::ETHERNET_PERMANENT_ADDRESS, 6),
    (oid::ETHERNET_CURRENT_ADDRESS, 6),
    (oid::NDK_STATISTICS, 0xF8),
    (oid::NDK_CONNECTIONS, 0x10),
    (oid::NDK_LOCAL_ENDPOINTS, 0x10),
];

/// Statistics of 64 bits, which a caller may ask for with room for 32.
const COUNTS: &[u32] = &[
    0x0002_0101, // OID_GEN_XMIT_OK
    0x0002_0102, // OID_GEN_RCV_OK
    0x0002_0103, // OID_GEN_XMIT_ERROR
    0x0002_0104, // OID_GEN_RCV_ERROR
    0x0002_0105, // OID_GEN_RCV_NO_BUFFER
    0x0102_0101, // OID_802_3_RCV_ERROR_ALIGNMENT
    0x0102_0102, // OID_802_3_XMIT_ONE_COLLISION
    0x0102_0103, // OID_802_3_XMIT_MORE_COLLISIONS
];

/// What is set, of the same pages.
const SETS: &[Row] = &[
    (0x0001_010F, 4),  // OID_GEN_CURRENT_LOOKAHEAD
    (0x0001_0208, 32), // OID_GEN_LINK_PARAMETERS
    (oid::GEN_CURRENT_PACKET_FILTER, 4),
];

/// An adapter answers all of them.
pub(super) fn requests(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let vnic = add(0, nic);
    expect_ready(vnic, nic);
    let listed = vnic.oids();
    let counts = COUNTS.iter().map(|&code| (code, 8));
    for (code, len) in QUERIES.iter().copied().chain(counts) {
        if !listed.contains(&code) {
            breach!("OID {code:#x} is not in the list of supported OIDs");
        }
        expect(vnic, oid::QUERY, code, 512, (0, len));
        expect(vnic, oid::QUERY, code, 2, (BUFFER_TOO_SHORT, 0));
        let asked = expect(vnic, oid::QUERY, code, 0, (BUFFER_TOO_SHORT, 0));
        if asked.needed != len {
            breach!("OID {code:#x} needs {} bytes instead of {len}", asked.needed);
        }
    }
    for &code in COUNTS {
        let answer = expect(vnic, oid::QUERY, code, 4, (0, 4));
        if answer.needed != 8 {
            breach!("OID {code:#x} with room for 32 bits: {answer:x?}");
        }
    }
    for &(code, len) in SETS {
        if !listed.contains(&code) {
            breach!("OID {code:#x} is not in the list of supported OIDs");
        }
        expect(vnic, oid::SET, code, len as usize, (0, len));
        expect(vnic, oid::SET, code, len as usize - 1, (INVALID_LENGTH, 0));
    }
    // It reports that there is nothing to be moderated.
    expect(vnic, oid::SET, 0x0001_0209, 12, (INVALID_DATA, 0));
    expect(vnic, oid::QUERY, 0x0BAD_0BAD, 8, (NOT_SUPPORTED, 0));
    vnic.remove();
    finish(host);
}

/// NDK that is off by the registry stays off, until the registry is changed under the adapter.
pub(super) fn enable_late(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let vnic = add_with(0, nic, &[("*NetworkDirect", "0")]);
    expect_ready(vnic, nic);
    expect(vnic, oid::SET, oid::NDK_SET_STATE, 0, (INVALID_LENGTH, 0));
    set_ndk(vnic, true);
    std::thread::sleep(Duration::from_millis(20));
    if vnic.ndk_enables.load(Ordering::SeqCst) != 0 {
        breach!("NDK comes on where the registry forbids it");
    }
    vnic.keywords.lock().unwrap().insert("*NetworkDirect".into(), "1".into());
    set_ndk(vnic, true);
    eventually("NetEventNDKEnable", || vnic.ndk_enables.load(Ordering::SeqCst) == 1);
    vnic.remove();
    finish(host);
}

/// Asks with this much room; the answer has this status and as many bytes.
fn expect(vnic: &Vnic, kind: i32, code: u32, room: usize, wanted: (i32, u32)) -> Answer {
    let answer = oid::ask(vnic, kind, code, &mut vec![0; room], false);
    if (answer.status, answer.done) != wanted {
        breach!("OID {code:#x}, {room} bytes: {answer:x?} instead of {wanted:x?}");
    }
    answer
}
