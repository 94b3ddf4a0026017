//! Thousands of queue pairs, and receives whose posters change their minds.

use super::*;
use std::time::Instant;
use tests::kit::ADDRESSES;
use tests::rng::Rng;

/// Of each host.
const QPS: usize = 4096;
const STEPS: usize = 20_000;
/// Connected pairs, at most.
const PAIRS: usize = QPS / 2;
const LEN: u32 = 64;

/// What all queue pairs of a host share.
struct Many {
    cq: Object<NDK_CQ>,
    news: mpsc::Receiver<()>,
    pd: Object<NDK_PD>,
    memory: Memory,
    free: Vec<Object<NDK_QP>>,
}

impl Many {
    fn new(adapter: Object<NDK_ADAPTER>) -> Self {
        let (sender, news) = mpsc::channel();
        let notify = Box::new(move |_| sender.send(()).unwrap_or_default());
        let cq = wait(|then| adapter.create_cq(4 * QPS as u32, notify, then)).unwrap();
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let memory = Memory::new(pd, 4096);
        let mut many = Self { cq, news, pd, memory, free: Vec::new() };
        while many.free.len() < QPS {
            let qp = many.qp().unwrap();
            many.free.push(qp);
        }
        many
    }

    fn qp(&self) -> Result<Object<NDK_QP>, NTSTATUS> {
        wait(|then| self.pd.create_qp(self.cq, 2, then))
    }

    /// Takes `count` completions.
    fn take(&self, count: usize) -> Vec<NDK_RESULT> {
        let mut taken = vec![NDK_RESULT::EMPTY; count];
        let mut some = 0;
        while some < count {
            // Armed before it looks: what comes later is told.
            self.cq.arm();
            some += self.cq.results(&mut taken[some..]);
            if some < count {
                self.news.recv_timeout(PATIENCE).expect("a completion");
            }
        }
        taken
    }

    fn close(self) {
        let closing: Vec<_> = self.free.iter().map(|qp| start(|then| qp.close(then))).collect();
        closing.into_iter().for_each(|closed| closed.recv_timeout(PATIENCE).unwrap());
        wait(|then| self.memory.mr.close(then));
        wait(|then| self.cq.close(then));
        wait(|then| self.pd.close(then));
    }
}

/// Queue pairs and connectors, of the first host and of the second.
struct Pair {
    qps: [Object<NDK_QP>; 2],
    connectors: [Object<NDK_CONNECTOR>; 2],
    left: mpsc::Receiver<()>,
}

fn connect(
    hosts: &Net,
    many: &mut [Many; 2],
    incoming: &mpsc::Receiver<Object<NDK_CONNECTOR>>,
    rng: &mut Rng,
) -> Pair {
    let qps = many.each_mut().map(|many| rng.take(&mut many.free).unwrap());
    let active = wait(|then| hosts.raw(0).create_connector(then)).unwrap();
    let (local, remote) = (hosts.at(0, 0), hosts.at(1, PORT));
    let connected = start(|then| active.connect(qps[0], local, remote, then));
    let passive = incoming.recv_timeout(PATIENCE).expect("a connect event");
    let (sender, left) = mpsc::channel();
    let event = Box::new(move || sender.send(()).unwrap_or_default());
    let accepted = start(|then| passive.accept(qps[1], event, then));
    assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    assert_eq!(wait(|then| active.complete_connect(nothing(), then)), STATUS_SUCCESS);
    assert_eq!(accepted.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
    Pair { qps, connectors: [active, passive], left }
}

/// A message, one way or the other.
fn exchange(many: &[Many; 2], pair: &Pair, rng: &mut Rng) {
    let from = rng.below(2);
    let (from, to) = (from, 1 - from);
    let id = rng.below(usize::MAX);
    assert_eq!(pair.qps[to].receive(id, &[many[to].memory.sge(0, LEN)]), STATUS_SUCCESS);
    assert_eq!(pair.qps[from].send(id, &[many[from].memory.sge(LEN.into(), LEN)]), STATUS_SUCCESS);
    for end in [to, from] {
        let [result] = many[end].take(1).try_into().unwrap();
        assert_eq!((result.Status, result.RequestContext.addr()), (STATUS_SUCCESS, id));
    }
}

/// Ends a connection, with a receive posted or not, and replaces its queue pairs.
fn disconnect(many: &mut [Many; 2], pair: Pair, rng: &mut Rng) {
    let posted = rng.one_in(2);
    if posted {
        assert_eq!(pair.qps[1].receive(7, &[]), STATUS_SUCCESS);
    }
    assert_eq!(wait(|then| pair.connectors[0].disconnect(then)), STATUS_SUCCESS);
    pair.left.recv_timeout(PATIENCE).expect("a disconnect event");
    for (end, many) in many.iter_mut().enumerate() {
        wait(|then| pair.connectors[end].close(then));
        wait(|then| pair.qps[end].close(then));
        if posted && end == 1 {
            assert_eq!(many.take(1)[0].Status, STATUS_CANCELLED);
        }
        let qp = many.qp().unwrap();
        many.free.push(qp);
    }
}

/// Goal: with thousands of queue pairs, which are connected, used, disconnected and replaced
/// at random, every request ends once and as it should, and nothing is left.
/// Method: a seed chooses what happens; one thing happens at a time.
#[test]
fn sys_09_thousands_of_queue_pairs_come_and_go_and_nothing_is_left() {
    let hosts = Net::with_addresses(ADDRESSES);
    let mut many = [0, 1].map(|host| Many::new(hosts.raw(host)));
    let (sender, incoming) = mpsc::channel();
    let listener = listen(&hosts, move |connector| sender.send(connector).unwrap());
    let (mut rng, mut pairs) = (Rng(9), Vec::new());
    let mut counts = [0; 3];
    for _ in 0..STEPS {
        let what = match rng.below(8) {
            0..2 if pairs.len() < PAIRS => 0,
            2 => 1,
            _ => 2,
        };
        match what {
            0 => pairs.push(connect(&hosts, &mut many, &incoming, &mut rng)),
            1 => {
                let pair = rng.take(&mut pairs);
                pair.into_iter().for_each(|pair| disconnect(&mut many, pair, &mut rng));
            }
            _ => {
                let mut chance = Rng(rng.next());
                rng.pick(&pairs).into_iter().for_each(|pair| exchange(&many, pair, &mut chance));
            }
        }
        counts[what] += 1;
    }
    println!("{counts:?} connects, disconnects, messages; {} pairs are left", pairs.len());
    assert!(counts.iter().all(|count| *count > STEPS / 10) && pairs.len() > PAIRS / 2);
    for pair in pairs {
        disconnect(&mut many, pair, &mut rng);
    }
    assert!(many.iter().all(|many| many.free.len() == QPS));
    wait(|then| listener.close(then));
    many.into_iter().for_each(Many::close);
    hosts.finish();
}

/// rxe read a receive's elements where its poster could still write (CVE-2026-74377, and -74378 for a
/// shared queue). Here they are copied by the post: what the poster makes of them later changes nothing.
#[test]
fn cve_2026_74377_and_74378_a_receive_is_what_it_was_when_it_was_posted() {
    const SIZE: usize = 4096;
    for shared in [false, true] {
        let net = Listening::new();
        let mut sides = [Side::new(net.hosts.raw(0)), Side::new(net.hosts.raw(1))];
        let srq = shared.then(|| {
            let side = &mut sides[1];
            let srq = side.pd.create_srq(4, 0, Box::new(|_| ())).unwrap();
            wait(|then| side.qp.close(then));
            let size = QpSize { depths: [4, 4], sges: [1, 1], inline: 0 };
            side.qp = side.pd.create_qp_on([side.cq; 2], srq, size).unwrap();
            srq
        });
        let buffers = [Buffer::new(SIZE), Buffer::new(SIZE)];
        buffers[0].write(0, &[0xaa; SIZE]);
        let memory = [0, 1].map(|end| Memory::over(sides[end].pd, &buffers[end]));
        let ends = net.establish(&sides, [nothing(), nothing()]);
        let mut sgl = [memory[1].sge(64, 64)];
        let posted = match srq {
            Some(srq) => srq.receive(1, &sgl),
            None => sides[1].qp.receive(1, &sgl),
        };
        assert_eq!(posted, STATUS_SUCCESS);
        sgl[0] = memory[1].sge(0, u32::MAX);
        sgl[0].MemoryRegionToken ^= 0xffff;
        std::hint::black_box(&mut sgl);
        assert_eq!(sides[0].qp.send(2, &[memory[0].sge(0, 64)]), STATUS_SUCCESS);
        let mut results = [NDK_RESULT::EMPTY; 1];
        let begin = Instant::now();
        while sides[1].cq.results(&mut results) == 0 {
            assert!(begin.elapsed() < PATIENCE, "no completion");
            sync(net.hosts.raw(1));
        }
        assert_eq!((results[0].Status, results[0].BytesTransferred), (STATUS_SUCCESS, 64));
        let (mut right, mut bytes) = ([0; SIZE], [0; SIZE]);
        right[64..128].fill(0xaa);
        buffers[1].read(0, &mut bytes);
        assert!(bytes == right);
        ends.into_iter().for_each(|connector| wait(|then| connector.close(then)));
        memory.into_iter().for_each(|memory| wait(|then| memory.mr.close(then)));
        for side in sides {
            wait(|then| side.qp.close(then));
            wait(|then| side.cq.close(then));
        }
        if let Some(srq) = srq {
            wait(|then| srq.close(then));
        }
        sides.into_iter().for_each(|side| wait(|then| side.pd.close(then)));
        net.close();
    }
}
