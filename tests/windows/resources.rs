//! The resources of the image that Windows' event viewer reads: the message table.

use std::collections::BTreeMap;

use ndis_driver::problems::Problem;
use object::LittleEndian as LE;
use object::pe::{IMAGE_DIRECTORY_ENTRY_RESOURCE, RT_MESSAGETABLE};
use object::read::pe::{ResourceDirectory, ResourceDirectoryEntryData};

use crate::Image;

/// Goal: each problem of the driver has its sentence in the image under its identifier, and nothing else has one.
#[test]
fn each_problem_has_its_sentence() {
    for image in Image::all() {
        let found = messages(&image.message_table());
        let wanted = Problem::ALL.map(|problem| {
            let words = problem.words();
            (problem.message_id(), format!("{} {}\r\n", words.sentence, words.remedy))
        });
        assert_eq!(found, BTreeMap::from(wanted), "{}", image.path.display());
    }
}

/// Goal: a table that is wrong is not read.
#[test]
fn a_table_that_lies_is_refused() {
    let right = [1_u32, 7, 7, 16, 0x0001_0008, u32::from_le_bytes([b'a', 0, 0, 0])];
    let bytes =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    assert_eq!(messages(&bytes(&right)), BTreeMap::from([(7, "a".into())]));
    for (place, word) in [(2, 8), (3, 40), (4, 0x0001_0009), (4, 0x0000_0008), (5, 0x0061_0061)] {
        let mut wrong = right;
        wrong[place] = word;
        let read = std::panic::catch_unwind(|| messages(&bytes(&wrong)));
        assert!(read.is_err(), "word {place} is {word:#x}");
    }
}

impl Image {
    /// The message table, in English.
    fn message_table(&self) -> Vec<u8> {
        let pe = self.parse();
        let resources = ResourceDirectory::new(self.directory(&pe, IMAGE_DIRECTORY_ENTRY_RESOURCE));
        let mut table = resources.root().expect("resources");
        for wanted in [RT_MESSAGETABLE, 1, 0x409] {
            let entry = table.entries.iter().find(|entry| entry.name_or_id().id() == Some(wanted));
            let entry = entry.unwrap_or_else(|| panic!("no resource {wanted:#x}"));
            match entry.data(resources).expect("a sound entry") {
                ResourceDirectoryEntryData::Table(inner) => table = inner,
                ResourceDirectoryEntryData::Data(data) => {
                    let (place, len) = (data.offset_to_data.get(LE), data.size.get(LE));
                    return self.at(&pe, place, len as usize).to_vec();
                }
            }
        }
        panic!("no data, but another table")
    }
}

/// The texts of a message table by their identifiers, by the page of
/// [its structures](https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-message_resource_block).
fn messages(table: &[u8]) -> BTreeMap<u32, String> {
    let word = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().expect("four bytes"));
    let mut all = BTreeMap::new();
    for block in 0..word(0) as usize {
        let [first, last, place] = [4, 8, 12].map(|at| word(12 * block + at));
        let mut at = place as usize;
        for id in first..=last {
            let (len, encoding) = (word(at) as usize & 0xffff, word(at) >> 16);
            assert!(encoding == 1 && len > 4 && len.is_multiple_of(4), "message {id:#x}");
            let units =
                table[at + 4..at + len].chunks(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
            let units: Vec<u16> = units.collect();
            let end = units.iter().position(|&unit| unit == 0).expect("a zero ends it");
            all.insert(id, String::from_utf16(&units[..end]).expect("UTF-16"));
            at += len;
        }
    }
    all
}
