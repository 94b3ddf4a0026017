//! The errors in a caller's hands: boxed, printed, told apart.

use core::error::Error;
use rocev2::cm::CmError;
use rocev2::env::Fault;
use rocev2::ids::Rkey;
use rocev2::mr::AccessError;
use rocev2::psn::Psn;
use rocev2::qp::{Failure, PostError, SrqError, WcStatus};
use rocev2::wire::DropReason;
use std::collections::BTreeSet;

/// Checks that texts differ, and read as the middle of a sentence (API guideline C-GOOD-ERR).
fn check<E: Error + Send + Sync + 'static>(errors: &[E]) {
    let texts: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), errors.len(), "{texts:?}");
    for text in &texts {
        assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('{'), "{text}");
    }
}

#[test]
fn every_error_says_something_else() {
    check(&DropReason::ALL);
    check(&[Fault]);
    check(&[
        PostError::UnknownQp,
        PostError::NotConnected,
        PostError::QueueFull,
        PostError::UnknownSrq,
        PostError::SharedReceives,
        PostError::NoReads,
    ]);
    check(&[SrqError::Unknown, SrqError::InUse, SrqError::Outstanding]);
    check(&[
        CmError::PrivateData,
        CmError::Address,
        CmError::AddressInUse,
        CmError::NoPorts,
        CmError::Connected,
        CmError::Full,
        CmError::UnknownId,
        CmError::State,
    ]);
    check(&[
        AccessError::UnknownKey,
        AccessError::Domain,
        AccessError::Rights,
        AccessError::Bounds,
        AccessError::Kind,
        AccessError::Valid,
    ]);
}

#[test]
fn a_failure_names_its_packet_and_its_status() {
    let failure = Failure::Request { status: WcStatus::RemoteAccess, psn: Psn::new(0x123) };
    assert_eq!(
        failure.to_string(),
        "the request at PSN 0x000123 failed: the peer refused access to its memory"
    );
    // A question mark takes an error of the crate into any caller's.
    fn fails() -> Result<Rkey, Box<dyn Error>> {
        Err(AccessError::Rights)?
    }
    assert_eq!(fails().unwrap_err().to_string(), AccessError::Rights.to_string());
}
