//! The arguments of the linker for the Windows image.

use std::path::Path;
use std::{env, fs};

mod link;

#[path = "../ndis/src/counter_sets.rs"]
#[allow(dead_code, unreachable_pub, reason = "the driver needs more of it")]
mod counter_sets;
mod messages;
#[path = "../ndis/src/problems.rs"]
#[allow(dead_code, unreachable_pub, reason = "the driver needs more of it")]
mod problems;
mod version;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.rs");
    println!("cargo::rerun-if-changed=messages.rs");
    println!("cargo::rerun-if-changed=version.rs");
    println!("cargo::rerun-if-changed=../ndis/src/counter_sets.rs");
    println!("cargo::rerun-if-changed=../ndis/src/problems.rs");
    if !link::is_for_windows() {
        return;
    }
    // The WDK's libraries and its own arguments; those below come last and so win.
    #[cfg(windows)]
    if env::var_os("CARGO_FEATURE_WDK").is_some() {
        wdk_build::configure_wdk_binary_build().expect("a WDK, and crt-static");
    }
    for argument in link::arguments("ndkrocev2") {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    let file = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("resources.res");
    fs::write(&file, resources()).expect("cargo's folder can be written");
    println!("cargo::rustc-cdylib-link-arg={}", file.display());
}

/// A compiled resource file, by
/// [the format's page](https://learn.microsoft.com/windows/win32/menurc/resource-file-formats): the names and
/// descriptions of the performance counters in blocks of 16 strings, each behind its length; the event log's
/// messages; and the version.
fn resources() -> Vec<u8> {
    const STRING_TABLE: u16 = 6;
    const MESSAGE_TABLE: u16 = 11;
    const VERSION: u16 = 16;
    const ENGLISH: u16 = 0x409;
    let strings: Vec<_> = counter_sets::strings().collect();
    let mut blocks: Vec<_> = strings.iter().map(|(id, _)| id / 16).collect();
    blocks.dedup();
    // The empty entry with which such a file begins.
    let mut file = entry(0, 0, 0, &[]);
    for block in blocks {
        let mut bytes = Vec::new();
        for id in block * 16..(block + 1) * 16 {
            let text = strings.iter().find(|(other, _)| *other == id).map_or("", |(_, text)| text);
            let units: Vec<u16> = text.encode_utf16().collect();
            bytes.extend((units.len() as u16).to_le_bytes());
            bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        }
        file.extend(entry(STRING_TABLE, block as u16 + 1, ENGLISH, &bytes));
    }
    file.extend(entry(MESSAGE_TABLE, 1, ENGLISH, &messages::message_table()));
    // VS_VERSION_INFO is number 1.
    file.extend(entry(VERSION, 1, ENGLISH, &version::version_info()));
    file
}

/// One resource: a header of 32 bytes, the data, and zeros up to a multiple of four.
fn entry(kind: u16, number: u16, language: u16, data: &[u8]) -> Vec<u8> {
    const MOVEABLE_PURE_DISCARDABLE: u16 = 0x1030;
    let flags = if kind == 0 { 0 } else { MOVEABLE_PURE_DISCARDABLE };
    let mut entry = Vec::new();
    entry.extend((data.len() as u32).to_le_bytes());
    entry.extend(32_u32.to_le_bytes());
    for word in [0xffff, kind, 0xffff, number] {
        entry.extend(u16::to_le_bytes(word));
    }
    // Of the data: version, flags, language; version and characteristics of one's own.
    entry.extend(0_u32.to_le_bytes());
    entry.extend(flags.to_le_bytes());
    entry.extend(language.to_le_bytes());
    entry.extend([0; 8]);
    entry.extend(data);
    entry.resize(entry.len().next_multiple_of(4), 0);
    entry
}
