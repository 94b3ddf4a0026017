//! The packet queues, and the calls that advance them:
//! [transmit and receive queues](https://learn.microsoft.com/windows-hardware/drivers/netcx/transmit-and-receive-queues).
//! NetAdapterCx makes the calls of one queue one after the other, from its start to its stop.
#![allow(unsafe_code, reason = "called by NetAdapterCx")]

use crate::abi::*;
use crate::driver::{TransmitEnd, adapter_of};
use crate::framework::*;
use crate::resident::Resident;
use alloc::boxed::Box;
use core::ffi::c_void;
use core::ptr::null_mut;
use netadapter_glue::netadapter::abi::*;
use netadapter_glue::netadapter::{PacketRings, ReceiveQueue, TransmitQueue};

struct Transmit {
    adapter: NETADAPTER,
    queue: TransmitQueue,
    resident: Box<dyn Resident>,
}

struct Receive {
    adapter: NETADAPTER,
    queue: ReceiveQueue,
}

static TRANSMIT: ContextType<Transmit> = ContextType::new(c"TransmitQueue", &TRANSMIT);
static RECEIVE: ContextType<Receive> = ContextType::new(c"ReceiveQueue", &RECEIVE);

/// [`EvtNetAdapterCreateTxQueue`](https://learn.microsoft.com/windows-hardware/drivers/ddi/netadapter/nc-netadapter-evt_net_adapter_create_txqueue).
/// PASSIVE_LEVEL.
///
/// # Safety
/// Called by NetAdapterCx with an adapter of this driver and the init structure of a new queue.
pub(crate) unsafe extern "system" fn create_transmit_queue(
    adapter: NETADAPTER,
    init: PVOID,
) -> NTSTATUS {
    let mut queue = NETPACKETQUEUE(null_mut());
    let mut attributes = TRANSMIT.attributes(clean_transmit_queue);
    let mut config = config(advance_transmit, enable_transmit, cancel_transmit);
    if let Err(status) = NetTxQueueCreate(init, &mut attributes, &mut config, &mut queue).ok() {
        return status;
    }
    let mut addresses = NET_EXTENSION::NONE;
    NetTxQueueGetExtension(queue, &query(), &mut addresses);
    let rings = NetTxQueueGetRingCollection(queue);
    // SAFETY: both are the queue's, and only its calls use them.
    let Some(rings) = (unsafe { PacketRings::new(rings, addresses) }) else {
        return STATUS_UNSUCCESSFUL;
    };
    let Some(TransmitEnd { wire, resident }) = adapter_of(adapter).transmit.take() else {
        return STATUS_UNSUCCESSFUL;
    };
    // SAFETY: as above; the queue's cleanup ends this.
    let transmit = unsafe { TransmitQueue::new(wire, rings, queue.0, notify_transmit) };
    TRANSMIT.put(queue.0, Box::new(Transmit { adapter, queue: transmit, resident }));
    STATUS_SUCCESS
}

/// [`EvtNetAdapterCreateRxQueue`](https://learn.microsoft.com/windows-hardware/drivers/ddi/netadapter/nc-netadapter-evt_net_adapter_create_rxqueue).
/// PASSIVE_LEVEL.
///
/// # Safety
/// Called by NetAdapterCx with an adapter of this driver and the init structure of a new queue.
pub(crate) unsafe extern "system" fn create_receive_queue(
    adapter: NETADAPTER,
    init: PVOID,
) -> NTSTATUS {
    let mut queue = NETPACKETQUEUE(null_mut());
    let mut attributes = RECEIVE.attributes(clean_receive_queue);
    let mut config = config(advance_receive, enable_receive, cancel_receive);
    if let Err(status) = NetRxQueueCreate(init, &mut attributes, &mut config, &mut queue).ok() {
        return status;
    }
    let mut addresses = NET_EXTENSION::NONE;
    NetRxQueueGetExtension(queue, &query(), &mut addresses);
    let rings = NetRxQueueGetRingCollection(queue);
    // SAFETY: both are the queue's, and only its calls use them.
    let Some(rings) = (unsafe { PacketRings::new(rings, addresses) }) else {
        return STATUS_UNSUCCESSFUL;
    };
    let Some(wire) = adapter_of(adapter).receive.take() else { return STATUS_UNSUCCESSFUL };
    // SAFETY: as above; the queue's cleanup ends this.
    let receive = unsafe { ReceiveQueue::new(wire, rings, queue.0, notify_receive) };
    RECEIVE.put(queue.0, Box::new(Receive { adapter, queue: receive }));
    STATUS_SUCCESS
}

/// `NET_PACKET_QUEUE_CONFIG_INIT`. No start and no stop: the indices begin at 0, and there is no hardware.
fn config(
    advance: EVT_PACKET_QUEUE,
    enable: EVT_PACKET_QUEUE_SET_NOTIFICATION_ENABLED,
    cancel: EVT_PACKET_QUEUE,
) -> NET_PACKET_QUEUE_CONFIG {
    NET_PACKET_QUEUE_CONFIG {
        Size: size_of::<NET_PACKET_QUEUE_CONFIG>() as u32,
        EvtStart: None,
        EvtStop: None,
        EvtAdvance: Some(advance),
        EvtSetNotificationEnabled: Some(enable),
        EvtCancel: Some(cancel),
    }
}

/// `NET_EXTENSION_QUERY_INIT`, for the virtual addresses.
fn query() -> NET_EXTENSION_QUERY {
    NET_EXTENSION_QUERY {
        Size: size_of::<NET_EXTENSION_QUERY>() as u32,
        Name: NAME.as_ptr(),
        Version: NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_VERSION_1,
        Type: NetExtensionTypeFragment,
    }
}

const NAME_LEN: usize = NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_NAME.len();

/// UTF-16 with a zero at the end.
static NAME: [u16; NAME_LEN + 1] = utf16(NET_FRAGMENT_EXTENSION_VIRTUAL_ADDRESS_NAME);

/// ASCII as UTF-16, and zeros behind it.
const fn utf16<const N: usize>(ascii: &str) -> [u16; N] {
    let (bytes, mut units, mut index) = (ascii.as_bytes(), [0; N], 0);
    while index < bytes.len() {
        units[index] = bytes[index] as u16;
        index += 1;
    }
    units
}

/// The content of a transmit queue, for the length of one of its calls.
///
/// # Safety
/// In a call of NetAdapterCx for that queue, once.
unsafe fn transmit<'a>(queue: NETPACKETQUEUE) -> &'a mut Transmit {
    // SAFETY: the calls of a queue come one after the other, and its cleanup after them.
    unsafe { &mut *TRANSMIT.get(queue.0) }
}

/// The content of a receive queue, for the length of one of its calls.
///
/// # Safety
/// In a call of NetAdapterCx for that queue, once.
unsafe fn receive<'a>(queue: NETPACKETQUEUE) -> &'a mut Receive {
    // SAFETY: as for `transmit`.
    unsafe { &mut *RECEIVE.get(queue.0) }
}

/// `EvtPacketQueueAdvance`. IRQL <= DISPATCH_LEVEL. The resident's turn is between post and the next advance, so what
/// it takes is drained when it has notified the system.
///
/// # Safety
/// Called by NetAdapterCx for a transmit queue of this driver; so all below for theirs.
unsafe extern "system" fn advance_transmit(queue: NETPACKETQUEUE) {
    // SAFETY: the contract above.
    let Transmit { queue, resident, .. } = unsafe { transmit(queue) };
    queue.advance();
    resident.poll();
}

unsafe extern "system" fn enable_transmit(queue: NETPACKETQUEUE, enabled: u8) {
    // SAFETY: the contract above.
    unsafe { transmit(queue) }.queue.set_notification_enabled(enabled != 0);
}

unsafe extern "system" fn cancel_transmit(queue: NETPACKETQUEUE) {
    // SAFETY: the contract above.
    unsafe { transmit(queue) }.queue.cancel();
}

unsafe extern "system" fn advance_receive(queue: NETPACKETQUEUE) {
    // SAFETY: the contract above.
    unsafe { receive(queue) }.queue.advance();
}

unsafe extern "system" fn enable_receive(queue: NETPACKETQUEUE, enabled: u8) {
    // SAFETY: the contract above.
    unsafe { receive(queue) }.queue.set_notification_enabled(enabled != 0);
}

unsafe extern "system" fn cancel_receive(queue: NETPACKETQUEUE) {
    // SAFETY: the contract above.
    unsafe { receive(queue) }.queue.cancel();
}

unsafe extern "system" fn notify_transmit(queue: *mut c_void) {
    NetTxQueueNotifyMoreCompletedPacketsAvailable(NETPACKETQUEUE(queue));
}

unsafe extern "system" fn notify_receive(queue: *mut c_void) {
    NetRxQueueNotifyMoreReceivedPacketsAvailable(NETPACKETQUEUE(queue));
}

/// The queue's end of the wire waits for the next queue: NetAdapterCx makes others when power is back.
unsafe extern "system" fn clean_transmit_queue(queue: WDFOBJECT) {
    if let Some(transmit) = TRANSMIT.take(queue.0) {
        let Transmit { adapter, queue, resident } = *transmit;
        adapter_of(adapter).transmit.put(TransmitEnd { wire: queue.into_wire(), resident });
    }
}

unsafe extern "system" fn clean_receive_queue(queue: WDFOBJECT) {
    if let Some(receive) = RECEIVE.take(queue.0) {
        let Receive { adapter, queue } = *receive;
        adapter_of(adapter).receive.put(queue.into_wire());
    }
}
