//! A target with one subsystem, whose namespace is registered memory: READs and WRITEs move the host's data without a
//! copy.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use ndk_consumer::{
    Buffer, Connector, Endpoint, EndpointConfig, EndpointError, Host, Listener, Mr, Rights,
};
use zerocopy::{FromBytes, IntoBytes};

use super::identify::VERSION;
use super::queue::Queue;
use super::wire::{
    BLOCK, CmReply, CmRequest, Command, Completion, ConnectData, IN_CAPSULE, Status, padded,
    property,
};

/// Commands that a queue may have under way.
pub(super) const ENTRIES: u16 = 128;
/// How often a queue without commands looks whether the target shall end.
pub(super) const TICK: Duration = Duration::from_millis(200);

/// A subsystem with one disk.
pub(crate) struct Target<'h> {
    host: &'h Host,
    pub(super) subsystem: &'h str,
    pub(super) disk: Arc<Mr>,
    controllers: Mutex<BTreeMap<u16, Arc<Controller>>>,
    /// Ends all queues once it is true.
    pub(super) stop: &'h AtomicBool,
}

/// A controller, which its admin queue makes and ends.
pub(super) struct Controller {
    pub(super) number: u16,
    pub(super) configuration: AtomicU32,
}

impl<'h> Target<'h> {
    /// A disk of `len` bytes, all zero.
    pub(crate) fn new(
        host: &'h Host,
        subsystem: &'h str,
        len: usize,
        stop: &'h AtomicBool,
    ) -> Result<Self, Box<dyn Error>> {
        let memory = Buffer::try_new(len - len % BLOCK).ok_or("not so much memory")?;
        let disk = host.register(memory, Rights::LOCAL_WRITE)?;
        Ok(Self { host, subsystem, disk, controllers: Mutex::default(), stop })
    }

    /// Serves each connection on a thread of its own, until `stop`.
    pub(crate) fn serve(&self, listener: &Arc<Listener>) {
        thread::scope(|scope| {
            while !self.stop.load(Ordering::Relaxed) {
                let Some(connector) = listener.next(TICK) else { continue };
                scope.spawn(move || match self.serve_queue(connector) {
                    Ok(()) | Err(EndpointError::Disconnected) => {}
                    Err(error) => eprintln!("a queue ended: {error}"),
                });
            }
        });
    }

    fn serve_queue(&self, connector: Connector) -> Result<(), EndpointError> {
        let data = connector.connection_data()?.private_data;
        let Ok((request, _)) = CmRequest::read_from_prefix(&data) else {
            return Ok(connector.reject(&[0, 0, 1, 0])?);
        };
        let sends = request.sends.get().saturating_add(1);
        if request.format.get() != 0 || request.receives.get() == 0 || sends > ENTRIES {
            // Format 0; invalid parameters: the last field is the reason.
            let reason = if request.format.get() != 0 { 2 } else { 7 };
            return Ok(connector.reject(&[0, 0, reason, 0])?);
        }
        let config = EndpointConfig {
            receives: sends.into(),
            receive_len: size_of::<Command>() + IN_CAPSULE,
            sends: request.receives.get().min(ENTRIES).into(),
            send_len: size_of::<Completion>(),
            requests: (2 * ENTRIES).into(),
            private_data: CmReply::new(sends).as_bytes().to_vec(),
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::accept(self.host.pd(), connector, &config)?;
        let page = self.host.register(Buffer::new(4096), Rights::LOCAL_WRITE)?;
        let mut queue = Queue::new(self, endpoint, page, sends);
        let ended = queue.serve();
        if let Some(controller) = queue.administers() {
            self.controllers().remove(&controller.number);
        }
        ended
    }

    fn controllers(&self) -> MutexGuard<'_, BTreeMap<u16, Arc<Controller>>> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks of the disk.
    pub(super) fn blocks(&self) -> u64 {
        (self.disk.buffer().len() / BLOCK) as u64
    }

    /// Makes a controller for an admin queue, or finds that of an I/O queue.
    pub(super) fn controller(&self, qid: u16, data: &ConnectData) -> Option<Arc<Controller>> {
        let mut controllers = self.controllers();
        let number = data.controller.get();
        if data.subsystem != padded(self.subsystem, 0) || (qid == 0) != (number == u16::MAX) {
            return None;
        }
        if qid > 0 {
            return controllers.get(&number).cloned();
        }
        let number = (1..u16::MAX).find(|number| !controllers.contains_key(number))?;
        let controller = Arc::new(Controller { number, configuration: AtomicU32::new(0) });
        controllers.insert(number, Arc::clone(&controller));
        Some(controller)
    }
}

impl Controller {
    /// Ready once it is enabled; shut down as soon as that is asked for.
    fn status(&self) -> u64 {
        let configuration = self.configuration.load(Ordering::Relaxed);
        let shutdown = configuration & 0xc000 != 0;
        u64::from(configuration & 1) & u64::from(!shutdown) | u64::from(shutdown) << 3
    }

    /// A property by its offset.
    pub(super) fn property(&self, offset: u32) -> Result<u64, Status> {
        match offset {
            // Queue entries; contiguous queues; 7.5 s to become ready; the NVM command set.
            property::CAP => Ok(u64::from(ENTRIES - 1) | 1 << 16 | 15 << 24 | 1 << 37),
            property::VS => Ok(VERSION.into()),
            property::CC => Ok(self.configuration.load(Ordering::Relaxed).into()),
            property::CSTS => Ok(self.status()),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}
