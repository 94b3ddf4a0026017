//! Work requests.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use ndk_abi::*;

use crate::Failure;
use crate::completion::request;
use crate::kinds::{Object, call};

/// Memory of a peer, by its address and token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) token: u32,
}

/// A post has to be taken.
fn taken(name: &'static str, status: NTSTATUS) -> Result<(), Failure> {
    Failure::unless_status(name, status, STATUS_SUCCESS)
}

/// The posts of one queue pair. Each has a number, which its completion brings back.
impl Object<NDK_QP> {
    pub(crate) fn receive(self, number: usize, sges: &[NDK_SGE]) -> Result<(), Failure> {
        let (sgl, len) = (sges.as_ptr(), sges.len() as u32);
        taken("NdkReceive", call!(self, NdkReceive(request(number), sgl, len)))
    }

    pub(crate) fn send(self, number: usize, sges: &[NDK_SGE], flags: u32) -> Result<(), Failure> {
        let (sgl, len) = (sges.as_ptr(), sges.len() as u32);
        taken("NdkSend", call!(self, NdkSend(request(number), sgl, len, flags)))
    }

    pub(crate) fn send_and_invalidate(
        self,
        number: usize,
        sges: &[NDK_SGE],
        token: u32,
    ) -> Result<(), Failure> {
        let (sgl, len, number) = (sges.as_ptr(), sges.len() as u32, request(number));
        let status = call!(self, NdkSendAndInvalidate(number, sgl, len, 0, token));
        taken("NdkSendAndInvalidate", status)
    }

    pub(crate) fn write(
        self,
        number: usize,
        sges: &[NDK_SGE],
        to: Remote,
        flags: u32,
    ) -> Result<(), Failure> {
        let (sgl, len, number) = (sges.as_ptr(), sges.len() as u32, request(number));
        let status = call!(self, NdkWrite(number, sgl, len, to.address, to.token, flags));
        taken("NdkWrite", status)
    }

    pub(crate) fn read(
        self,
        number: usize,
        sges: &[NDK_SGE],
        from: Remote,
        flags: u32,
    ) -> Result<(), Failure> {
        let (sgl, len, number) = (sges.as_ptr(), sges.len() as u32, request(number));
        let status = call!(self, NdkRead(number, sgl, len, from.address, from.token, flags));
        taken("NdkRead", status)
    }

    pub(crate) fn invalidate(
        self,
        number: usize,
        object: *mut NDK_OBJECT_HEADER,
    ) -> Result<(), Failure> {
        taken("NdkInvalidate", call!(self, NdkInvalidate(request(number), object, 0)))
    }
}
