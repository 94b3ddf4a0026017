//! Packets of other implementations: captures of Linux rdma_rxe, and single packets as hex.

use pcap_file::pcap::PcapReader;
use std::fs::File;
use std::path::Path;

pub(super) struct Capture {
    pub(super) name: String,
    pub(super) frames: Vec<Vec<u8>>,
}

/// All captures in which every packet is good.
pub(super) fn captures() -> Vec<Capture> {
    let mut names: Vec<_> = Path::new(CAPTURES)
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".pcap") && name != "corrupt_write.pcap")
        .collect();
    names.sort();
    names.iter().map(|name| capture(name)).collect()
}

pub(super) fn capture(name: &str) -> Capture {
    let file = File::open(Path::new(CAPTURES).join(name)).unwrap();
    let mut reader = PcapReader::new(file).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap().data.into_owned());
    }
    Capture { name: name.to_owned(), frames }
}

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/captures");

/// Vectors with an Ethernet header before them. V1 and V2 are of a transport that is not offered;
/// they are beside the ICRC's code.
pub(super) fn vectors() -> Vec<(&'static str, Vec<u8>)> {
    VECTORS.iter().map(|(name, hex)| (*name, [ETHERNET, &bytes(hex)].concat())).collect()
}

const ETHERNET: &[u8] = &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];

/// From IP header to ICRC; `[n]` is n bytes of 0.
const VECTORS: [(&str, &str); 9] = [
    (
        "V3",
        "45c2003c 718c4000 40119161 0a001101 0a001201 000012b7 00280000
         8100ffff 40000118 00000000 [16] 82fd002a",
    ),
    (
        "W1",
        "4500003c 23fc4000 401102b3 0a000002 0a000001 e5db12b7 00280000
         0400ffff 00000011 80e76ecc 00005597935dd190000005cf00000040 aac42b56",
    ),
    (
        "W2",
        "45000030 28fe4000 4011fdbc 0a000001 0a000002 e5db12b7 001c0000
         1100ffff 00000011 00e76ecc 1f000001 16f65276",
    ),
    (
        "W3",
        "4500003c 28ff4000 4011fdaf 0a000001 0a000002 e5db12b7 00280000
         0c00ffff 00000011 80600964 00005597935dd190 000005cf 00000040 2a79bb81",
    ),
    (
        "W4",
        "45000070 23fd4000 4011027e 0a000002 0a000001 e5db12b7 005c0000
         1000ffff 00000011 00600964 1f000001 72646d61 2d70696e 672d303a 20414243
         44454647 48494a4b 4c4d4e4f 50515253 54555657 58595a5b 5c5d5e5f 60616263
         64656667 68696a6b 6c6d6e6f 70717200 a95027fd",
    ),
    (
        "W5",
        "4500007c 290a4000 4011fd64 0a000001 0a000002 e5db12b7 00680000
         0a00ffff 00000011 80600966 00005597935dd1e0 0000042a 00000040
         72646d61 2d70696e 672d303a 20414243
         44454647 48494a4b 4c4d4e4f 50515253 54555657 58595a5b 5c5d5e5f 60616263
         64656667 68696a6b 6c6d6e6f 70717200 c61cc7c2",
    ),
    (
        "W6",
        "45000048 28f14000 4011fdb1 0a000002 0a000001 d80612b7 00340000
         1400ffff 00000016 80663cdb 0000555904eb3000 00000b2c 0000000000000001 [8] 62022b0b",
    ),
    (
        "W7",
        "45000038 2b924000 4011fb20 0a000001 0a000002 d80612b7 00240000
         1200ffff 00000016 00663cdb 1f000001 e7422bcd1cd46206 f1e5131c",
    ),
    (
        "W8",
        "45000134 23f14000 401101c6 0a000002 0a000001 d87212b7 01200000
         6400ffff 00000001 80000000 80010000 00000001
         01070203 00000000 00000002 44ed9184 0010 0000 00000000
         8491ed44 [4] 00000000 01061c06 505400fffe000002 [8]
         000011 01 000000 01 000000 a0 600964 a7 ffff 37 f0
         ffff ffff [10] ffff0a000002 [10] ffff0a000001 7a5c5000 00 40 00 88 [44]
         00 40 c261 [12] 0a000002 [12] 0a000001 [56] ee503d50",
    ),
];

pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in hex.split_whitespace() {
        match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            Some(zeros) => bytes.resize(bytes.len() + zeros.parse::<usize>().unwrap(), 0),
            None => bytes.extend(
                (0..word.len())
                    .step_by(2)
                    .map(|i| u8::from_str_radix(&word[i..i + 2], 16).unwrap()),
            ),
        }
    }
    bytes
}

pub(super) fn w1() -> Vec<u8> {
    vectors().into_iter().find(|(name, _)| *name == "W1").unwrap().1
}
