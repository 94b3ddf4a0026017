//! A queue of a target: commands in, data both ways, completions out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ndk_consumer::{Endpoint, EndpointError, Event, Mr, Operation, Remote};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::identify::{IdentifyController, IdentifyNamespace, cns, descriptors};
use super::target::{Controller, ENTRIES, TICK, Target};
use super::wire::{BLOCK, Command, Completion, ConnectData, Data, Status, opcode, property};

const GUID: [u8; 16] = *b"ndk-consumer RAM";
/// As the controller says of itself.
const TRANSFER_MAX: usize = 1 << 20;

/// One connection, which is one submission queue and its completion queue.
pub(super) struct Queue<'t> {
    target: &'t Target<'t>,
    endpoint: Endpoint,
    /// For data other than the disk's.
    page: Arc<Mr>,
    /// Its controller, after Connect.
    of: Option<Arc<Controller>>,
    qid: u16,
    entries: u16,
    head: u16,
    /// WRITE commands whose data are on their way, by the tags of our READs.
    pending: BTreeMap<u32, Answer>,
}

/// The completion that a command will get.
#[derive(Clone, Copy)]
struct Answer {
    cid: U16,
    /// The key that it ends.
    key: Option<u32>,
}

/// The result of a command; `None` where its completion comes later.
type Done = Result<Option<u64>, Status>;

impl<'t> Queue<'t> {
    pub(super) fn new(
        target: &'t Target<'t>,
        endpoint: Endpoint,
        page: Arc<Mr>,
        entries: u16,
    ) -> Self {
        let pending = BTreeMap::new();
        Self { target, endpoint, page, of: None, qid: 0, entries, head: 0, pending }
    }

    /// The controller of an admin queue.
    pub(super) fn administers(&self) -> Option<&Controller> {
        self.of.as_deref().filter(|_| self.qid == 0)
    }

    /// Executes commands until the connection ends, or the target.
    pub(super) fn serve(&mut self) -> Result<(), EndpointError> {
        while !self.target.stop.load(Ordering::Relaxed) {
            match self.endpoint.next(TICK)? {
                Some(Event::Message(message)) => self.take(&message.bytes)?,
                Some(Event::Ended { operation: Operation::Read, tag }) => {
                    if let Some(answer) = self.pending.remove(&tag) {
                        self.answer(answer, Ok(0))?;
                    }
                }
                Some(Event::Ended { .. }) | None => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, capsule: &[u8]) -> Result<(), EndpointError> {
        let Ok((command, data)) = Command::read_from_prefix(capsule) else { return Ok(()) };
        self.head = (self.head + 1) % self.entries;
        let key = match command.data.parse() {
            Ok(Data::Keyed { remote, invalidate: true, .. }) => Some(remote.token),
            Ok(Data::Keyed { .. } | Data::InCapsule { .. }) | Err(_) => None,
        };
        let answer = Answer { cid: command.cid, key };
        match self.execute(&command, data, answer)? {
            Ok(None) => Ok(()),
            Ok(Some(result)) => self.answer(answer, Ok(result)),
            Err(status) => self.answer(answer, Err(status)),
        }
    }

    fn answer(&mut self, answer: Answer, result: Result<u64, Status>) -> Result<(), EndpointError> {
        let status = result.err().unwrap_or(Status::SUCCESS);
        let result = result.unwrap_or(0);
        let completion = Completion::new(self.qid, self.head, answer.cid, result, status);
        match answer.key {
            Some(key) => self.endpoint.send_and_invalidate(completion.as_bytes(), key),
            None => self.endpoint.send(completion.as_bytes()),
        }
    }

    fn execute(
        &mut self,
        command: &Command,
        data: &[u8],
        answer: Answer,
    ) -> Result<Done, EndpointError> {
        let Some(controller) = self.of.clone() else { return self.connect(command, data) };
        match (command.opcode, self.qid) {
            (opcode::FABRICS, _) => Ok(self.fabrics(command, &controller)),
            (_, 0) => self.administer(command, &controller),
            (opcode::FLUSH, _) => Ok(Ok(Some(0))),
            (opcode::READ | opcode::WRITE, _) => self.blocks(command, data, answer),
            _ => Ok(Err(Status::INVALID_OPCODE)),
        }
    }

    fn connect(&mut self, command: &Command, data: &[u8]) -> Result<Done, EndpointError> {
        if (command.opcode, command.nsid.get()) != (opcode::FABRICS, opcode::CONNECT) {
            return Ok(Err(Status::SEQUENCE));
        }
        let bytes = match command.data.parse() {
            Ok(Data::Keyed { remote, len, .. }) if len <= 4096 => {
                self.endpoint.read(&[self.page.sge(0..len)], remote)?;
                self.page.buffer().to_vec(0..len)
            }
            Ok(Data::InCapsule { offset: 0, len }) if len <= data.len() => data[..len].to_vec(),
            Ok(Data::Keyed { .. } | Data::InCapsule { .. }) => return Ok(Err(Status::DATA_LENGTH)),
            Err(status) => return Ok(Err(status)),
        };
        let qid = (command.dwords[0].get() >> 16) as u16;
        let connect = ConnectData::read_from_bytes(&bytes).ok();
        let Some(controller) = connect.and_then(|data| self.target.controller(qid, &data)) else {
            return Ok(Err(Status::CONNECT_PARAMETERS));
        };
        let number = controller.number.into();
        (self.of, self.qid) = (Some(controller), qid);
        Ok(Ok(Some(number)))
    }

    fn fabrics(&self, command: &Command, controller: &Controller) -> Done {
        let [_, offset, value, ..] = command.dwords;
        match (command.nsid.get(), offset.get()) {
            (opcode::PROPERTY_GET, offset) => controller.property(offset).map(Some),
            (opcode::PROPERTY_SET, property::CC) => {
                controller.configuration.store(value.get(), Ordering::Relaxed);
                Ok(Some(0))
            }
            (opcode::PROPERTY_SET, _) => Err(Status::INVALID_FIELD),
            (opcode::CONNECT, _) => Err(Status::SEQUENCE),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn administer(
        &mut self,
        command: &Command,
        controller: &Controller,
    ) -> Result<Done, EndpointError> {
        let [first, second, ..] = command.dwords;
        match (command.opcode, first.get() & 0xff) {
            (opcode::IDENTIFY, cns) => match self.identify(command.nsid.get(), cns, controller) {
                Ok(page) => self.give(command, &page),
                Err(status) => Ok(Err(status)),
            },
            // Nothing went wrong, nothing is hot, one slot with one firmware: zeros.
            (opcode::GET_LOG_PAGE, 1..=3) => self.give(command, &[0; 4096]),
            (opcode::GET_LOG_PAGE, _) => Ok(Err(Status::INVALID_LOG_PAGE)),
            // As many I/O queues as were asked for, up to 16.
            (opcode::SET_FEATURES, 0x07) => {
                let queues = (second.get() & 0xffff).min(15);
                Ok(Ok(Some(u64::from(queues << 16 | queues))))
            }
            // Asynchronous events, of which there are none, and the keep-alive timer.
            (opcode::SET_FEATURES, 0x0b | 0x0f) | (opcode::KEEP_ALIVE, _) => Ok(Ok(Some(0))),
            (opcode::SET_FEATURES, _) => Ok(Err(Status::INVALID_FIELD)),
            (opcode::ASYNC_EVENT, _) => Ok(Ok(None)),
            _ => Ok(Err(Status::INVALID_OPCODE)),
        }
    }

    fn identify(&self, nsid: u32, cns: u32, controller: &Controller) -> Result<Vec<u8>, Status> {
        let target = self.target;
        match (cns, nsid) {
            (cns::CONTROLLER, _) => {
                let identity =
                    IdentifyController::new(controller.number, target.subsystem, ENTRIES);
                Ok(identity.as_bytes().to_vec())
            }
            (cns::NAMESPACE, 1) => {
                Ok(IdentifyNamespace::new(target.blocks(), GUID).as_bytes().to_vec())
            }
            (cns::DESCRIPTORS, 1) => Ok(descriptors(GUID).to_vec()),
            (cns::ACTIVE_NAMESPACES, after) => {
                let mut page = vec![0; 4096];
                page[0] = u8::from(after < 1);
                Ok(page)
            }
            (cns::NAMESPACE | cns::DESCRIPTORS, _) => Err(Status::INVALID_NAMESPACE),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// WRITEs as much of a page as the host has room for.
    fn give(&mut self, command: &Command, page: &[u8]) -> Result<Done, EndpointError> {
        let Ok(Data::Keyed { remote, len, .. }) = command.data.parse() else {
            return Ok(Err(Status::DESCRIPTOR));
        };
        let len = len.min(page.len());
        self.page.buffer().write(0, page);
        self.endpoint.write(&[self.page.sge(0..len)], remote)?;
        Ok(Ok(Some(0)))
    }

    fn blocks(
        &mut self,
        command: &Command,
        data: &[u8],
        answer: Answer,
    ) -> Result<Done, EndpointError> {
        let (first, count) = command.range();
        if first.checked_add(count as u64).is_none_or(|end| end > self.target.blocks()) {
            return Ok(Err(Status::OUT_OF_RANGE));
        }
        let (start, len) = (first as usize * BLOCK, count * BLOCK);
        match (command.opcode, command.data.parse()) {
            (opcode::WRITE, Ok(Data::InCapsule { offset: 0, len: given }))
                if given == len && len <= data.len() =>
            {
                self.target.disk.buffer().write(start, &data[..len]);
                Ok(Ok(Some(0)))
            }
            (_, Ok(Data::Keyed { remote, len: given, .. }))
                if given == len && len <= TRANSFER_MAX =>
            {
                self.transfer(command, start, len, remote, answer)
            }
            (_, Ok(_)) => Ok(Err(Status::DATA_LENGTH)),
            (_, Err(status)) => Ok(Err(status)),
        }
    }

    fn transfer(
        &mut self,
        command: &Command,
        start: usize,
        len: usize,
        remote: Remote,
        answer: Answer,
    ) -> Result<Done, EndpointError> {
        let (disk, tag) = (&self.target.disk, command.cid.get().into());
        let element = [disk.sge(start..start + len)];
        if command.opcode == opcode::READ {
            // The completion goes behind the data, on the same queue pair.
            self.endpoint.post_write(tag, &element, remote)?;
            return Ok(Ok(Some(0)));
        }
        self.pending.insert(tag, answer);
        self.endpoint.post_read(tag, &element, remote)?;
        Ok(Ok(None))
    }
}
