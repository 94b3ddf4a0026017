//! A connection and its queue pair.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::abi::*;
use ndk_consumer::{
    Connector, Flags, Mr, NdkError, Pd, Qp, QpConfig, ReadLimits, Remote, Request, Sge,
};

use crate::completions::{Completions, SLICE};
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::receives::{Receives, SharedReceives};

/// How many requests each queue takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depths {
    pub(crate) receive: u32,
    pub(crate) initiator: u32,
    /// Bytes that a request may carry inline.
    pub(crate) inline_len: u32,
}

/// A request that has ended well. The tag is that of its post.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Event {
    Initiated {
        tag: usize,
    },
    /// It was posted to end without a completion, and a later one has told of it.
    Silent {
        tag: usize,
    },
    Received {
        tag: usize,
        len: usize,
    },
}

/// A request of the initiator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    Send(Data<'a>),
    Write(Data<'a>, Remote),
    Read(Sge<'a>, Remote),
}

/// What a SEND or a WRITE carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    Registered(Sge<'a>),
    /// Copied at the post.
    Inline(&'a [u8]),
}

/// A connection, and what is posted on its queue pair.
#[derive(Debug)]
pub(crate) struct Connection {
    connector: Connector,
    qp: Arc<Qp>,
    initiator: Ledger,
    receives: Receives,
    /// The first post that came after the end of the connection.
    late: Option<NdkError>,
    patience: Duration,
}

impl AsMut<Self> for Connection {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl Connection {
    /// An endpoint that is not connected yet, at a place among those of `completions`. Its receives are its own, unless
    /// there is a queue that it shares.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        connector: Connector,
        depths: Depths,
        completions: &Completions,
        place: usize,
        shared: Option<&Rc<SharedReceives>>,
    ) -> Result<Self, Failure> {
        let config = QpConfig {
            receive_depth: depths.receive,
            initiator_depth: depths.initiator,
            inline_len: depths.inline_len,
            context: place,
            ..QpConfig::default()
        };
        let cq = completions.cq();
        let qp = match shared {
            None => pd.create_qp(cq, cq, config)?,
            Some(shared) => pd.create_qp_with_srq(cq, cq, shared.srq(), config)?,
        };
        Ok(Self {
            connector,
            qp,
            initiator: Ledger::new("initiator"),
            receives: Receives::new(shared),
            late: None,
            patience: completions.patience(),
        })
    }

    /// Connects, with `private_data` for the peer; receives may be posted before.
    pub(crate) fn connect(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        limits: ReadLimits,
        private_data: &[u8],
        completions: &Completions,
    ) -> Result<(), Failure> {
        let request = self.connector.connect(&self.qp, local, remote, limits, private_data);
        // The provider's own time limit ends this one, or the user.
        finish_while(&request, || completions.check_stop())?;
        self.finish(&self.connector.complete_connect())
    }

    /// Accepts; receives must be posted before, or the peer's first message finds none.
    pub(crate) fn accept(&self, limits: ReadLimits) -> Result<(), Failure> {
        self.accept_unless(limits, || false)
    }

    /// As [`Self::accept`], until the connection `is_displaced`.
    pub(crate) fn accept_unless(
        &self,
        limits: ReadLimits,
        is_displaced: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let request = self.connector.accept(&self.qp, limits, &[]);
        let since = Instant::now();
        finish_while(&request, || {
            if is_displaced() {
                return Err(Failure::Displaced);
            }
            if since.elapsed() >= self.patience {
                return Err(Failure::Stalled(self.patience));
            }
            Ok(())
        })
    }

    /// Our end of the connection.
    pub(crate) fn local_address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.connector.local_address()?)
    }

    fn finish(&self, request: &Request) -> Result<(), Failure> {
        match request.wait_timeout(self.patience) {
            Some(result) => Ok(result?),
            None => Err(Failure::Stalled(self.patience)),
        }
    }

    /// Ends the connection from this side; whether the peer has confirmed it. A peer that has all it wanted
    /// may be gone before its answer arrives, and nobody repeats a lost one then: that is no failure.
    pub(crate) fn disconnect(&self) -> Result<bool, Failure> {
        match self.finish(&self.connector.disconnect()) {
            Ok(()) => Ok(true),
            Err(Failure::Ndk(NdkError { status: STATUS_IO_TIMEOUT, .. })) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Passes `result` on; where the user ended it, the peer is told before. A process that ends repeats nothing, so that
    /// a DREQ that is lost would leave the peer to its retries.
    pub(crate) fn tell_of<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if result.as_ref().is_err_and(Failure::is_interruption) {
            // The peer may have gone itself, and the user wants to end in any case.
            let _ = self.disconnect();
        }
        result
    }

    /// Waits until the peer has ended the connection, which all that was posted must precede.
    pub(crate) fn wait_disconnected(&self) -> Result<(), Failure> {
        if let Some(late) = self.late {
            return Err(late.into());
        }
        if self.connector.wait_disconnected(self.patience) {
            return Ok(());
        }
        Err(Failure::Stalled(self.patience))
    }

    pub(crate) fn receive(
        &mut self,
        mr: &Mr,
        range: Range<usize>,
        tag: usize,
    ) -> Result<(), Failure> {
        let posted = self.receives.post(&self.qp, tag, mr.sge(range));
        self.in_time(posted)
    }

    pub(crate) fn send(&mut self, mr: &Mr, range: Range<usize>, tag: usize) -> Result<(), Failure> {
        self.post(Work::Send(Data::Registered(mr.sge(range))), Flags::empty(), tag)
    }

    pub(crate) fn write(
        &mut self,
        mr: &Mr,
        range: Range<usize>,
        remote: Remote,
        tag: usize,
    ) -> Result<(), Failure> {
        self.post(Work::Write(Data::Registered(mr.sge(range)), remote), Flags::empty(), tag)
    }

    pub(crate) fn read(
        &mut self,
        mr: &Mr,
        range: Range<usize>,
        remote: Remote,
        tag: usize,
    ) -> Result<(), Failure> {
        self.post(Work::Read(mr.sge(range), remote), Flags::empty(), tag)
    }

    /// Posts a request of the initiator.
    pub(crate) fn post(&mut self, work: Work<'_>, flags: Flags, tag: usize) -> Result<(), Failure> {
        let qp = &self.qp;
        let silent = flags.contains(Flags::SILENT_SUCCESS);
        let posted = self.initiator.post(tag, silent, |context| match work {
            Work::Send(Data::Registered(sge)) => qp.send(context, &[sge], flags),
            Work::Send(Data::Inline(data)) => qp.send_inline(context, &[data.into()], flags),
            Work::Write(Data::Registered(sge), remote) => qp.write(context, &[sge], remote, flags),
            Work::Write(Data::Inline(data), remote) => {
                qp.write_inline(context, &[data.into()], remote, flags)
            }
            Work::Read(sge, remote) => qp.read(context, &[sge], remote, flags),
        });
        self.in_time(posted)
    }

    /// A post that the end of the connection has overtaken says no more than that: [`Completions::wait`] has
    /// what was completed before, and why it ended.
    fn in_time(&mut self, posted: Result<(), NdkError>) -> Result<(), Failure> {
        match posted {
            Err(late) if late.status == STATUS_CONNECTION_INVALID => {
                self.late.get_or_insert(late);
                Ok(())
            }
            posted => Ok(posted?),
        }
    }

    /// The post that came after the end, where the end itself is not told.
    pub(crate) fn end_untold(&self) -> Option<NdkError> {
        self.late.filter(|_| !self.connector.wait_disconnected(self.patience))
    }

    /// Whether the peer has ended it.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.connector.is_disconnected()
    }

    /// Requests of the initiator that are still open.
    pub(crate) fn initiated(&self) -> usize {
        self.initiator.outstanding()
    }

    /// True if none is.
    pub(crate) fn is_idle(&self) -> bool {
        self.initiated() == 0
    }

    pub(crate) fn account(
        &mut self,
        result: &NDK_RESULT_EX,
        mut event: impl FnMut(Event),
    ) -> Result<(), Failure> {
        let context = result.RequestContext.addr();
        let received = result.Type.is_receive();
        let tag = if received {
            self.receives.complete(context)?
        } else {
            self.initiator.complete(context, |tag| event(Event::Silent { tag }))?
        };
        if !result.Status.is_success() {
            return Err(self.failed(result));
        }
        event(if received {
            Event::Received { tag, len: result.BytesTransferred as usize }
        } else {
            Event::Initiated { tag }
        });
        Ok(())
    }

    #[allow(non_upper_case_globals, reason = "C names in patterns")]
    fn failed(&self, result: &NDK_RESULT_EX) -> Failure {
        // What was posted is cancelled a moment before the consumer is told why.
        if result.Status == STATUS_CANCELLED && self.connector.wait_disconnected(SLICE) {
            return Failure::Disconnected;
        }
        let operation = match result.Type {
            NdkOperationTypeSend => "a send",
            NdkOperationTypeWrite => "a write",
            NdkOperationTypeRead => "a read",
            operation if operation.is_receive() => "a receive",
            _ => "a request",
        };
        Failure::Completion { operation, status: result.Status }
    }
}

/// Waits for the end of a request as long as it `goes_on`, which is asked now and then.
fn finish_while(
    request: &Request,
    mut goes_on: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        if let Some(result) = request.wait_timeout(SLICE) {
            return Ok(result?);
        }
        goes_on()?;
    }
}
