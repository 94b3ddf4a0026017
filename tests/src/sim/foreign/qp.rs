//! A foreign queue pair: its requester and responder, and what its consumer is told.

use super::keys::{Keys, Piece};
use super::quirks::Quirks;
use super::requester::{Ended, Requester, Wqe};
use super::responder::{Outcome, Responder};
use super::wire::{Packet, Route};
use crate::sim::Deed;
use crate::sim::packet::{Seen, opcode};
use driver::abi::*;
use rocev2::env::Rng;
use std::collections::VecDeque;

/// What a queue pair works with, and what comes of it.
pub(super) struct Context<'a> {
    pub(super) now: u64,
    pub(super) pmtu: u64,
    pub(super) keys: &'a mut Keys,
    pub(super) quirks: &'a Quirks,
    pub(super) rng: &'a mut Rng,
    pub(super) met: &'a mut Vec<Deed>,
    /// Packets, without the peer's QPN.
    pub(super) out: Vec<Packet>,
    pub(super) ended: Vec<Ended>,
    pub(super) received: Vec<Outcome>,
    /// Why the connection may fail from here on.
    pub(super) excuse: Option<&'static str>,
    /// What the peer must not have done.
    pub(super) fault: Option<String>,
    /// The connection ends.
    pub(super) dead: bool,
}

impl Context<'_> {
    pub(super) fn did(&mut self, did: Deed) {
        self.met.push(did);
    }
}

/// How far a queue pair is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Init,
    Ready,
    Error,
}

/// A queue pair.
pub(super) struct Qp {
    pub(super) end: usize,
    pub(super) state: State,
    pub(super) route: Option<Route>,
    pub(super) peer_qpn: u32,
    pub(super) pmtu: u64,
    pub(super) depths: [u32; 2],
    pub(super) receives: VecDeque<(usize, Vec<Piece>)>,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// Completions: of receives, of requests.
    pub(super) results: [VecDeque<NDK_RESULT_EX>; 2],
}

impl Qp {
    pub(super) fn new(end: usize, depths: [u32; 2]) -> Self {
        Self {
            end,
            state: State::Init,
            route: None,
            peer_qpn: 0,
            pmtu: 256,
            depths,
            receives: VecDeque::new(),
            requester: Requester::default(),
            responder: Responder::default(),
            results: Default::default(),
        }
    }

    /// A packet of the peer.
    pub(super) fn take(&mut self, seen: &Seen<'_>, cx: &mut Context<'_>) {
        let from_peer = self.route.is_some_and(|route| route.ips == [seen.dst, seen.src]);
        if self.state != State::Ready || !from_peer {
            return;
        }
        cx.pmtu = self.pmtu;
        if opcode::is_response(seen.opcode) {
            self.requester.answer(seen, cx);
        } else if seen.opcode != opcode::CNP {
            self.responder.request(seen, &mut self.receives, cx);
        }
        self.settle(cx);
    }

    /// The next packets, at most `most` of them.
    pub(super) fn send(&mut self, most: usize, cx: &mut Context<'_>) {
        cx.pmtu = self.pmtu;
        for _ in 0..most {
            if self.state != State::Ready {
                return;
            }
            // Answers first.
            let packet = match self.responder.send(cx) {
                Some(packet) => Some(packet),
                None => self.requester.send(cx),
            };
            let idle = packet.is_none();
            cx.out.extend(packet);
            self.settle(cx);
            if idle {
                return;
            }
        }
    }

    /// When it has something to do by itself.
    pub(super) fn due(&self, quirks: &Quirks) -> Option<u64> {
        if self.state != State::Ready {
            return None;
        }
        self.requester.due().into_iter().chain(self.responder.due(quirks)).min()
    }

    /// Tells the consumer what has ended.
    fn settle(&mut self, cx: &mut Context<'_>) {
        for Outcome::Received(id, status, len, ended) in std::mem::take(&mut cx.received) {
            let kind = match ended {
                Some(_) => NdkOperationTypeReceiveAndInvalidate,
                None => NdkOperationTypeReceive,
            };
            let result = self.result(id, status, kind);
            self.results[0].push_back(NDK_RESULT_EX {
                BytesTransferred: len as u32,
                TypeSpecificCompletionOutput: ended.unwrap_or(0) as usize,
                ..result
            });
        }
        for ended in std::mem::take(&mut cx.ended) {
            match ended {
                Ended::Success(wqe) if wqe.is_silent() => {}
                Ended::Success(wqe) => {
                    let result = self.result(wqe.id, STATUS_SUCCESS, wqe.kind);
                    self.results[1].push_back(result);
                }
                Ended::Failure(status) => self.fail(status),
            }
        }
        if std::mem::take(&mut cx.dead) {
            self.fail(STATUS_CANCELLED);
        }
    }

    fn result(&self, id: usize, status: NTSTATUS, kind: NDK_OPERATION_TYPE) -> NDK_RESULT_EX {
        NDK_RESULT_EX {
            Status: status,
            QPContext: std::ptr::without_provenance_mut(self.end),
            RequestContext: std::ptr::without_provenance_mut(id),
            Type: kind,
            ..NDK_RESULT_EX::EMPTY
        }
    }

    /// Everything ends: the eldest request with `status`, the rest flushed.
    pub(super) fn fail(&mut self, status: NTSTATUS) {
        if self.state == State::Error {
            return;
        }
        self.state = State::Error;
        let requests = std::mem::take(&mut self.requester.queue);
        for (at, Wqe { id, kind, .. }) in requests.into_iter().enumerate() {
            let status = if at == 0 { status } else { STATUS_CANCELLED };
            let result = self.result(id, status, kind);
            self.results[1].push_back(result);
        }
        let open = self.responder.close();
        let receives = std::mem::take(&mut self.receives).into_iter().map(|(id, _)| id);
        for id in open.into_iter().chain(receives).collect::<Vec<_>>() {
            self.flush_receive(id);
        }
    }

    /// A receive ends without a message.
    pub(super) fn flush_receive(&mut self, id: usize) {
        let result = self.result(id, STATUS_CANCELLED, NdkOperationTypeReceive);
        self.results[0].push_back(result);
    }
}
