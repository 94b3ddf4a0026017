//! The messages of the consumers and the home: each to the object that it is for, if there is memory.
//!
//! In the kernel an allocation of a collection that is refused is a bug check. So the worst case is set aside
//! before a message is obeyed; where that is refused, the request ends with
//! `STATUS_INSUFFICIENT_RESOURCES`.

use super::desk::Desk;
use super::objects::Objects;
use crate::cx::Cx;
use crate::message::{Control, each_control};
use crate::request::Request;
use alloc::sync::Arc;

/// Control messages taken in one turn.
const CONTROL_BUDGET: usize = 64;

impl Desk {
    pub(super) fn drain_control(&mut self) -> bool {
        let mut taken = 0;
        while taken < CONTROL_BUDGET
            && let Some(message) = self.cx.shard.next_control(&mut self.taken)
        {
            // The news of a lane that its consumer has seen are known before it asks for anything. Each time, as more messages may
            // have come than there were at first. Those of the desk's own lane were handled before its completions were seen.
            self.handle_news_of_others();
            self.handle_control(message);
            taken += 1;
        }
        taken > 0
    }

    /// Does what a message asks for, if there is memory for it.
    #[inline(never)]
    fn handle_control(&mut self, message: Control) {
        let bytes = each_control!(&message, request => request.bytes(&mut self.cx));
        let Some(bytes) = bytes else { return self.run_request(message) };
        let bytes = bytes + self.objects.request_bytes(&mut self.cx);
        let shard = Arc::clone(&self.cx.shard);
        let mut message = Some(message);
        let mut work = || {
            if let Some(message) = message.take() {
                self.run_request(message);
            }
        };
        shard.platform.with_memory(bytes, &mut work);
        if let Some(message) = message {
            each_control!(message, request => request.refuse(&mut self.cx));
        }
    }

    fn run_request(&mut self, message: Control) {
        let Self { cx, objects, .. } = self;
        each_control!(message, request => run(request, cx, objects));
    }
}

/// Does what a request asks for, with the tables that it works on. Each kind on a stack of its own: one of all together
/// would be the sum.
#[inline(never)]
fn run<'a, R>(request: R, cx: &mut Cx, objects: &'a mut Objects)
where
    R: Request<Objects<'a>: From<&'a mut Objects>>,
{
    request.run(cx, objects.into());
}
