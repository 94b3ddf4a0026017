//! Text that a driver makes itself: the formats of its C library, as far as drivers here use them.

use std::ffi::{CStr, c_char};
use std::fmt::Write as _;

use crate::ntos::Pointer;

/// Writes a format with its arguments, each a word of eight bytes, as `_vsnprintf` takes them.
///
/// # Safety
/// There are as many arguments as the format names, and each `%s` is a string.
pub(crate) unsafe fn format(format: *const c_char, mut arguments: *const u64) -> String {
    let format = CStr::from_ptr(format).to_string_lossy();
    let mut text = String::new();
    let mut rest = &*format;
    while let Some((before, after)) = rest.split_once('%') {
        text.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_digit() && c != 'l' && c != 'h');
        let end = end.unwrap_or(after.len());
        let (flags, kind) = after.split_at(end);
        let width: usize = flags.trim_matches(['l', 'h']).parse().unwrap_or(0);
        let is_long_long = flags.ends_with("ll");
        let mut next = || unsafe {
            let word = arguments.read();
            arguments = arguments.add(1);
            word
        };
        let value = match kind.chars().next() {
            Some('%') => "%".into(),
            Some('u') if is_long_long => next().to_string(),
            Some('d') if is_long_long => next().cast_signed().to_string(),
            Some('u') => (next() as u32).to_string(),
            Some('d') => (next() as u32).cast_signed().to_string(),
            Some('x') => format!("{:x}", next() as u32),
            Some('s') => CStr::from_ptr(next() as *const c_char).to_string_lossy().into_owned(),
            other => {
                breach!("the format %{flags}{other:?} is not known here");
                String::new()
            }
        };
        write!(text, "{value:>width$}").expect("a string takes it");
        rest = kind.get(1..).unwrap_or_default();
    }
    text + rest
}

/// `_vsnprintf`: no zero behind it if there is no room; then the result is negative.
pub(crate) unsafe extern "win64" fn vsnprintf(
    buffer: Pointer,
    room: usize,
    text: *const c_char,
    arguments: *const u64,
) -> i32 {
    crate::stack::outside(|| unsafe {
        let text = format(text, arguments);
        let len = text.len().min(room);
        buffer.copy_from(text.as_ptr(), len);
        if text.len() < room {
            buffer.add(len).write(0);
        }
        if text.len() > room { -1 } else { len as i32 }
    })
}

/// `qsort`, by elements that are moved as bytes.
pub(crate) unsafe extern "win64" fn sort(
    base: Pointer,
    count: usize,
    width: usize,
    compare: unsafe extern "win64" fn(*const u8, *const u8) -> i32,
) {
    crate::stack::outside(|| {
        let bytes = unsafe { std::slice::from_raw_parts_mut(base, count * width) };
        let mut elements: Vec<Vec<u8>> = bytes.chunks(width).map(<[u8]>::to_vec).collect();
        elements.sort_by(|a, b| {
            let compared = || unsafe { compare(a.as_ptr(), b.as_ptr()) };
            crate::stack::inside("a comparison", compared).cmp(&0)
        });
        bytes.copy_from_slice(&elements.concat());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_of(text: &CStr, arguments: &[u64]) -> String {
        unsafe { format(text.as_ptr(), arguments.as_ptr()) }
    }

    #[test]
    fn formats_are_those_of_c() {
        assert_eq!(format_of(c"size %d, %d times\n", &[5, u64::MAX]), "size 5, -1 times\n");
        assert_eq!(format_of(c"p%lu.%lu%%: %6llu", &[99, 9, 1 << 32]), "p99.9%: 4294967296");
        assert_eq!(format_of(c"%4d|%x", &[7, 255]), "   7|ff");
    }

    #[test]
    fn a_short_buffer_gets_what_fits() {
        let mut buffer = [b'#'; 6];
        let mut print = |room| unsafe {
            vsnprintf(buffer.as_mut_ptr(), room, c"%d".as_ptr(), [12345].as_ptr())
        };
        assert_eq!((print(3), print(5), print(6)), (-1, 5, 5));
        assert_eq!(&buffer, b"12345\0");
    }

    #[test]
    fn elements_are_sorted_by_their_order() {
        unsafe extern "win64" fn compare(a: *const u8, b: *const u8) -> i32 {
            let [a, b] = [a, b].map(|at| unsafe { at.cast::<u32>().read_unaligned() });
            a.cmp(&b) as i32
        }
        let mut numbers = [3_u32, 1, 2, 1];
        unsafe { sort(numbers.as_mut_ptr().cast(), numbers.len(), 4, compare) };
        assert_eq!(numbers, [1, 1, 2, 3]);
    }
}
