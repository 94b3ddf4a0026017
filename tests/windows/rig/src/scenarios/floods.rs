//! Adapters under more traffic than they can take, while they and their NICs come, stop and go.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::frames::frame;
use super::net::Net;
use super::reports::{roce_frame, until_it_is_ours};
use super::*;

/// Frames that a poll core takes in one turn, at DISPATCH_LEVEL, before others of its processor may run.
const TURN: usize = 64;
/// Frames of one call, nearly as many as a poll core has places for.
const FLOOD: usize = 1000;

/// A NIC that lends a thousand RoCE frames at once, again and again: a poll core gives back those of a turn, and what comes beyond its
/// room is dropped and counted. Frames of TCP/IP pass meanwhile, and so does a connection.
pub(super) fn floods(host: &dyn Host, _: &[String]) {
    let net = Net::plug(host, 1500);
    let ([a, b], nic) = (net.vnics, net.nics[1]);
    let roce = roce_frame(b, address(1));
    until_it_is_ours(b, nic, &roce);
    let flood = vec![roce; FLOOD];
    let pour = || {
        for number in 0..40 {
            nic.bring_at_once(&flood);
            if number % 8 == 0 {
                a.post(&frame(b.mac(), a.mac(), number), 0, 0);
            }
        }
    };
    let net = if IS_CONSUMER {
        let net = net.open_adapters();
        let connection = net.connect();
        connection.exchange_during(2000, pour);
        drop(connection);
        net.close_adapters()
    } else {
        pour();
        net
    };
    let all = || {
        (0..40)
            .step_by(8)
            .all(|number| super::frames::has_heard(b, &frame(b.mac(), a.mac(), number)))
    };
    eventually("frames of TCP/IP behind floods", all);
    let lent = || nbl::lent(std::ptr::from_ref(nic).addr());
    eventually("the return of all lists", || lent() == 0);
    let most = nic.most_given_back.load(Ordering::SeqCst);
    say!("at most {most} lists given back by a turn");
    if most > TURN {
        breach!("a poll core has taken {most} frames in one turn");
    }
    assert!(most > TURN / 2, "no turn was full");
    net.end(host);
}

/// Threads that pour frames into everything there is, until it is over.
struct Pours<'a> {
    over: &'a AtomicBool,
    poured: &'a AtomicUsize,
}

impl Pours<'_> {
    /// Frames for every adapter come to every NIC, and every adapter's TCP/IP sends.
    fn pour(&self, from_outside: bool) {
        const AHEAD: usize = 64;
        while !self.over.load(Ordering::Acquire) {
            let vnics = vnic::all();
            for (vnic, next) in vnics.iter().zip(vnics.iter().cycle().skip(1)) {
                for mark in 0..8 {
                    let frame = frame(vnic.mac(), next.mac(), mark);
                    if from_outside {
                        switch::send(usize::MAX, &frame);
                    } else if nbl::lent(next.handle().addr()) < AHEAD {
                        next.send_if_up(&frame);
                    }
                }
                self.poured.fetch_add(8, Ordering::Relaxed);
            }
            vnics.iter().for_each(|vnic| vnic.heard.lock().unwrap().clear());
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Under traffic in both directions NICs pause, sleep, wake and go, in every order that there is, and adapters pause, halt and start, at
/// the same time as their NICs or not: nothing is sent or shown once an end has returned, nothing waits for the end of the traffic.
pub(super) fn ends_at_once(host: &dyn Host, arguments: &[String]) {
    let rounds = arguments.first().map_or(6, |rounds| rounds.parse().expect("a number"));
    let net = Net::plug(host, 1500);
    let ([a, b], nics) = (net.vnics, net.nics);
    let (over, poured) = (AtomicBool::new(false), AtomicUsize::new(0));
    let pours = Pours { over: &over, poured: &poured };
    std::thread::scope(|scope| {
        for from_outside in [true, true, false, false] {
            let pours = &pours;
            scope.spawn(move || pours.pour(from_outside));
        }
        for round in 0..rounds {
            for end in NIC_ENDS {
                end(nics[round % 2]);
            }
            // An adapter and its NIC at the same time, and both NICs.
            for vnic in [a, b] {
                std::thread::scope(|scope| {
                    scope.spawn(|| NIC_ENDS[round % NIC_ENDS.len()](nics[0]));
                    scope.spawn(|| NIC_ENDS[(round + 1) % NIC_ENDS.len()](nics[1]));
                    vnic.pause();
                    rest();
                    assert_eq!(vnic.restart(), 0);
                });
            }
            // A third one starts and halts beside them: its NIC is bound, and parted from, under traffic.
            let nic = Nic::plug_in(1500);
            let third = add(round % 2 + 5, nic);
            expect_ready(third, nic);
            rest();
            std::thread::scope(|scope| {
                scope.spawn(|| NIC_ENDS[round % NIC_ENDS.len()](nic));
                third.remove();
            });
            nic.unbind();
        }
        over.store(true, Ordering::Release);
    });
    nics.iter().zip([a, b]).for_each(|(nic, vnic)| expect_ready(vnic, nic));
    say!("{} frames poured during {rounds} rounds of ends", poured.into_inner());
    super::reports::exchange_frames([a, b], 60);
    net.end(host);
}

/// How a NIC stops and goes on. Whatever comes first, frames pass when both have gone on, and not before.
const NIC_ENDS: [fn(&Nic); 4] = [
    |nic| {
        nic.pause();
        rest();
        nic.restart();
    },
    |nic| {
        nic.set_power(false);
        rest();
        nic.set_power(true);
    },
    |nic| {
        nic.pause();
        nic.set_power(false);
        rest();
        nic.set_power(true);
        // Awake and paused.
        rest();
        nic.restart();
    },
    |nic| {
        nic.pause();
        nic.set_power(false);
        nic.restart();
        // Asleep and restarted.
        rest();
        nic.set_power(true);
    },
];

/// Long enough for some frames.
fn rest() {
    std::thread::sleep(Duration::from_millis(3));
}
