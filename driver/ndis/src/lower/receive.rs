//! Received frames: each is lent to a poll core, copied for TCP/IP, or goes back to the NIC at once.
#![allow(unsafe_code, reason = "walks the lists of NDIS")]

use super::binding::Binding;
use super::lists::{List, Lists, Received, return_lists};
use crate::abi::imports::NdisCopyReceiveNetBufferListInfo;
use crate::abi::*;
use crate::frame::destination;
use crate::os::sync::at_dispatch;
use crate::sorting::Receiver;
use crate::upper::adapter::Adapter;
use netadapter_glue::ndis::Taken;
use netadapter_glue::ndis::chain::{Chain, Frame, Tag};
use netadapter_glue::ndis::units::Coalesced;
use rocev2::wire::{PEEK_LEN, core_of};

impl Binding {
    /// Takes received frames, in `count` lists. Any CPU, IRQL <= DISPATCH_LEVEL.
    ///
    /// Most of them may be of the host's own traffic: these cost one count on the gate, and no lock.
    pub(crate) fn receive(&self, lists: Lists<Received>, count: u32, flags: ULONG) {
        let head = lists.head();
        let enters = self.io.enter(count as usize);
        match self.adapter_inside().filter(|_| enters) {
            Some(adapter) => self.take(adapter, lists, count, flags),
            None => {
                if flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0 {
                    return_lists(self.handle(), head, flags & NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL);
                }
                if enters {
                    self.io.leave(count as usize);
                }
            }
        }
    }

    /// Sorts received lists that have entered the gate.
    fn take(&self, adapter: &Adapter, lists: Lists<Received>, count: u32, flags: ULONG) {
        let keep = flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0;
        let level = flags & NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL;
        let mut batch = Batch { done: Chain::new(), up: Chain::new(), keep };
        let each = |list| batch.sort(adapter, list);
        // The poll core waits for who has taken a place of its rings and not filled it.
        at_dispatch(|| lists.for_each(each));
        let Batch { done, up, .. } = batch;
        adapter.indicate(up, level);
        if keep {
            // Lists that are lent stay inside the gate.
            self.give_back(done.head(), done.len(), level);
        } else {
            self.io.leave(count as usize);
        }
    }
}

/// The frames of one call, by destination.
struct Batch {
    /// To be returned to the NIC at once.
    done: Chain,
    /// Copies for TCP/IP.
    up: Chain,
    keep: bool,
}

impl Batch {
    /// Sends a received list on its way.
    fn sort(&mut self, adapter: &Adapter, list: List) {
        let kept = self.hand_on(adapter, &list);
        if self.keep && !kept {
            list.push_to(&mut self.done);
        }
    }

    /// Hands the frame on; returns whether its list is in use now.
    fn hand_on(&mut self, adapter: &Adapter, list: &List) -> bool {
        let mut peek = [0; PEEK_LEN];
        // SAFETY: a received list has one net buffer.
        let frame = unsafe { Frame::of(list.FirstNetBuffer) };
        let map = |mdl| adapter.map(mdl);
        // SAFETY: as above, and its MDLs describe the frame.
        let peeked = unsafe { frame.copy_to(&mut peek, &map) };
        let peek = &peek[..peeked];
        // Frames that this host has sent come back where another protocol asks for them; an answer comes from the network.
        let looped = list.NblFlags & NDIS_NBL_FLAGS_IS_LOOPBACK_PACKET != 0;
        let receiver = if looped { Receiver::Nobody } else { adapter.receiver(peek) };
        let Ok(tag) = adapter.attachment().tagging().incoming(list.tag()) else { return false };
        match receiver {
            Receiver::PollCore => {
                let ports = adapter.ports();
                let port = ports.of(core_of(peek, ports.cores()));
                // SAFETY: a received list with one net buffer.
                unsafe { port.receive(list.as_ptr(), tag, self.keep) == Taken::Lent }
            }
            Receiver::TcpIp => {
                self.pass(adapter, list, tag, frame, destination(peek));
                false
            }
            Receiver::Nobody => false,
            Receiver::Runt => {
                adapter.stats.in_discarded();
                false
            }
        }
    }

    /// Copies a frame for TCP/IP, which may keep it for as long as it likes.
    fn pass(
        &mut self,
        adapter: &Adapter,
        list: &List,
        tag: Option<Tag>,
        frame: Frame,
        to: Option<[u8; 6]>,
    ) {
        // TCP/IP was told of no such offload here.
        // SAFETY: a received list.
        let coalesced = unsafe { Coalesced::beside(list.as_ptr()) };
        let copy = if coalesced.is_none() && adapter.up.enter(1) {
            let copy = adapter.shown().copy_of(frame, &|mdl| adapter.map(mdl));
            if copy.is_none() {
                adapter.up.leave(1);
            }
            copy
        } else {
            None
        };
        let Some(mut copy) = copy else { return adapter.stats.in_discarded() };
        // SAFETY: both are valid.
        unsafe { NdisCopyReceiveNetBufferListInfo(copy.as_ptr(), list.as_ptr()) };
        copy.set_tag(tag);
        copy.SourceHandle = adapter.handle;
        adapter.stats.received(to, frame.len());
        copy.push_to(&mut self.up);
    }
}
