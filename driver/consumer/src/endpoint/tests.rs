use super::*;
use crate::{Adapter, Host, Opener, pair, pair_with};
use driver::Provider;
use netadapter_glue::fault::Faults;
use std::thread;

const SHORT: Duration = Duration::from_millis(50);

/// Two hosts and the ends of a connection between them.
struct World {
    ends: [Endpoint; 2],
    hosts: [Host; 2],
}

fn connected(hosts: [Host; 2], config: &EndpointConfig) -> World {
    let [client, server] = &hosts;
    let listener = server.listen(0).unwrap();
    let at = listener.local_address().unwrap();
    let ends = thread::scope(|scope| {
        let passive = scope.spawn(|| server.accept(&listener, config).unwrap());
        [client.connect(at, config).unwrap(), passive.join().unwrap()]
    });
    World { ends, hosts }
}

fn world() -> World {
    connected(pair().unwrap(), &EndpointConfig::default())
}

#[test]
fn messages_outnumber_the_slots_on_both_sides() {
    let config = EndpointConfig { receives: 3, sends: 2, ..EndpointConfig::default() };
    let World { ends: [mut active, mut passive], hosts: _hosts } =
        connected(pair().unwrap(), &config);
    thread::scope(|scope| {
        scope.spawn(|| (0..100_u32).for_each(|n| active.send(&n.to_be_bytes()).unwrap()));
        for n in 0..100_u32 {
            let message = passive.receive().unwrap();
            assert_eq!(message, Message { bytes: n.to_be_bytes().to_vec(), invalidated: None });
        }
    });
    active.drain().unwrap();
    assert_eq!(active.outstanding(), 3, "receives alone");
    assert!(active.disconnect().unwrap());
}

/// Goal: everything arrives once and in order over a network that loses, repeats, reorders and damages frames.
#[test]
fn a_bad_network_changes_nothing() {
    let faults = |seed| Faults {
        seed,
        loss: 0.02,
        duplicate: 0.01,
        corrupt: 0.01,
        reorder: 0.02,
        ..Faults::default()
    };
    let hosts = pair_with(|number, builder| builder.faults(faults(number as u64))).unwrap();
    let World { ends: [mut active, mut passive], hosts: [client, server] } =
        connected(hosts, &EndpointConfig::default());
    let source = client.register(vec![7; 100_000].as_slice(), Rights::empty()).unwrap();
    let target = server.register(&[0; 100_000][..], Rights::REMOTE_WRITE).unwrap();
    for n in 0..20_u8 {
        source.buffer().write(usize::from(n), &[n]);
        active.write(&[source.sge(0..100_000)], target.remote(0)).unwrap();
        active.send(&[n]).unwrap();
        assert_eq!(passive.receive().unwrap().bytes, [n]);
        assert_eq!(target.buffer().to_vec(0..100_000), source.buffer().to_vec(0..100_000));
    }
}

#[test]
fn posted_requests_end_with_their_tags() {
    let World { ends: [mut active, mut passive], hosts: [client, server] } = world();
    let mine = client.register(b"to and fro".as_slice(), Rights::LOCAL_WRITE).unwrap();
    let lent = server.register(&[0; 10][..], Rights::REMOTE_WRITE | Rights::REMOTE_READ).unwrap();
    active.post_write(5, &[mine.sge(0..10)], lent.remote(0)).unwrap();
    active.post_read(6, &[mine.sge(0..3)], lent.remote(7)).unwrap();
    // Waiting for something else loses no event.
    active.send(b"?").unwrap();
    passive.receive().unwrap();
    passive.send(b"!").unwrap();
    assert_eq!(active.receive().unwrap().bytes, b"!");
    active.drain().unwrap();
    for (operation, tag) in [(Operation::Write, 5), (Operation::Read, 6)] {
        assert_eq!(active.next(SHORT), Ok(Some(Event::Ended { operation, tag })));
    }
    assert_eq!(active.next(SHORT), Ok(None));
    assert_eq!(mine.buffer().to_vec(0..10), b"froand fro");
}

#[test]
fn requests_outnumber_the_queue() {
    let config = EndpointConfig { requests: 2, ..EndpointConfig::default() };
    let World { ends: [mut active, _passive], hosts: [client, server] } =
        connected(pair().unwrap(), &config);
    let source =
        client.register((0..=99).collect::<Vec<u8>>().as_slice(), Rights::empty()).unwrap();
    let target = server.register(&[0; 100][..], Rights::REMOTE_WRITE).unwrap();
    for n in 0..100_u32 {
        let place = n as usize;
        active.post_write(n, &[source.sge(place..place + 1)], target.remote(place)).unwrap();
    }
    active.drain().unwrap();
    for tag in 0..100 {
        let ended = Event::Ended { operation: Operation::Write, tag };
        assert_eq!(active.next(SHORT), Ok(Some(ended)));
    }
    assert_eq!(target.buffer().to_vec(0..100), source.buffer().to_vec(0..100));
}

#[test]
fn a_region_is_reached_until_it_is_invalidated() {
    let World { ends: [mut active, mut passive], hosts: [client, server] } = world();
    let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
    let buffer = Arc::new(Buffer::from(bytes.as_slice()));
    let sink = server.register(&[0; 20_000][..], Rights::LOCAL_WRITE).unwrap();
    let mut region = Region::new(client.pd(), 10_000).unwrap();
    // Ranges that begin and end at a page, inside one, and over many.
    for range in [0..4096, 4096..8192, 1..2, 4095..4097, 123..10_123] {
        let len = range.len();
        let lent =
            active.register(&mut region, &buffer, range.clone(), Rights::REMOTE_READ).unwrap();
        assert_eq!(lent.token, region.token());
        active.drain().unwrap();
        passive.read(&[sink.sge(0..len)], lent).unwrap();
        assert_eq!(sink.buffer().to_vec(0..len), bytes[range.clone()]);
        let again = active.register(&mut region, &buffer, range, Rights::REMOTE_READ);
        assert_eq!(again, Err(EndpointError::Registered));
        active.invalidate(&region).unwrap();
        assert!(!region.is_registered());
        active.invalidate(&region).unwrap();
    }
    let lent = active.register(&mut region, &buffer, 0..100, Rights::REMOTE_READ).unwrap();
    active.invalidate(&region).unwrap();
    let refused = passive.read(&[sink.sge(0..100)], lent).unwrap_err();
    assert_eq!(refused.status(), Some(STATUS_ACCESS_VIOLATION));
    assert!(active.register(&mut region, &buffer, 0..20_000, Rights::empty()).is_err(), "too long");
}

/// A region is a local element, too: a READ fills it.
#[test]
fn a_read_fills_a_region() {
    let World { ends: [mut active, passive], hosts: [client, server] } = world();
    let lent = server.register(&[9; 5000][..], Rights::REMOTE_READ).unwrap();
    let buffer = Arc::new(Buffer::new(6000));
    let mut region = Region::new(client.pd(), 6000).unwrap();
    active.register(&mut region, &buffer, 500..5500, Rights::LOCAL_WRITE).unwrap();
    active.read(&[region.sge(1..5000)], lent.remote(0)).unwrap();
    assert_eq!(buffer.to_vec(500..502), [0, 9]);
    assert_eq!(buffer.to_vec(5499..5501), [9, 0]);
    drop(passive);
}

#[test]
fn the_end_comes_after_all_that_came_before_it() {
    let World { ends: [active, mut passive], hosts: _hosts } = world();
    let mut active = active;
    (0..5).for_each(|n| active.send(&[n]).unwrap());
    active.disconnect().unwrap();
    (0..5).for_each(|n| assert_eq!(passive.receive().unwrap().bytes, [n]));
    assert_eq!(passive.receive(), Err(EndpointError::Disconnected));
    assert_eq!(passive.next(SHORT), Err(EndpointError::Disconnected), "and stays");
    assert_eq!(passive.send(b"late"), Err(EndpointError::Disconnected));
}

/// The failed request names the end on its side, the disconnect on the other.
#[test]
fn a_refused_write_ends_the_connection() {
    let World { ends: [mut active, mut passive], hosts: [client, server] } = world();
    let source = client.register(&[1; 10][..], Rights::empty()).unwrap();
    let target = server.register(&[0; 10][..], Rights::REMOTE_READ).unwrap();
    let failed =
        EndpointError::Failed { operation: Operation::Write, status: STATUS_ACCESS_VIOLATION };
    assert_eq!(active.write(&[source.sge(0..10)], target.remote(0)), Err(failed.clone()));
    assert_eq!(active.receive(), Err(failed));
    drop(active);
    assert_eq!(passive.receive(), Err(EndpointError::Disconnected));
    assert_eq!(target.buffer().to_vec(0..10), [0; 10]);
}

/// Method: the peer takes no completions, so its one receive is not posted again, and a second message waits for it.
#[test]
fn a_flush_names_the_requests_that_it_cancelled() {
    let config = EndpointConfig { receives: 1, ..EndpointConfig::default() };
    let World { ends: [mut active, _passive], hosts: [client, server] } =
        connected(pair().unwrap(), &config);
    let source = client.register(&[1; 10][..], Rights::empty()).unwrap();
    let target = server.register(&[0; 10][..], Rights::REMOTE_WRITE).unwrap();
    (0..2).for_each(|n| active.send(&[n]).unwrap());
    active.post_write(11, &[source.sge(0..10)], target.remote(0)).unwrap();
    assert_eq!(active.next(SHORT), Ok(None));
    assert_eq!(active.flush(), Ok(vec![11]));
    assert_eq!(active.outstanding(), 0);
    assert_eq!(active.receive(), Err(EndpointError::Disconnected));
    assert_eq!(target.buffer().to_vec(0..10), [0; 10]);
}

#[test]
fn a_refusal_brings_the_reason_of_the_peer() {
    let [client, server] = pair().unwrap();
    let config = EndpointConfig { private_data: b"please".to_vec(), ..EndpointConfig::default() };
    let listener = server.listen(0).unwrap();
    let at = listener.local_address().unwrap();
    let refused = thread::scope(|scope| {
        scope.spawn(|| {
            let incoming = listener.next(config.time_limit).unwrap();
            assert!(incoming.connection_data().unwrap().private_data.starts_with(b"please"));
            incoming.reject(b"no thanks").unwrap();
        });
        client.connect(at, &config).unwrap_err()
    });
    let EndpointError::Refused { status, private_data } = refused else { panic!("{refused}") };
    assert_eq!(status, STATUS_CONNECTION_REFUSED);
    assert!(private_data.starts_with(b"no thanks"), "{private_data:?}");
    // Nobody listens at another port.
    let nobody = client.connect(SocketAddr::new(at.ip(), 9), &config).unwrap_err();
    assert_eq!(nobody.status(), Some(STATUS_CONNECTION_REFUSED));
}

/// Goal: the calls with which a program ends tell of a request that has failed.
#[test]
fn a_failed_request_is_no_good_end() {
    let config = EndpointConfig { receive_len: 16, ..EndpointConfig::default() };
    let World { ends: [mut active, _passive], hosts: _hosts } = connected(pair().unwrap(), &config);
    active.send(&[1; 64]).unwrap();
    let too_long =
        EndpointError::Failed { operation: Operation::Send, status: STATUS_REMOTE_RESOURCES };
    assert_eq!(active.drain(), Err(too_long.clone()));
    assert_eq!(active.disconnect(), Err(too_long));
}

#[test]
fn time_limits_hold() {
    let config = EndpointConfig { time_limit: SHORT, ..EndpointConfig::default() };
    let World { ends: [mut active, _passive], hosts: _hosts } = connected(pair().unwrap(), &config);
    assert_eq!(active.receive(), Err(EndpointError::TimedOut));
    assert_eq!(active.next(SHORT), Ok(None));
}

/// An opener whose consumers sleep while they wait, as those under Wine do.
struct Asleep(Arc<Provider>);

// SAFETY: as the provider's own.
unsafe impl Opener for Asleep {
    fn open(&self, version: NDK_VERSION) -> std::result::Result<*mut NDK_ADAPTER, NTSTATUS> {
        self.0.open_adapter(version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: the caller passes an open adapter and lets go of it.
        unsafe { self.0.close_adapter(adapter) }
    }
}

#[test]
fn a_consumer_that_sleeps_hears_of_messages_and_of_the_end() {
    let hosts = pair().unwrap();
    let pds = hosts.each_ref().map(|host| {
        let opener = Arc::new(Asleep(Arc::clone(host.provider())));
        Adapter::open(opener).unwrap().create_pd().unwrap()
    });
    let config = EndpointConfig::default();
    let at = SocketAddr::new(hosts[1].ip(), 7174);
    let listener = pds[1].adapter().listen(at).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let connector = listener.next(config.time_limit).unwrap();
            let mut passive = Endpoint::accept(&pds[1], connector, &config).unwrap();
            let message = passive.receive().unwrap();
            passive.send(&message.bytes).unwrap();
            assert_eq!(passive.receive(), Err(EndpointError::Disconnected));
        });
        let local = SocketAddr::new(hosts[0].ip(), 0);
        let mut active = Endpoint::connect(&pds[0], local, at, &config).unwrap();
        active.send(b"there and back").unwrap();
        assert_eq!(active.receive().unwrap().bytes, b"there and back");
        active.disconnect().unwrap();
    });
}
