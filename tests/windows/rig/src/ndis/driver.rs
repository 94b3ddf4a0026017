//! Registration of the image as a miniport driver, as a protocol driver and as an NDK provider.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{FAILURE, Header, RESOURCES, SUCCESS, member, nic, set_member, vnic};
use crate::ntos::irql::{self, PASSIVE};
use crate::ntos::{Pointer, UnicodeString, pool, registry};

pub type Handler<F> = Option<F>;

/// `NDIS_MINIPORT_DRIVER_CHARACTERISTICS` from its handlers on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Miniport {
    pub set_options: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub initialize: Handler<unsafe extern "win64" fn(Pointer, Pointer, Pointer) -> i32>,
    pub halt: Handler<unsafe extern "win64" fn(Pointer, i32)>,
    pub unload: Handler<unsafe extern "win64" fn(Pointer)>,
    pub pause: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub restart: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub oid_request: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub send: Handler<unsafe extern "win64" fn(Pointer, *mut super::nbl::Nbl, u32, u32)>,
    pub return_lists: Handler<unsafe extern "win64" fn(Pointer, *mut super::nbl::Nbl, u32)>,
    pub cancel_send: Handler<unsafe extern "win64" fn(Pointer, Pointer)>,
    pub check_for_hang: usize,
    pub reset: usize,
    pub pnp_event: Handler<unsafe extern "win64" fn(Pointer, Pointer)>,
    pub shutdown: Handler<unsafe extern "win64" fn(Pointer, i32)>,
    pub cancel_oid: Handler<unsafe extern "win64" fn(Pointer, Pointer)>,
    pub direct_oid: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub cancel_direct_oid: Handler<unsafe extern "win64" fn(Pointer, Pointer)>,
}
const _: () = assert!(size_of::<Miniport>() + 0x10 == 152);

/// `NDIS_PROTOCOL_DRIVER_CHARACTERISTICS` from its handlers on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Protocol {
    pub set_options: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub bind: Handler<unsafe extern "win64" fn(Pointer, Pointer, Pointer) -> i32>,
    pub unbind: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub open_complete: Handler<unsafe extern "win64" fn(Pointer, i32)>,
    pub close_complete: Handler<unsafe extern "win64" fn(Pointer)>,
    pub pnp_event: Handler<unsafe extern "win64" fn(Pointer, Pointer) -> i32>,
    pub uninstall: Handler<unsafe extern "win64" fn()>,
    pub oid_complete: Handler<unsafe extern "win64" fn(Pointer, Pointer, i32)>,
    pub status: Handler<unsafe extern "win64" fn(Pointer, Pointer)>,
    pub receive: Handler<unsafe extern "win64" fn(Pointer, *mut super::nbl::Nbl, u32, u32, u32)>,
    pub send_complete: Handler<unsafe extern "win64" fn(Pointer, *mut super::nbl::Nbl, u32)>,
}
const _: () = assert!(size_of::<Protocol>() + 0x20 == 120);

/// `OPEN_NDK_ADAPTER_HANDLER`, `CLOSE_NDK_ADAPTER_HANDLER`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Ndk {
    pub open: unsafe extern "win64" fn(Pointer, Pointer, *mut Pointer) -> i32,
    pub close: unsafe extern "win64" fn(Pointer, Pointer),
}

#[derive(Clone, Copy, Default)]
pub struct Registered {
    pub miniport: Option<(Miniport, usize)>,
    pub protocol: Option<(Protocol, usize)>,
    pub ndk: Option<Ndk>,
    driver_object: usize,
}

static REGISTERED: Mutex<Registered> =
    Mutex::new(Registered { miniport: None, protocol: None, ndk: None, driver_object: 0 });
/// While `MiniportSetOptions` runs.
static SETS_OPTIONS: AtomicBool = AtomicBool::new(false);

pub const MINIPORT_HANDLE: Pointer = 0x4D49_4E49 as Pointer;
pub const PROTOCOL_HANDLE: Pointer = 0x5052_4F54 as Pointer;
/// Windows Server 2022: 6.85.
const VERSION: u32 = 6 << 16 | 85;
/// `DRIVER_OBJECT.DriverUnload`.
pub const DRIVER_UNLOAD: usize = 0x68;

pub fn registered() -> Registered {
    *REGISTERED.lock().unwrap()
}

pub fn report_leaks() {
    let registered = std::mem::take(&mut *REGISTERED.lock().unwrap());
    if registered.miniport.is_some() {
        breach!("the miniport driver is still registered");
    }
    if registered.protocol.is_some() {
        breach!("the protocol driver is still registered");
    }
}

/// What NDIS puts into `DriverUnload` of a miniport's driver object.
unsafe extern "win64" fn unload(driver_object: Pointer) {
    let Some((miniport, _)) = registered().miniport else {
        breach!("unload without a registered miniport");
        return;
    };
    if vnic::count() > 0 {
        breach!("unload with adapters that were not halted");
    }
    super::device::none_left();
    irql::run_at(PASSIVE, "MiniportDriverUnload", || unsafe {
        miniport.unload.expect("checked at registration")(driver_object)
    });
}

fn require(handlers: &[(&str, bool)]) {
    for (name, present) in handlers {
        if !present {
            breach!("{name} is NULL");
        }
    }
}

unsafe fn check_miniport(start: Pointer, handlers: &Miniport) {
    let header = member::<Header>(start, 0);
    header.check("NDIS_MINIPORT_DRIVER_CHARACTERISTICS", 0x8A, &[(1, 136), (2, 152), (3, 160)]);
    let (major, minor) = (member::<u8>(start, 4), member::<u8>(start, 5));
    say!("miniport registers for NDIS {major}.{minor}, revision {}", header.revision);
    if major != 6 || !(60..=85).contains(&minor) {
        breach!("a miniport for NDIS {major}.{minor} on NDIS 6.85");
    }
    // 6.85 demands revision 3; below 6.80 there is none.
    if minor >= 85 && header.revision < 3 || minor < 80 && header.revision > 2 {
        breach!("revision {} of the characteristics for NDIS {major}.{minor}", header.revision);
    }
    if member::<u32>(start, 8) != 0 {
        breach!("miniport flags {:#x}", member::<u32>(start, 8));
    }
    require(&[
        ("MiniportSetOptions", handlers.set_options.is_some()),
        ("MiniportInitializeEx", handlers.initialize.is_some()),
        ("MiniportHaltEx", handlers.halt.is_some()),
        ("MiniportDriverUnload", handlers.unload.is_some()),
        ("MiniportPause", handlers.pause.is_some()),
        ("MiniportRestart", handlers.restart.is_some()),
        ("MiniportOidRequest", handlers.oid_request.is_some()),
        ("MiniportSendNetBufferLists", handlers.send.is_some()),
        ("MiniportReturnNetBufferLists", handlers.return_lists.is_some()),
        ("MiniportCancelSend", handlers.cancel_send.is_some()),
        ("MiniportDevicePnPEventNotify", handlers.pnp_event.is_some()),
        ("MiniportShutdownEx", handlers.shutdown.is_some()),
        ("MiniportCancelOidRequest", handlers.cancel_oid.is_some()),
        // Required of a miniport that implements RDMA.
        ("MiniportDirectOidRequest", handlers.direct_oid.is_some()),
        ("MiniportCancelDirectOidRequest", handlers.cancel_direct_oid.is_some()),
        ("no MiniportCheckForHangEx, as there is no MiniportResetEx", handlers.check_for_hang == 0),
        ("no MiniportResetEx", handlers.reset == 0),
    ]);
}

unsafe fn check_protocol(start: Pointer, handlers: &Protocol) {
    member::<Header>(start, 0).check(
        "NDIS_PROTOCOL_DRIVER_CHARACTERISTICS",
        0x95,
        &[(1, 120), (2, 128)],
    );
    let (major, minor) = (member::<u8>(start, 4), member::<u8>(start, 5));
    say!("protocol registers for NDIS {major}.{minor}");
    if major != 6 || !(60..=85).contains(&minor) {
        breach!("a protocol for NDIS {major}.{minor} on NDIS 6.85");
    }
    // Equal to the service's name, or Windows does not bind it.
    let name = member::<UnicodeString>(start, 0x10).text();
    if name != "ndkrocev2" {
        breach!("the protocol's name is {name:?}");
    }
    require(&[
        ("ProtocolBindAdapterEx", handlers.bind.is_some()),
        ("ProtocolUnbindAdapterEx", handlers.unbind.is_some()),
        ("ProtocolOpenAdapterCompleteEx", handlers.open_complete.is_some()),
        ("ProtocolCloseAdapterCompleteEx", handlers.close_complete.is_some()),
        ("ProtocolNetPnPEvent", handlers.pnp_event.is_some()),
        ("ProtocolOidRequestComplete", handlers.oid_complete.is_some()),
        ("ProtocolStatusEx", handlers.status.is_some()),
        ("ProtocolReceiveNetBufferLists", handlers.receive.is_some()),
        ("ProtocolSendNetBufferListsComplete", handlers.send_complete.is_some()),
    ]);
}

exports! { "ndis.sys":
    fn NdisGetVersion() -> u32 { VERSION }
    fn NdisMRegisterMiniportDriver(driver_object: Pointer, path: &UnicodeString, context: Pointer, start: Pointer,
        handle: *mut Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisMRegisterMiniportDriver");
        registry::witness("NdisMRegisterMiniportDriver");
        say!("NdisMRegisterMiniportDriver, registry path {}", path.text());
        let handlers = member::<Miniport>(start, 0x10);
        check_miniport(start, &handlers);
        if registered().miniport.is_some() { breach!("the miniport driver is registered twice"); return FAILURE; }
        if pool::refuses("NdisMRegisterMiniportDriver") { return RESOURCES; }
        {
            let mut registered = REGISTERED.lock().unwrap();
            registered.miniport = Some((handlers, context as usize));
            registered.driver_object = driver_object as usize;
        }
        set_member(driver_object, DRIVER_UNLOAD, unload as *const () as usize);
        handle.write(MINIPORT_HANDLE);
        SETS_OPTIONS.store(true, Ordering::SeqCst);
        let status = irql::run_at(PASSIVE, "MiniportSetOptions", || {
            handlers.set_options.map_or(SUCCESS, |f| f(MINIPORT_HANDLE, context))
        });
        SETS_OPTIONS.store(false, Ordering::SeqCst);
        if status != SUCCESS {
            forget_miniport();
        } else if registered().ndk.is_none() {
            breach!("MiniportSetOptions registered no NDK provider");
        }
        status
    }
    fn NdisSetOptionalHandlers(handle: Pointer, start: Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisSetOptionalHandlers");
        if !SETS_OPTIONS.load(Ordering::SeqCst) || handle != MINIPORT_HANDLE {
            breach!("NdisSetOptionalHandlers outside of MiniportSetOptions");
            return FAILURE;
        }
        member::<Header>(start, 0).check("NDIS_NDK_PROVIDER_CHARACTERISTICS", 0xB2, &[(1, 24)]);
        if member::<u32>(start, 4) != 0 { breach!("NDK provider flags {:#x}", member::<u32>(start, 4)); }
        if pool::refuses("NdisSetOptionalHandlers") { return RESOURCES; }
        REGISTERED.lock().unwrap().ndk = Some(member(start, 8));
        SUCCESS
    }
    fn NdisMDeregisterMiniportDriver(handle: Pointer) {
        irql::at_most(PASSIVE, "NdisMDeregisterMiniportDriver");
        registry::witness("NdisMDeregisterMiniportDriver");
        if handle != MINIPORT_HANDLE || registered().miniport.is_none() {
            breach!("NdisMDeregisterMiniportDriver({handle:?}) without a registration");
        }
        if registered().protocol.is_some() {
            breach!("the miniport is deregistered before the protocol");
        }
        vnic::halt_all();
        forget_miniport();
        say!("NdisMDeregisterMiniportDriver");
    }
    fn NdisRegisterProtocolDriver(context: Pointer, start: Pointer, handle: *mut Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisRegisterProtocolDriver");
        let handlers = member::<Protocol>(start, 0x20);
        check_protocol(start, &handlers);
        if registered().protocol.is_some() { breach!("the protocol driver is registered twice"); return FAILURE; }
        if pool::refuses("NdisRegisterProtocolDriver") { return RESOURCES; }
        REGISTERED.lock().unwrap().protocol = Some((handlers, context as usize));
        handle.write(PROTOCOL_HANDLE);
        if let Some(set_options) = handlers.set_options {
            irql::run_at(PASSIVE, "ProtocolSetOptions", || set_options(PROTOCOL_HANDLE, context));
        }
        // Binds come from other threads, even before this returns.
        nic::bind_all();
        SUCCESS
    }
    fn NdisDeregisterProtocolDriver(handle: Pointer) {
        irql::at_most(PASSIVE, "NdisDeregisterProtocolDriver");
        if handle != PROTOCOL_HANDLE || registered().protocol.is_none() {
            breach!("NdisDeregisterProtocolDriver({handle:?}) without a registration");
        }
        nic::unbind_all();
        REGISTERED.lock().unwrap().protocol = None;
        say!("NdisDeregisterProtocolDriver");
    }
    fn NdisReEnumerateProtocolBindings(_handle: Pointer) {
        irql::at_most(PASSIVE, "NdisReEnumerateProtocolBindings");
        nic::ask();
    }
}

fn forget_miniport() {
    let driver_object = {
        let mut registered = REGISTERED.lock().unwrap();
        registered.miniport = None;
        registered.ndk = None;
        registered.driver_object as Pointer
    };
    unsafe { set_member(driver_object, DRIVER_UNLOAD, 0_usize) };
}
