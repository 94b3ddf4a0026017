//! Capture around any edge, in both directions, for Wireshark.
//!
//! A classic pcap file of link type Ethernet with nanosecond times. A unit of segments is divided
//! into the frames that it stands for. Each frame is written as the poller handles it, so the order
//! in the file is the order of events; a buffered writer is written out when it is full and when
//! the edge is dropped.

use crate::segment::split;
use crate::{Edge, EdgeError, Received, Segments, Slot, forward_edge};
use alloc::{boxed::Box, vec, vec::Vec};
use core::time::Duration;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::SystemTime;

/// An edge whose frames are recorded.
pub struct Capture<E, W: Write> {
    edge: E,
    record: Record<W>,
}

impl<E: Edge> Capture<E, BufWriter<File>> {
    /// Records the frames of `edge` in a new file at `path`; an old one is replaced.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(edge: E, path: impl AsRef<Path>) -> io::Result<Self> {
        Self::new(edge, BufWriter::new(File::create(path)?))
    }
}

impl<E: Edge, W: Write> Capture<E, W> {
    /// Records the frames of `edge` in `writer`.
    ///
    /// # Errors
    /// The file header cannot be written.
    pub fn new(edge: E, writer: W) -> io::Result<Self> {
        let header = PcapHeader {
            snaplen: SNAPLEN,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(writer, header).map_err(io_error)?;
        let clock = || SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let scratch = vec![0; edge.link().max_unit_len];
        let record = Record { writer: Some(writer), clock: Box::new(clock), scratch };
        Ok(Self { edge, record })
    }

    /// Takes the time of each frame, since the epoch, from `clock` in place of the system's.
    #[must_use]
    pub fn with_clock(mut self, clock: impl FnMut() -> Duration + Send + 'static) -> Self {
        self.record.clock = Box::new(clock);
        self
    }

    /// Whether every frame so far was written. After a failed write the capture stops, and the
    /// edge works on.
    pub fn is_complete(&self) -> bool {
        self.record.writer.is_some()
    }
}

impl<E: Edge, W: Write> Edge for Capture<E, W> {
    forward_edge!(self => self.edge);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let Self { edge, record } = self;
        edge.receive(budget, &mut |units| {
            units.iter().for_each(|unit| record.write(unit.frame, unit.segments));
            sink(units);
        })
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let Self { edge, record } = self;
        edge.transmit(budget, &mut |slots| {
            let filled = fill(slots);
            slots[..filled].iter().for_each(|slot| record.write(slot.bytes(), slot.unit.segments));
            filled
        })
    }
}

struct Record<W: Write> {
    /// `None` after a write failed.
    writer: Option<PcapWriter<W>>,
    clock: Box<dyn FnMut() -> Duration + Send>,
    scratch: Vec<u8>,
}

impl<W: Write> Record<W> {
    fn write(&mut self, unit: &[u8], segments: Option<Segments>) {
        let Some(writer) = &mut self.writer else { return };
        let now = (self.clock)();
        if self.scratch.len() < unit.len() {
            self.scratch.resize(unit.len(), 0);
        }
        for segment in split(unit, segments) {
            let len = segment.copy_to(&mut self.scratch);
            let packet = PcapPacket::new(now, len as u32, &self.scratch[..len]);
            if writer.write_packet(&packet).is_err() {
                self.writer = None;
                return;
            }
        }
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

/// Longest frame that a file may hold, the limit of libpcap.
const SNAPLEN: u32 = 262_144;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transmit;
    use crate::memory::{MemoryConfig, pair};
    use crate::segment::tests::unit;
    use alloc::sync::Arc;
    use pcap_file::pcap::PcapReader;
    use std::sync::Mutex;

    /// A file in memory that outlives the capture.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn both_directions_are_recorded_as_frames() {
        let (a, mut b) = pair(MemoryConfig { max_segments: 8, ..MemoryConfig::default() });
        let file = Shared::default();
        let mut ticks = 0;
        let mut a = Capture::new(a, file.clone()).unwrap().with_clock(move || {
            ticks += 1;
            Duration::new(1_700_000_000, ticks)
        });
        let (unit, segments) = unit(false, 250, 100);
        let send = |edge: &mut dyn Edge, segments| {
            let mut send = 1;
            let send_once = &mut |slots: &mut [Slot<'_>]| {
                slots[0].buffer[..unit.len()].copy_from_slice(&unit);
                *slots[0].unit = Transmit { len: unit.len(), segments };
                core::mem::take(&mut send)
            };
            edge.transmit(8, send_once).unwrap();
        };
        send(&mut a, Some(segments));
        send(&mut b, None);
        a.receive_each(8, |_| ()).unwrap();
        assert!(a.is_complete());

        let bytes = file.0.lock().unwrap().clone();
        let mut reader = PcapReader::new(&bytes[..]).unwrap();
        assert_eq!(reader.header().datalink, DataLink::ETHERNET);
        let mut frames = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            assert_eq!(packet.orig_len as usize, packet.data.len());
            frames.push((packet.timestamp.subsec_nanos(), packet.data.into_owned()));
        }
        let sent: Vec<Vec<u8>> = split(&unit, Some(segments))
            .map(|segment| [segment.header(), segment.payload()].concat())
            .collect();
        let [one, two, three] = &sent[..] else { panic!("{sent:?}") };
        // `fill` is asked once more and declines: only frames take a time.
        assert_eq!(
            frames,
            [(1, one.clone()), (1, two.clone()), (1, three.clone()), (2, unit.clone())]
        );
    }

    #[test]
    fn a_full_disk_stops_the_capture_only() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (a, mut b) = pair(MemoryConfig::default());
        let mut a = Capture::new(a, Full(100)).unwrap();
        a.transmit_each(3, |_| Some(Transmit { len: 60, segments: None })).unwrap();
        assert!(!a.is_complete());
        assert_eq!(b.receive_each(8, |_| ()).unwrap(), 3);
    }
}
