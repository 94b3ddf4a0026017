//! A wire that looks at each frame, may change it, and may lose it.

use std::collections::VecDeque;

use netadapter_glue::{Edge, EdgeError, Received, Slot, Transmit, fill_one, forward_edge};
use rocev2::ids::Qpn;
use rocev2::wire::dissect;

/// Says whether a frame passes.
type Judge = Box<dyn FnMut(&mut Vec<u8>) -> bool + Send>;

pub(super) struct Wire<E> {
    edge: E,
    out: Judge,
    back: Judge,
    waiting: VecDeque<Vec<u8>>,
    loses_units: bool,
}

impl<E: Edge> Wire<E> {
    pub(super) fn new(edge: E) -> Self {
        let passes = || Box::new(|_: &mut Vec<u8>| true);
        Self { edge, out: passes(), back: passes(), waiting: VecDeque::new(), loses_units: false }
    }

    /// Frames to the peer pass as `judge` says.
    pub(super) fn out(self, judge: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Self {
        Self { out: Box::new(judge), ..self }
    }

    /// Units of several packets to the peer are lost.
    pub(super) fn losing_units(self) -> Self {
        Self { loses_units: true, ..self }
    }

    /// Frames from the peer pass as `judge` says.
    pub(super) fn back(self, judge: impl FnMut(&mut Vec<u8>) -> bool + Send + 'static) -> Self {
        Self { back: Box::new(judge), ..self }
    }
}

impl<E: Edge> Edge for Wire<E> {
    forward_edge!(self => self.edge);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let Self { edge, back, .. } = self;
        edge.receive_each(budget, |unit| {
            let mut frame = unit.frame.to_vec();
            if back(&mut frame) {
                sink(&[Received { frame: &frame, segments: unit.segments }]);
            }
        })
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let Self { edge, out, waiting, loses_units, .. } = self;
        let mut units = 0;
        let mut buffer = vec![0; edge.link().max_unit_len];
        while units < budget && waiting.len() < WAITING_MAX {
            let Some(Transmit { len, segments }) = fill_one(fill, &mut buffer) else { break };
            let mut frame = buffer[..len].to_vec();
            assert!(segments.is_none() || *loses_units, "a unit is no frame");
            if segments.is_none() && out(&mut frame) {
                waiting.push_back(frame);
            }
            units += 1;
        }
        edge.transmit_each(waiting.len(), |buffer| {
            let frame = waiting.pop_front()?;
            buffer[..frame.len()].copy_from_slice(&frame);
            Some(Transmit { len: frame.len(), segments: None })
        })?;
        Ok(units)
    }
}

/// Whether a frame is one of RoCE.
pub(super) fn is_roce(frame: &[u8]) -> bool {
    dissect(frame).encap.is_some()
}

/// Whether a frame is one of RoCE, and not of connection management.
pub(super) fn is_data(frame: &[u8]) -> bool {
    dissect(frame).bth.is_some_and(|bth| bth.dest_qpn != Qpn::GSI)
}

/// Whether a frame has the tag of this VLAN.
pub(super) fn is_tagged(frame: &[u8], vlan: u16) -> bool {
    let [high, low] = vlan.to_be_bytes();
    frame[12..16] == [0x81, 0x00, high, low]
}

/// Frames that wait for room.
const WAITING_MAX: usize = 64;
