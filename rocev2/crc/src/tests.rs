use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// By table, bit by bit: the definition.
fn by_definition(crc: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 0 { 0 } else { POLYNOMIAL };
    !bytes.iter().fold(!crc, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

fn ways() -> Vec<Way> {
    Way::ALL.iter().copied().filter(|way| way.is_available()).collect()
}

#[test]
fn the_check_value_is_that_of_the_catalogues() {
    for way in ways() {
        assert_eq!(way.extend(0, b"123456789"), 0xcbf4_3926, "{way:?}");
    }
    assert_eq!((extend(0, &[]), extend(7, &[])), (0, 7));
}

/// Each way, at every length of a packet and at every alignment.
#[test]
fn every_length_has_the_same_crc_each_way() {
    let last = if cfg!(miri) { 200 } else { 9 << 10 };
    let bytes: Vec<u8> = (0..last + 16).map(|n: usize| ((n * n) >> 3) as u8).collect();
    let mut expected = [0x1234_5678; 16];
    for len in 0..last {
        for (at, expected) in expected.iter_mut().enumerate() {
            // The alignments take turns once the lengths are long.
            if len < 300 || len % 16 == at {
                for way in ways() {
                    let crc = way.extend(0x1234_5678, &bytes[at..at + len]);
                    assert_eq!(crc, *expected, "{way:?}, {len} bytes from {at}");
                }
                assert_eq!(extend(0x1234_5678, &bytes[at..at + len]), *expected);
            }
            *expected = by_definition(*expected, &bytes[at + len..=at + len]);
        }
    }
}

proptest! {
    #[test]
    fn parts_make_the_whole(bytes in prop::collection::vec(any::<u8>(), 0..3000), at: prop::sample::Index) {
        let (head, tail) = bytes.split_at(at.index(bytes.len() + 1));
        for way in ways() {
            prop_assert_eq!(way.extend(way.extend(9, head), tail), by_definition(9, &bytes));
        }
    }
}
