//! Connectors and listeners.

use super::*;

impl Object<NDK_CONNECTOR> {
    /// `NdkConnect`.
    pub fn connect(
        self,
        qp: Object<NDK_QP>,
        local: SocketAddr,
        remote: SocketAddr,
        then: Then<NTSTATUS>,
    ) {
        let context = context(then);
        let (local, remote) = (SOCKADDR_INET::from(local), SOCKADDR_INET::from(remote));
        let status = call!(
            self,
            NdkConnect,
            qp.0,
            local.as_ptr(),
            local.len(),
            remote.as_ptr(),
            remote.len(),
            8,
            8,
            std::ptr::null(),
            0,
            Some(requested),
            context,
        );
        end_request(status, context);
    }

    /// `NdkConnectWithSharedEndpoint`.
    pub fn connect_shared(
        self,
        qp: Object<NDK_QP>,
        endpoint: Object<NDK_SHARED_ENDPOINT>,
        remote: SocketAddr,
        then: Then<NTSTATUS>,
    ) {
        let context = context(then);
        let remote = SOCKADDR_INET::from(remote);
        let status = call!(
            self,
            NdkConnectWithSharedEndpoint,
            qp.0,
            endpoint.0,
            remote.as_ptr(),
            remote.len(),
            8,
            8,
            std::ptr::null(),
            0,
            Some(requested),
            context,
        );
        end_request(status, context);
    }

    /// `NdkCompleteConnect`.
    pub fn complete_connect(self, event: Left, then: Then<NTSTATUS>) {
        let context = context(then);
        let status =
            call!(self, NdkCompleteConnect, Some(left), leak(event), Some(requested), context);
        end_request(status, context);
    }

    /// `NdkAccept`.
    pub fn accept(self, qp: Object<NDK_QP>, event: Left, then: Then<NTSTATUS>) {
        let context = context(then);
        let status = call!(
            self,
            NdkAccept,
            qp.0,
            8,
            8,
            std::ptr::null(),
            0,
            Some(left),
            leak(event),
            Some(requested),
            context,
        );
        end_request(status, context);
    }

    /// `NdkReject`.
    pub fn reject(self) -> NTSTATUS {
        call!(self, NdkReject, std::ptr::null(), 0)
    }

    /// `NdkDisconnect`.
    pub fn disconnect(self, then: Then<NTSTATUS>) {
        let context = context(then);
        let status = call!(self, NdkDisconnect, Some(requested), context);
        end_request(status, context);
    }
}

impl Object<NDK_LISTENER> {
    /// `NdkListen`.
    pub fn listen(self, local: SocketAddr, then: Then<NTSTATUS>) {
        let context = context(then);
        let local = SOCKADDR_INET::from(local);
        let status = call!(self, NdkListen, local.as_ptr(), local.len(), Some(requested), context);
        end_request(status, context);
    }

    /// `NdkControlConnectEvents`.
    pub fn pause(self, pause: bool) {
        call!(self, NdkControlConnectEvents, pause.into());
    }
}
