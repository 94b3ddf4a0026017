//! The offloads of the NIC below: those that are taken up, and those that are refused.
#![allow(unsafe_code, reason = "reads what NDIS lends")]

use super::binding::Binding;
use crate::abi::*;
use crate::offload;
use netadapter_glue::ndis::units::Offers;

impl Binding {
    /// Asks the NIC not to merge TCP segments: TCP/IP has to get through us the frames that were sent. A
    /// NIC that does not know the request does not merge. PASSIVE_LEVEL.
    pub(super) fn refuse_merging(&self) {
        self.set_merging([OffloadParameters::DISABLED; 2]);
    }

    /// Has the NIC merge segments as it did when it was opened. PASSIVE_LEVEL.
    pub(super) fn restore_merging(&self) {
        if self.merged.contains(&true) {
            let before = |merged| {
                if merged { OffloadParameters::ENABLED } else { OffloadParameters::UNCHANGED }
            };
            self.set_merging(self.merged.map(before));
        }
    }

    fn set_merging(&self, families: [u8; 2]) {
        let mut parameters = OffloadParameters::merging(families);
        let len = OffloadParameters::LEN;
        let _ = self.set(OID_TCP_OFFLOAD_PARAMETERS, (&raw mut parameters).cast(), len as u32);
    }

    /// Takes up what the NIC offers when it is bound: before that, it has to be told what frames come (Microsoft's page of
    /// [`OID_OFFLOAD_ENCAPSULATION`](https://learn.microsoft.com/windows-hardware/drivers/network/oid-offload-encapsulation)).
    /// The NIC's own TCP/IP says the same where it is bound. PASSIVE_LEVEL.
    pub(super) fn accept(&self, offers: Offers) {
        if offers == Offers::default() {
            return;
        }
        let ethernet = NDIS_OFFLOAD_ENCAPSULATION_IP {
            Enabled: NDIS_OFFLOAD_SET_ON,
            EncapsulationType: NDIS_ENCAPSULATION_IEEE_802_3,
            HeaderSize: 14,
        };
        let mut frames = NDIS_OFFLOAD_ENCAPSULATION {
            Header: header(
                NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION,
                NDIS_OFFLOAD_ENCAPSULATION_REVISION_1,
                size_of::<NDIS_OFFLOAD_ENCAPSULATION>(),
            ),
            IPv4: ethernet,
            IPv6: ethernet,
        };
        let len = size_of::<NDIS_OFFLOAD_ENCAPSULATION>() as u32;
        // The NIC may tell of a change as soon as it has heard.
        *self.offers.lock() = Some(offers);
        if self.set(OID_OFFLOAD_ENCAPSULATION, (&raw mut frames).cast(), len).is_err() {
            *self.offers.lock() = None;
        }
    }

    /// Takes up changed offers, where the NIC was told of our frames when it was bound. IRQL <= DISPATCH_LEVEL.
    pub(super) fn change_offers(&self, offers: Offers) {
        if let Some(known) = &mut *self.offers.lock() {
            *known = offers;
        }
    }

    /// Tells the segmentation that the NIC offers, which does not change meanwhile. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn tell_offers(&self, tell: impl FnOnce(Offers)) {
        let offers = self.offers.lock();
        tell(offers.unwrap_or_default());
    }
}

/// The segmentation that a NIC's offloads hold.
///
/// # Safety
/// `config` is null, or an `NDIS_OFFLOAD` of the size that its header says.
pub(super) unsafe fn offers_of(config: *const NDIS_OFFLOAD) -> Offers {
    // SAFETY: the caller's promise; each revision begins with the header.
    let Some(header) = (unsafe { config.cast::<NDIS_OBJECT_HEADER>().as_ref() }) else {
        return Offers::default();
    };
    // SAFETY: as above; read only where the size tells that it is there.
    let udp = || unsafe { (&raw const (*config).UdpSegmentation).read_unaligned() };
    offload::offers(header, udp)
}

/// Whether a NIC merges segments of TCP over IPv4, and over IPv6.
///
/// # Safety
/// As for [`offers_of`].
pub(super) unsafe fn merging_of(config: *const NDIS_OFFLOAD) -> [bool; 2] {
    // SAFETY: the caller's promise; each revision begins with the header.
    let Some(header) = (unsafe { config.cast::<NDIS_OBJECT_HEADER>().as_ref() }) else {
        return [false; 2];
    };
    // SAFETY: as above; read only where the size tells that it is there.
    let merging = || unsafe { (&raw const (*config).Rsc).read_unaligned() };
    offload::merging(header, merging)
}

/// `NDIS_OFFLOAD_PARAMETERS` of revision 3. All zero: leave everything as it is.
#[repr(C)]
struct OffloadParameters {
    header: NDIS_OBJECT_HEADER,
    unchanged: [u8; 11],
    flags: u32,
    ipsec_v2: [u8; 2],
    rsc_ipv4: u8,
    rsc_ipv6: u8,
    encapsulation: [u8; 2],
}

impl OffloadParameters {
    /// Through the last member, without the padding behind it.
    const LEN: usize = 0x1A;
    const UNCHANGED: u8 = 0;
    const DISABLED: u8 = 1;
    const ENABLED: u8 = 2;
    const SKIP_REGISTRY_UPDATE: u32 = 1;

    /// Merging of segments over IPv4, and over IPv6.
    const fn merging([rsc_ipv4, rsc_ipv6]: [u8; 2]) -> Self {
        Self {
            header: header(NDIS_OBJECT_TYPE_DEFAULT, 3, Self::LEN),
            unchanged: [0; 11],
            flags: Self::SKIP_REGISTRY_UPDATE,
            ipsec_v2: [0; 2],
            rsc_ipv4,
            rsc_ipv6,
            encapsulation: [0; 2],
        }
    }
}

const _: () = {
    assert!(core::mem::offset_of!(OffloadParameters, flags) == 0x10);
    assert!(core::mem::offset_of!(OffloadParameters, rsc_ipv4) == 0x16);
    assert!(core::mem::offset_of!(OffloadParameters, encapsulation) == 0x18);
};
