//! Connecting, in every way and in every state.

use super::*;

/// The forms of what takes a disconnect event.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Plain,
    Ex,
}

impl Form {
    pub(crate) fn any(rng: &mut Rng) -> Self {
        if rng.one_in(2) { Self::Plain } else { Self::Ex }
    }

    pub(crate) fn accept(
        self,
        connector: Object<NDK_CONNECTOR>,
        qp: Object<NDK_QP>,
        event: Left,
    ) -> Receiver<NTSTATUS> {
        match self {
            Self::Plain => start(|then| connector.accept(qp, event, then)),
            Self::Ex => {
                let event = leak(event);
                let data = [7_u8; 16];
                let (data, len) = (data.as_ptr().cast(), 16);
                request(|done, context| {
                    let left = Some(left_ex as _);
                    call!(connector, NdkAcceptEx, qp.0, 2, 3, data, len, left, event, done, context)
                })
            }
        }
    }

    pub(crate) fn complete(
        self,
        connector: Object<NDK_CONNECTOR>,
        event: Left,
    ) -> Receiver<NTSTATUS> {
        match self {
            Self::Plain => start(|then| connector.complete_connect(event, then)),
            Self::Ex => {
                let event = leak(event);
                request(|done, context| {
                    let left = Some(left_ex as _);
                    call!(connector, NdkCompleteConnectEx, left, event, done, context)
                })
            }
        }
    }
}

fn leak(event: Left) -> PVOID {
    std::ptr::from_ref(Box::leak(Box::new(event))).cast_mut().cast()
}

unsafe extern "system" fn left_ex(context: PVOID, _reason: ULONG) {
    // SAFETY: leaked for this event.
    let event = unsafe { &*context.cast::<Left>() };
    event();
}

/// Asks a connector all that it can be asked; what it says depends on its state. Returns the peer's
/// address.
pub(crate) fn ask(connector: Object<NDK_CONNECTOR>) -> Option<SocketAddr> {
    let (mut inbound, mut outbound) = (0, 0);
    let (mut data, mut len) = ([0_u8; 256], 256);
    let status = call!(
        connector,
        NdkGetConnectionData,
        &raw mut inbound,
        &raw mut outbound,
        data.as_mut_ptr().cast(),
        &raw mut len,
    );
    assert!(!status.is_success() || len <= 196, "{len} bytes of private data");
    let mut address = SOCKADDR_INET::UNSPECIFIED;
    let room = size_of::<SOCKADDR_INET>() as ULONG;
    let (mut len, out) = (room, (&raw mut address).cast());
    let status = call!(connector, NdkGetLocalAddress, out, &raw mut len);
    assert!(!status.is_success() || len <= room, "{len} bytes of address");
    len = room;
    let status = call!(connector, NdkGetPeerAddress, out, &raw mut len);
    assert!(!status.is_success() || len <= room, "{len} bytes of address");
    if status.is_success() { address.socket_addr() } else { None }
}

impl Actor<'_> {
    /// To the second host, from the first or from itself.
    pub(crate) fn connect(&mut self, host: usize) {
        if self.pairs.len() >= 2 * MOST {
            return;
        }
        let Some(qp) = self.rng.take(&mut self.things[host].qps) else { return };
        let adapter = self.adapter(host);
        let connector = wait(|then| adapter.create_connector(then)).unwrap();
        let slot: Slot = Arc::new(Mutex::new(Some(connector)));
        let event = self.shared.event(&slot, self.rng.one_in(2));
        let (shared, target) = (Arc::clone(self.shared), Arc::clone(&slot));
        let (refuses, form) = (self.rng.one_in(6), Form::any(&mut self.rng));
        let remote =
            if self.rng.one_in(16) { "10.0.0.77".parse().unwrap() } else { self.net.addresses[1] };
        let port = if self.rng.one_in(16) { PORT + 1 } else { PORT };
        let (local, remote) = (self.net.at(host, 0), SocketAddr::new(remote, port));
        let endpoint = if self.rng.one_in(3) {
            self.rng.pick(&self.things[host].endpoints).copied()
        } else {
            None
        };
        let request = start(|then| {
            let then: Then<NTSTATUS> = Box::new(move |status: NTSTATUS| {
                // Re-enters, unless someone closes the connector.
                if let (true, Some(connector)) = (status.is_success(), *target.lock().unwrap()) {
                    ask(connector);
                    if refuses {
                        let _ = connector.reject();
                    } else {
                        shared.await_request(form.complete(connector, event));
                    }
                }
                then(status);
            });
            match endpoint {
                Some(endpoint) => connector.connect_shared(qp, endpoint, remote, then),
                None => connector.connect(qp, local, remote, then),
            }
        });
        self.shared.await_request(request);
        self.pairs.push(Pair { hosts: [host, 1], connector: slot, qp, since: Instant::now() });
    }

    pub(crate) fn listen(&mut self) {
        // Both threads try; the port has one listener at a time.
        if self.things[1].listeners.len() >= 2 {
            return;
        }
        let (shared, seed) = (Arc::clone(self.shared), self.rng.next());
        let rng = Mutex::new(Rng(seed));
        let incoming =
            Box::new(move |connector| shared.incoming(1, connector, &mut rng.lock().unwrap()));
        let (adapter, local) = (self.adapter(1), self.net.at(1, PORT));
        let listener = wait(|then| adapter.create_listener(incoming, then)).unwrap();
        self.shared.await_request(start(|then| listener.listen(local, then)));
        self.things[1].listeners.push(listener);
    }

    /// Takes over what a callback accepted.
    pub(crate) fn adopt(&mut self) {
        self.pairs.append(&mut self.shared.left.lock().unwrap());
    }

    pub(crate) fn flush(&mut self, host: usize) {
        if !self.rng.one_in(64) {
            return;
        }
        let connected = self.pairs.iter().map(|pair| pair.qp);
        let qps: Vec<_> = self.things[host].qps.iter().copied().chain(connected).collect();
        if let Some(qp) = self.rng.pick(&qps) {
            qp.flush();
        }
    }

    pub(crate) fn disconnect(&mut self) {
        if !self.rng.one_in(32) {
            return;
        }
        let Some(pair) = self.rng.pick(&self.pairs) else { return };
        // Under the lock, so that no callback closes it meanwhile.
        if let Some(connector) = *pair.connector.lock().unwrap() {
            self.shared.await_request(start(|then| connector.disconnect(then)));
        }
    }

    pub(crate) fn pause(&mut self, host: usize) {
        let pause = self.rng.one_in(3);
        if let Some(listener) = self.rng.pick(&self.things[host].listeners) {
            listener.pause(pause);
        }
    }

    pub(crate) fn query(&mut self, host: usize) {
        if let Some(pair) = self.rng.pick(&self.pairs)
            && let Some(connector) = *pair.connector.lock().unwrap()
        {
            ask(connector);
        }
        let (mut address, mut len) = (SOCKADDR_INET::UNSPECIFIED, 28);
        if let Some(&endpoint) = self.rng.pick(&self.things[host].endpoints) {
            let out = (&raw mut address).cast();
            let status = call!(endpoint, NdkGetLocalAddress, out, &raw mut len);
            assert_eq!((status, len), (STATUS_SUCCESS, 16));
        }
        let things = &self.things[host];
        assert!(things.pds.iter().all(|pd| pd.privileged_token() != 0));
        assert!(things.frmrs.iter().all(|frmr| frmr.object.token() == frmr.token));
        assert!(things.mws.iter().all(|mw| mw.object.token() == mw.token));
    }
}
