//! The adapter and the NIC below it: joining and parting, the link, the frames that the NIC is asked for, and its address.
#![allow(unsafe_code, reason = "calls NDIS")]

use super::Adapter;
use crate::abi::imports::NdisMIndicateStatusEx;
use crate::abi::*;
use crate::keywords::{Config, Mode};
use crate::log::report;
use crate::lower::binding::{Binding, LinkState};
use crate::os::{entropy, etw};
use crate::pairing::DRIVER;
use crate::problems::Problem;
use crate::stage::Stage;
use crate::upper::{config, ip};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::null_mut;

impl Adapter {
    pub(crate) fn is_attached(&self) -> bool {
        self.attachment.has_binding()
    }

    /// Joins the adapter to its NIC, if no other has that. One that sleeps is offered again when it wakes. PASSIVE_LEVEL, in turn.
    pub(crate) fn attach(self: &Arc<Self>, binding: &Arc<Binding>) -> Result<(), NDIS_STATUS> {
        if let Some(owner) = binding.owner() {
            report(self.interface, Problem::NicTaken, owner, 0);
            return Err(NDIS_STATUS_ADAPTER_NOT_FOUND);
        }
        if !binding.is_awake() {
            return Err(NDIS_STATUS_ADAPTER_NOT_READY);
        }
        if binding.mtu() < self.mtu() {
            let (theirs, ours) = (binding.mtu() as u32, self.mtu() as u32);
            report(self.interface, Problem::LowerMtuTooSmall, theirs, ours);
            return Err(NDIS_STATUS_NOT_SUPPORTED);
        }
        if self.config.mode != Mode::Own {
            self.compare_address(binding)?;
        }
        DRIVER.reach(Stage::Binding);
        binding.set_filter(self.lower_filter(binding)).inspect_err(|status| {
            report(self.interface, Problem::FilterRefused, status.0.cast_unsigned(), 0);
        })?;
        drop(self.attachment.set_binding(Some(Arc::clone(binding))));
        binding.set_adapter(Arc::clone(self));
        self.follow_offers(binding);
        self.move_near(binding);
        if let Some(scaling) = binding.scaling.filter(|_| self.config.mode == Mode::Inherit) {
            binding.spread(scaling);
        }
        etw::bound(self.luid, binding.name(), binding.link().speed);
        DRIVER.reach(Stage::Bound);
        self.indicate_link(binding.link());
        Ok(())
    }

    /// Compares the address with that of the NIC, which it is to have. PASSIVE_LEVEL.
    fn compare_address(&self, binding: &Binding) -> Result<(), NDIS_STATUS> {
        if self.config.lower_address != Some(binding.mac) {
            config::keep_lower_address(self.handle, binding.mac);
        }
        if binding.mac == self.mac {
            return Ok(());
        }
        report(self.interface, Problem::AddressDiffers, 0, 0);
        // It could be reached only by a NIC that takes all frames, and this one is not asked for that.
        if self.config.mode == Mode::Share { Err(NDIS_STATUS_NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Moves the poll cores to the processors that are nearest to the NIC. PASSIVE_LEVEL, in turn.
    fn move_near(&self, binding: &Binding) {
        let running = self.running();
        if running.seating.move_near(&binding.distances())
            && let Some(parts) = &*running.parts.lock()
        {
            parts.runner.follow_seats();
        }
    }

    /// Whether it sends units where the NIC divides them.
    pub(crate) const fn has_units(&self) -> bool {
        self.config.units() > 0
    }

    /// Has the edge send units as far as the NIC divides them. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn follow_offers(&self, binding: &Binding) {
        if self.has_units() {
            binding.tell_offers(|offers| {
                let tags = self.attachment.tagging().tags_roce();
                self.ports().offer(if tags { offers.beside_tags() } else { offers });
            });
        }
    }

    /// A policy of NDIS QoS is configured, and takes the place of `RoCEPriority`, or is gone. PASSIVE_LEVEL.
    pub(crate) fn follow_policy(&self, configured: bool) {
        self.attachment.set_policy(configured);
        if let Some(binding) = self.attachment.binding() {
            self.follow_offers(&binding);
        }
    }

    /// Moves to a VLAN; 0: to none. PASSIVE_LEVEL.
    pub(crate) fn set_vlan(&self, vlan: u16) {
        self.attachment.set_vlan(vlan);
        if let Some(binding) = self.attachment.binding() {
            self.follow_offers(&binding);
        }
    }

    /// Parts from the NIC; nothing of it is in progress any more. PASSIVE_LEVEL, in turn.
    pub(crate) fn detach(&self, binding: &Arc<Binding>) {
        let attached = self.attachment.set_binding(None);
        debug_assert!(attached.is_none_or(|attached| Arc::ptr_eq(&attached, binding)));
        etw::unbound(self.luid, binding.name());
        self.indicate_link(LinkState { connected: false, speed: NDIS_LINK_SPEED_UNKNOWN });
    }

    /// The NIC's packet filter. It has all multicast, because the adapter's own list is kept here. Where the NIC has another address,
    /// or TCP/IP asks for all frames, it has everything; but not what this host sends, which NDIS would bring back otherwise: see
    /// [Looping Back NDIS Packets](https://learn.microsoft.com/windows-hardware/drivers/network/looping-back-ndis-packets).
    fn lower_filter(&self, binding: &Binding) -> u32 {
        let common =
            NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_ALL_MULTICAST | NDIS_PACKET_TYPE_BROADCAST;
        let asked = self.sorting.filter() & NDIS_PACKET_TYPE_PROMISCUOUS != 0;
        // A NIC whose address it shares stays as it is: it may not be allowed more.
        if self.config.mode != Mode::Share && (asked || binding.mac != self.mac) {
            common | NDIS_PACKET_TYPE_PROMISCUOUS | NDIS_PACKET_TYPE_NO_LOCAL
        } else {
            common
        }
    }

    /// Asks the NIC anew for the frames that TCP/IP wants. PASSIVE_LEVEL.
    pub(super) fn ask_for_frames(&self) {
        let luid = self.luid;
        let job = Box::new(move || {
            // In turn it does not halt meanwhile.
            DRIVER.in_turn(|| {
                let Some(adapter) = DRIVER.adapter_of(luid) else { return };
                if let Some(binding) = adapter.attachment.binding() {
                    // A request that a NIC refuses, or cannot take without power, is made again at the next bind.
                    let _ = binding.set_filter(adapter.lower_filter(&binding));
                }
            });
        });
        // If the queue is full, the next bind asks.
        let _ = DRIVER.chores().is_some_and(|chores| chores.push(job));
    }

    /// Tells NDIS the link's state. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn indicate_link(&self, link: LinkState) {
        let state =
            if link.connected { MediaConnectStateConnected } else { MediaConnectStateDisconnected };
        let mut buffer = NDIS_LINK_STATE {
            Header: header(NDIS_OBJECT_TYPE_DEFAULT, 1, size_of::<NDIS_LINK_STATE>()),
            MediaConnectState: state,
            MediaDuplexState: MediaDuplexStateFull,
            XmitLinkSpeed: link.speed,
            RcvLinkSpeed: link.speed,
            PauseFunctions: 0,
            AutoNegotiationFlags: 0,
        };
        let len = size_of::<NDIS_LINK_STATE>();
        self.indicate_status(NDIS_STATUS_LINK_STATE, (&raw mut buffer).cast(), len);
    }

    /// Tells NDIS a status, whose data lives during the call. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn indicate_status(&self, code: u32, data: PVOID, len: usize) {
        let mut indication = NDIS_STATUS_INDICATION {
            Header: header(
                NDIS_OBJECT_TYPE_STATUS_INDICATION,
                1,
                size_of::<NDIS_STATUS_INDICATION>(),
            ),
            SourceHandle: self.handle,
            PortNumber: NDIS_DEFAULT_PORT_NUMBER,
            StatusCode: code,
            Flags: 0,
            DestinationHandle: null_mut(),
            RequestId: null_mut(),
            StatusBuffer: data,
            StatusBufferSize: len as ULONG,
            Guid: GUID { Data1: 0, Data2: 0, Data3: 0, Data4: [0; 8] },
            NdisReserved: [null_mut(); 4],
        };
        // SAFETY: both live during the call.
        unsafe { NdisMIndicateStatusEx(self.handle, &mut indication) };
    }
}

/// The address that an adapter starts with. PASSIVE_LEVEL.
#[inline(never)]
pub(super) fn choose_mac(config: &Config) -> Result<[u8; 6], NDIS_STATUS> {
    // A shared address is the NIC's, whatever is asked for.
    if let Some(address) = config.network_address.filter(|_| config.mode != Mode::Share) {
        return Ok(address);
    }
    if config.mode != Mode::Own {
        // A NIC that has not started yet has the address that it had.
        if let Some(address) = ip::mac_of(&config.lower).or(config.lower_address) {
            return Ok(address);
        }
    }
    if config.lower.is_empty() {
        let mut address = [0; 6];
        entropy(&mut address)?;
        return Ok(local(address));
    }
    // An address of its own, the same at every start: a digest (FNV-1a) of the name of the NIC.
    let digest = config.lower.iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, &unit| {
        (digest ^ u64::from(unit | 0x20)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [a, b, c, d, e, f, ..] = digest.to_le_bytes();
    Ok(local([a, b, c, d, e, f]))
}

/// Locally administered, for one station.
const fn local([first, rest @ ..]: [u8; 6]) -> [u8; 6] {
    let [b, c, d, e, f] = rest;
    [first & 0xfc | 2, b, c, d, e, f]
}
