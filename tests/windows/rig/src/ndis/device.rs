//! Devices of an NDIS driver's own: what opens them, and the requests that come to them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{FAILURE, Header, RESOURCES, SUCCESS, driver, member, set_member};
use crate::ntos::irql::{self, DISPATCH, PASSIVE};
use crate::ntos::{Pointer, UnicodeString, lock, pool};

pub(crate) type Dispatch = unsafe extern "win64" fn(device: Pointer, irp: Pointer) -> i32;

/// A device that is registered, or gone and still open.
#[derive(Clone)]
struct Device {
    number: usize,
    name: String,
    /// By the numbers of `IRP_MJ_XXX`.
    functions: [Option<Dispatch>; 28],
    /// Whether it can be opened.
    registered: bool,
    handles: usize,
}

static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0xDE_0000);

pub(crate) const CREATE: usize = 0;
pub(crate) const CLOSE: usize = 2;
pub(crate) const CONTROL: usize = 14;
pub(crate) const CLEANUP: usize = 18;
/// Codes that NDIS answers by itself: those of PnP and power.
const NOT_A_DRIVERS: [usize; 2] = [22, 27];

const NAME: &str = "\\Device\\ndkrocev2";
const LINK: &str = "\\DosDevices\\ndkrocev2";
/// The system and administrators, and nobody else, may read, and no more.
const READERS: &str = "D:P(A;;GR;;;SY)(A;;GR;;;BA)";

const NOT_COMPLETED: i32 = 0x5555_5555;
const IRP_LEN: usize = 0xD0;
const STACK_LOCATION: usize = 0xB8;
const FILL: u8 = 0x5A;

/// An open handle of the driver's device.
#[derive(Debug)]
pub struct Handle {
    number: usize,
}

/// What came of a request.
#[derive(Debug, Eq, PartialEq)]
pub struct Answer {
    pub status: i32,
    pub bytes: Vec<u8>,
}

/// Whether the driver has a device that can be opened.
pub fn is_registered() -> bool {
    DEVICES.lock().unwrap().iter().any(|device| device.registered)
}

pub fn report_leaks() {
    for device in std::mem::take(&mut *DEVICES.lock().unwrap()) {
        breach!("the device {} is left: {} handles", device.name, device.handles);
    }
}

/// What NDIS has when an image unloads: no device of it.
pub fn none_left() {
    if !DEVICES.lock().unwrap().is_empty() {
        breach!("the driver unloads while it has a device");
    }
}

impl Handle {
    /// Opens the device, with this name behind its own; `Err` with the status of the driver, or of the system where there is
    /// no device.
    pub fn open(behind: &str) -> Result<Self, i32> {
        const NOT_FOUND: i32 = 0xC000_0034_u32.cast_signed();
        let found =
            DEVICES.lock().unwrap().iter_mut().find(|device| device.registered).map(|device| {
                device.handles += 1;
                device.number
            });
        let handle = Self { number: found.ok_or(NOT_FOUND)? };
        let answer = handle.request(CREATE, behind, 0, 0, 0);
        if answer.status == SUCCESS {
            return Ok(handle);
        }
        handle.release();
        Err(answer.status)
    }

    /// `DeviceIoControl`: the room of the answer, with as many bytes of input.
    pub fn control(&self, code: u32, input: usize, room: usize) -> Answer {
        self.request(CONTROL, "", code, input, room)
    }

    pub fn close(self) {
        for function in [CLEANUP, CLOSE] {
            let answer = self.request(function, "", 0, 0, 0);
            if answer.status != SUCCESS {
                breach!("a handle cannot be closed: {answer:x?}");
            }
        }
        self.release();
    }

    fn release(&self) {
        let mut devices = DEVICES.lock().unwrap();
        let device = devices.iter_mut().find(|device| device.number == self.number);
        let device = device.expect("a device that is open");
        device.handles -= 1;
        devices.retain(|device| device.registered || device.handles > 0);
    }

    fn request(
        &self,
        function: usize,
        behind: &str,
        code: u32,
        input: usize,
        room: usize,
    ) -> Answer {
        let dispatch = {
            let devices = DEVICES.lock().unwrap();
            let device = devices.iter().find(|device| device.number == self.number);
            device.expect("a device that is open").functions[function]
        };
        let dispatch = dispatch.expect("checked at its registration");
        let len = input.max(room);
        let mut buffer = vec![FILL; len + 16];
        let start = if len == 0 { std::ptr::null_mut() } else { buffer.as_mut_ptr() };
        let mut irp = Irp::new(function, behind, code, [input, room], start);
        let status = irp.run(dispatch, self.number as Pointer);
        lock::none_held("a dispatch routine");
        let (completed, bytes) = irp.completed();
        if completed != status {
            breach!("a request returned {status:#x} and was completed with {completed:#x}");
        }
        // The system copies what is said, unless the status is an error.
        let is_error = status.cast_unsigned() >> 30 == 3;
        if bytes > room || is_error && bytes > 0 {
            breach!("{bytes} bytes answer a room of {room} with {status:#x}");
        }
        if buffer[bytes.min(len)..].iter().any(|&byte| byte != FILL) {
            breach!("an answer of {bytes} bytes goes on behind them");
        }
        buffer.truncate(bytes.min(room));
        Answer { status, bytes: buffer }
    }
}

/// A request with what it points to: `IRP`, `IO_STACK_LOCATION`, `FILE_OBJECT`.
#[derive(Debug)]
pub(crate) struct Irp {
    irp: [u64; IRP_LEN / 8],
    location: [u64; 9],
    file: [u64; 0xD8 / 8],
}

impl Irp {
    /// Its function, the name behind the device's, its control code, the lengths of input and answer, and the buffer of both.
    pub(crate) fn new(
        function: usize,
        behind: &str,
        code: u32,
        [input, room]: [usize; 2],
        buffer: Pointer,
    ) -> Self {
        let mut new = Self { irp: [0; _], location: [0; _], file: [0; _] };
        unsafe {
            set_member(new.file.as_mut_ptr().cast(), 0x58, UnicodeString::leak(behind));
            let location = new.location.as_mut_ptr().cast();
            set_member(location, 0, function as u8);
            set_member(location, 8, room as u32);
            set_member(location, 0x10, input as u32);
            set_member(location, 0x18, code);
            let irp = new.irp.as_mut_ptr().cast();
            set_member(irp, 0x18, buffer);
            set_member(irp, 0x30, NOT_COMPLETED);
        }
        new
    }

    /// Brings it to the driver; what that returns.
    pub(crate) fn run(&mut self, dispatch: Dispatch, device: Pointer) -> i32 {
        let file = self.file.as_mut_ptr().cast::<u8>();
        let location = self.location.as_mut_ptr().cast::<u8>();
        let irp = self.irp.as_mut_ptr().cast::<u8>();
        unsafe {
            set_member(location, 0x30, file);
            set_member(irp, STACK_LOCATION, location);
            irql::run_at(PASSIVE, "a dispatch routine", || dispatch(device, irp))
        }
    }

    /// The status with which it was completed, and the bytes of its answer.
    pub(crate) fn completed(&self) -> (i32, usize) {
        let irp = self.irp.as_ptr().cast::<u8>().cast_mut();
        unsafe { (member(irp, 0x30), member(irp, 0x38)) }
    }
}

/// `IofCompleteRequest`.
pub unsafe fn complete(irp: Pointer) {
    irql::at_most(DISPATCH, "IofCompleteRequest");
    const COMPLETED: u8 = 1;
    // `PendingReturned` tells that it was completed before: nothing here sets it otherwise.
    if member::<u8>(irp, 0x41) == COMPLETED {
        breach!("a request is completed twice");
    }
    set_member(irp, 0x41, COMPLETED);
    if member::<i32>(irp, 0x30) == NOT_COMPLETED {
        breach!("a request is completed without a status");
    }
}

unsafe fn text(name: *const UnicodeString) -> String {
    let Some(name) = name.as_ref() else { return String::new() };
    if name.buffer.add(usize::from(name.length) / 2).read() != 0 {
        breach!("no zero ends the name {}", name.text());
    }
    name.text()
}

exports! { "ndis.sys":
    fn NdisRegisterDeviceEx(handle: Pointer, attributes: Pointer, object: *mut Pointer, device: *mut Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisRegisterDeviceEx");
        object.write(std::ptr::null_mut());
        if handle != driver::MINIPORT_HANDLE || driver::registered().miniport.is_none() {
            breach!("NdisRegisterDeviceEx({handle:?}) without a registration");
            return FAILURE;
        }
        member::<Header>(attributes, 0).check("NDIS_DEVICE_OBJECT_ATTRIBUTES", 0x85, &[(1, 0x38)]);
        let [name, link, readers] = [8, 0x10, 0x28].map(|at| text(member(attributes, at)));
        if (&*name, &*link, &*readers) != (NAME, LINK, READERS) {
            breach!("the device {name} is {link} for {readers}");
        }
        if member::<usize>(attributes, 0x30) != 0 { breach!("DeviceClassGuid is NDIS' own"); }
        let functions = member::<*const [Option<Dispatch>; 28]>(attributes, 0x18).read();
        let needed = [CREATE, CLOSE, CONTROL, CLEANUP];
        if needed.iter().any(|&function| functions[function].is_none())
            || NOT_A_DRIVERS.iter().any(|&function| functions[function].is_some()) {
            breach!("the dispatch routines of {name}: {functions:?}");
        }
        if is_registered() { breach!("{name} is registered twice"); return FAILURE; }
        if pool::refuses("NdisRegisterDeviceEx") { return RESOURCES; }
        let number = NEXT.fetch_add(16, Ordering::Relaxed);
        DEVICES.lock().unwrap().push(Device { number, name, functions, registered: true, handles: 0 });
        object.write(number as Pointer);
        device.write(number as Pointer);
        SUCCESS
    }
    fn NdisDeregisterDeviceEx(device: Pointer) {
        irql::at_most(PASSIVE, "NdisDeregisterDeviceEx");
        let mut devices = DEVICES.lock().unwrap();
        match devices.iter_mut().find(|other| other.number == device as usize && other.registered) {
            Some(device) => device.registered = false,
            None => breach!("NdisDeregisterDeviceEx: {device:?} is no device"),
        }
        // It lives as long as somebody has it open.
        devices.retain(|device| device.registered || device.handles > 0);
    }
}
