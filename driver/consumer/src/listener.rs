//! Listeners, and the connections that come in.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use driver::abi::{BOOLEAN, NDK_CONNECTOR, NDK_LISTENER, PVOID, SOCKADDR_INET};

use crate::bell::Bell;
use crate::connector::address;
use crate::object::{Handle, close_in_callback};
use crate::request::{Request, create};
use crate::{Adapter, Connector, Opener, Result};

/// Listens on one address and port, until it and all connectors taken from it are dropped.
#[derive(Debug)]
pub struct Listener {
    object: Handle<NDK_LISTENER>,
    backlog: Arc<Backlog>,
    adapter: Arc<Adapter>,
}

/// Connections that wait to be taken.
struct Backlog {
    state: Mutex<BacklogState>,
    bell: Bell,
    opener: Arc<dyn Opener>,
}

#[derive(Debug, Default)]
struct BacklogState {
    waiting: VecDeque<Handle<NDK_CONNECTOR>>,
    closing: bool,
}

impl Listener {
    pub(crate) fn create(adapter: &Arc<Adapter>, local: SocketAddr) -> Result<Arc<Self>> {
        let backlog = Arc::new(Backlog {
            state: Mutex::default(),
            bell: Bell::default(),
            opener: Arc::clone(adapter.opener()),
        });
        let event_context = Arc::as_ptr(&backlog).cast_mut().cast();
        // SAFETY: the adapter is open; `backlog` lives until the listener is closed.
        let object =
            create(adapter.opener(), "NdkCreateListener", |completion, context, out| unsafe {
                (adapter.table().NdkCreateListener)(
                    adapter.as_ptr(),
                    Some(connection_arrived),
                    event_context,
                    completion,
                    context,
                    out,
                )
            })?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, adapter.opener()) };
        let listener = Self { object, backlog, adapter: Arc::clone(adapter) };
        listener.listen(local)?;
        Ok(Arc::new(listener))
    }

    fn listen(&self, local: SocketAddr) -> Result<()> {
        let local = SOCKADDR_INET::from(local);
        // SAFETY: the listener is open; the address outlives the call.
        let request =
            Request::start(self.object.opener(), "NdkListen", |completion, context| unsafe {
                (self.object.table().NdkListen)(
                    self.as_ptr(),
                    local.as_ptr(),
                    local.len(),
                    completion,
                    context,
                )
            });
        request.wait()
    }

    /// The address and port it listens on.
    ///
    /// # Errors
    /// It does not listen.
    pub fn local_address(&self) -> Result<SocketAddr> {
        address("NdkGetLocalAddress", |address, len| {
            // SAFETY: the listener is open; `address` has room for `*len` bytes.
            unsafe { (self.object.table().NdkGetLocalAddress)(self.as_ptr(), address, len) }
        })
    }

    /// Refuses new connections, or takes them again.
    pub fn pause(&self, pause: bool) {
        // SAFETY: the listener is open.
        unsafe {
            (self.object.table().NdkControlConnectEvents)(self.as_ptr(), BOOLEAN::from(pause));
        }
    }

    /// Takes the oldest incoming connection, neither accepted nor rejected yet; `None` if
    /// `timeout` passes without one.
    #[must_use]
    pub fn next(self: &Arc<Self>, timeout: Duration) -> Option<Connector> {
        let mut object = None;
        let mut arrived = || {
            object = object.take().or_else(|| self.backlog.lock().waiting.pop_front());
            object.is_some()
        };
        self.backlog.bell.wait(&*self.backlog.opener, timeout, &mut arrived);
        Some(self.incoming(object?))
    }

    /// As [`Listener::next`], of those that have come already. It never waits, nor runs the provider.
    #[must_use]
    pub fn poll(self: &Arc<Self>) -> Option<Connector> {
        let object = self.backlog.lock().waiting.pop_front()?;
        Some(self.incoming(object))
    }

    fn incoming(self: &Arc<Self>, object: Handle<NDK_CONNECTOR>) -> Connector {
        Connector::new(object, Some(Arc::clone(self)), Arc::clone(&self.adapter))
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_LISTENER {
        self.object.as_ptr()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The close that follows waits for every connector of this listener.
        let mut state = self.backlog.lock();
        state.closing = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backlog").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, BacklogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// # Safety
/// `context` is the `Backlog` of an open listener; `connector` is open and ours from now on.
unsafe extern "system" fn connection_arrived(context: PVOID, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the listener keeps it until the close completion, the last callback of all.
    let backlog = unsafe { &*context.cast_const().cast::<Backlog>() };
    let Some(connector) = NonNull::new(connector) else { return };
    let mut state = backlog.lock();
    if state.closing {
        drop(state);
        // SAFETY: ours, and nobody else knows it.
        unsafe { close_in_callback(connector) };
        return;
    }
    // SAFETY: ours to close.
    state.waiting.push_back(unsafe { Handle::new(connector, &backlog.opener) });
    drop(state);
    backlog.bell.ring();
}
