//! Frames that lie about who has an address, and neighbours that moved.

use super::*;

/// RFC 5227, 2.4: frames of another host with our address are counted; our own that come back, and probes, are not.
#[test]
fn a_host_with_our_address_is_counted() {
    for (own, other) in PAIRS {
        let mut host = host(0);
        for (mac, count) in [(MACS[0], 0), (STRANGER, 2)] {
            let mut frame = [0; FRAME_MAX_LEN];
            let asked = message::query(&mut frame, mac, ip(own), ip(other), None);
            host.handle_frame(0, &frame[..asked]);
            host.handle_frame(0, &answered(own, own, mac, None));
            let probe = message::address_probe(&mut frame, mac, ip(own));
            host.handle_frame(0, &frame[..probe]);
            assert_eq!(host.conflicts(), count, "{own}");
        }
    }
}

/// Where the address of a neighbour has become ours, a host that asks with it is not asked.
#[test]
fn a_host_with_our_address_is_no_neighbour() {
    for (own, other) in PAIRS {
        let mut host = acquainted();
        host.set_addresses(&[ip(own), ip(other)]);
        let asked = forgeries(own, other).remove(1);
        assert!(host.handle_frame(2 * SECOND, &asked));
        assert!(!frames(&mut host).iter().any(|frame| is_question(frame)), "{other}");
    }
}

/// A port may receive what is for other hosts.
#[test]
fn a_frame_for_another_host_is_not_ours() {
    for (own, other) in PAIRS {
        let mut host = host(0);
        host.resolve(0, ip(own), ip(other));
        let mut answer = answered(other, own, MACS[1], None);
        answer[..6].copy_from_slice(&STRANGER);
        assert!(!host.handle_frame(0, &answer));
        assert_eq!(host.poll_event(), None, "{other}");
    }
}

/// One forged frame, of whatever kind, moves nothing: the neighbour is asked where it was, and says
/// that it is there (RFC 4861, 7.3.3).
#[test]
fn a_forged_announcement_moves_nothing() {
    for (own, other) in PAIRS {
        for forgery in forgeries(own, other) {
            let mut host = acquainted();
            // Not again at once, as it just answered, but a second after that.
            assert!(host.handle_frame(SECOND / 2, &forgery));
            assert!(!frames(&mut host).iter().any(|frame| is_question(frame)));
            let due = host.poll_timeout().expect("it is asked");
            assert!(due <= 2 * SECOND && due > SECOND / 2, "{due}");
            host.handle_timeout(due);
            assert!(host.handle_frame(2 * SECOND, &forgery));
            let asked = frames(&mut host);
            assert_eq!(asked.iter().filter(|frame| is_question(frame)).count(), 1);
            assert!(asked.iter().any(|frame| is_question(frame) && frame.starts_with(&MACS[1])));
            // He insists, and the neighbour answers.
            host.handle_frame(2 * SECOND, &forgery);
            assert!(host.handle_frame(2 * SECOND, &answered(other, own, STRANGER, None)));
            assert_eq!(
                (host.poll_event(), host.lookup(2 * SECOND, ip(other))),
                (None, Some(at(1)))
            );
            assert!(host.handle_frame(2 * SECOND, &answered(other, own, MACS[1], None)));
            let still = Resolution { ip: ip(other), result: Ok(at(1)) };
            assert_eq!((host.poll_event(), host.poll_timeout()), (Some(still), None));
        }
    }
}

/// A flood of forgeries costs one frame in a second, and three where the neighbour is silent.
#[test]
fn a_flood_of_announcements_asks_little() {
    let (own, other) = PAIRS[0];
    let mut host = acquainted();
    let gratuitous = forgeries(own, other).pop().unwrap();
    let mut asked = 0;
    for ms in 0..10_000 {
        let now_ns = ms * 1_000_000;
        host.handle_timeout(now_ns);
        host.handle_frame(now_ns, &gratuitous);
        for frame in frames(&mut host) {
            asked += u32::from(is_question(&frame));
            host.handle_frame(now_ns, &answered(other, own, MACS[1], None));
        }
    }
    assert_eq!((asked, host.lookup(0, ip(other))), (9, Some(at(1))));
}

/// A neighbour that is doubted and silent is asked three times where it was, then everywhere; the
/// answer is believed, and is there well before a connection would be given up.
#[test]
fn a_neighbour_that_moved_is_found() {
    for (own, other) in PAIRS {
        for vlan in [None, Some(7)] {
            let mut host = acquainted();
            let source = Link { mac: STRANGER, vlan };
            host.doubt(5 * SECOND, ip(own), ip(other), vlan.is_some().then_some(source));
            let (mut now_ns, mut unicast) = (5 * SECOND, 0);
            let asked = loop {
                let asked = frames(&mut host);
                let [frame] = &asked[..] else { panic!("{asked:?}") };
                if !frame.starts_with(&MACS[1]) && message::vlan(frame) == vlan {
                    break asked;
                }
                unicast += u32::from(frame.starts_with(&MACS[1]));
                now_ns = host.poll_timeout().unwrap();
                host.handle_timeout(now_ns);
            };
            assert_eq!(unicast, 3);
            assert!(now_ns <= 6 * SECOND, "{now_ns}");
            assert!(is_question(&asked[0]) && asked[0][0] & 1 == 1, "to everybody");
            assert!(host.handle_frame(now_ns, &answered(other, own, STRANGER, vlan)));
            let moved = Resolution { ip: ip(other), result: Ok(source) };
            assert_eq!((host.poll_event(), host.poll_timeout()), (Some(moved), None));
            assert_eq!(host.lookup(now_ns, ip(other)), Some(source));
        }
    }
}

/// An answer that the network held back says where the neighbour was before it was doubted: it ends no
/// question that has not been asked.
#[test]
fn an_answer_before_the_question_ends_nothing() {
    for (own, other) in PAIRS {
        let mut host = acquainted();
        host.doubt(SECOND / 4, ip(own), ip(other), Some(Link { mac: STRANGER, vlan: None }));
        assert!(frames(&mut host).is_empty(), "it has just answered");
        assert!(host.handle_frame(SECOND / 2, &answered(other, own, MACS[1], None)));
        let due = host.poll_timeout().expect("it is asked all the same");
        host.handle_timeout(due);
        let asked = frames(&mut host);
        assert!(asked.len() == 1 && asked[0].starts_with(&MACS[1]), "{asked:?}");
        assert!(host.handle_frame(due, &answered(other, own, MACS[1], None)));
        let still = Resolution { ip: ip(other), result: Ok(at(1)) };
        assert_eq!((host.poll_event(), host.poll_timeout()), (Some(still), None));
    }
}

/// Nobody answers in the place of a neighbour whose packet has just come: it is asked where that came from.
#[test]
fn a_neighbour_that_was_heard_is_asked_there_first() {
    is_asked_there(
        |host, own, other| {
            host.confirm(0, own, other, at(1));
            0
        },
        |_, _, _, _| (),
    );
}

/// The same where all hosts are being asked when the packet comes. Packets from elsewhere do not prolong the question.
#[test]
fn a_neighbour_that_is_heard_before_it_answers_is_asked_there() {
    is_asked_there(
        |host, own, other| {
            host.resolve(0, own, other);
            assert!(frames(host)[0][0] & 1 == 1, "to all hosts");
            host.confirm(1, own, other, at(1));
            1
        },
        |host, now_ns, own, other| {
            host.confirm(now_ns, own, other, Link { mac: STRANGER, vlan: None });
        },
    );
}

/// That the neighbour is asked where `hear`, which returns the time, has heard it, and is found within a second, there or
/// not, whatever strangers answer; `again` comes after each timer.
fn is_asked_there(
    hear: fn(&mut Neighbours, IpAddr, IpAddr) -> u64,
    again: fn(&mut Neighbours, u64, IpAddr, IpAddr),
) {
    for (own, other) in PAIRS {
        for there in [true, false] {
            let mut host = host(0);
            let mut now_ns = hear(&mut host, ip(own), ip(other));
            let asked = frames(&mut host);
            assert!(asked.len() == 1 && asked[0].starts_with(&MACS[1]), "{asked:?}");
            for forgery in forgeries(own, other) {
                host.handle_frame(now_ns, &forgery);
            }
            assert_eq!(host.poll_event(), None);
            frames(&mut host);
            while !there && !frames(&mut host).iter().any(|frame| frame[0] & 1 == 1) {
                now_ns = host.poll_timeout().unwrap();
                host.handle_timeout(now_ns);
                again(&mut host, now_ns, ip(own), ip(other));
            }
            assert!(host.handle_frame(now_ns, &answered(other, own, MACS[1], None)));
            let found = Resolution { ip: ip(other), result: Ok(at(1)) };
            assert_eq!((host.poll_event(), host.poll_timeout()), (Some(found), None));
            assert!(now_ns <= SECOND, "{now_ns}");
        }
    }
}

/// A stale address is used and confirmed as well; a fresh one is not queried again.
#[test]
fn what_is_stale_is_confirmed_when_it_is_used() {
    for (own, other) in PAIRS {
        let mut host = acquainted();
        for (now_ns, asks) in [(29 * SECOND, 0), (31 * SECOND, 1), (40 * SECOND, 0)] {
            host.resolve(now_ns, ip(own), ip(other));
            assert_eq!(host.poll_event().unwrap().result, Ok(at(1)));
            let asked = frames(&mut host);
            assert_eq!(asked.len(), asks);
            assert!(asked.iter().all(|frame| frame.starts_with(&MACS[1])));
            host.handle_frame(now_ns, &answered(other, own, MACS[1], None));
            while host.poll_event().is_some() {}
        }
    }
}
