//! A host: one admin queue, and I/O queues with many commands under way.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use ndk_consumer::{Buffer, Endpoint, EndpointConfig, Host, Region, Rights};
use zerocopy::{FromBytes, IntoBytes};

use super::identify::{IdentifyController, IdentifyNamespace, cns};
use super::wire::{
    BLOCK, CmRequest, Command, Completion, ConnectData, IN_CAPSULE, Sgl, Status, opcode, property,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Commands of a queue.
const ENTRIES: u16 = 32;
/// Bytes of the longest transfer of a command.
pub(crate) const TRANSFER_MAX: usize = 1 << 20;

/// A controller of a target, connected and enabled.
pub(crate) struct Controller {
    admin: Queue,
    number: u16,
    /// Bytes of data behind a command that the target takes.
    in_capsule: usize,
    name: Names,
    /// The controller's own words.
    pub(crate) identity: IdentifyController,
}

#[derive(Clone)]
struct Names {
    subsystem: String,
    host: String,
}

impl Controller {
    /// Connects an admin queue, and enables the controller.
    pub(crate) fn connect(host: &Host, target: SocketAddr, subsystem: &str) -> Result<Self> {
        let name = Names {
            subsystem: subsystem.into(),
            host: "nqn.2014-08.org.nvmexpress:uuid:6e646b2d-636f-6e73-756d-657200000001".into(),
        };
        let mut admin = Queue::connect(host, target, 0, 0, 0)?;
        let number = admin.greet(u16::MAX, &name)?.result.get() as u16;
        let page = Arc::new(Buffer::new(4096));
        admin.run(Command::property_get(property::CAP, true))?;
        // Entries of 64 and 16 bytes, pages of 4 KiB, the NVM command set; enabled.
        admin.run(Command::property_set(property::CC, ENABLED))?;
        while admin.run(Command::property_get(property::CSTS, false))?.result.get() & 1 == 0 {}
        admin.run_with(&page, 0..4096, Rights::REMOTE_WRITE, |data| {
            Command::identify(0, cns::CONTROLLER, data)
        })?;
        let identity = IdentifyController::read_from_bytes(&page.to_vec(0..4096))
            .map_err(|_| "an identity of another length")?;
        let capsule = identity.command_capsule.get() as usize * 16;
        let in_capsule = capsule.saturating_sub(size_of::<Command>()).min(IN_CAPSULE);
        Ok(Self { admin, number, in_capsule, name, identity })
    }

    /// Asks for `count` I/O queues, and connects them.
    pub(crate) fn queues(
        &mut self,
        host: &Host,
        target: SocketAddr,
        count: u16,
    ) -> Result<Vec<Queue>> {
        let wanted = u32::from(count - 1);
        let granted = self.admin.run(Command::set_features(7, wanted << 16 | wanted))?;
        let count = count.min(granted.result.get() as u16 + 1);
        let queue = |qid| {
            let mut queue = Queue::connect(host, target, qid, self.number, self.in_capsule)?;
            queue.greet(self.number, &self.name).map(|_| queue)
        };
        (1..=count).map(queue).collect()
    }

    /// The namespace 1.
    pub(crate) fn namespace(&mut self) -> Result<IdentifyNamespace> {
        let page = Arc::new(Buffer::new(4096));
        self.admin.run_with(&page, 0..4096, Rights::REMOTE_WRITE, |data| {
            Command::identify(1, cns::NAMESPACE, data)
        })?;
        let page = page.to_vec(0..4096);
        let namespace = IdentifyNamespace::read_from_bytes(&page);
        namespace.map_err(|_| "a namespace of another length".into())
    }

    /// Shuts the controller down.
    pub(crate) fn shut_down(mut self) -> Result<()> {
        self.admin.run(Command::property_set(property::CC, ENABLED | 1 << 14))?;
        while self.admin.run(Command::property_get(property::CSTS, false))?.result.get() & 8 == 0 {}
        self.admin.endpoint.disconnect()?;
        Ok(())
    }
}

const ENABLED: u32 = 4 << 20 | 6 << 16 | 1;

/// A connected queue.
pub(crate) struct Queue {
    endpoint: Endpoint,
    qid: u16,
    in_capsule: usize,
    /// One for each command under way, whose number is its place here.
    regions: Vec<Region>,
    free: Vec<u16>,
}

impl Queue {
    fn connect(
        host: &Host,
        target: SocketAddr,
        qid: u16,
        controller: u16,
        in_capsule: usize,
    ) -> Result<Self> {
        let config = EndpointConfig {
            receives: ENTRIES.into(),
            receive_len: size_of::<Completion>(),
            sends: ENTRIES.into(),
            send_len: size_of::<Command>() + in_capsule,
            // A registration and an invalidation for each command.
            requests: (2 * ENTRIES).into(),
            private_data: CmRequest::new(qid, ENTRIES, controller).as_bytes().to_vec(),
            ..EndpointConfig::default()
        };
        let endpoint = host.connect(target, &config)?;
        // One command less than entries: a full queue is not an empty one.
        let free: Vec<u16> = (0..ENTRIES - 1).collect();
        let region = |_: &u16| Region::new(host.pd(), TRANSFER_MAX);
        let regions = free.iter().map(region).collect::<ndk_consumer::Result<_>>()?;
        Ok(Self { endpoint, qid, in_capsule, regions, free })
    }

    /// Makes this connection a queue of a controller, or of a new one.
    fn greet(&mut self, controller: u16, name: &Names) -> Result<Completion> {
        let data = ConnectData::new(*b"ndk-consumerhost", controller, &name.subsystem, &name.host);
        let data = Arc::new(Buffer::from(data.as_bytes()));
        let qid = self.qid;
        self.run_with(&data, 0..data.len(), Rights::REMOTE_READ, |data| {
            Command::connect(qid, ENTRIES, 0, data)
        })
    }

    /// Runs a command without data.
    fn run(&mut self, command: Command) -> Result<Completion> {
        let cid = self.free.pop().ok_or("the queue is full")?;
        self.endpoint.send(command.with_cid(cid).as_bytes())?;
        self.complete()
    }

    /// Runs a command over a part of a buffer.
    fn run_with(
        &mut self,
        buffer: &Arc<Buffer>,
        range: std::ops::Range<usize>,
        rights: Rights,
        command: impl FnOnce(Sgl) -> Command,
    ) -> Result<Completion> {
        self.submit(buffer, range, rights, command)?;
        self.complete()
    }

    fn submit(
        &mut self,
        buffer: &Arc<Buffer>,
        range: std::ops::Range<usize>,
        rights: Rights,
        command: impl FnOnce(Sgl) -> Command,
    ) -> Result<()> {
        let cid = self.free.pop().ok_or("the queue is full")?;
        let len = range.len();
        let region = &mut self.regions[usize::from(cid)];
        let lent = self.endpoint.register(region, buffer, range, rights)?;
        let command = command(Sgl::keyed(lent, len)).with_cid(cid);
        Ok(self.endpoint.send(command.as_bytes())?)
    }

    /// Waits for a completion, which frees the place of its command.
    fn complete(&mut self) -> Result<Completion> {
        let message = self.endpoint.receive()?;
        let completion = Completion::read_from_bytes(&message.bytes);
        let completion = completion.map_err(|_| "a completion of another length")?;
        let cid = completion.cid.get();
        let region = self.regions.get(usize::from(cid)).filter(|_| !self.free.contains(&cid));
        let region = region.ok_or("a completion of no command")?;
        // The target has ended the key, or may have left that to us.
        self.endpoint.invalidate(region)?;
        self.free.push(cid);
        match completion.status() {
            Status::SUCCESS => Ok(completion),
            status => Err(format!("command {cid} ended with status {:#x}", status.0).into()),
        }
    }

    /// Writes a whole buffer from block `first` on, by commands of `size` bytes.
    pub(crate) fn write(&mut self, first: u64, buffer: &Arc<Buffer>, size: usize) -> Result<()> {
        self.transfer(opcode::WRITE, first, buffer, size)
    }

    /// Reads a whole buffer.
    pub(crate) fn read(&mut self, first: u64, buffer: &Arc<Buffer>, size: usize) -> Result<()> {
        self.transfer(opcode::READ, first, buffer, size)
    }

    fn transfer(
        &mut self,
        opcode: u8,
        first: u64,
        buffer: &Arc<Buffer>,
        size: usize,
    ) -> Result<()> {
        assert!([size, buffer.len()].iter().all(|len| len.is_multiple_of(BLOCK)), "whole blocks");
        let idle = self.free.len();
        for start in (0..buffer.len()).step_by(size) {
            if self.free.is_empty() {
                self.complete()?;
            }
            let range = start..(start + size).min(buffer.len());
            let (block, count) = (first + (start / BLOCK) as u64, range.len() / BLOCK);
            if opcode == opcode::WRITE && range.len() <= self.in_capsule {
                self.submit_in_capsule(block, &buffer.to_vec(range))?;
                continue;
            }
            let rights = match opcode {
                opcode::WRITE => Rights::REMOTE_READ,
                _ => Rights::REMOTE_WRITE,
            };
            self.submit(buffer, range, rights, |data| Command::blocks(opcode, block, count, data))?;
        }
        while self.free.len() < idle {
            self.complete()?;
        }
        Ok(())
    }

    /// A WRITE whose data go behind it.
    fn submit_in_capsule(&mut self, first: u64, bytes: &[u8]) -> Result<()> {
        let cid = self.free.pop().ok_or("the queue is full")?;
        let data = Sgl::in_capsule(bytes.len());
        let command = Command::blocks(opcode::WRITE, first, bytes.len() / BLOCK, data);
        let capsule = [command.with_cid(cid).as_bytes(), bytes].concat();
        Ok(self.endpoint.send(&capsule)?)
    }

    /// Ends the connection.
    pub(crate) fn disconnect(self) -> Result<()> {
        self.endpoint.disconnect()?;
        Ok(())
    }
}
