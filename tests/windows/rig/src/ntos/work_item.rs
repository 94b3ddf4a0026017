//! Work items of drivers that are none of NDIS.

use super::Pointer;
use crate::ndis::work::{Send2, allocate, free, queue};

exports! { "ntoskrnl.exe":
    fn IoAllocateWorkItem(_device: Pointer) -> Pointer { allocate() }
    fn IoFreeWorkItem(item: Pointer) { free(item) }
    // IO_WORKITEM_ROUTINE(DeviceObject, Context)
    fn IoQueueWorkItem(item: Pointer, routine: unsafe extern "win64" fn(Pointer, Pointer), _queue: i32, context: Pointer) {
        let pair = Send2(std::ptr::null_mut(), context);
        queue(item, move || {
            let pair = pair;
            unsafe { routine(pair.0, pair.1) }
        });
    }
    // IO_WORKITEM_ROUTINE_EX(IoObject, Context, IoWorkItem)
    fn IoQueueWorkItemEx(item: Pointer, routine: unsafe extern "win64" fn(Pointer, Pointer, Pointer), _queue: i32, context: Pointer) {
        let pair = Send2(item, context);
        queue(item, move || {
            let pair = pair;
            unsafe { routine(std::ptr::null_mut(), pair.1, pair.0) }
        });
    }
}
