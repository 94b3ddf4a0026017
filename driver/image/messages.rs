//! The sentences of the event log as a message table, by
//! [its structures' page](https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-message_resource_data).

use crate::problems::Problem;

/// The text of a problem's message, as the event viewer shows it.
fn text(problem: Problem) -> String {
    let words = problem.words();
    format!("{} {}\r\n", words.sentence, words.remedy)
}

/// `MESSAGE_RESOURCE_DATA`: the number of blocks, and a block for each run of identifiers, with the place of its first entry;
/// behind them the entries.
pub(crate) fn message_table() -> Vec<u8> {
    const BLOCK_LEN: usize = 12;
    let mut problems = Problem::ALL;
    problems.sort_by_key(|problem| problem.message_id());
    let mut blocks: Vec<(u32, u32, usize)> = Vec::new();
    let mut entries = Vec::new();
    for problem in problems {
        let id = problem.message_id();
        match blocks.last_mut() {
            Some((_, last, _)) if *last + 1 == id => *last = id,
            _ => blocks.push((id, id, entries.len())),
        }
        entries.extend(entry(&text(problem)));
    }
    let head_len = size_of::<u32>() + blocks.len() * BLOCK_LEN;
    let mut table = Vec::new();
    table.extend((blocks.len() as u32).to_le_bytes());
    for (first, last, place) in blocks {
        for number in [first, last, (head_len + place) as u32] {
            table.extend(number.to_le_bytes());
        }
    }
    table.extend(entries);
    table
}

/// `MESSAGE_RESOURCE_ENTRY`: its own length, its encoding, and the text with zeros up to a multiple of four.
fn entry(text: &str) -> Vec<u8> {
    const HEAD_LEN: usize = 4;
    const UNICODE: u16 = 1;
    let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
    let len = (HEAD_LEN + 2 * units.len()).next_multiple_of(4);
    let mut entry = Vec::new();
    entry.extend((len as u16).to_le_bytes());
    entry.extend(UNICODE.to_le_bytes());
    entry.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    entry.resize(len, 0);
    entry
}
