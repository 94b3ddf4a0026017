//! A consumer shaped like SMB Direct.
//!
//! * Credits: a message goes only to a receive that the peer is known to have. So none is ever
//!   refused for want of receives, and zero RNR retries would do.
//! * The client registers memory for each transfer with no more rights than it needs, and names it in
//!   its request. The server reads or writes it, and its answer invalidates the registration.
//! * Messages lie in registered memory. Notifications wake a thread, which polls, arms, polls again.
//! * Two connections; the client disconnects.

use super::*;
use ndk_consumer::{Mdl, Remote};
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use tests::kit::raw::{Left, Post};

/// Receives of each side: fewer than the transfers that a client has under way.
const CREDITS: usize = 16;
const SLOTS: usize = 40;
/// Messages that a side sends at once.
const SENDS: usize = 24;
/// The least and the most bytes of a message, and of a receive.
const HEADER: usize = 48;
const MAX_SEND: usize = 1364;
const MAX_RECEIVE: usize = 8192;
/// Pages of the longest transfer, wherever it begins.
const PAGES: u32 = 33;

const SIZE: QpSize =
    QpSize { depths: [CREDITS as u32, (2 * SLOTS + SENDS) as u32], sges: [1, 2], inline: 0 };

enum Wake {
    Results,
    Left,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
enum Kind {
    /// Nothing but credits.
    Grant,
    /// The client reads: the server is to write.
    Read,
    /// The client writes: the server is to read.
    Write,
    /// The transfer is done.
    Answer,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    id: u64,
    len: usize,
    remote: Remote,
}

impl Message {
    const GRANT: Self =
        Self { kind: Kind::Grant, id: 0, len: 0, remote: Remote { address: 0, token: 0 } };

    /// With credits, and with more bytes behind, by which the receiver can judge it.
    fn to_bytes(self, granted: u64, more: usize) -> Vec<u8> {
        let Self { kind, id, len, remote } = self;
        let words = [granted, kind as u64, id, len as u64, remote.address, remote.token.into()];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(pattern(!id, more));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> (Self, usize) {
        let word =
            |index: usize| u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().unwrap());
        let kind = match word(1) {
            0 => Kind::Grant,
            1 => Kind::Read,
            2 => Kind::Write,
            3 => Kind::Answer,
            other => panic!("a message says {other}"),
        };
        let remote = Remote { address: word(4), token: word(5) as u32 };
        let message = Self { kind, id: word(2), len: word(3) as usize, remote };
        let more = bytes.len() - HEADER;
        assert!(bytes[HEADER..] == pattern(!message.id, more), "{message:?}: wrong bytes");
        (message, word(0) as usize)
    }
}

/// Registered memory for messages, each among guards.
struct Slots {
    mr: Object<NDK_MR>,
    token: u32,
    len: usize,
    buffer: Buffer,
    /// Stays while it is registered.
    _mdl: Mdl,
}

impl Slots {
    fn new(pd: Object<NDK_PD>, count: usize, len: usize) -> Self {
        let buffer = Buffer::new(GUARD_LEN + count * (len + GUARD_LEN));
        buffer.write(0, &vec![GUARD; buffer.len()]);
        let mut mdl = Mdl::new(buffer.as_ptr(), buffer.len());
        let mr = wait(|then| pd.create_mr(then)).unwrap();
        assert_eq!(wait(|then| mr.register(&mut mdl, buffer.len(), then)), STATUS_SUCCESS);
        Self { mr, token: mr.token(), len, buffer, _mdl: mdl }
    }

    fn at(&self, slot: usize) -> usize {
        GUARD_LEN + slot * (self.len + GUARD_LEN)
    }

    fn sge(&self, slot: usize, len: usize) -> NDK_SGE {
        let address = self.buffer.as_ptr().wrapping_add(self.at(slot)).cast();
        NDK_SGE::from_virtual(address, len as u32, self.token)
    }

    /// The message in a slot. What is behind it was not touched.
    fn take(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; GUARD_LEN + self.len + GUARD_LEN];
        self.buffer.read(self.at(slot) - GUARD_LEN, &mut bytes);
        let (before, rest) = bytes.split_at(GUARD_LEN);
        let (message, after) = rest.split_at(len);
        assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "a byte beside a message");
        self.buffer.write(self.at(slot), &vec![GUARD; len]);
        message.to_vec()
    }

    fn close(&self) {
        assert_eq!(wait(|then| self.mr.deregister(then)), STATUS_SUCCESS);
        wait(|then| self.mr.close(then));
    }
}

enum Event {
    Message(Message, Option<u32>),
    /// A request other than a message has ended well.
    Ended(usize),
    Left,
}

/// What is the same on both sides.
struct Peer {
    socket: Socket,
    sender: Sender<Wake>,
    woken: Receiver<Wake>,
    receives: Slots,
    sends: Slots,
    free_sends: Vec<usize>,
    /// Messages that wait for credits or a free slot, and the tokens that they invalidate.
    queue: VecDeque<(Message, Option<u32>)>,
    /// Receives of the peer that we know of.
    credits: usize,
    /// Receives of ours that the peer does not know of.
    ungranted: usize,
    /// Completions that were taken and not looked at: whether of a receive.
    taken: VecDeque<(bool, Done)>,
    /// Receives, initiator requests.
    outstanding: [usize; 2],
    /// Messages waited for credits.
    starved: bool,
    rng: Rng,
}

/// The lowest bit of a request's context.
const MESSAGE: usize = 0;
const OTHER: usize = 1;

impl Peer {
    /// The acceptor has told of one receive by listening.
    fn new(net: &Faulty, host: usize, seed: u64) -> Self {
        let (sender, woken) = channel();
        let wake = |_| -> Notify {
            let sender = sender.clone();
            Box::new(move |status| {
                assert_eq!(status, STATUS_SUCCESS);
                // Nobody listens after the end.
                let _ = sender.send(Wake::Results);
            })
        };
        let socket = Socket::new(net.open(host), SIZE, [&wake, &wake]);
        let receives = Slots::new(socket.pd, CREDITS, MAX_RECEIVE);
        let sends = Slots::new(socket.pd, SENDS, MAX_SEND);
        let mut peer = Self {
            socket,
            sender,
            woken,
            receives,
            sends,
            free_sends: (0..SENDS).collect(),
            queue: VecDeque::new(),
            credits: 1 - host,
            ungranted: 0,
            taken: VecDeque::new(),
            outstanding: [0; 2],
            starved: false,
            rng: Rng(seed),
        };
        (0..CREDITS).for_each(|slot| peer.post_receive(slot));
        peer.ungranted -= host;
        peer
    }

    fn left(&self) -> Left {
        let sender = self.sender.clone();
        Box::new(move || sender.send(Wake::Left).expect("somebody listens"))
    }

    fn post_receive(&mut self, slot: usize) {
        let sgl = [self.receives.sge(slot, MAX_RECEIVE)];
        assert_eq!(self.socket.qp.receive(slot, &sgl), STATUS_SUCCESS);
        self.outstanding[0] += 1;
        self.ungranted += 1;
    }

    fn post(&mut self, id: usize, post: Post<'_>, flags: u32) {
        assert_eq!(self.socket.qp.post(id, post, flags), STATUS_SUCCESS, "{post:?}");
        self.outstanding[1] += 1;
    }

    /// The last credit goes only with a message that gives some.
    fn may_send(&self) -> bool {
        let enough = self.credits > 1 || (self.credits == 1 && self.ungranted > 0);
        enough && !self.free_sends.is_empty()
    }

    fn send(&mut self, message: Message, invalidates: Option<u32>) {
        self.queue.push_back((message, invalidates));
        self.send_queued();
    }

    fn send_queued(&mut self) {
        while self.may_send() {
            let next = self.queue.pop_front();
            // Credits alone, when nothing else carries them.
            let grant = || (self.ungranted >= CREDITS / 2).then_some((Message::GRANT, None));
            let Some((message, invalidates)) = next.or_else(grant) else { return };
            let slot = self.free_sends.pop().expect("asked for");
            let granted = std::mem::take(&mut self.ungranted);
            self.credits -= 1;
            let more = self.rng.below(MAX_SEND - HEADER + 1);
            let bytes = message.to_bytes(granted as u64, more);
            self.sends.buffer.write(self.sends.at(slot), &bytes);
            let sgl = [self.sends.sge(slot, bytes.len())];
            let post = match invalidates {
                Some(token) => Post::SendAndInvalidate(&sgl, token),
                None => Post::Send(&sgl),
            };
            self.post(slot << 1 | MESSAGE, post, 0);
        }
        self.starved |= !self.queue.is_empty() && self.credits <= 1;
    }

    fn poll(&mut self) -> bool {
        let mut results = [NDK_RESULT_EX::EMPTY; 8];
        for (cq, is_receive) in self.socket.cqs.into_iter().zip([true, false]) {
            let taken = cq.results_ex(&mut results);
            self.outstanding[usize::from(!is_receive)] -= taken;
            self.taken.extend(results[..taken].iter().map(|result| (is_receive, result.into())));
        }
        !self.taken.is_empty()
    }

    /// The next completion; `None`: the peer has left.
    fn next_done(&mut self) -> Option<(bool, Done)> {
        loop {
            if self.poll() {
                return self.taken.pop_front();
            }
            self.socket.cqs.into_iter().for_each(Object::arm);
            if self.poll() {
                return self.taken.pop_front();
            }
            match self.woken.recv_timeout(PATIENCE).expect("something ends") {
                Wake::Results => {}
                Wake::Left => return None,
            }
        }
    }

    fn next(&mut self) -> Event {
        loop {
            let Some((is_receive, done)) = self.next_done() else { return Event::Left };
            if !done.status.is_success() {
                // The last messages, whose acknowledgements were lost.
                assert!(!is_receive && done.id & 1 == MESSAGE, "{done:?}");
                continue;
            }
            if is_receive {
                let (message, granted) =
                    Message::from_bytes(&self.receives.take(done.id, done.bytes));
                self.post_receive(done.id);
                self.credits += granted;
                assert!(self.credits <= CREDITS, "more than the peer has");
                self.send_queued();
                if message.kind != Kind::Grant {
                    return Event::Message(message, done.invalidated);
                }
            } else if done.id & 1 == MESSAGE {
                self.free_sends.push(done.id >> 1);
                self.send_queued();
            } else {
                return Event::Ended(done.id >> 1);
            }
        }
    }

    /// Ends what is posted, and closes.
    fn close(mut self, connector: Object<NDK_CONNECTOR>, regions: &[Object<NDK_MR>]) {
        self.socket.qp.flush();
        while self.outstanding != [0; 2] {
            // What the peer granted last may have come before the flush.
            let _done = self.next_done();
        }
        assert!(self.starved, "credits were short at times");
        self.receives.close();
        self.sends.close();
        self.socket.close(connector, regions);
    }
}

/// A transfer, as its client sees it.
struct Transfer {
    request: Message,
    area: Area,
    /// The end of the registration, and the answer.
    awaited: u32,
}

struct Client {
    peer: Peer,
    /// A region for each transfer, its token, and the transfer.
    slots: Vec<(Object<NDK_MR>, u32, Option<Transfer>)>,
    ids: Range<u64>,
}

impl Client {
    fn run(net: &Faulty, ids: Range<u64>, seed: u64) {
        let peer = Peer::new(net, 0, seed);
        let slot = |_| {
            let mr = peer.socket.pd.create_frmr(PAGES, true).unwrap();
            (mr, mr.token(), None)
        };
        let slots: Vec<_> = (0..SLOTS).map(slot).collect();
        let connector =
            wait(|then| Object(peer.socket.adapter.as_ptr()).create_connector(then)).unwrap();
        let (qp, left) = (peer.socket.qp, peer.left());
        let connected = wait(|then| connector.connect(qp, at(0, 0), at(1, PORT), then));
        assert_eq!(connected, STATUS_SUCCESS);
        assert_eq!(wait(|then| connector.complete_connect(left, then)), STATUS_SUCCESS);
        let mut client = Self { peer, slots, ids };
        (0..SLOTS).for_each(|slot| client.begin(slot));
        while client.slots.iter().any(|slot| slot.2.is_some()) {
            match client.peer.next() {
                Event::Message(message, invalidated) => client.answered(message, invalidated),
                Event::Ended(slot) => client.ended(slot),
                Event::Left => panic!("the server leaves last"),
            }
        }
        // A graceful end has nothing outstanding.
        while client.peer.outstanding[1] > 0 {
            let (_, done) = client.peer.next_done().expect("the server leaves last");
            assert_eq!(done.status, STATUS_SUCCESS);
        }
        assert_eq!(wait(|then| connector.disconnect(then)), STATUS_SUCCESS);
        let regions: Vec<_> = client.slots.iter().map(|slot| slot.0).collect();
        client.peer.close(connector, &regions);
    }

    fn begin(&mut self, slot: usize) {
        let Some(id) = self.ids.next() else { return };
        let Self { peer, slots, .. } = self;
        let (mr, token, transfer) = &mut slots[slot];
        let (adapter, len) =
            (Arc::clone(&peer.socket.adapter), length(&mut peer.rng, 32, 128 << 10));
        let (kind, bytes, rights) = if peer.rng.below(2) == 0 {
            (Kind::Read, vec![0; len], NDK_OP_FLAG_ALLOW_REMOTE_WRITE)
        } else {
            (Kind::Write, pattern(id, len), NDK_OP_FLAG_ALLOW_REMOTE_READ)
        };
        let area = Area::with(&adapter, &mut peer.rng, &bytes);
        let base = area.lam.buffer().as_ptr().addr() as u64 + area.start as u64;
        let (pages, fbo) = (area.lam.pages(), area.lam.fbo());
        let what = Post::FastRegister { mr: *mr, pages: &pages, fbo, len, base };
        // Left to the request behind it, if that goes at once.
        let goes = peer.queue.is_empty() && peer.may_send();
        let flags = if goes { rights | NDK_OP_FLAG_DEFER } else { rights };
        peer.post(slot << 1 | OTHER, what, flags);
        let request = Message { kind, id, len, remote: Remote { address: base, token: *token } };
        *transfer = Some(Transfer { request, area, awaited: 2 });
        peer.send(request, None);
    }

    fn answered(&mut self, answer: Message, invalidated: Option<u32>) {
        assert_eq!(answer.kind, Kind::Answer);
        let is_its = |slot: &(_, _, Option<Transfer>)| {
            slot.2.as_ref().is_some_and(|transfer| transfer.request.id == answer.id)
        };
        let slot = self.slots.iter().position(is_its).expect("answered once");
        let (_, token, transfer) = &self.slots[slot];
        assert_eq!(invalidated, Some(*token), "{answer:?}");
        let Transfer { request, area, .. } = transfer.as_ref().expect("found");
        area.check(&format!("{request:?}"), &pattern(request.id, request.len));
        self.ended(slot);
    }

    fn ended(&mut self, slot: usize) {
        let transfer = &mut self.slots[slot].2;
        let awaited = &mut transfer.as_mut().expect("not more than was awaited").awaited;
        *awaited -= 1;
        if *awaited == 0 {
            *transfer = None;
            self.begin(slot);
        }
    }
}

struct Server {
    peer: Peer,
    works: BTreeMap<u64, (Message, Area)>,
    answered: usize,
}

impl Server {
    fn run(net: &Faulty, connector: Object<NDK_CONNECTOR>, seed: u64) {
        let peer = Peer::new(net, 1, seed);
        let (qp, left) = (peer.socket.qp, peer.left());
        assert_eq!(wait(|then| connector.accept(qp, left, then)), STATUS_SUCCESS);
        let mut server = Self { peer, works: BTreeMap::new(), answered: 0 };
        loop {
            match server.peer.next() {
                Event::Message(request, invalidated) => {
                    assert_eq!(invalidated, None);
                    server.begin(request);
                }
                Event::Ended(id) => server.answer(id as u64),
                Event::Left => break,
            }
        }
        assert_eq!(server.answered, TRANSFERS / SOCKETS, "every transfer is answered");
        server.peer.close(connector, &[]);
    }

    fn begin(&mut self, request: Message) {
        let Message { kind, id, len, remote } = request;
        let Self { peer, works, .. } = self;
        let adapter = Arc::clone(&peer.socket.adapter);
        let bytes = if kind == Kind::Read { pattern(id, len) } else { vec![0; len] };
        let area = Area::with(&adapter, &mut peer.rng, &bytes);
        let sgl = area.whole(peer.socket.token);
        let post = match kind {
            Kind::Read => Post::Write(&sgl, remote),
            Kind::Write => Post::Read(&sgl, remote),
            Kind::Grant | Kind::Answer => panic!("{request:?} from a client"),
        };
        peer.post((id as usize) << 1 | OTHER, post, 0);
        assert!(works.insert(id, (request, area)).is_none(), "asked once");
    }

    fn answer(&mut self, id: u64) {
        let (request, area) = self.works.remove(&id).expect("ended once");
        area.check(&format!("{request:?}"), &pattern(id, request.len));
        self.answered += 1;
        let answer = Message { kind: Kind::Answer, ..request };
        self.peer.send(answer, Some(request.remote.token));
    }
}

#[test]
fn a_consumer_like_smb_direct() {
    let net = connections(Client::run, Server::run);
    assert_eq!(net.rnr_naks.each_ref().map(|count| count.count()), [0, 0], "credits suffice");
    net.finish();
}
