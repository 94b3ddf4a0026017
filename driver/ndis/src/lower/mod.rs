//! The lower half: the NIC, bound by a protocol, and the lists in which frames pass between the halves.
#![expect(non_upper_case_globals, reason = "C names in patterns")]

pub(crate) mod binding;
pub(crate) mod lists;
mod offload;
pub(crate) mod protocol;
mod receive;
mod request;
mod rss;
pub(crate) mod shown;
