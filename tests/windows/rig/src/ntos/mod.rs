//! The stand-in for ntoskrnl.exe.

pub mod dispatcher;
pub mod dpc;
pub mod etw;
pub mod event_log;
pub mod irql;
pub mod lock;
pub mod mdl;
pub mod misc;
pub mod pcw;
pub mod pool;
pub mod registry;
pub mod rundown;
pub mod work_item;

pub(crate) fn exports() -> impl Iterator<Item = (&'static str, usize)> {
    [dispatcher::table(), dpc::table(), irql::table(), lock::table(), mdl::table()]
        .into_iter()
        .chain([etw::table(), misc::table(), misc::runtime(), pcw::table(), pool::table()])
        .chain([event_log::table(), registry::table(), rundown::table(), work_item::table()])
        .flatten()
}

pub(crate) const LISTS: [&str; 14] = [
    dispatcher::LIST,
    dpc::LIST,
    irql::LIST,
    lock::LIST,
    mdl::LIST,
    etw::LIST,
    misc::LIST,
    misc::RUNTIME,
    pcw::LIST,
    pool::LIST,
    event_log::LIST,
    registry::LIST,
    rundown::LIST,
    work_item::LIST,
];

pub type Pointer = *mut u8;
pub const SUCCESS: i32 = 0;
pub const TIMEOUT: i32 = 0x102;
pub const INSUFFICIENT_RESOURCES: i32 = 0xC000_009A_u32.cast_signed();

/// A counted UTF-16 string.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UnicodeString {
    /// In bytes.
    pub length: u16,
    pub maximum: u16,
    pub buffer: *const u16,
}

impl UnicodeString {
    /// A string that lives as long as the process.
    pub fn leak(text: &str) -> Self {
        let units: &'static mut [u16] = text.encode_utf16().chain([0]).collect::<Vec<_>>().leak();
        let length = (units.len() as u16 - 1) * 2;
        Self { length, maximum: length + 2, buffer: units.as_ptr() }
    }

    /// `*`, for whatever is asked for by a pattern.
    pub fn star() -> *const Self {
        static STAR: [u16; 1] = [b'*' as u16];
        Box::leak(Box::new(Self { length: 2, maximum: 2, buffer: STAR.as_ptr() }))
    }

    /// # Safety
    /// `buffer` is NULL or has `length` bytes.
    pub unsafe fn text(&self) -> String {
        if self.buffer.is_null() || self.length == 0 {
            return String::new();
        }
        String::from_utf16_lossy(std::slice::from_raw_parts(self.buffer, self.length as usize / 2))
    }
}
