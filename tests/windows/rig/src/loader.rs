//! Loads a PE image into this Linux process and gives it the stand-ins.

use std::fs;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;

use object::LittleEndian as LE;
use object::pe::*;
use object::read::pe::{Import, PeFile64};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::ndis::driver::DRIVER_UNLOAD;
use crate::ntos::irql::{self, PASSIVE};
use crate::ntos::{UnicodeString, lock};
use crate::{Host, coverage};

const PAGE: usize = 4096;

/// An image file, and where it is while it is loaded.
pub struct Loader {
    path: PathBuf,
    loaded: Mutex<Option<Loaded>>,
}

struct Loaded {
    base: usize,
    len: usize,
    driver_object: Box<[u64; 0x150 / 8]>,
}

type Entry = unsafe extern "win64" fn(*mut u8, *const UnicodeString) -> i32;
type Unload = unsafe extern "win64" fn(*mut u8);

impl Loader {
    pub fn new(path: PathBuf) -> Self {
        Self { path, loaded: Mutex::new(None) }
    }

    /// Maps the image: copied, relocated, imports filled in, pages protected.
    fn map(&self) -> (usize, usize, usize) {
        let file = fs::read(&self.path).expect("the image can be read");
        let pe = PeFile64::parse(&*file).expect("a PE32+ image");
        let header = &pe.nt_headers().optional_header;
        let len = (header.size_of_image.get(LE) as usize).next_multiple_of(PAGE);
        let all = ProtFlags::READ | ProtFlags::WRITE;
        let base = unsafe { mmap_anonymous(null_mut(), len, all, MapFlags::PRIVATE) };
        let base = base.expect("memory for the image") as usize;
        let headers = &file[..header.size_of_headers.get(LE) as usize];
        unsafe { at(base, 0).copy_from(headers.as_ptr(), headers.len()) };
        for section in pe.section_table().iter() {
            let bytes = section.pe_data(&*file).expect("a sound section");
            let count = bytes.len().min(section.virtual_size.get(LE) as usize);
            unsafe { at(base, section.virtual_address.get(LE)).copy_from(bytes.as_ptr(), count) };
        }
        relocate(&pe, base);
        import(&pe, base);
        for section in pe.section_table().iter() {
            let flags = section.characteristics.get(LE);
            let mut rights = MprotectFlags::empty();
            for (flag, right) in [
                (IMAGE_SCN_MEM_READ, MprotectFlags::READ),
                (IMAGE_SCN_MEM_WRITE, MprotectFlags::WRITE),
                (IMAGE_SCN_MEM_EXECUTE, MprotectFlags::EXEC),
            ] {
                rights |= if flags & flag != 0 { right } else { MprotectFlags::empty() };
            }
            let start = at(base, section.virtual_address.get(LE));
            let len = (section.virtual_size.get(LE) as usize).next_multiple_of(PAGE);
            unsafe { mprotect(start.cast(), len, rights) }.expect("sections are page-aligned");
        }
        (base, len, base + header.address_of_entry_point.get(LE) as usize)
    }
}

fn at(base: usize, rva: u32) -> *mut u8 {
    (base + rva as usize) as *mut u8
}

fn relocate(pe: &PeFile64<'_>, base: usize) {
    let delta = (base as u64).wrapping_sub(pe.nt_headers().optional_header.image_base.get(LE));
    let blocks = pe.data_directories().relocation_blocks(pe.data(), &pe.section_table());
    let mut blocks = blocks.expect("a sound directory").expect("relocations");
    while let Some(block) = blocks.next().expect("a sound block") {
        for relocation in block {
            assert_eq!(relocation.typ, IMAGE_REL_BASED_DIR64);
            let place = at(base, relocation.virtual_address).cast::<u64>();
            unsafe { place.write_unaligned(place.read_unaligned().wrapping_add(delta)) };
        }
    }
}

fn import(pe: &PeFile64<'_>, base: usize) {
    let table = pe.import_table().expect("a sound table").expect("imports");
    let mut descriptors = table.descriptors().expect("descriptors");
    let mut missing = Vec::new();
    while let Some(descriptor) = descriptors.next().expect("a sound descriptor") {
        let module = table.name(descriptor.name.get(LE)).expect("a module's name");
        let module = std::str::from_utf8(module).expect("ASCII");
        let mut slot = at(base, descriptor.first_thunk.get(LE)).cast::<usize>();
        let mut thunks = table.thunks(descriptor.original_first_thunk.get(LE)).expect("thunks");
        while let Some(thunk) = thunks.next::<ImageNtHeaders64>().expect("a sound thunk") {
            let import = table.import::<ImageNtHeaders64>(thunk).expect("a sound import");
            let Import::Name(_, name) = import else { panic!("an import by ordinal") };
            let name = std::str::from_utf8(name).expect("ASCII");
            match crate::resolve(module, name) {
                Some(address) => unsafe { slot.write(address) },
                None => missing.push(format!("{module}!{name}")),
            }
            slot = slot.wrapping_add(1);
        }
    }
    assert!(missing.is_empty(), "the stand-in lacks {missing:?}");
}

impl Host for Loader {
    fn load(&self) -> Result<(), i32> {
        let (base, len, entry) = self.map();
        coverage::begin(base);
        *RANGE.lock().unwrap() = (base, len);
        say!("image at {base:#x}, entry point {entry:#x}");
        let mut driver_object = Box::new([0_u64; 0x150 / 8]);
        let path =
            UnicodeString::leak("\\REGISTRY\\MACHINE\\SYSTEM\\ControlSet001\\Services\\ndkrocev2");
        let status = irql::run_at(PASSIVE, "DriverEntry", || unsafe {
            let entry = std::mem::transmute::<usize, Entry>(entry);
            entry(driver_object.as_mut_ptr().cast(), &raw const path)
        });
        lock::none_held("DriverEntry");
        if status != 0 {
            unmap(base, len);
            return Err(status);
        }
        *self.loaded.lock().unwrap() = Some(Loaded { base, len, driver_object });
        Ok(())
    }

    fn unload(&self) {
        let Some(mut loaded) = self.loaded.lock().unwrap().take() else { return };
        let routine = loaded.driver_object[DRIVER_UNLOAD / 8] as usize;
        if routine == 0 {
            breach!("the driver has no unload routine");
            return;
        }
        irql::run_at(PASSIVE, "DriverUnload", || unsafe {
            let routine = std::mem::transmute::<usize, Unload>(routine);
            routine(loaded.driver_object.as_mut_ptr().cast());
        });
        unmap(loaded.base, loaded.len);
    }
}

/// Where an address is, in words of the image that is loaded.
pub(crate) fn place(address: usize) -> String {
    let (base, len) = *RANGE.lock().unwrap();
    match address.checked_sub(base).filter(|rva| *rva < len) {
        Some(rva) => format!("the image's {rva:#x}"),
        None => format!("{address:#x}"),
    }
}

/// The address and the length of the image that is loaded.
static RANGE: Mutex<(usize, usize)> = Mutex::new((0, 0));

/// A call into the image faults from here on. Threads that ended in it are asleep for good.
fn unmap(base: usize, len: usize) {
    coverage::collect();
    unsafe { munmap(base as *mut _, len) }.expect("mapped above");
}
