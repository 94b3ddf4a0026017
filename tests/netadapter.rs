//! The question: do two providers talk over the packet queues of two NetAdapterCx client drivers, and break none of
//! the rules of net rings?
//!
//! Goal: every byte of SEND, WRITE and READ arrives, and neither driver breaks a rule.
//! Method: a provider has the edge of each driver. Two ring owners stand in for NetAdapterCx: a thread polls their
//! queues as NetAdapterCx does, and passes the frames that one adapter indicates to the other one.

use netadapter_client::Client;
use netadapter_client::abi::NETADAPTER;
use netadapter_client::resident::Resident;
use netadapter_client::system::{Breach, Sizes, System};
use netadapter_glue::Edge;
use netadapter_glue::netadapter::{NetAdapterConfig, NetAdapterEdge};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use tests::kit::{ADDRESSES, Net};

static EDGES: LazyLock<Mutex<HashMap<NETADAPTER, NetAdapterEdge>>> = LazyLock::new(Mutex::default);

const fn client(last: u8) -> Client {
    Client {
        mac: [2, 0, 0, 0, 1, last],
        // Packets of the largest path MTU, which take several fragments.
        edge: NetAdapterConfig { mac: [2, 0, 0, 0, 2, last], mtu: 4200, depth: 64 },
        link_speed: 10_000_000_000,
        attach: |adapter, edge| {
            EDGES.lock().unwrap().insert(adapter, edge);
            Box::new(()) as Box<dyn Resident>
        },
    }
}

static CLIENTS: [Client; 2] = [client(1), client(2)];

/// Polls both systems until it is told to stop. The result are their breaches.
fn bridge(mut systems: [System; 2], stop: &AtomicBool) -> [Vec<Breach>; 2] {
    systems.iter_mut().for_each(System::wake_this_thread);
    // A frame that the other adapter's ring has no room for waits here.
    let mut held: [Option<Vec<u8>>; 2] = [None, None];
    while !stop.load(Ordering::Acquire) {
        let mut busy = false;
        for (from, to) in [(0, 1), (1, 0)] {
            systems[from].give_buffers(8);
            busy |= systems[from].poll();
            while let Some(frame) = held[from].take().or_else(|| systems[from].receive()) {
                if !systems[to].send(&frame, 1500) {
                    held[from] = Some(frame);
                    break;
                }
                busy = true;
            }
        }
        if !busy {
            // A notification wakes this thread, also one that came before.
            thread::park();
        }
    }
    systems.map(System::unplug)
}

#[test]
fn two_providers_talk_over_two_client_drivers() {
    let sizes = [Sizes::default(), Sizes { packets: 64, ..Sizes::default() }];
    let systems = CLIENTS.each_ref().map(|client| System::plug(client, sizes));
    let edges = systems.each_ref().map(|system| {
        let edge = EDGES.lock().unwrap().remove(&system.adapter()).expect("its edge");
        Box::new(edge) as Box<dyn Edge + Send>
    });
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let bridge = thread::spawn(move || bridge(systems, &stopped));
    let net = Net::over(edges, ADDRESSES, |_| ());
    let connection = net.connect();
    for (from, to) in [(0, 1), (1, 0)] {
        let (local, remote) = (&connection.sides[from], &connection.sides[to]);
        local.fill(3);
        remote.fill(5);
        remote.qp.receive(7, &[remote.mr.sge(0..300_000)]).unwrap();
        local.qp.send(1, &[local.mr.sge(10..200_010)], 0).unwrap();
        local.qp.write(2, &[local.mr.sge(5..65_541)], remote.mr.remote(400_000), 0).unwrap();
        local.qp.read(3, &[local.mr.sge(500_000..600_001)], remote.mr.remote(777), 0).unwrap();
        assert_eq!(local.statuses(3), [driver::abi::STATUS_SUCCESS; 3]);
        assert_eq!(remote.results(1)[0].BytesTransferred, 200_000);
        assert!(remote.bytes(0, 200_000) == local.bytes(10, 200_000), "SEND");
        assert!(remote.bytes(400_000, 65_536) == local.bytes(5, 65_536), "WRITE");
        assert!(local.bytes(500_000, 100_001) == remote.bytes(777, 100_001), "READ");
    }
    drop(connection);
    net.finish();
    stop.store(true, Ordering::Release);
    bridge.thread().unpark();
    assert_eq!(bridge.join().expect("the bridge"), [vec![], vec![]]);
}
