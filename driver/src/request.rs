//! A kind of request to the poll core: its memory, its execution, its refusal.
//!
//! A kind is a struct in its object's `request` and one `impl` of these traits beside the object's code. The list of
//! kinds is in `message`.

use crate::abi::NTSTATUS;
use crate::cx::Cx;
use crate::object::id::{Context, ObjectId};

/// A control request, on the poll core.
pub(crate) trait Request {
    /// The tables that it works on.
    type Objects<'a>;

    /// Its memory beside that of any request; `None` where it must not fail, and takes next to nothing.
    fn bytes(&self, cx: &mut Cx) -> Option<usize>;

    /// Does what it asks for.
    fn run(self, cx: &mut Cx, objects: Self::Objects<'_>);

    /// Ends it, as there is no memory. One that must not fail is never refused.
    fn refuse(self, cx: &mut Cx);
}

/// The creation of an object, on the poll core.
pub(crate) trait Creation {
    /// The tables that it works on.
    type Objects<'a>;

    /// The memory of the object's queues.
    fn bytes(&self, _cx: &mut Cx) -> usize {
        0
    }

    /// The new object, as its consumer will hold it. The antecedent is open.
    fn create(
        self,
        cx: &mut Cx,
        parent: ObjectId,
        objects: Self::Objects<'_>,
    ) -> Result<Context, NTSTATUS>;
}
