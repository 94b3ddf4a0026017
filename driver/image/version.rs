//! The version of the image as a resource, by
//! [its page](https://learn.microsoft.com/windows/win32/menurc/vs-versioninfo).

/// The keys that Windows' dialogs, its event reports and crash dumps show.
pub(crate) const STRINGS: [(&str, &str); 8] = [
    ("CompanyName", "ndkrocev2"),
    ("FileDescription", "Software RoCEv2 RDMA"),
    ("FileVersion", env!("CARGO_PKG_VERSION")),
    ("InternalName", "ndkrocev2"),
    ("LegalCopyright", "MIT OR Apache-2.0"),
    ("OriginalFilename", "ndkrocev2.sys"),
    ("ProductName", "ndkrocev2"),
    ("ProductVersion", env!("CARGO_PKG_VERSION")),
];
const ENGLISH: u16 = 0x409;
const UNICODE: u16 = 0x4b0;

/// `VS_VERSIONINFO` of a network driver.
pub(crate) fn version_info() -> Vec<u8> {
    let strings: Vec<_> = STRINGS.iter().map(|(key, text)| string(key, text)).collect();
    let table = block(&format!("{ENGLISH:04X}{UNICODE:04X}"), TEXT, 0, &[], &strings);
    let languages = [ENGLISH.to_le_bytes(), UNICODE.to_le_bytes()].concat();
    let translation = block("Translation", BINARY, languages.len(), &languages, &[]);
    let fixed = fixed_file_info();
    let children = [
        block("StringFileInfo", TEXT, 0, &[], &[table]),
        block("VarFileInfo", TEXT, 0, &[], &[translation]),
    ];
    block("VS_VERSION_INFO", BINARY, fixed.len(), &fixed, &children)
}

/// `VS_FIXEDFILEINFO`.
fn fixed_file_info() -> Vec<u8> {
    const SIGNATURE: u32 = 0xfeef_04bd;
    const STRUCTURE_VERSION: u32 = 0x1_0000;
    const FLAGS_MASK: u32 = 0x3f;
    const VOS_NT_WINDOWS32: u32 = 0x4_0004;
    const VFT_DRV: u32 = 3;
    const VFT2_DRV_NETWORK: u32 = 6;
    let number = |text: &str| text.parse::<u32>().expect("cargo checks it");
    let major = number(env!("CARGO_PKG_VERSION_MAJOR")) << 16;
    let high = major | number(env!("CARGO_PKG_VERSION_MINOR"));
    let low = number(env!("CARGO_PKG_VERSION_PATCH")) << 16;
    let kind = [FLAGS_MASK, 0, VOS_NT_WINDOWS32, VFT_DRV, VFT2_DRV_NETWORK, 0, 0];
    let words = [SIGNATURE, STRUCTURE_VERSION, high, low, high, low];
    words.iter().chain(&kind).flat_map(|word| word.to_le_bytes()).collect()
}

const BINARY: u16 = 0;
const TEXT: u16 = 1;

/// A text counts in UTF-16 units, with the zero that ends it.
fn string(key: &str, text: &str) -> Vec<u8> {
    let value = utf16(text);
    block(key, TEXT, value.len() / 2, &value, &[])
}

/// Each of these structures begins like this, and each part from a multiple of four bytes.
fn block(key: &str, kind: u16, value_len: usize, value: &[u8], children: &[Vec<u8>]) -> Vec<u8> {
    let mut block = vec![0; 2];
    block.extend((value_len as u16).to_le_bytes());
    block.extend(kind.to_le_bytes());
    block.extend(utf16(key));
    let parts = [value].into_iter().chain(children.iter().map(Vec::as_slice));
    for part in parts.filter(|part| !part.is_empty()) {
        block.resize(block.len().next_multiple_of(4), 0);
        block.extend(part);
    }
    let len = block.len() as u16;
    block[..2].copy_from_slice(&len.to_le_bytes());
    block
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}
