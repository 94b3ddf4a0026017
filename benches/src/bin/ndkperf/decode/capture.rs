//! The frames of a capture file: pcap and pcapng, Ethernet.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

/// A frame as it was captured.
pub(super) struct Record<'a> {
    /// From 1, as Wireshark counts.
    pub(super) number: u64,
    /// Since 1970.
    pub(super) at_ns: u64,
    /// Bytes that it had on the wire.
    pub(super) wire_len: usize,
    /// Bytes that were captured, from the Ethernet header.
    pub(super) bytes: &'a [u8],
}

/// The place and the reason at which the reading of a file ended early.
#[derive(Debug)]
pub(super) struct CaptureError {
    file: PathBuf,
    offset: u64,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Io(io::Error),
    NoFile,
    Format,
    Cut,
    LinkType(DataLink),
    Interface(u32),
    Block,
    Malformed(PcapError),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, problem } = self;
        let file = file.display();
        match problem {
            Problem::Io(source) => write!(f, "{file}: {source}"),
            Problem::NoFile => write!(f, "{file}: not a regular file, and it has to be read twice"),
            Problem::Format => write!(f, "{file}: byte {offset}: neither pcap nor pcapng"),
            Problem::Cut => write!(f, "{file}: byte {offset}: the file ends within this record"),
            Problem::LinkType(link) => {
                write!(f, "{file}: byte {offset}: frames of {link:?}, not of Ethernet")
            }
            Problem::Interface(id) => {
                write!(
                    f,
                    "{file}: byte {offset}: a packet of interface {id}, which is not described"
                )
            }
            Problem::Block => write!(f, "{file}: byte {offset}: the block is too short"),
            Problem::Malformed(source) => write!(f, "{file}: byte {offset}: {source}"),
        }
    }
}

/// Hands each frame to `each`, up to `limit` of them, and returns how many there were.
///
/// # Errors
/// The first record that cannot be read; those before it were handed over.
pub(super) fn read(
    path: &Path,
    limit: u64,
    each: &mut dyn FnMut(&Record<'_>),
) -> (u64, Option<CaptureError>) {
    let mut frames = 0;
    let mut offset = 0;
    let mut counted = |record: &mut Record<'_>| {
        frames += 1;
        record.number = frames;
        each(record);
        frames < limit
    };
    let problem = open(path)
        .and_then(|(file, format)| match format {
            Format::Pcap => read_pcap(file, &mut offset, &mut counted),
            Format::PcapNg { header_len } => {
                offset = header_len;
                read_pcapng(file, &mut offset, &mut counted)
            }
        })
        .err();
    (frames, problem.map(|problem| CaptureError { file: path.into(), offset, problem }))
}

enum Format {
    Pcap,
    PcapNg { header_len: u64 },
}

fn open(path: &Path) -> Result<(File, Format), Problem> {
    let mut file = File::open(path).map_err(Problem::Io)?;
    if !file.metadata().map_err(Problem::Io)?.is_file() {
        return Err(Problem::NoFile);
    }
    let mut start = Vec::new();
    Read::by_ref(&mut file).take(12).read_to_end(&mut start).map_err(Problem::Io)?;
    file.seek(SeekFrom::Start(0)).map_err(Problem::Io)?;
    let Some(([magic, len, order], _)) = start.first_chunk::<12>().map(|start| start.as_chunks())
    else {
        return Err(Problem::Format);
    };
    let format = match *magic {
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => Format::Pcap,
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => Format::Pcap,
        [0x0a, 0x0d, 0x0d, 0x0a] => {
            let big = *order == [0x1a, 0x2b, 0x3c, 0x4d];
            let len = if big { u32::from_be_bytes(*len) } else { u32::from_le_bytes(*len) };
            Format::PcapNg { header_len: len.into() }
        }
        _ => return Err(Problem::Format),
    };
    Ok((file, format))
}

/// A consumer of frames, which says whether it wants more.
type Each<'a> = &'a mut dyn FnMut(&mut Record<'_>) -> bool;

fn read_pcap(file: File, offset: &mut u64, each: Each<'_>) -> Result<(), Problem> {
    let mut reader = PcapReader::new(file).map_err(problem)?;
    let header = reader.header();
    *offset = PCAP_HEADER_LEN;
    if header.datalink != DataLink::ETHERNET {
        return Err(Problem::LinkType(header.datalink));
    }
    let fraction_ns = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    // Raw, because a capture of the first bytes of each frame has lengths over its own limit, which the crate refuses.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = packet.map_err(problem)?;
        let at_ns = u64::from(packet.ts_sec) * NS + u64::from(packet.ts_frac) * fraction_ns;
        let bytes = &packet.data[..];
        let wire_len = bytes.len().max(packet.orig_len as usize);
        *offset += PCAP_RECORD_LEN + bytes.len() as u64;
        if !each(&mut Record { number: 0, at_ns, wire_len, bytes }) {
            break;
        }
    }
    Ok(())
}

fn read_pcapng(file: File, offset: &mut u64, each: Each<'_>) -> Result<(), Problem> {
    let mut reader = PcapNgReader::new(file).map_err(problem)?;
    let mut last_ns = 0;
    loop {
        // The blocks of packets are read here: the crate ignores the resolution of their times, and refuses options
        // without an end, which newer writers leave out.
        let Some(block) = reader.next_raw_block() else { return Ok(()) };
        let (kind, len, body) = block
            .map(|block| (block.type_, block.initial_len, block.body.into_owned()))
            .map_err(problem)?;
        let big = reader.section().endianness == Endianness::Big;
        if let Some(Packet { interface, time, wire_len, bytes }) = packet(kind, &body, big)? {
            let described = reader.interfaces().get(interface as usize);
            let described = described.ok_or(Problem::Interface(interface))?;
            if described.linktype != DataLink::ETHERNET {
                return Err(Problem::LinkType(described.linktype));
            }
            last_ns = time.map_or(last_ns, |time| nanoseconds(time, described));
            let wire_len = wire_len.max(bytes.len());
            if !each(&mut Record { number: 0, at_ns: last_ns, wire_len, bytes }) {
                return Ok(());
            }
        }
        *offset += u64::from(len);
    }
}

/// A packet of a pcapng file.
struct Packet<'a> {
    interface: u32,
    /// In units of its interface; a simple packet block has none.
    time: Option<u64>,
    wire_len: usize,
    bytes: &'a [u8],
}

/// The packet in a block, if it is one of packets.
fn packet(kind: u32, body: &[u8], big: bool) -> Result<Option<Packet<'_>>, Problem> {
    let word = |bytes: &[u8; 4]| match big {
        true => u32::from_be_bytes(*bytes),
        false => u32::from_le_bytes(*bytes),
    };
    let (words, _) = body.as_chunks::<4>();
    let (head, interface, time) = match (kind, words) {
        (ENHANCED_PACKET, [id, high, low, ..]) => {
            (12, word(id), Some(u64::from(word(high)) << 32 | u64::from(word(low))))
        }
        // The obsolete one, whose interface is the first half of a word.
        (OBSOLETE_PACKET, [id, high, low, ..]) => {
            let id = if big { word(id) >> 16 } else { word(id) & 0xffff };
            (12, id, Some(u64::from(word(high)) << 32 | u64::from(word(low))))
        }
        (SIMPLE_PACKET, [wire_len, ..]) => {
            let wire_len = word(wire_len) as usize;
            let bytes = &body[4..];
            let bytes = &bytes[..bytes.len().min(wire_len)];
            return Ok(Some(Packet { interface: 0, time: None, wire_len, bytes }));
        }
        (ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET, _) => return Err(Problem::Block),
        _ => return Ok(None),
    };
    let [captured, wire_len, ..] = &words[head / 4..] else { return Err(Problem::Block) };
    let bytes = body.get(head + 8..).and_then(|rest| rest.get(..word(captured) as usize));
    let bytes = bytes.ok_or(Problem::Block)?;
    Ok(Some(Packet { interface, time, wire_len: word(wire_len) as usize, bytes }))
}

/// A time of this interface: in microseconds, unless it says otherwise.
fn nanoseconds(time: u64, interface: &InterfaceDescriptionBlock<'_>) -> u64 {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let exponent = u32::from(resolution & 0x7f);
    let units = if resolution & 0x80 == 0 {
        10u128.checked_pow(exponent)
    } else {
        2u128.checked_pow(exponent)
    };
    let ns = units.map(|units| u128::from(time) * u128::from(NS) / units);
    ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)
}

fn problem(error: PcapError) -> Problem {
    match error {
        PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => Problem::Cut,
        PcapError::IoError(error) => Problem::Io(error),
        PcapError::IncompleteBuffer => Problem::Cut,
        other => Problem::Malformed(other),
    }
}

/// The header of a pcap file.
const PCAP_HEADER_LEN: u64 = 24;
/// The header of a record in it.
const PCAP_RECORD_LEN: u64 = 16;
/// Block types of pcapng.
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: times are told in nanoseconds, whatever their interface counts in.
    #[test]
    fn times_of_every_resolution() {
        let of = |resolution: Option<u8>| {
            let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
            interface.options.extend(resolution.map(InterfaceDescriptionOption::IfTsResol));
            interface
        };
        assert_eq!(nanoseconds(7, &of(None)), 7_000);
        assert_eq!(nanoseconds(7, &of(Some(9))), 7);
        assert_eq!(nanoseconds(3, &of(Some(0x81))), 1_500_000_000);
        assert_eq!(nanoseconds(u64::MAX, &of(Some(0))), 0, "a time that nobody can mean");
        assert_eq!(nanoseconds(u64::MAX, &of(Some(0xff))), 0);
    }
}
