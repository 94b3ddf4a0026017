//! Two devices joined in memory: one connects to the other and writes into its memory.
//!
//! `cargo run -p rocev2 --example pair` shows every packet. A program with a real wire differs in
//! [`Pair::exchange`] alone: it sends and receives the frames, and reads a clock.

use rocev2::cm::{CmEvent, Hop, ReadLimits};
use rocev2::env::{Duration, Fault, Instant, Memory, RegionId};
use rocev2::ids::{Lkey, Qpn, Rkey};
use rocev2::mr::{Access, PdId, Registration};
use rocev2::qp::{QpConfig, SendOp, SendWr, SgList, Sge, WcStatus};
use rocev2::wire::{Mac, dissect};
use rocev2::{Connect, Device, DeviceConfig, Event};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const PD: PdId = PdId(1);
const PORT: u16 = 4420;
const LIMITS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };
const LEN: usize = 5000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut pair = Pair { nodes: [Node::new(0)?, Node::new(1)?], now: Instant::from_nanos(0) };
    let client = pair.connect()?;

    let [near, far] = &mut pair.nodes;
    let element = Sge { addr: 0, len: LEN as u32, lkey: Lkey::new(near.key.get()) };
    let write = SendWr {
        id: 7,
        op: SendOp::Write { va: 0, rkey: far.key },
        sgl: SgList::from_slice(&[element]).map_err(|_| "too many elements")?,
        solicited: false,
        read_fence: false,
        silent: false,
    };
    near.device.post_send(client, write)?;
    let done = pair.until(|pair| pair.nodes[0].device.poll_completion())?;
    assert_eq!((done.id, done.status), (7, WcStatus::Success));

    let [near, far] = &pair.nodes;
    assert_eq!(near.memory.0, far.memory.0);
    println!("{LEN} bytes were written");
    Ok(())
}

/// The bytes behind the only registration of a device.
struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn read(&mut self, _: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let bytes = self.0.get(offset as usize..).and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(Fault)?);
        Ok(())
    }

    fn write(&mut self, _: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let bytes = self.0.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..data.len()));
        bytes.ok_or(Fault)?.copy_from_slice(data);
        Ok(())
    }
}

struct Node {
    device: Device,
    memory: Bytes,
    key: Rkey,
}

impl Node {
    /// A device with one registration: node 0 has the data, node 1 has room for it.
    fn new(node: u8) -> Result<Self, Box<dyn Error>> {
        // A product draws its seed from the operating system. The GUID is its own on the network.
        let config = DeviceConfig::new([node; 32], vec![address(node)], u64::from(node) + 1);
        let mut device = Device::new(config);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let (region, len) = (RegionId(0), LEN as u64);
        let registration = Registration { pd: PD, region, base: 0, len, access };
        let key = device.register(registration).ok_or("the table of keys is full")?;
        let data = (0..LEN).map(|at| if node == 0 { at as u8 } else { 0 });
        Ok(Self { device, memory: Bytes(data.collect()), key })
    }

    fn create_qp(&mut self) -> Result<Qpn, Box<dyn Error>> {
        let config = QpConfig {
            owner: 0,
            pd: PD,
            send_depth: 16,
            send_sge: 16,
            recv_depth: 16,
            recv_sge: 16,
            srq: None,
        };
        Ok(self.device.create_qp(&config).ok_or("the table of queue pairs is full")?)
    }

    /// Writes the next frame, of one packet, into `buf`; its length.
    fn transmit(&mut self, now: Instant, buf: &mut [u8]) -> Option<usize> {
        Some(self.device.poll_transmit(now, buf, 1, &mut self.memory)?.len)
    }

    /// The next event of the connection.
    fn event(&mut self) -> Option<CmEvent> {
        match self.device.poll_event()? {
            Event::Cm(event) => Some(event),
            event @ (Event::QpFailed { .. } | Event::SrqLow { .. }) => panic!("{event:?}"),
        }
    }
}

struct Pair {
    nodes: [Node; 2],
    now: Instant,
}

impl Pair {
    /// Connects a queue pair of node 0 to one of node 1, which listens.
    fn connect(&mut self) -> Result<Qpn, Box<dyn Error>> {
        let [near, far] = &mut self.nodes;
        let (client, server) = (near.create_qp()?, far.create_qp()?);
        far.device.bind_port(address(1), PORT)?;
        far.device.listen(SocketAddr::new(address(1), PORT), 8)?;
        let port = near.device.bind_port(address(0), 0)?;
        let request = Connect {
            qpn: client,
            local: SocketAddr::new(address(0), port),
            remote: SocketAddr::new(address(1), PORT),
            hop: Hop { src_mac: mac(0), dst_mac: mac(1), vlan: None },
            limits: LIMITS,
            private_data: b"hello",
        };
        near.device.connect(self.now, &request)?;

        let CmEvent::ConnectRequest { conn, .. } = self.until(|pair| pair.nodes[1].event())? else {
            return Err("the listener heard something else".into());
        };
        self.nodes[1].device.accept(self.now, conn, server, LIMITS, b"welcome")?;
        let CmEvent::Connected { conn, private_data, .. } =
            self.until(|pair| pair.nodes[0].event())?
        else {
            return Err("the request was refused".into());
        };
        assert!(private_data.starts_with(b"welcome"));
        self.nodes[0].device.confirm(self.now, conn)?;
        let CmEvent::Established { .. } = self.until(|pair| pair.nodes[1].event())? else {
            return Err("the connection was not confirmed".into());
        };
        Ok(client)
    }

    /// Carries frames until `done` has something, for a minute of the devices' time.
    fn until<T>(
        &mut self,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, &'static str> {
        let end = self.now + Duration::from_secs(60);
        while self.now < end {
            if let Some(done) = done(self) {
                return Ok(done);
            }
            self.exchange();
            self.now = self.now + Duration::from_micros(10);
        }
        Err("nothing came for a minute")
    }

    /// Carries each frame that is ready to the other side.
    fn exchange(&mut self) {
        let (mut buf, now) = ([0; 2048], self.now);
        for (from, to) in [(0, 1), (1, 0)] {
            self.nodes[from].device.handle_timeout(now);
            while let Some(len) = self.nodes[from].transmit(now, &mut buf) {
                let frame = &buf[..len];
                println!("{from} -> {to}: {:?}, {len} bytes", dissect(frame).opcode());
                let Node { device, memory, .. } = &mut self.nodes[to];
                device.handle_frame(now, frame, None, memory);
            }
        }
    }
}

fn address(node: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, node + 1).into()
}

fn mac(node: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, node + 1])
}

#[test]
fn the_write_arrives() {
    main().expect("the example runs");
}
