//! The fate of what a host sends, decided by a test.

use netadapter_glue::{Edge, EdgeError, Slot, Transmit, fill_one, forward_edge};
use std::sync::{Arc, Mutex};

/// What becomes of a frame.
pub enum Fate {
    /// It is sent.
    Pass,
    /// It is lost.
    Drop,
    /// Another is sent in its place.
    Replace(Vec<u8>),
}

type Rule = Box<dyn FnMut(&[u8]) -> Fate + Send>;

/// Decides the fate of what a host sends; may be changed at any time. At first everything passes.
#[derive(Clone, Default)]
pub struct Wire(Arc<Mutex<Option<Rule>>>);

impl Wire {
    /// From here on, `rule` decides.
    pub fn set(&self, rule: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(rule));
    }

    /// Nothing gets through any more.
    pub fn cut(&self) {
        self.set(|_| Fate::Drop);
    }

    /// The edge, with this wire behind it.
    pub(super) fn behind(&self, edge: Box<dyn Edge + Send>) -> Box<dyn Edge + Send> {
        Box::new(Judged { edge, wire: self.clone() })
    }
}

/// An edge whose frames go by a [`Wire`].
struct Judged {
    edge: Box<dyn Edge + Send>,
    wire: Wire,
}

impl Edge for Judged {
    forward_edge!(self => self.edge, receive);

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let mut rule = self.wire.0.lock().unwrap();
        self.edge.transmit_each(budget, |buf| {
            loop {
                let unit = fill_one(fill, buf)?;
                match rule.as_mut().map_or(Fate::Pass, |rule| rule(&buf[..unit.len])) {
                    Fate::Pass => return Some(unit),
                    Fate::Drop => {}
                    Fate::Replace(frame) => {
                        buf[..frame.len()].copy_from_slice(&frame);
                        return Some(Transmit { len: frame.len(), segments: None });
                    }
                }
            }
        })
    }
}
