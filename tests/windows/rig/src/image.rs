//! A PE image, mapped into this Linux process: copied, relocated, its imports filled in, its pages protected.

use std::fs;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Mutex;

use object::LittleEndian as LE;
use object::pe::*;
use object::read::pe::{Import, PeFile64};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::ntos::irql::{self, PASSIVE};
use crate::ntos::{UnicodeString, lock};

const PAGE: usize = 4096;
/// The length of a `DRIVER_OBJECT`, and where the routine is that lets the image go.
const DRIVER_OBJECT_LEN: usize = 0x150;
const DRIVER_UNLOAD: usize = crate::ndis::driver::DRIVER_UNLOAD;

/// The address of what an image imports: a module, a function.
pub(crate) type Resolve = fn(&str, &str) -> Option<usize>;

type Entry = unsafe extern "win64" fn(*mut u8, *const UnicodeString) -> i32;
type Unload = unsafe extern "win64" fn(*mut u8);

/// An image that is mapped, and the driver object that its entry point filled in.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) base: usize,
    len: usize,
    entry: usize,
    pub(crate) driver_object: Box<[u64; DRIVER_OBJECT_LEN / 8]>,
}

/// The images that are mapped, by the names of their files, with their addresses and lengths.
static MAPPED: Mutex<Vec<(String, usize, usize)>> = Mutex::new(Vec::new());

impl Image {
    pub(crate) fn map(path: &Path, resolve: Resolve) -> Self {
        let file = fs::read(path).expect("the image can be read");
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
        import(&pe, base, resolve);
        set_cookie(&pe, base);
        protect(&pe, base);
        let name = path.file_stem().expect("the name of a file").to_string_lossy();
        MAPPED.lock().unwrap().push((name.into_owned(), base, len));
        let entry = base + header.address_of_entry_point.get(LE) as usize;
        Self { base, len, entry, driver_object: Box::new([0; DRIVER_OBJECT_LEN / 8]) }
    }

    /// Calls the entry point, as for the service of this name.
    ///
    /// # Errors
    /// What it returned.
    pub(crate) fn start(&mut self, service: &str) -> Result<(), i32> {
        say!("image at {:#x}, entry point {:#x}", self.base, self.entry);
        let path = format!("\\REGISTRY\\MACHINE\\SYSTEM\\ControlSet001\\Services\\{service}");
        let path = UnicodeString::leak(&path);
        let status = irql::run_at(PASSIVE, "DriverEntry", || unsafe {
            let entry = std::mem::transmute::<usize, Entry>(self.entry);
            entry(self.driver_object.as_mut_ptr().cast(), &raw const path)
        });
        lock::none_held("DriverEntry");
        if status == 0 { Ok(()) } else { Err(status) }
    }

    /// Calls the unload routine.
    pub(crate) fn stop(&mut self) {
        let routine = self.driver_object[DRIVER_UNLOAD / 8] as usize;
        if routine == 0 {
            breach!("the driver has no unload routine");
            return;
        }
        irql::run_at(PASSIVE, "DriverUnload", || unsafe {
            let routine = std::mem::transmute::<usize, Unload>(routine);
            routine(self.driver_object.as_mut_ptr().cast());
        });
    }

    /// A call into the image faults from here on. Threads that ended in it are asleep for good.
    pub(crate) fn unmap(self) {
        MAPPED.lock().unwrap().retain(|(_, base, _)| *base != self.base);
        unsafe { munmap(self.base as *mut _, self.len) }.expect("mapped above");
    }
}

/// Where an address is: in the image of this name, so far from its start.
pub(crate) fn find(address: usize) -> Option<(String, usize)> {
    let mapped = MAPPED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    mapped.iter().find_map(|(name, base, len)| {
        let rva = address.checked_sub(*base).filter(|rva| rva < len)?;
        Some((name.clone(), rva))
    })
}

/// The same in words.
pub(crate) fn place(address: usize) -> String {
    match find(address) {
        Some((name, rva)) => format!("{name} {rva:#x}"),
        None => format!("{address:#x}"),
    }
}

fn at(base: usize, rva: u32) -> *mut u8 {
    (base + rva as usize) as *mut u8
}

fn protect(pe: &PeFile64<'_>, base: usize) {
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

/// Gives the checks of the compiler their secret (`IMAGE_LOAD_CONFIG_DIRECTORY64.SecurityCookie`), where the image has them; the entry point
/// of an image refuses the one of its file.
fn set_cookie(pe: &PeFile64<'_>, base: usize) {
    const COOKIE_AT: u32 = 0x58;
    let Some(directory) = pe.data_directories().get(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG) else {
        return;
    };
    if directory.size.get(LE) < COOKIE_AT + 8 {
        return;
    }
    let place = at(base, directory.virtual_address.get(LE) + COOKIE_AT);
    // Relocated with the rest.
    let cookie = unsafe { place.cast::<usize>().read_unaligned() } as *mut u64;
    if !cookie.is_null() {
        let mut secret = [0; 8];
        // The two highest bytes are zero.
        crate::ntos::misc::random(&mut secret[..6]);
        unsafe { cookie.write(u64::from_le_bytes(secret)) };
    }
}

fn import(pe: &PeFile64<'_>, base: usize, resolve: Resolve) {
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
            match resolve(module, name) {
                Some(address) => unsafe { slot.write(address) },
                None => missing.push(format!("{module}!{name}")),
            }
            slot = slot.wrapping_add(1);
        }
    }
    assert!(missing.is_empty(), "the stand-in lacks {missing:?}");
}
