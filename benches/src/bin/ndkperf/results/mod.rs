//! The documents of earlier runs (`--json`): read, and compared.

mod compare;
mod document;

pub(crate) use compare::{Compare, run as compare};
