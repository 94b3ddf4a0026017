//! The format of a snapshot: what the driver answers through its control device, and `ndkrocev2ctl` reads.
//!
//! A [`Head`]; then each adapter, and behind it its connections. A record is its members one after the other in their
//! order, numbers in little-endian. A change of the format is a new [`VERSION`].
//!
//! This file knows nothing of the driver: `ndkrocev2ctl`, which does not import the driver's crates, compiles it, too.

extern crate alloc;

use self::alloc::vec::Vec;

/// The version of this format.
pub const VERSION: u32 = 1;

/// The device's name, below `\Device` and `\\.`.
pub const DEVICE: &str = "ndkrocev2";

/// The control code by which a snapshot is read:
/// [`CTL_CODE`](https://learn.microsoft.com/windows-hardware/drivers/kernel/defining-i-o-control-codes) of a network
/// device, read access, a number that is not Microsoft's, buffered.
pub const READ: u32 = FILE_DEVICE_NETWORK << 16 | FILE_READ_ACCESS << 14 | 0x800 << 2;
const FILE_DEVICE_NETWORK: u32 = 0x12;
const FILE_READ_ACCESS: u32 = 1;

/// A part of a record.
pub trait Field: Sized {
    /// Its bytes.
    const LEN: usize;

    /// Writes it to the front of the room, and moves that on. The room is large enough.
    fn write(&self, room: &mut &mut [u8]);

    /// Reads it from the front, and moves that on.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($ty:ty)*) => {
        $(impl Field for $ty {
            const LEN: usize = size_of::<Self>();

            fn write(&self, room: &mut &mut [u8]) {
                let (here, rest) = core::mem::take(room).split_at_mut(Self::LEN);
                here.copy_from_slice(&self.to_le_bytes());
                *room = rest;
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                let (here, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*here))
            }
        })*
    };
}

numbers!(u8 u16 u32 u64);

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    const LEN: usize = N * T::LEN;

    fn write(&self, room: &mut &mut [u8]) {
        self.iter().for_each(|one| one.write(room));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = T::read(bytes)?;
        }
        Some(all)
    }
}

macro_rules! record {
    ($(#[$doc:meta])* $name:ident { $($(#[$member_doc:meta])* $member:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub struct $name {
            $($(#[$member_doc])* pub $member: $ty,)*
        }

        impl Field for $name {
            const LEN: usize = 0 $(+ <$ty as Field>::LEN)*;

            fn write(&self, room: &mut &mut [u8]) {
                $(self.$member.write(room);)*
            }

            fn read(bytes: &mut &[u8]) -> Option<Self> {
                Some(Self { $($member: Field::read(bytes)?,)* })
            }
        }
    };
}

record! {
    /// The first record.
    Head {
        /// [`VERSION`].
        version: u32,
        /// Bytes of the whole snapshot, also where the room was for fewer.
        len: u32,
        /// Adapters that follow.
        adapters: u32,
        /// The number of the last stage that the driver reached.
        stage: u32,
        /// The number of the last problem in the event log; 0: none since the driver was loaded.
        problem: u32,
        /// The interface index of its adapter, and its values.
        problem_values: [u32; 3],
    }
}

record! {
    /// An adapter.
    Adapter {
        /// Its interface index.
        interface: u32,
        /// Its Ethernet address.
        mac: [u8; 6],
        /// The name of its NIC in UTF-16, with zeros behind it.
        nic: [u16; 48],
        /// [`link`].
        link: u32,
        /// Bits per second.
        speed_bps: u64,
        /// Largest layer-3 packet, in bytes.
        mtu: u32,
        /// Payload of the largest RoCE packet, in bytes.
        path_mtu: u32,
        /// [`ndk`].
        ndk: u32,
        /// Listeners and shared endpoints.
        endpoints: u32,
        /// Connections that follow.
        connections: u32,
        /// Connections that it began.
        connects: u64,
        /// Connections that it accepted.
        accepts: u64,
        /// Attempts that came to nothing.
        connect_failures: u64,
        /// Connections that broke.
        connection_errors: u64,
        /// CQs that overran.
        cq_errors: u64,
        /// RoCE bytes received.
        in_bytes: u64,
        /// RoCE bytes sent.
        out_bytes: u64,
        /// RoCE frames received.
        in_frames: u64,
        /// RoCE frames sent.
        out_frames: u64,
    }
}

record! {
    /// A connection.
    Connection {
        /// The queue pair's number.
        qpn: u32,
        /// The path MTU, in bytes.
        path_mtu: u32,
        /// Our address; of IPv4, as it is mapped into IPv6.
        local: [u8; 16],
        /// Our port.
        local_port: u16,
        /// The peer's address.
        remote: [u8; 16],
        /// The peer's port.
        remote_port: u16,
        /// Bytes sent.
        sent_bytes: u64,
        /// Bytes received.
        received_bytes: u64,
        /// Packets sent again after a silence.
        resent_packets: u64,
    }
}

/// Values of [`Adapter::link`].
pub mod link {
    /// The adapter has no NIC.
    pub const NO_NIC: u32 = 0;
    /// The NIC has no link.
    pub const DOWN: u32 = 1;
    /// The NIC has a link.
    pub const UP: u32 = 2;
}

/// Values of [`Adapter::ndk`].
pub mod ndk {
    /// No consumer can open it.
    pub const OFF: u32 = 0;
    /// Consumers can open it.
    pub const ON: u32 = 1;
    /// It was switched off, and a consumer has not let go yet.
    pub const CLOSING: u32 = 2;
}

/// Fills a room with records, as long as they fit: none stands behind one that did not.
#[derive(Debug)]
pub struct Writer<'a> {
    room: &'a mut [u8],
    needed: usize,
    written: usize,
}

impl<'a> Writer<'a> {
    /// Leaves the front for the head; `None` where there is no room even for that.
    pub fn new(room: &'a mut [u8]) -> Option<Self> {
        (room.len() >= Head::LEN).then_some(Self { room, needed: Head::LEN, written: Head::LEN })
    }

    /// Adds a record.
    pub fn add<T: Field>(&mut self, record: &T) {
        let start = self.needed;
        self.needed += T::LEN;
        if let Some(mut room) = self.room.get_mut(start..self.needed) {
            record.write(&mut room);
            self.written = self.needed;
        }
    }

    /// Writes the head, whose length becomes that of all. Returns the bytes that are written and those that all takes.
    pub fn finish(self, head: Head) -> (usize, usize) {
        let head = Head { len: self.needed as u32, ..head };
        let mut room = &mut *self.room;
        head.write(&mut room);
        (self.written, self.needed)
    }
}

/// A snapshot, read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// The first record.
    pub head: Head,
    /// The adapters, each with its connections.
    pub adapters: Vec<(Adapter, Vec<Connection>)>,
}

impl Snapshot {
    /// Reads all of a snapshot; `None` where it is of another version or not whole.
    pub fn read(mut bytes: &[u8]) -> Option<Self> {
        let len = bytes.len();
        let head = Head::read(&mut bytes)?;
        if head.version != VERSION || head.len as usize != len {
            return None;
        }
        let mut adapters = Vec::new();
        for _ in 0..head.adapters {
            let adapter = Adapter::read(&mut bytes)?;
            let connections = (0..adapter.connections).map(|_| Connection::read(&mut bytes));
            adapters.push((adapter, connections.collect::<Option<_>>()?));
        }
        bytes.is_empty().then_some(Self { head, adapters })
    }
}
