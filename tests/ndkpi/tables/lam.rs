use super::*;
use ndk_consumer::{Buffer, Mdl};
use std::ptr::null_mut;

crate::tests! {
    a_mapping_lists_aligned_pages_and_the_offset_of_the_first_byte
    two_mappings_never_touch_and_never_share_an_address
    a_short_buffer_is_told_the_size_and_stays_untouched
    a_chain_is_one_buffer_if_it_is_virtually_contiguous
    what_must_not_be_null_or_empty_is_refused
    mappings_end_with_their_adapter
}

const PAGE: usize = PAGE_SIZE;

unsafe extern "system" fn never(_: PVOID, _: NTSTATUS) {
    panic!("a call that ends inline has no completion");
}

/// A call with a mapping of `words` words.
fn build(
    net: &Net,
    mdl: *mut MDL,
    len: usize,
    words: &mut [u64],
    size: &mut u32,
    fbo: &mut u32,
) -> NTSTATUS {
    let lam = if words.is_empty() { null_mut() } else { words.as_mut_ptr().cast() };
    let adapter = net.adapters[0].as_ptr();
    call!(adapter, NdkBuildLAM, mdl, len, Some(never), null_mut(), lam, size, fbo)
}

fn a_mapping_lists_aligned_pages_and_the_offset_of_the_first_byte() {
    let net = Net::new();
    let buffer = Arc::new(Buffer::new(4 * PAGE));
    for (part, pages) in [(0..1, 1), (0..PAGE, 1), (100..PAGE + 100, 2), (PAGE - 1..3 * PAGE, 3)] {
        let lam = net.adapters[0].build_lam(Arc::clone(&buffer), part.clone()).unwrap();
        assert_eq!(lam.fbo() as usize, part.start % PAGE);
        let addresses: Vec<usize> =
            lam.pages().iter().map(|page| page.QuadPart.try_into().unwrap()).collect();
        assert_eq!(addresses.len(), pages);
        assert_eq!(addresses[0] % PAGE, 0);
        assert!(addresses.windows(2).all(|pair| pair[1] == pair[0] + PAGE));
        // Private: not where the bytes are.
        assert_ne!(addresses[0], buffer.as_ptr().addr() + part.start / PAGE * PAGE);
    }
}

fn two_mappings_never_touch_and_never_share_an_address() {
    let net = Net::new();
    let buffer = Arc::new(Buffer::new(PAGE));
    let first = net.adapters[0].build_lam(Arc::clone(&buffer), 0..PAGE).unwrap();
    let second = net.adapters[0].build_lam(Arc::clone(&buffer), 0..PAGE).unwrap();
    let (first, released) = (first.pages()[0].QuadPart, first);
    assert!((second.pages()[0].QuadPart - first).abs() > PAGE as i64);
    drop(released);
    let third = net.adapters[0].build_lam(buffer, 0..PAGE).unwrap();
    assert_ne!(third.pages()[0].QuadPart, first);
}

fn a_short_buffer_is_told_the_size_and_stays_untouched() {
    let net = Net::new();
    let buffer = Buffer::new(3 * PAGE);
    let mut mdl = Mdl::new(buffer.as_ptr().wrapping_add(10), 2 * PAGE);
    let mut fbo = 77;
    for room in [0_u32, 16, 32, 39] {
        let (mut words, mut size) = ([9_u64; 5], room);
        let status = build(&net, mdl.as_mut_ptr(), 2 * PAGE, &mut words, &mut size, &mut fbo);
        assert_eq!((status, size, fbo), (STATUS_BUFFER_TOO_SMALL, 16 + 3 * 8, 77));
        assert_eq!(words, [9; 5]);
    }
    let mut size = 1000;
    assert_eq!(
        build(&net, mdl.as_mut_ptr(), 2 * PAGE, &mut [], &mut size, &mut fbo),
        STATUS_BUFFER_TOO_SMALL
    );
    let (mut words, mut size) = ([9_u64; 6], 48);
    let status = build(&net, mdl.as_mut_ptr(), 2 * PAGE, &mut words, &mut size, &mut fbo);
    assert_eq!((status, size, fbo), (STATUS_SUCCESS, 40, 10));
    assert_eq!((words[1] as u32, words[5]), (3, 9));
    call!(net.adapters[0].as_ptr(), NdkReleaseLAM, words.as_mut_ptr().cast());
    assert_eq!(words[0], 0, "a second release finds nothing");
    call!(net.adapters[0].as_ptr(), NdkReleaseLAM, words.as_mut_ptr().cast());
    call!(net.adapters[0].as_ptr(), NdkReleaseLAM, null_mut());
}

fn a_chain_is_one_buffer_if_it_is_virtually_contiguous() {
    let net = Net::new();
    let buffer = Buffer::new(4 * PAGE);
    let at = |offset| buffer.as_ptr().wrapping_add(offset);
    let (mut words, mut fbo) = ([0_u64; 8], 0);
    let mut try_chain = |second: usize, len: usize| {
        let (mut first, mut second) = (Mdl::new(at(100), PAGE), Mdl::new(at(second), PAGE));
        // SAFETY: both outlive the mapping of this test.
        unsafe { (*first.as_mut_ptr()).Next = second.as_mut_ptr() };
        let mut size = 64;
        let status = build(&net, first.as_mut_ptr(), len, &mut words, &mut size, &mut fbo);
        if status.is_success() {
            call!(net.adapters[0].as_ptr(), NdkReleaseLAM, words.as_mut_ptr().cast());
        }
        (status, words[1] as u32)
    };
    assert_eq!(try_chain(100 + PAGE, 2 * PAGE), (STATUS_SUCCESS, 3));
    assert_eq!(try_chain(101 + PAGE, 2 * PAGE).0, STATUS_INVALID_PARAMETER);
    // What lies behind the length does not matter.
    assert_eq!(try_chain(0, PAGE), (STATUS_SUCCESS, 2));
    assert_eq!(try_chain(100 + PAGE, 2 * PAGE + 1).0, STATUS_INVALID_PARAMETER);
}

fn what_must_not_be_null_or_empty_is_refused() {
    let net = Net::new();
    let buffer = Buffer::new(PAGE);
    let mut mdl = Mdl::new(buffer.as_ptr(), PAGE);
    let (mut words, mut size, mut fbo) = ([0_u64; 4], 32, 0);
    let status = build(&net, null_mut(), PAGE, &mut words, &mut size, &mut fbo);
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    let status = build(&net, mdl.as_mut_ptr(), 0, &mut words, &mut size, &mut fbo);
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    let status = build(&net, mdl.as_mut_ptr(), usize::MAX, &mut words, &mut size, &mut fbo);
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    let adapter = net.adapters[0].as_ptr();
    let (mdl, lam) = (mdl.as_mut_ptr(), words.as_mut_ptr().cast());
    let status = call!(adapter, NdkBuildLAM, mdl, 9, None, null_mut(), lam, null_mut(), &mut fbo);
    assert_eq!(status, STATUS_INVALID_PARAMETER);
    let status = call!(adapter, NdkBuildLAM, mdl, 9, None, null_mut(), lam, &mut size, null_mut());
    assert_eq!(status, STATUS_INVALID_PARAMETER);
}

/// There is a limit, and an adapter that is closed gives back what its consumer forgot.
fn mappings_end_with_their_adapter() {
    let net = Net::new();
    let buffer = Arc::new(Buffer::new(PAGE));
    for _ in 0..2 {
        let adapter = net.open(0);
        let mut built = 0;
        let full = loop {
            match adapter.build_lam(Arc::clone(&buffer), 0..PAGE) {
                // Never released, and only the adapter is closed.
                Ok(mut lam) => {
                    // SAFETY: the mapping is ours; without its context a release does nothing.
                    unsafe { (*lam.as_mut_ptr()).AdapterContext = null_mut() };
                    built += 1;
                }
                Err(error) => break error.status,
            }
        };
        assert_eq!(full, STATUS_INSUFFICIENT_RESOURCES);
        assert!(built >= 1024, "{built}");
    }
}
