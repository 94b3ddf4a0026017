//! NDIS QoS of an adapter: its capabilities, the parameters that the system sets, and those that are in force.
//!
//! NDIS answers the queries itself, from what is registered and indicated here
//! ([Querying NDIS QoS Parameters](https://learn.microsoft.com/windows-hardware/drivers/network/querying-ndis-qos-parameters)).
#![allow(unsafe_code, reason = "requests come with raw buffers")]

use super::adapter::Adapter;
use crate::abi::*;
use crate::os::sync::{SpinLock, sleep};
use crate::qos::{self, Policy};
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

/// The QoS of an adapter.
pub(crate) struct QosState {
    /// NDIS has its capabilities, and they are switched on.
    enabled: AtomicBool,
    /// The policy that NDIS was told last; `None`: nothing yet.
    told: SpinLock<Option<Policy>>,
}

impl QosState {
    pub(super) fn new() -> Self {
        Self { enabled: AtomicBool::new(false), told: SpinLock::new(None) }
    }

    /// NDIS has taken the capabilities.
    pub(super) fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }
}

/// [`OID_QOS_PARAMETERS`](https://learn.microsoft.com/windows-hardware/drivers/network/oid-qos-parameters), a method request: its data
/// goes back with the flags of the elements that are enforced. PASSIVE_LEVEL.
#[inline(never)]
pub(super) fn set(adapter: &Adapter, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    if !adapter.qos.is_enabled() {
        return NDIS_STATUS_NOT_SUPPORTED;
    }
    let (needed, len) = (size_of::<NDIS_QOS_PARAMETERS>(), request.InformationBufferLength);
    // Written, read, needed.
    request.MethodTail = [0, 0, needed as u32];
    if (len as usize) < needed {
        return NDIS_STATUS_INVALID_LENGTH;
    }
    let buffer = request.InformationBuffer.cast::<u8>();
    // SAFETY: the buffer of a request is readable for its length, which is no less.
    let parameters = unsafe { buffer.cast::<NDIS_QOS_PARAMETERS>().read_unaligned() };
    let Ok(place) = qos::elements(&parameters, len as usize, buffer.addr()) else {
        return STATUS_INVALID_PARAMETER;
    };
    let first = buffer.wrapping_add(place.start).cast::<NDIS_QOS_CLASSIFICATION_ELEMENT>();
    let count = place.len() / size_of::<NDIS_QOS_CLASSIFICATION_ELEMENT>();
    // SAFETY: as above; they lie aligned within the buffer, which is the driver's to write during a method request.
    let elements = unsafe { slice_mut(first, count as ULONG) };
    let Ok(policy) = Policy::take(parameters.Flags, elements) else {
        return STATUS_INVALID_PARAMETER;
    };
    let done = adapter.enforce(&policy);
    if done.is_ok() {
        request.MethodTail = [len, len, needed as u32];
        adapter.tell_policy(policy);
    }
    done.into()
}

impl Adapter {
    /// Puts a policy in force: for the frames of the next turn. PASSIVE_LEVEL.
    fn enforce(&self, policy: &Policy) -> Result<(), NDIS_STATUS> {
        loop {
            let classes = policy.classes(self.dscp()).ok_or(NDIS_STATUS_RESOURCES)?;
            if self.shard().set_traffic_classes(classes).is_ok() {
                break;
            }
            // The ring is full for moments only.
            sleep(Duration::from_millis(1));
        }
        self.follow_policy(policy.configured);
        Ok(())
    }

    /// Indicates the operational parameters, if they are others than before. IRQL <= DISPATCH_LEVEL.
    fn tell_policy(&self, policy: Policy) {
        let mut operational = {
            let mut told = self.qos.told.lock();
            if told.as_ref() == Some(&policy) {
                return;
            }
            told.insert(policy).operational()
        };
        let len = operational.len();
        let code = NDIS_STATUS_QOS_OPERATIONAL_PARAMETERS_CHANGE;
        self.indicate_status(code, (&raw mut operational).cast(), len);
    }

    /// Indicates the parameters of the start, once. PASSIVE_LEVEL, in the first restart.
    pub(super) fn tell_first_policy(&self) {
        if self.qos.is_enabled() && self.qos.told.lock().is_none() {
            self.tell_policy(Policy::default());
        }
    }
}
