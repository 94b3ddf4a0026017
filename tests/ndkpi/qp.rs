//! Queue pairs: what the posts answer at once. How requests end is in `completions`.

use driver::abi::*;
use tests::call;
use tests::kit::Net;
use tests::kit::raw::Object;

crate::tests! {
    a_post_needs_a_connection
    a_queue_holds_what_it_was_made_for
    a_request_has_limits
}

type Post = fn(Object<NDK_QP>, &[NDK_SGE]) -> NTSTATUS;

const NONE: PVOID = std::ptr::null_mut();

fn send(qp: Object<NDK_QP>, sgl: &[NDK_SGE]) -> NTSTATUS {
    call!(qp, NdkSend, NONE, sgl.as_ptr(), sgl.len() as u32, 0)
}

fn send_and_invalidate(qp: Object<NDK_QP>, sgl: &[NDK_SGE]) -> NTSTATUS {
    call!(qp, NdkSendAndInvalidate, NONE, sgl.as_ptr(), sgl.len() as u32, 0, 7)
}

fn read(qp: Object<NDK_QP>, sgl: &[NDK_SGE]) -> NTSTATUS {
    call!(qp, NdkRead, NONE, sgl.as_ptr(), sgl.len() as u32, 0, 7, 0)
}

fn write(qp: Object<NDK_QP>, sgl: &[NDK_SGE]) -> NTSTATUS {
    call!(qp, NdkWrite, NONE, sgl.as_ptr(), sgl.len() as u32, 0, 7, 0)
}

fn receive(qp: Object<NDK_QP>, sgl: &[NDK_SGE]) -> NTSTATUS {
    call!(qp, NdkReceive, NONE, sgl.as_ptr(), sgl.len() as u32)
}

const INITIATORS: [Post; 4] = [send, send_and_invalidate, read, write];
const POSTS: [Post; 5] = [send, send_and_invalidate, read, write, receive];

fn element(len: u32) -> NDK_SGE {
    NDK_SGE::from_virtual(NONE, len, 7)
}

fn a_post_needs_a_connection() {
    let net = Net::new();
    let side = net.side(0);
    let qp = Object(side.qp.as_ptr());
    for post in INITIATORS {
        assert_eq!(post(qp, &[]), STATUS_CONNECTION_INVALID);
    }
    assert_eq!(receive(qp, &[]), STATUS_SUCCESS, "a receive may come before the connection");
}

fn a_queue_holds_what_it_was_made_for() {
    for post in POSTS {
        let net = Net::new();
        let connection = net.connect();
        let qp = Object(connection.sides[0].qp.as_ptr());
        // Nothing is taken out of the queue meanwhile.
        let gate = net.hold(0);
        for _ in 0..64 {
            assert_eq!(post(qp, &[]), STATUS_SUCCESS);
        }
        assert_eq!(post(qp, &[]), STATUS_NO_MORE_ENTRIES);
        drop(gate);
    }
}

fn a_request_has_limits() {
    let net = Net::new();
    let connection = net.connect();
    let qp = Object(connection.sides[0].qp.as_ptr());
    for post in POSTS {
        assert_eq!(post(qp, &[element(1), element(1)]), STATUS_DATA_OVERRUN);
        assert_eq!(post(qp, &[element((1 << 31) + 1)]), STATUS_BUFFER_OVERFLOW);
    }
    // The queue pair is unharmed.
    assert_eq!(send(qp, &[]), STATUS_SUCCESS);
}
