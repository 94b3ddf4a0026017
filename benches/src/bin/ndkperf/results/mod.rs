//! The documents of earlier runs (`--json`): read, compared and drawn.

mod compare;
mod document;
mod plot;

pub(crate) use compare::{Compare, run as compare};
pub(crate) use plot::{Plot, run as plot};
