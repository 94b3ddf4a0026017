//! NDIS QoS as far as software honours it: the classes of NetworkDirect ports, of `OID_QOS_PARAMETERS`.
//!
//! The adapter has no queues of its own, so it selects nothing for transmission (ETS, strict priority) and pauses nothing (PFC). Such
//! parameters are overridden, as [the page](https://learn.microsoft.com/windows-hardware/drivers/network/oid-qos-parameters) allows
//! without a failure: the operational parameters do not have them. Conditions other than those of NetworkDirect are about traffic
//! that the adapter does not make. There is no DCBX, so no peer's parameters, and the local ones are in force, willing or not.

use crate::abi::*;
use alloc::vec::Vec;
use core::ops::Range;
use rocev2::class::{TrafficClass, TrafficClasses};

/// Ports that may have a class. Elements beyond are not enforced.
pub(crate) const PORTS_MAX: usize = 32;

/// The priorities that are in force.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Policy {
    /// The system has configured a classification, maybe of nothing.
    pub(crate) configured: bool,
    /// The priority of packets that nothing else is about.
    default: Option<u8>,
    ports: heapless::Vec<(u16, u8), PORTS_MAX>,
}

/// The parameters hold an incorrect value (`NDIS_STATUS_INVALID_PARAMETER`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Incorrect;

impl Policy {
    /// Takes the elements of parameters with these flags, and flags those that are enforced. Where one is incorrect, none is changed.
    pub(crate) fn take(
        flags: ULONG,
        elements: &mut [NDIS_QOS_CLASSIFICATION_ELEMENT],
    ) -> Result<Self, Incorrect> {
        let mut policy = Self::default();
        if flags & NDIS_QOS_PARAMETERS_CLASSIFICATION_CONFIGURED == 0 {
            return Ok(policy);
        }
        policy.configured = true;
        if !elements.iter().enumerate().all(|(at, element)| is_correct(element, at == 0)) {
            return Err(Incorrect);
        }
        for element in elements {
            element.Flags &= !NDIS_QOS_CLASSIFICATION_SET_BY_MINIPORT_MASK;
            if policy.add(element) {
                element.Flags |= NDIS_QOS_CLASSIFICATION_ENFORCED_BY_MINIPORT;
            }
        }
        Ok(policy)
    }

    /// Adds a correct element; false where it is not enforced. Of two about one port, the first is.
    fn add(&mut self, element: &NDIS_QOS_CLASSIFICATION_ELEMENT) -> bool {
        let (field, priority) = (element.ConditionField, element.ActionField as u8);
        match element.ConditionSelector {
            NDIS_QOS_CONDITION_DEFAULT => self.default = Some(priority),
            NDIS_QOS_CONDITION_NETDIRECT_PORT => {
                let known = self.ports.iter().any(|&(port, _)| port == field);
                return !known && self.ports.push((field, priority)).is_ok();
            }
            _ => return false,
        }
        true
    }

    /// The classes of connections. NDIS tells priorities alone: `dscp` is the code point of all, or 0 for the class selector that a priority
    /// stands for (RFC 2474, 4.2.2). A default of priority 0 leaves connections as they are without one. `None`: no memory.
    pub(crate) fn classes(&self, dscp: u8) -> Option<TrafficClasses> {
        let class = |priority| TrafficClass {
            priority,
            dscp: if dscp == 0 { priority << CLASS_SELECTOR } else { dscp },
        };
        let mut ports = Vec::new();
        ports.try_reserve_exact(self.ports.len()).ok()?;
        ports.extend(self.ports.iter().map(|&(port, priority)| (port, class(priority))));
        let default = self.default.filter(|&priority| priority != 0).map(class);
        Some(TrafficClasses { default, ports })
    }

    /// The operational parameters: the elements that are enforced, and nothing else.
    pub(crate) fn operational(&self) -> Operational {
        let default = self.default.map(|priority| (NDIS_QOS_CONDITION_DEFAULT, 0, priority));
        let ports = self.ports.iter();
        let ports =
            ports.map(|&(port, priority)| (NDIS_QOS_CONDITION_NETDIRECT_PORT, port, priority));
        let mut operational = Operational::new();
        let mut count = 0;
        for (place, (condition, field, priority)) in
            operational.elements.iter_mut().zip(default.into_iter().chain(ports))
        {
            (place.ConditionSelector, place.ConditionField) = (condition, field);
            place.ActionField = priority.into();
            count += 1;
        }
        let parameters = &mut operational.parameters;
        parameters.Flags = NDIS_QOS_PARAMETERS_CLASSIFICATION_CHANGED;
        if self.configured {
            parameters.Flags |= NDIS_QOS_PARAMETERS_CLASSIFICATION_CONFIGURED;
        }
        parameters.NumClassificationElements = count;
        operational
    }
}

/// Where the elements lie in a buffer of `len` bytes at `address` that begins with these parameters, if all of these are correct.
pub(crate) fn elements(
    parameters: &NDIS_QOS_PARAMETERS,
    len: usize,
    address: usize,
) -> Result<Range<usize>, Incorrect> {
    let head = size_of::<NDIS_QOS_PARAMETERS>();
    let NDIS_OBJECT_HEADER { Type, Revision, Size } = parameters.Header;
    let flags = parameters.Flags;
    let [ets, pfc] = [NDIS_QOS_PARAMETERS_ETS_CONFIGURED, NDIS_QOS_PARAMETERS_PFC_CONFIGURED]
        .map(|flag| flags & flag != 0);
    let is_correct = Type == NDIS_OBJECT_TYPE_QOS_PARAMETERS
        && Revision >= NDIS_QOS_PARAMETERS_REVISION_1
        && (head..=len).contains(&usize::from(Size))
        // NDIS sets them together.
        && ets == pfc
        && (!ets || selects_correctly(parameters) && parameters.PfcEnable & PFC_RESERVED == 0);
    if !is_correct {
        return Err(Incorrect);
    }
    let count = parameters.NumClassificationElements as usize;
    if flags & NDIS_QOS_PARAMETERS_CLASSIFICATION_CONFIGURED == 0 || count == 0 {
        return Ok(0..0);
    }
    let size = size_of::<NDIS_QOS_CLASSIFICATION_ELEMENT>();
    let first = parameters.FirstClassificationElementOffset as usize;
    let end = count.checked_mul(size).and_then(|bytes| bytes.checked_add(first));
    let end = end.filter(|&end| end <= len).ok_or(Incorrect)?;
    let fits = parameters.ClassificationElementSize as usize == size
        && first >= head
        && (address % ALIGN + first).is_multiple_of(ALIGN);
    if fits { Ok(first..end) } else { Err(Incorrect) }
}

/// Each priority has a class, each class an algorithm, and the bandwidths of ETS are all there is.
fn selects_correctly(parameters: &NDIS_QOS_PARAMETERS) -> bool {
    let count = parameters.NumTrafficClasses as usize;
    let Some(algorithms) = parameters.TsaAssignmentTable.get(..count).filter(|_| count > 0) else {
        return false;
    };
    let bandwidths = algorithms.iter().zip(parameters.TcBandwidthAssignmentTable);
    let ets: u32 = bandwidths
        .clone()
        .filter(|&(&algorithm, _)| algorithm == NDIS_QOS_TSA_ETS)
        .map(|(_, percent)| u32::from(percent))
        .sum();
    let has_ets = algorithms.contains(&NDIS_QOS_TSA_ETS);
    parameters.PriorityAssignmentTable.iter().all(|&class| usize::from(class) < count)
        && algorithms.iter().all(|of| [NDIS_QOS_TSA_STRICT, NDIS_QOS_TSA_ETS].contains(of))
        && bandwidths.clone().all(|(&of, percent)| of == NDIS_QOS_TSA_ETS || percent == 0)
        && (!has_ets || ets == 100)
}

/// The default condition is the first one; no condition or action is one that nobody knows.
fn is_correct(element: &NDIS_QOS_CLASSIFICATION_ELEMENT, first: bool) -> bool {
    let NDIS_OBJECT_HEADER { Type, Revision, Size } = element.Header;
    let condition = match element.ConditionSelector {
        NDIS_QOS_CONDITION_RESERVED => element.ConditionField == 0,
        NDIS_QOS_CONDITION_DEFAULT => first && element.ConditionField == 0,
        other => other < NDIS_QOS_CONDITION_MAXIMUM,
    };
    condition
        && Type == NDIS_OBJECT_TYPE_QOS_CLASSIFICATION_ELEMENT
        && Revision >= NDIS_QOS_CLASSIFICATION_ELEMENT_REVISION_1
        && usize::from(Size) >= size_of::<NDIS_QOS_CLASSIFICATION_ELEMENT>()
        && element.ActionSelector == NDIS_QOS_ACTION_PRIORITY
        && usize::from(element.ActionField) < NDIS_QOS_MAXIMUM_PRIORITIES
}

/// Parameters with elements behind them, as NDIS is told.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Operational {
    parameters: NDIS_QOS_PARAMETERS,
    /// The default, and ports.
    elements: [NDIS_QOS_CLASSIFICATION_ELEMENT; 1 + PORTS_MAX],
}

impl Operational {
    const fn new() -> Self {
        let (head, size) =
            (size_of::<NDIS_QOS_PARAMETERS>(), size_of::<NDIS_QOS_CLASSIFICATION_ELEMENT>());
        let element = NDIS_QOS_CLASSIFICATION_ELEMENT {
            Header: header(
                NDIS_OBJECT_TYPE_QOS_CLASSIFICATION_ELEMENT,
                NDIS_QOS_CLASSIFICATION_ELEMENT_REVISION_1,
                size,
            ),
            Flags: 0,
            ConditionSelector: NDIS_QOS_CONDITION_RESERVED,
            ConditionField: 0,
            ActionSelector: NDIS_QOS_ACTION_PRIORITY,
            ActionField: 0,
        };
        let parameters = NDIS_QOS_PARAMETERS {
            Header: header(NDIS_OBJECT_TYPE_QOS_PARAMETERS, NDIS_QOS_PARAMETERS_REVISION_1, head),
            Flags: 0,
            NumTrafficClasses: 0,
            PriorityAssignmentTable: [0; _],
            TcBandwidthAssignmentTable: [0; _],
            TsaAssignmentTable: [0; _],
            PfcEnable: 0,
            NumClassificationElements: 0,
            ClassificationElementSize: size as ULONG,
            FirstClassificationElementOffset: head as ULONG,
        };
        Self { parameters, elements: [element; _] }
    }

    /// The bytes of the parameters and of the elements that they have.
    pub(crate) const fn len(&self) -> usize {
        let count = self.parameters.NumClassificationElements as usize;
        size_of::<NDIS_QOS_PARAMETERS>() + count * size_of::<NDIS_QOS_CLASSIFICATION_ELEMENT>()
    }
}

/// Of an element.
const ALIGN: usize = align_of::<NDIS_QOS_CLASSIFICATION_ELEMENT>();
/// The place of a priority in a class selector.
const CLASS_SELECTOR: u32 = 3;
/// The bits of `PfcEnable` that are no priority's.
const PFC_RESERVED: ULONG = 0xFFFF_FF00;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const HEAD: usize = 52;

    fn element(condition: u16, field: u16, priority: u16) -> NDIS_QOS_CLASSIFICATION_ELEMENT {
        NDIS_QOS_CLASSIFICATION_ELEMENT {
            Header: header(0xB7, 1, 16),
            Flags: 0,
            ConditionSelector: condition,
            ConditionField: field,
            ActionSelector: 0,
            ActionField: priority,
        }
    }

    /// Those of a system with PFC for priority 3, of which half of the bandwidth is, and so many elements.
    fn parameters(count: u32) -> NDIS_QOS_PARAMETERS {
        NDIS_QOS_PARAMETERS {
            Header: header(0xB6, 1, HEAD),
            Flags: 0x2_0202,
            NumTrafficClasses: 2,
            PriorityAssignmentTable: [0, 0, 0, 1, 0, 0, 0, 0],
            TcBandwidthAssignmentTable: [50, 50, 0, 0, 0, 0, 0, 0],
            TsaAssignmentTable: [2, 2, 0, 0, 0, 0, 0, 0],
            PfcEnable: 1 << 3,
            NumClassificationElements: count,
            ClassificationElementSize: 16,
            FirstClassificationElementOffset: HEAD as u32,
        }
    }

    #[test]
    fn ports_have_their_classes_and_others_are_not_enforced() {
        let mut all = [
            element(1, 0, 0),
            element(6, 445, 3),
            element(2, 80, 4),
            element(5, 0x8906, 3),
            element(6, 445, 5),
            element(6, 8888, 5),
        ];
        all[2].Flags = 0x0100_0001;
        let policy = Policy::take(0x2_0000, &mut all).unwrap();
        let enforced = 0x0100_0000;
        assert_eq!(all.map(|of| of.Flags), [enforced, enforced, 1, 0, 0, enforced]);
        let classes = |dscp| {
            let classes = policy.classes(dscp).unwrap();
            [445, 8888, 80].map(|port| classes.of(port).map(|of| (of.priority, of.dscp)))
        };
        assert_eq!(classes(0), [Some((3, 24)), Some((5, 40)), None]);
        assert_eq!(classes(26), [Some((3, 26)), Some((5, 26)), None]);
        let operational = policy.operational();
        assert_eq!((operational.len(), operational.parameters.Flags), (HEAD + 3 * 16, 0x3_0000));
        let told = [element(1, 0, 0), element(6, 445, 3), element(6, 8888, 5)];
        assert_eq!(operational.elements[..3], told);
        // A default of another priority is for all others.
        let policy = Policy::take(0x2_0000, &mut [element(1, 0, 2)]).unwrap();
        assert_eq!(policy.classes(0).unwrap().of(80).map(|of| of.priority), Some(2));
        // Nobody looks at what is not configured.
        let mut none = [element(9, 9, 9)];
        let policy = Policy::take(0x202, &mut none).unwrap();
        assert_eq!((policy.clone(), none[0].Flags), (Policy::default(), 0));
        assert_eq!(
            (policy.operational().len(), policy.operational().parameters.Flags),
            (HEAD, 0x1_0000)
        );
    }

    #[test]
    fn elements_beyond_the_room_are_not_enforced() {
        let mut all: vec::Vec<_> = (0..40).map(|port| element(6, port, 1)).collect();
        let policy = Policy::take(0x2_0000, &mut all).unwrap();
        assert_eq!(all.iter().filter(|of| of.Flags != 0).count(), PORTS_MAX);
        assert_eq!(policy.operational().len(), HEAD + PORTS_MAX * 16);
    }

    #[test]
    fn an_incorrect_element_changes_nothing() {
        let good = [element(1, 0, 1), element(6, 445, 3)];
        type Elements = [NDIS_QOS_CLASSIFICATION_ELEMENT; 2];
        let bad: &[&dyn Fn(&mut Elements)] = &[
            &|all| all[1].Header.Type = 0xB6,
            &|all| all[1].Header.Revision = 0,
            &|all| all[1].Header.Size = 15,
            &|all| all[1].ConditionSelector = 7,
            &|all| (all[1].ConditionSelector, all[1].ConditionField) = (1, 0),
            &|all| all[0].ConditionField = 1,
            &|all| all[0].ConditionSelector = 0,
            &|all| all[1].ActionSelector = 1,
            &|all| all[1].ActionField = 8,
        ];
        for (at, change) in bad.iter().enumerate() {
            let mut all = good;
            change(&mut all);
            if at == 6 {
                all[0].ConditionField = 1;
            }
            let before = all;
            assert_eq!(Policy::take(0x2_0000, &mut all), Err(Incorrect), "{at}");
            assert_eq!(all, before);
        }
    }

    #[test]
    fn parameters_are_correct_as_their_pages_say() {
        let len = HEAD + 32;
        let elements = |of: &_, len| elements(of, len, 0x1000);
        assert_eq!(elements(&parameters(2), len), Ok(HEAD..len));
        assert_eq!(super::elements(&parameters(2), len, 0x1002), Err(Incorrect), "unaligned");
        assert_eq!(elements(&parameters(0), HEAD), Ok(0..0));
        let of_none = NDIS_QOS_PARAMETERS { Flags: 0, PfcEnable: !0, ..parameters(9) };
        assert_eq!(elements(&of_none, HEAD), Ok(0..0), "nothing is configured");
        let bad: &[&dyn Fn(&mut NDIS_QOS_PARAMETERS)] = &[
            &|of| of.Header.Type = 0xB5,
            &|of| of.Header.Revision = 0,
            &|of| of.Header.Size = HEAD as u16 - 1,
            &|of| of.Header.Size = len as u16 + 1,
            &|of| of.Flags &= !2,
            &|of| of.Flags &= !0x200,
            &|of| of.NumTrafficClasses = 0,
            &|of| of.NumTrafficClasses = 9,
            &|of| of.PriorityAssignmentTable[7] = 2,
            &|of| of.TcBandwidthAssignmentTable[1] = 49,
            &|of| of.TsaAssignmentTable[1] = 0,
            &|of| of.TsaAssignmentTable[1] = 1,
            &|of| of.PfcEnable = 1 << 8,
            &|of| of.NumClassificationElements = 3,
            &|of| of.NumClassificationElements = u32::MAX,
            &|of| of.ClassificationElementSize = 20,
            &|of| of.FirstClassificationElementOffset = 48,
            &|of| (of.NumClassificationElements, of.FirstClassificationElementOffset) = (1, 54),
            &|of| of.FirstClassificationElementOffset = u32::MAX - 3,
        ];
        for (at, change) in bad.iter().enumerate() {
            let mut of = parameters(2);
            change(&mut of);
            assert_eq!(elements(&of, len), Err(Incorrect), "{at}");
        }
    }
}
