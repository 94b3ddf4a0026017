//! Logical address mappings.

use driver::abi::*;
use ndk_consumer::{Buffer, Mdl};
use tests::call;
use tests::kit::Net;
use tests::kit::raw::{Object, PATIENCE, request};

crate::tests! {
    a_mapping_lists_the_pages_of_its_buffer
    a_mapping_that_is_too_small_is_told_its_size
    a_chain_has_to_be_one_range_and_long_enough
    mappings_run_out
}

const ROOM: usize = NDK_LOGICAL_ADDRESS_MAPPING::size_for(15);

/// A place for a mapping of up to 15 pages.
#[repr(C, align(8))]
struct Lam([u8; ROOM]);

impl Lam {
    const fn new() -> Self {
        Self([0; ROOM])
    }

    const fn as_mut_ptr(&mut self) -> *mut NDK_LOGICAL_ADDRESS_MAPPING {
        (&raw mut self.0).cast()
    }

    fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.0[offset..][..8].try_into().unwrap())
    }
}

/// `NdkBuildLAM`: its status, the size and the FBO it told.
fn build(net: &Net, mdl: *mut MDL, len: usize, lam: &mut Lam, room: usize) -> (NTSTATUS, u32, u32) {
    let (mut size, mut fbo) = (room as u32, u32::MAX);
    let adapter = Object(net.adapters[0].as_ptr());
    let (lam, size_out, fbo_out) = (lam.as_mut_ptr(), &raw mut size, &raw mut fbo);
    let end = request(|done, context| {
        call!(adapter, NdkBuildLAM, mdl, len, done, context, lam, size_out, fbo_out)
    });
    (end.recv_timeout(PATIENCE).unwrap(), size, fbo)
}

fn release(net: &Net, lam: &mut Lam) {
    call!(Object(net.adapters[0].as_ptr()), NdkReleaseLAM, lam.as_mut_ptr());
}

fn a_mapping_lists_the_pages_of_its_buffer() {
    let net = Net::new();
    let buffer = Buffer::new(4 * PAGE_SIZE);
    let mut mdl = Mdl::new(buffer.as_ptr(), buffer.len());
    let offset = buffer.as_ptr().addr() % PAGE_SIZE;
    let pages = (offset + buffer.len()).div_ceil(PAGE_SIZE);
    let mut lam = Lam::new();
    let (status, size, fbo) = build(&net, mdl.as_mut_ptr(), buffer.len(), &mut lam, ROOM);
    assert_eq!((status, fbo as usize), (STATUS_SUCCESS, offset));
    assert_eq!(size as usize, NDK_LOGICAL_ADDRESS_MAPPING::size_for(pages));
    assert_eq!(lam.word(8) as u32 as usize, pages);
    for page in 0..pages {
        assert_eq!(lam.word(0x10 + 8 * page) % PAGE_SIZE as u64, 0);
    }
    release(&net, &mut lam);
}

fn a_mapping_that_is_too_small_is_told_its_size() {
    let net = Net::new();
    let buffer = Buffer::new(2 * PAGE_SIZE);
    let mut mdl = Mdl::new(buffer.as_ptr(), buffer.len());
    let mut lam = Lam::new();
    let (status, size, _) = build(&net, mdl.as_mut_ptr(), buffer.len(), &mut lam, 0x10);
    assert_eq!(status, STATUS_BUFFER_TOO_SMALL);
    let (status, ..) = build(&net, mdl.as_mut_ptr(), buffer.len(), &mut lam, size as usize);
    assert_eq!(status, STATUS_SUCCESS);
    release(&net, &mut lam);
}

fn a_chain_has_to_be_one_range_and_long_enough() {
    let net = Net::new();
    let buffer = Buffer::new(2 * PAGE_SIZE);
    let (mut first, mut second) =
        (Mdl::new(buffer.as_ptr(), 100), Mdl::new(buffer.as_ptr().wrapping_add(101), 100));
    let mut lam = Lam::new();
    let (status, ..) = build(&net, first.as_mut_ptr(), 101, &mut lam, ROOM);
    assert_eq!(status, STATUS_INVALID_PARAMETER, "longer than the chain");
    // SAFETY: ours.
    unsafe { (*first.as_mut_ptr()).Next = second.as_mut_ptr() };
    let (status, ..) = build(&net, first.as_mut_ptr(), 200, &mut lam, ROOM);
    assert_eq!(status, STATUS_INVALID_PARAMETER, "a gap");
}

fn mappings_run_out() {
    let net = Net::new();
    let buffer = Buffer::new(1);
    let mut mdl = Mdl::new(buffer.as_ptr(), 1);
    let mut lam = Lam::new();
    let mut built = 0;
    let last = loop {
        let (status, ..) = build(&net, mdl.as_mut_ptr(), 1, &mut lam, ROOM);
        if status != STATUS_SUCCESS {
            break status;
        }
        built += 1;
    };
    assert_eq!(last, STATUS_INSUFFICIENT_RESOURCES);
    assert!(built >= 1024, "{built}");
    // The rest goes with the adapter.
    release(&net, &mut lam);
}
