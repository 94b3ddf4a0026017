//! What the image calls on a NIC.

use super::*;
use crate::ntos::registry;

exports! { "ndis.sys":
    fn NdisOpenAdapterEx(protocol: Pointer, context: Pointer, parameters: Pointer, bind: Pointer, handle: *mut Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisOpenAdapterEx");
        registry::witness("NdisOpenAdapterEx");
        if protocol != driver::PROTOCOL_HANDLE { breach!("NdisOpenAdapterEx with protocol handle {protocol:?}"); }
        member::<Header>(parameters, 0).check("NDIS_OPEN_PARAMETERS", 0x87, &[(1, 52), (1, 56)]);
        let Some(nic) = Nic::find(bind).filter(|nic| nic.binding.lock().unwrap().binds) else {
            breach!("NdisOpenAdapterEx outside of ProtocolBindAdapterEx");
            return ADAPTER_NOT_FOUND;
        };
        let name = (*member::<*const UnicodeString>(parameters, 8)).text();
        if name != nic.name.text() { breach!("NdisOpenAdapterEx opens {name:?}"); }
        let media = std::slice::from_raw_parts(member::<*const i32>(parameters, 0x10), member::<u32>(parameters, 0x18) as usize);
        let Some(selected) = media.iter().position(|&medium| medium == MEDIUM_ETHERNET) else {
            breach!("NdisOpenAdapterEx does not offer Ethernet");
            return FAILURE;
        };
        if pool::refuses("NdisOpenAdapterEx") { return RESOURCES; }
        member::<*mut u32>(parameters, 0x20).write(selected as u32);
        handle.write(nic.handle());
        {
            let mut binding = nic.binding.lock().unwrap();
            binding.context = context as usize;
            binding.open = true;
        }
        let (handlers, _) = driver::registered().protocol.expect("it binds");
        let context = context as usize;
        nic.end(SUCCESS, move || {
            irql::run_at(PASSIVE, "ProtocolOpenAdapterCompleteEx", || unsafe {
                handlers.open_complete.expect("checked")(context as Pointer, SUCCESS);
            });
        })
    }
    fn NdisCloseAdapterEx(handle: Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisCloseAdapterEx");
        registry::witness("NdisCloseAdapterEx");
        let Some(nic) = Nic::opened(handle, "NdisCloseAdapterEx") else { return FAILURE };
        let edge = handle as usize;
        if nbl::lent(edge) + nbl::borrowed(edge) > 0 {
            breach!("an adapter is closed with lists in flight");
        }
        let context = {
            let mut binding = nic.binding.lock().unwrap();
            binding.open = false;
            binding.context
        };
        nic.filter.store(0, Ordering::SeqCst);
        let (handlers, _) = driver::registered().protocol.expect("it is bound");
        nic.end(SUCCESS, move || {
            irql::run_at(PASSIVE, "ProtocolCloseAdapterCompleteEx", || unsafe {
                handlers.close_complete.expect("checked")(context as Pointer);
            });
        })
    }
    fn NdisCompleteBindAdapterEx(bind: Pointer, status: i32) {
        match Nic::find(bind) {
            Some(nic) => nic.bind_done.complete("ProtocolBindAdapterEx", status),
            None => breach!("NdisCompleteBindAdapterEx of an unknown bind"),
        }
    }
    fn NdisCompleteUnbindAdapterEx(unbind: Pointer) {
        match Nic::find(unbind) {
            Some(nic) => nic.unbind_done.complete("ProtocolUnbindAdapterEx", SUCCESS),
            None => breach!("NdisCompleteUnbindAdapterEx of an unknown unbind"),
        }
    }
    fn NdisCompleteNetPnPEvent(handle: Pointer, _event: Pointer, status: i32) {
        if let Some(nic) = Nic::opened(handle, "NdisCompleteNetPnPEvent") {
            nic.event_done.complete("ProtocolNetPnPEvent", status);
        }
    }
    fn NdisSendNetBufferLists(handle: Pointer, lists: *mut Nbl, port: u32, flags: u32) {
        irql::at_most(DISPATCH, "NdisSendNetBufferLists");
        let Some(nic) = Nic::opened(handle, "NdisSendNetBufferLists") else { return };
        if port != 0 { breach!("a send to port {port}"); }
        if flags & FLAG_DISPATCH != 0 && irql::current() != DISPATCH {
            breach!("a send says DISPATCH_LEVEL at IRQL {}", irql::current());
        }
        if !nic.binding.lock().unwrap().running { breach!("a send on a paused binding"); }
        if !nic.powered.load(Ordering::SeqCst) { breach!("a send on a NIC without power"); }
        for list in nbl::chain(lists) {
            nbl::borrow(list, handle as usize);
            if (*list).source != handle { breach!("SourceHandle of a sent list is not the binding handle"); }
            for frame in nbl::frames(list) {
                let divided = (*list).info[nbl::USO] != 0;
                if frame.len() < 14 || frame.len() > nic.mtu as usize + 18 && !divided {
                    breach!("a frame of {} bytes at an MTU of {}", frame.len(), nic.mtu);
                }
            }
            if nic.holds.load(Ordering::SeqCst) {
                nic.held.lock().unwrap().push(list as usize);
            } else {
                nic.put_on_wire(list);
            }
        }
    }
    fn NdisReturnNetBufferLists(handle: Pointer, lists: *mut Nbl, _flags: u32) {
        irql::at_most(DISPATCH, "NdisReturnNetBufferLists");
        let Some(nic) = Nic::opened(handle, "NdisReturnNetBufferLists") else { return };
        let all = nbl::chain(lists);
        if !odd::INDICATES.get() { nic.most_given_back.fetch_max(all.len(), Ordering::SeqCst); }
        for list in all {
            if nbl::returned(list, handle as usize) { nbl::unmake(list); }
        }
    }
    fn NdisCancelSendNetBufferLists(handle: Pointer, id: usize) {
        irql::at_most(DISPATCH, "NdisCancelSendNetBufferLists");
        if let Some(nic) = Nic::opened(handle, "NdisCancelSendNetBufferLists") { nic.cancel(id); }
    }
    fn NdisGetRssProcessorInformation(handle: Pointer, info: Pointer, size: *mut usize) -> i32 {
        irql::at_most(DISPATCH, "NdisGetRssProcessorInformation");
        let Some(nic) = Nic::opened(handle, "NdisGetRssProcessorInformation") else { return FAILURE };
        let Some(processors) = nic.processors.lock().unwrap().clone() else { return FAILURE };
        // The header of revision 2; entries may get longer.
        let (begin, step) = (0x28, if nic.index.is_multiple_of(2) { 8 } else { 12 });
        let room = std::mem::replace(&mut *size, begin + processors.len() * step);
        if info.is_null() || room < *size { return BUFFER_TOO_SHORT; }
        info.write_bytes(0, *size);
        set_member(info, 0, Header::new(0xB1, 2, begin));
        set_member(info, 0x0C, processors.len() as u32);
        set_member(info, 0x14, begin as u32);
        set_member(info, 0x18, processors.len() as u32);
        set_member(info, 0x1C, step as u32);
        for (entry, (number, distance)) in processors.into_iter().enumerate() {
            let place = info.add(begin + entry * step);
            set_member(place, 2, number);
            set_member(place, 4, distance);
        }
        SUCCESS
    }
}
