//! Text of bounded length, without an allocator.

use core::fmt;

/// Bytes of a line, at most.
pub const LINE_LEN: usize = 160;

/// A line of ASCII. The rest of a longer text is cut off.
#[derive(Clone, Copy)]
pub struct Line {
    bytes: [u8; LINE_LEN],
    len: usize,
}

impl Line {
    /// No text yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; LINE_LEN], len: 0 }
    }

    /// The text of a value.
    #[must_use]
    pub fn of(value: impl fmt::Display) -> Self {
        let mut line = Self::new();
        // Writing never fails.
        let _ = fmt::Write::write_fmt(&mut line, format_args!("{value}"));
        line
    }

    /// The text so far.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.len).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Default for Line {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(place) = self.bytes.get_mut(self.len) else { break };
            // Half a character would be no text.
            *place = if byte.is_ascii_graphic() || byte == b' ' { byte } else { b'?' };
            self.len += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_and_stays_a_text() {
        let line = Line::of(format_args!("{:1$}", 'x', 2 * LINE_LEN));
        assert_eq!(line.as_str().len(), LINE_LEN);
        assert_eq!(Line::of("a\u{e9}\nb").as_str(), "a???b");
    }
}
