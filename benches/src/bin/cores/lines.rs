//! The lines of memory that several cores write, from a trace of all accesses by valgrind.

use super::trace::SAID;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A line of memory, in bytes.
const LINE: u64 = 64;

/// The accesses between two marks.
#[derive(Default)]
struct Counts {
    instructions: u64,
    lines: HashMap<u64, Line>,
    /// Accesses for which a line that was written goes from one core to another.
    transfers: u64,
}

/// The cores that read a line, that write it, and that have it now, a bit each.
#[derive(Clone, Copy, Default)]
struct Line {
    readers: u8,
    writers: u8,
    holders: u8,
}

/// Prints the table.
pub(crate) fn run(messages: usize) -> Result<(), String> {
    println!(
        "| Cores a side | Instructions of a message, both ends | Lines that several cores write \
         | Lines that one writes and others read | Lines that go to another core, a message |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for cores in [1, 2, 4] {
        let Counts { instructions, lines, transfers } = trace(cores, messages)?;
        // Whole rounds of a batch for each core.
        let round = 32 * cores;
        let done = messages.div_ceil(round) * round;
        let written = lines.values().filter(|line| line.writers.count_ones() > 1).count();
        let read = lines.values().filter(|line| line.is_read_elsewhere()).count();
        let (instructions, transfers) =
            (instructions / done as u64, transfers as f64 / done as f64);
        println!("| {cores} | {instructions} | {written} | {read} | {transfers:.3} |");
    }
    Ok(())
}

/// Runs the traced program under valgrind.
fn trace(cores: usize, messages: usize) -> Result<Counts, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(program)
        .args(["trace", &cores.to_string(), &messages.to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("valgrind: {error}"))?;
    let accesses = child.stderr.take().ok_or("valgrind has no output")?;
    let counts =
        count(BufReader::with_capacity(1 << 20, accesses)).map_err(|error| error.to_string());
    let ended = child.wait().map_err(|error| error.to_string())?;
    if ended.success() { counts } else { Err(format!("valgrind: {ended}")) }
}

/// Counts the accesses behind the first mark.
fn count(mut accesses: impl BufRead) -> std::io::Result<Counts> {
    let (mut counts, mut marks, mut core) = (Counts::default(), None, 0);
    let mut line = Vec::new();
    while accesses.read_until(b'\n', &mut line)? > 0 {
        match marks {
            Some(marks) => counts.add(&line, marks, &mut core),
            None => marks = said(&line).and_then(number),
        }
        line.clear();
    }
    Ok(counts)
}

impl Counts {
    /// Adds an access, such as ` S 04025e50,8`; a store to a mark says which core has its turn, from 1 on.
    fn add(&mut self, access: &[u8], marks: u64, core: &mut u64) {
        let (Some(kind), Some(address)) = (access.get(1), access.get(3..).and_then(number)) else {
            return;
        };
        if (marks..marks + LINE).contains(&address) {
            *core = address - marks;
            return;
        }
        if *core == 0 {
            return;
        }
        if access.first() == Some(&b'I') {
            self.instructions += 1;
            return;
        }
        let bit = 1 << (*core - 1);
        let line = self.lines.entry(address / LINE).or_default();
        let (reads, writes) = (matches!(kind, b'L' | b'M'), matches!(kind, b'S' | b'M'));
        self.transfers += u64::from(line.access(bit, reads, writes));
    }
}

impl Line {
    /// Whether the line has to come from another core for this access.
    fn access(&mut self, bit: u8, reads: bool, writes: bool) -> bool {
        let others = self.holders & !bit;
        let stale = self.holders & bit == 0 && self.writers & others != 0;
        let comes = if writes { others != 0 } else { stale };
        self.readers |= if reads { bit } else { 0 };
        self.writers |= if writes { bit } else { 0 };
        self.holders = if writes { bit } else { self.holders | bit };
        comes
    }

    const fn is_read_elsewhere(self) -> bool {
        self.writers.count_ones() == 1 && self.readers & !self.writers != 0
    }
}

/// The rest of a line in which the program speaks, which valgrind may have begun.
fn said(line: &[u8]) -> Option<&[u8]> {
    let at = line.windows(SAID.len()).position(|part| part == SAID.as_bytes())?;
    line.get(at + SAID.len()..)
}

/// The number that hexadecimal digits begin with.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    u64::from_str_radix(std::str::from_utf8(&text[..digits]).ok()?, 16).ok()
}
