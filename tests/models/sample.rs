//! Consumers shaped like Microsoft's kernel sample, and like the two tools that were made of it: NDKPing.sys and NDKPerf.sys.
//! What each asks for is a [`Profile`]; what they do is the sample's.
//!
//! * An adapter instance per socket, and one for the listener, whose connectors accept queue pairs of
//!   the others.
//! * Queues as deep as the adapter and the profile let them be; 512 fast-register regions of the largest size per
//!   socket, their tokens read once. A region is registered under an invented address with an offset
//!   of 0; the tools give all the same.
//! * Receives are posted after the accept, so what the client sends at once meets an empty queue.
//! * The notification takes completions until there are none, and arms again before it returns.
//! * Up to 16 deferred posts before one that is not.
//! * A flush and a close end a connection; regions are closed while they are registered.

use super::profile::{NDKPERF, NDKPING, Profile, SAMPLE};
use super::*;
use ndk_consumer::Remote;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use tests::kit::raw::{Left, Post};

const REGIONS: usize = 512;
/// Transfers of a socket at once.
const SLOTS: usize = 16;
const RECEIVES: usize = 24;
/// What is to be done, in front of a message's data.
pub(super) const HEADER: usize = 40;

enum Event {
    Received(Done),
    Sent(Done),
    Left,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
enum Kind {
    /// The data is in the message.
    Send,
    /// The server reads it.
    Fetch,
    /// The server writes it.
    Store,
}

/// What a client wants, as its messages say it.
#[derive(Clone, Copy, Debug)]
struct Order {
    id: u64,
    kind: Kind,
    len: usize,
    remote: Remote,
}

impl Order {
    fn to_bytes(self) -> Vec<u8> {
        let Self { id, kind, len, remote } = self;
        let words = [id, kind as u64, len as u64, remote.address, remote.token.into()];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word =
            |index: usize| u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().unwrap());
        let kind = match word(1) {
            0 => Kind::Send,
            1 => Kind::Fetch,
            2 => Kind::Store,
            other => panic!("a message says {other}"),
        };
        let remote = Remote { address: word(3), token: word(4) as u32 };
        Self { id: word(0), kind, len: word(2) as usize, remote }
    }

    /// The server answers such a transfer without an invalidation.
    const fn keeps_region(&self) -> bool {
        self.id.is_multiple_of(16)
    }
}

/// A socket and the channel that its callbacks fill.
struct End {
    socket: Socket,
    sender: Sender<Event>,
    events: Receiver<Event>,
    receives: Vec<Area>,
    /// Requests that have not ended.
    outstanding: usize,
    rng: Rng,
    profile: &'static Profile,
}

impl End {
    fn new(net: &Faulty, host: usize, seed: u64, profile: &'static Profile) -> Self {
        let adapter = net.open(host);
        let info = adapter.info().unwrap();
        assert_ne!(info.AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, 0);
        let depth = |limit: u32| limit.min(info.MaxCqDepth).min(profile.depth);
        let size = QpSize {
            depths: [depth(info.MaxReceiveQueueDepth), depth(info.MaxInitiatorQueueDepth)],
            sges: [info.MaxReceiveRequestSge, info.MaxInitiatorRequestSge]
                .map(|most| most.min(profile.sges)),
            inline: 0,
        };
        let (sender, events) = channel();
        let received = |cq: Object<NDK_CQ>| {
            let (none, take) = (|| [NDK_RESULT_EX::EMPTY; 16], Object::<NDK_CQ>::results_ex);
            notify(cq, sender.clone(), none, take, |result| Event::Received(result.into()))
        };
        let sent = |cq: Object<NDK_CQ>| {
            let (none, take) = (|| [NDK_RESULT::EMPTY; 16], Object::<NDK_CQ>::results);
            notify(cq, sender.clone(), none, take, |result| Event::Sent(result.into()))
        };
        let socket = Socket::new(adapter, size, [&received, &sent]);
        let mut rng = Rng(seed);
        let message = |_| Area::new(&socket.adapter, &mut rng, HEADER + profile.data_len);
        let receives = (0..RECEIVES).map(message).collect();
        Self { socket, sender, events, receives, outstanding: 0, rng, profile }
    }

    fn left(&self) -> Left {
        let sender = self.sender.clone();
        Box::new(move || sender.send(Event::Left).expect("somebody listens"))
    }

    fn post(&mut self, id: usize, post: Post<'_>, flags: u32) {
        assert_eq!(self.socket.qp.post(id, post, flags), STATUS_SUCCESS, "{post:?}");
        self.outstanding += 1;
    }

    fn post_receive(&mut self, index: usize) {
        let sgl = self.receives[index].whole(self.socket.token);
        self.post(index, Post::Receive(&sgl), 0);
    }

    fn next(&mut self) -> Event {
        let event = self.events.recv_timeout(PATIENCE).expect("something ends");
        if !matches!(event, Event::Left) {
            self.outstanding -= 1;
        }
        event
    }

    /// What a receive has brought. Nothing behind it was touched.
    fn message(&self, done: Done) -> Vec<u8> {
        assert_eq!(done.status, STATUS_SUCCESS);
        self.receives[done.id].bytes(0..done.bytes)
    }

    /// Ends everything that is posted, and closes.
    fn close(mut self, connector: Object<NDK_CONNECTOR>, regions: &[Object<NDK_MR>]) {
        self.socket.qp.flush();
        while self.outstanding > 0 {
            match self.next() {
                Event::Received(done) => assert_eq!(done.status, STATUS_CANCELLED),
                // The last answers, whose acknowledgements were lost.
                Event::Sent(_) | Event::Left => {}
            }
        }
        self.socket.close(connector, regions);
        let late = self.events.try_iter().filter(|event| !matches!(event, Event::Left)).count();
        assert_eq!(late, 0, "every request ends once");
        for area in &self.receives {
            area.check("a receive", &area.bytes(0..area.len));
        }
    }
}

/// Takes what there is into `to`, and arms again.
fn notify<R: 'static>(
    cq: Object<NDK_CQ>,
    to: Sender<Event>,
    none: fn() -> [R; 16],
    take: fn(Object<NDK_CQ>, &mut [R]) -> usize,
    event: fn(&R) -> Event,
) -> Notify {
    Box::new(move |status| {
        assert_eq!(status, STATUS_SUCCESS);
        let mut results = none();
        loop {
            let taken = take(cq, &mut results);
            if taken == 0 {
                break;
            }
            for result in &results[..taken] {
                // Nobody listens after the end.
                let _ = to.send(event(result));
            }
        }
        cq.arm();
    })
}

/// A transfer, as its client sees it.
struct Transfer {
    order: Order,
    area: Area,
    message: Area,
    region: Option<usize>,
    /// What has to come before its memory is used for something else.
    awaited: u32,
}

/// What a request of a transfer is, in the lowest bits of its context.
const REGISTER: usize = 0;
const MESSAGE: usize = 1;
const INVALIDATE: usize = 2;
const MOVE: usize = 3;

const fn context(id: u64, what: usize) -> usize {
    (id as usize) << 2 | what
}

struct Region {
    mr: Object<NDK_MR>,
    token: u32,
}

struct Client {
    end: End,
    regions: Vec<Region>,
    free: VecDeque<usize>,
    transfers: BTreeMap<u64, Transfer>,
    ids: Range<u64>,
    last: u64,
}

impl Client {
    fn run(net: &Faulty, ids: Range<u64>, seed: u64, profile: &'static Profile) {
        let end = End::new(net, 0, seed, profile);
        let pages = end.socket.adapter.info().unwrap().FRMRPageCount.min(profile.pages);
        let region = |_| {
            let mr = end.socket.pd.create_frmr(pages, true).unwrap();
            Region { mr, token: mr.token() }
        };
        let regions: Vec<Region> = (0..REGIONS).map(region).collect();
        let connector =
            wait(|then| Object(end.socket.adapter.as_ptr()).create_connector(then)).unwrap();
        let (qp, left) = (end.socket.qp, end.left());
        let connected = wait(|then| connector.connect(qp, at(0, 0), at(1, PORT), then));
        assert_eq!(connected, STATUS_SUCCESS);
        assert_eq!(wait(|then| connector.complete_connect(left, then)), STATUS_SUCCESS);
        let (free, last) = ((0..REGIONS).collect(), ids.end);
        let mut client = Self { end, regions, free, transfers: BTreeMap::new(), ids, last };
        (0..RECEIVES).for_each(|index| client.end.post_receive(index));
        client.work();
        let regions: Vec<_> = client.regions.iter().map(|region| region.mr).collect();
        let tokens: Vec<_> = client.regions.iter().map(|region| region.token).collect();
        assert!(regions.iter().map(|mr| mr.token()).eq(tokens), "a token is for life");
        assert!(client.free.len() < REGIONS, "some are still registered");
        client.end.close(connector, &regions);
    }

    fn work(&mut self) {
        while !self.ids.is_empty() || !self.transfers.is_empty() {
            if self.transfers.len() <= SLOTS / 2 {
                self.post_batch();
            }
            match self.end.next() {
                Event::Received(done) => self.answered(done),
                Event::Sent(done) => {
                    assert_eq!(done.status, STATUS_SUCCESS);
                    self.ended(done.id as u64 >> 2);
                }
                Event::Left => panic!("the server leaves last"),
            }
        }
    }

    /// Posts transfers; only the last request is not deferred.
    fn post_batch(&mut self) {
        let batch: Vec<u64> = self.ids.by_ref().take(SLOTS / 2).collect();
        for &id in &batch {
            let flags = if Some(&id) == batch.last() { 0 } else { NDK_OP_FLAG_DEFER };
            self.post_transfer(id, flags);
        }
    }

    fn post_transfer(&mut self, id: u64, flags: u32) {
        let Self { end, regions, free, .. } = self;
        let kind = [Kind::Send, Kind::Fetch, Kind::Store][end.rng.below(3)];
        let (adapter, token) = (Arc::clone(&end.socket.adapter), end.socket.token);
        let (area, region) = if kind == Kind::Send {
            let len = end.rng.below(end.profile.data_len);
            (Area::with(&adapter, &mut end.rng, &pattern(id, len.max(1))), None)
        } else {
            let len = length(&mut end.rng, end.profile.long_of, end.profile.long_len);
            let bytes = if kind == Kind::Fetch { pattern(id, len) } else { vec![0; len] };
            let area = Area::with(&adapter, &mut end.rng, &bytes);
            (area, Some(free.pop_front().expect("more regions than transfers")))
        };
        let mut remote = Remote { address: 0, token: 0 };
        if let Some(region) = region {
            let Region { mr, token } = regions[region];
            let base = end.profile.base.unwrap_or(0x6000_0000_0000 + (id << 20));
            let base = base + u64::from(area.lam.fbo());
            remote = Remote { address: base, token };
            let pages = area.lam.pages();
            let what = Post::FastRegister { mr, pages: &pages, fbo: 0, len: area.len, base };
            let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
            end.post(context(id, REGISTER), what, rights | NDK_OP_FLAG_DEFER);
        }
        let order = Order { id, kind, len: area.len, remote };
        let message = Area::with(&adapter, &mut end.rng, &order.to_bytes());
        let mut sgl = message.whole(token);
        if kind == Kind::Send {
            sgl.extend(area.whole(token));
        }
        end.post(context(id, MESSAGE), Post::Send(&sgl), flags);
        // The end of each, and the answer.
        let awaited = 2 + u32::from(region.is_some());
        self.transfers.insert(id, Transfer { order, area, message, region, awaited });
    }

    fn answered(&mut self, done: Done) {
        let id = u64::from_le_bytes(self.end.message(done).try_into().expect("an answer"));
        self.end.post_receive(done.id);
        let transfer = self.transfers.get_mut(&id).expect("answered once");
        let Transfer { order, region, .. } = *transfer;
        let what = format!("{order:?}");
        transfer.area.check(&what, &pattern(id, order.len));
        transfer.message.check(&what, &order.to_bytes());
        let invalidated = region.filter(|_| !order.keeps_region()).map(|_| order.remote.token);
        assert_eq!(done.invalidated, invalidated, "{what}");
        // The last ones stay registered.
        if id + 64 > self.last {
            if order.keeps_region() {
                transfer.region = None;
            }
        } else if let Some(region) = region.filter(|_| order.keeps_region()) {
            transfer.awaited += 1;
            let mr = self.regions[region].mr;
            self.end.post(context(id, INVALIDATE), Post::InvalidateMr(mr), 0);
        }
        self.ended(id);
    }

    fn ended(&mut self, id: u64) {
        let transfer = self.transfers.get_mut(&id).expect("not more than was awaited");
        transfer.awaited -= 1;
        if transfer.awaited == 0 {
            self.free.extend(transfer.region);
            self.transfers.remove(&id);
        }
    }
}

/// A transfer, as the server sees it.
struct Work {
    order: Order,
    area: Option<Area>,
    answer: Area,
}

struct Server {
    end: End,
    works: BTreeMap<u64, Work>,
    answered: usize,
}

impl Server {
    fn run(net: &Faulty, connector: Object<NDK_CONNECTOR>, seed: u64, profile: &'static Profile) {
        let end = End::new(net, 1, seed, profile);
        let left = end.left();
        assert_eq!(wait(|then| connector.accept(end.socket.qp, left, then)), STATUS_SUCCESS);
        // As late as it may be: the client has sent already.
        net.rnr_naks[1].wait_for_one();
        let mut server = Self { end, works: BTreeMap::new(), answered: 0 };
        (0..RECEIVES).for_each(|index| server.end.post_receive(index));
        loop {
            match server.end.next() {
                Event::Received(done) => server.ordered(done),
                Event::Sent(done) => server.ended(done),
                Event::Left => break,
            }
        }
        assert_eq!(server.answered, TRANSFERS / SOCKETS, "every transfer is answered");
        server.end.close(connector, &[]);
    }

    fn ordered(&mut self, done: Done) {
        let message = self.end.message(done);
        self.end.post_receive(done.id);
        let order = Order::from_bytes(&message[..HEADER]);
        let Order { id, kind, len, remote } = order;
        let Self { end: End { socket, rng, .. }, .. } = self;
        let adapter = Arc::clone(&socket.adapter);
        let answer = Area::with(&adapter, rng, &id.to_le_bytes());
        let area = match kind {
            Kind::Send => {
                assert!(message[HEADER..] == pattern(id, len), "{order:?}: wrong bytes");
                None
            }
            Kind::Fetch => Some(Area::new(&adapter, rng, len)),
            Kind::Store => Some(Area::with(&adapter, rng, &pattern(id, len))),
        };
        if let Some(area) = &area {
            let sgl = area.whole(self.end.socket.token);
            if kind == Kind::Fetch {
                self.end.post(context(id, MOVE), Post::Read(&sgl, remote), 0);
            } else {
                let flags = NDK_OP_FLAG_DEFER;
                self.end.post(context(id, MOVE), Post::Write(&sgl, remote), flags);
            }
        }
        assert!(self.works.insert(id, Work { order, area, answer }).is_none(), "ordered once");
        if kind != Kind::Fetch {
            self.answer(id);
        }
    }

    fn answer(&mut self, id: u64) {
        let Work { order, answer, .. } = &self.works[&id];
        let sgl = answer.whole(self.end.socket.token);
        let post = if order.kind == Kind::Send || order.keeps_region() {
            Post::Send(&sgl)
        } else {
            Post::SendAndInvalidate(&sgl, order.remote.token)
        };
        self.end.post(context(id, MESSAGE), post, 0);
        self.answered += 1;
    }

    fn ended(&mut self, done: Done) {
        let id = done.id as u64 >> 2;
        if !done.status.is_success() {
            assert_eq!(self.answered, TRANSFERS / SOCKETS, "{id}: {:?}", done.status);
            return;
        }
        let Work { order, area, .. } = &self.works[&id];
        if done.id & 3 == MESSAGE {
            self.works.remove(&id);
            return;
        }
        area.as_ref().expect("it moves").check(&format!("{order:?}"), &pattern(id, order.len));
        if order.kind == Kind::Fetch {
            self.answer(id);
        }
    }
}

/// Runs two clients and their servers of this profile.
macro_rules! transfers {
    ($profile:expr) => {{
        let net = connections(
            |net, ids, seed| Client::run(net, ids, seed, &$profile),
            |net, connector, seed| Server::run(net, connector, seed, &$profile),
        );
        assert!(net.rnr_naks[1].count() > 0);
        net.finish();
    }};
}

#[test]
fn a_consumer_like_the_kernel_sample() {
    transfers!(SAMPLE);
}

#[test]
fn a_consumer_that_asks_for_what_ndkping_does() {
    transfers!(NDKPING);
}

#[test]
fn a_consumer_that_asks_for_what_ndkperf_does() {
    transfers!(NDKPERF);
}
