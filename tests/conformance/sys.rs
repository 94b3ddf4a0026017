//! Outcomes of a whole connection. Most of them are the simulator's and the laboratory's.

use crate::packet::number;
use crate::peer::*;
use rocev2::env::Duration;
use rocev2::ids::Rkey;
use rocev2::qp::SendOp;
use rocev2::wire::Opcode;
use rocev2::wire::Place::{First, Last, Middle, Only};

/// P answers every request in full, and every 50th packet of it is lost.
#[test]
fn sys_10_a_long_read_under_loss_costs_at_most_half_as_much_again() {
    const LEN: usize = 16 << 20;
    const THERE: u64 = 0x1_0000_0000;
    each_with(Terms { bytes: SINK + LEN, ..TERMS }, |mut world| {
        let data = pattern(LEN);
        world.post(1, SendOp::Read { va: THERE, rkey: Rkey::new(5) }, LEN);
        let (mut bytes, mut packets) = (0, 0);
        while world.done.is_empty() {
            let requests = world.sent();
            if requests.is_empty() {
                world.wait();
            }
            world.pass(Duration::from_micros(20));
            for request in requests {
                if request.opcode == Opcode::WriteOnly as u8 {
                    // A probe, which is answered behind all that came before it.
                    world.answer(request.at, ACK);
                    continue;
                }
                let from = (number(&request.ext, 0, 8) - THERE) as usize;
                let len = number(&request.ext, 12, 4) as usize;
                let last = len.div_ceil(P) - 1;
                for (i, payload) in data[from..from + len].chunks(P).enumerate() {
                    let place = match i {
                        0 if last == 0 => Only,
                        0 => First,
                        _ => [Middle, Last][usize::from(i == last)],
                    };
                    (bytes, packets) = (bytes + payload.len(), packets + 1);
                    if packets % 50 != 0 {
                        world.data(request.at + i as i32, Opcode::read_response(place), payload);
                    }
                }
            }
        }
        assert_eq!(world.statuses(), [(1, OK)]);
        world.received(LEN);
        assert!(bytes > LEN && bytes <= LEN + LEN / 2, "{bytes}");
    });
}

/// A REQ that asks for more than D's port carries is refused (CM-28).
#[test]
fn sys_12_the_path_mtu_is_the_smaller_of_both_ports() {
    for (mtu, largest) in [(1500, 3), (4200, 5), (9000, 5)] {
        for path_mtu in 1..=largest {
            each_with(Terms { mtu, path_mtu, ..TERMS }, |mut world| {
                let pmtu = 128 << path_mtu;
                world.post(1, SendOp::Send, 2 * pmtu + 1);
                let lens: Vec<_> = world.sent().iter().map(|sent| sent.payload.len()).collect();
                assert_eq!(lens, [pmtu, pmtu, 1]);
                world.receive(2, pmtu);
                world.send(0, pmtu);
                assert_eq!(world.acks(), [(ACK, 0, 1)]);
            });
        }
    }
}
