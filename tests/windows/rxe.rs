//! Linux's rxe as a peer of the image.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};
use std::thread;

use tests::lab::{Lab, Process, Side, judge as judge_capture, skip};

use super::{CANNOT, in_wine};

/// As rping takes them; the same numbers go to the scenarios.
const COUNT: &str = "100";
const SIZE: &str = "65535";

/// Goal: Linux's rxe and `rping`, in both roles, over both families, against the image under Wine; every packet is sound.
/// Method: the rig's switch leads to a UDP port, and from there to the NIC of the lab's guest.
#[test]
fn rxe_is_a_peer_of_the_image() {
    let Some(mut lab) = Lab::start("rxe_is_a_peer_of_the_image") else { return };
    let port = relay(&lab).to_string();
    for (family, theirs, ours) in FAMILIES {
        if !pings_over(&mut lab, &port, family, theirs, ours) {
            return;
        }
    }
    lab.guest.end();
    judge_capture(&lab.nic_capture(), &["icrc", "tshark"]);
}

/// The guest's address, and the image's.
const FAMILIES: [(&str, &str, &str); 2] =
    [("ipv4", "10.0.0.1", "10.0.0.2"), ("ipv6", "fd00::1", "fd00::2")];

/// `rping` in both roles; false where this machine cannot, which is said.
fn pings_over(lab: &mut Lab, port: &str, family: &str, theirs: &str, ours: &str) -> bool {
    let pings = format!("-p 7174 -V -C {COUNT} -S {SIZE}");
    let server = lab.guest.start(&format!("rping -s -a {theirs} {pings}"));
    lab.guest.run("until rdma resource show cm_id | grep -q LISTEN; do usleep 50000; done");
    let mut command = in_wine();
    command.args(["rping-connect", port, theirs, COUNT, SIZE]);
    let log = lab.path(&format!("connect-{family}.log"));
    let (status, report) = Process::spawn(command, log).wait();
    if status == CANNOT {
        skip(&format!("rxe and the Windows driver in Wine: {}", report.trim()));
        return false;
    }
    assert_eq!(status, 0, "{family}: {report}");
    let (status, log) = server.wait();
    assert_eq!(status, 0, "{family}: rping -s says\n{log}\nand the image\n{report}");

    let mut command = in_wine();
    command.args(["rping-serve", port, ours, COUNT, SIZE]);
    let mut image = Process::spawn(command, lab.path(&format!("serve-{family}.log")));
    image.wait_for("listening");
    let (status, log) = lab.guest.start(&format!("rping -c -a {ours} {pings}")).wait();
    assert_eq!(status, 0, "{family}: rping -c says\n{log}\nand the image\n{}", image.output());
    let (status, report) = image.wait();
    assert_eq!(status, 0, "{family}: {report}");
    true
}

/// Carries frames between the guest's NIC and a UDP port, which it returns.
fn relay(lab: &Lab) -> u16 {
    let (here, there) = lab.sockets.of(Side::Ours);
    let guest = UnixDatagram::bind(here).expect("nobody else is our side");
    guest.connect(there).expect("the guest is up");
    let rig = UdpSocket::bind("127.0.0.1:0").expect("a UDP socket");
    let port = rig.local_addr().expect("it is bound").port();
    let peer = Arc::new(Mutex::new(None));
    let known = Arc::clone(&peer);
    let (to_guest, from_rig) = (guest.try_clone().unwrap(), rig.try_clone().unwrap());
    thread::spawn(move || {
        let mut frame = [0; 1 << 16];
        while let Ok((len, from)) = from_rig.recv_from(&mut frame) {
            *known.lock().unwrap() = Some(from);
            if len > 0 && to_guest.send(&frame[..len]).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let mut frame = [0; 1 << 16];
        while let Ok(len) = guest.recv(&mut frame) {
            if let Some(peer) = *peer.lock().unwrap() {
                // A rig that has ended hears nothing.
                let _ = rig.send_to(&frame[..len], peer);
            }
        }
    });
    port
}
