//! NDIS QoS: what the image registers and indicates, from which NDIS answers all queries itself.

use std::sync::Mutex;

use super::{Header, INVALID_LENGTH, NOT_SUPPORTED, SUCCESS, member, oid};
use crate::ntos::Pointer;

/// An adapter's part of it.
#[derive(Default)]
pub struct Qos(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Hardware and current: flags, and the classes, those of ETS, those of PFC.
    capabilities: Option<[[u32; 4]; 2]>,
    /// The operational parameters of the last indication.
    operational: Option<Vec<u8>>,
    indications: usize,
}

/// The type of the attributes.
pub(super) const ATTRIBUTES: u8 = 0xAF;
pub(super) const OPERATIONAL_CHANGE: i32 = 0x4002_00A0;

/// Bytes of `NDIS_QOS_PARAMETERS`, and of an element behind it.
pub const HEAD: usize = 52;
pub const ELEMENT: usize = 16;

impl Qos {
    /// Takes `NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES`.
    pub(super) unsafe fn set_attributes(&self, start: Pointer) {
        member::<Header>(start, 0).check("hardware assist attributes", ATTRIBUTES, &[(3, 0x50)]);
        for at in (8..0x40).step_by(8) {
            if member::<usize>(start, at) != 0 {
                breach!(
                    "the adapter offers something at {at:#x} of the hardware assist attributes"
                );
            }
        }
        let capabilities = [0x40, 0x48].map(|at| {
            let pointer = member::<Pointer>(start, at);
            if pointer.is_null() {
                breach!(
                    "one of the QoS capabilities is NULL, which neither may be without the other"
                );
                return [0; 4];
            }
            member::<Header>(pointer, 0).check("NDIS_QOS_CAPABILITIES", 0xB5, &[(1, 20)]);
            let [flags, classes, ets, pfc] = member::<[u32; 4]>(pointer, 4);
            if classes > 8 || ets > classes || pfc > classes {
                breach!("QoS with {classes} classes, {ets} of ETS, {pfc} of PFC");
            }
            [flags, classes, ets, pfc]
        });
        let before = self.0.lock().unwrap().capabilities.replace(capabilities);
        if before.is_some() {
            breach!("the QoS capabilities are set twice");
        }
    }

    /// Takes the data of `NDIS_STATUS_QOS_OPERATIONAL_PARAMETERS_CHANGE`.
    pub(super) unsafe fn indicated(&self, data: Pointer, len: u32) {
        let mut known = self.0.lock().unwrap();
        if known.capabilities.is_none_or(|[_, current]| current[1] == 0) {
            breach!("QoS parameters of an adapter whose QoS is off");
        }
        member::<Header>(data, 0).check("NDIS_QOS_PARAMETERS", 0xB6, &[(1, HEAD as u16)]);
        let [count, size, first] = member::<[u32; 3]>(data, 40);
        if len as usize != HEAD + count as usize * ELEMENT || [size, first] != [16, 52] {
            breach!("{len} bytes of QoS parameters with {count} elements of {size} at {first}");
            return;
        }
        let bytes = std::slice::from_raw_parts(data, len as usize).to_vec();
        for element in bytes[HEAD..].chunks(ELEMENT) {
            if element[..8] != [0xB7, 1, 16, 0, 0, 0, 0, 0] {
                breach!("an element of QoS begins with {:x?}", &element[..8]);
            }
        }
        if known.operational.as_ref() == Some(&bytes) {
            breach!("QoS parameters are indicated that have not changed");
        }
        known.operational = Some(bytes);
        known.indications += 1;
    }

    /// The answer of NDIS to a query.
    ///
    /// # Errors
    /// The status, where there is none.
    pub fn query(&self, oid: u32, room: usize) -> Result<Vec<u8>, i32> {
        let known = self.0.lock().unwrap();
        let [hardware, current] = known.capabilities.ok_or(NOT_SUPPORTED)?;
        let capabilities = |values: [u32; 4]| {
            let numbers = values.map(u32::to_le_bytes);
            [&[0xB5, 1, 20, 0], numbers.as_flattened()].concat()
        };
        let nothing = || [&[0xB6, 1, HEAD as u8, 0][..], &[0; HEAD - 4]].concat();
        let answer = match oid {
            oid::QOS_HARDWARE_CAPABILITIES => capabilities(hardware),
            oid::QOS_CURRENT_CAPABILITIES => capabilities(current),
            oid::QOS_OPERATIONAL_PARAMETERS => known.operational.clone().unwrap_or_else(nothing),
            // Nothing was ever heard of a peer.
            oid::QOS_REMOTE_PARAMETERS => nothing(),
            _ => return Err(NOT_SUPPORTED),
        };
        if room < answer.len() { Err(INVALID_LENGTH) } else { Ok(answer) }
    }

    /// How often operational parameters were indicated.
    pub fn indications(&self) -> usize {
        self.0.lock().unwrap().indications
    }

    /// `OID_QOS_PARAMETERS` reaches the adapter only if its capabilities are on.
    pub fn is_on(&self) -> bool {
        self.query(oid::QOS_CURRENT_CAPABILITIES, 20).is_ok_and(|answer| answer[8] != 0)
    }
}

/// What the image answered to a method request with this data.
pub fn set(vnic: &super::vnic::Vnic, data: &mut [u8]) -> oid::Answer {
    let answer = oid::ask(vnic, oid::METHOD, oid::QOS_PARAMETERS, data, false);
    if answer.status == SUCCESS && answer.done as usize != data.len() {
        breach!("of {} bytes of QoS parameters the image took {}", data.len(), answer.done);
    }
    answer
}
