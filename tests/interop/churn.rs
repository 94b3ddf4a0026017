//! A thousand connections in either role, one after the other, with librdmacm's library in the guest (`lab/churn.c`).

use std::net::SocketAddr;

use ndk_consumer::{EndpointConfig, EndpointError, Host, HostBuilder, ReadLimits};
use tests::lab::{Job, Lab, Side, judge};

use crate::{FAMILIES, LISTENING};

const PORT: u16 = 7174;
/// Connections over each address family.
const COUNT: u64 = 500;

/// Goal: connections, made and ended one after the other, leave nothing behind: neither in the guest, whose client
/// connects to our listener, nor with us.
#[test]
fn churn_to_us_leaves_nothing() {
    churn("churn_to_us", |lab, host, _, ours| {
        let listener = host.listen(PORT).unwrap();
        let client = lab.guest.start(&format!("/lab/churn connect {ours} {COUNT}"));
        for at in 0..COUNT {
            let mut endpoint = host.accept(&listener, &config()).unwrap_or_else(|error| {
                panic!("connection {at}: {error}; the guest says\n{}", client.output())
            });
            assert_eq!(endpoint.receive(), Err(EndpointError::Disconnected), "connection {at}");
        }
        client
    });
}

/// Goal: the same, where we connect to the guest's listener.
#[test]
fn churn_of_ours_leaves_nothing() {
    churn("churn_of_ours", |lab, host, theirs, _| {
        let server = lab.guest.start(&format!("/lab/churn serve {theirs} {COUNT}"));
        lab.guest.run(LISTENING);
        let remote = SocketAddr::new(theirs.parse().unwrap(), PORT);
        for at in 0..COUNT {
            let made = host.connect(remote, &config()).and_then(|made| made.disconnect());
            made.unwrap_or_else(|error| {
                panic!("connection {at}: {error}; the guest says\n{}", server.output())
            });
        }
        server
    });
}

/// Lets both ends work, and looks at what they hold then.
fn churn(name: &str, work: impl Fn(&mut Lab, &Host, &str, &str) -> Job) {
    let Some(mut lab) = Lab::start(name) else { return };
    if !lab.compile("churn") {
        return;
    }
    for (family, theirs, ours) in FAMILIES {
        let capture = lab.path(&format!("{family}.pcap"));
        let (here, there) = lab.sockets.of(Side::Ours);
        let edge =
            format!("qemu-dgram:{}:{},mac=02:00:00:00:00:02", here.display(), there.display());
        let builder = HostBuilder::new([ours.parse().unwrap()]).capture(&capture);
        let host = builder.open(&edge).unwrap();
        let before = (resources(&mut lab), host.provider().open_objects());
        let (status, log) = work(&mut lab, &host, theirs, ours).wait();
        assert_eq!(status, 0, "{family}: the guest says\n{log}");
        assert_eq!((resources(&mut lab), host.provider().open_objects()), before, "{family}");
        let counters = host.provider().counters();
        assert_eq!(counters.connects + counters.accepts, COUNT, "{family}");
        assert_eq!((counters.active, counters.failures, counters.errors), (0, 0, 0), "{family}");
        drop(host);
        let kinds = judge(&capture, &["icrc", "tshark"]);
        for kind in ["CM_REQ", "CM_REP", "CM_RTU", "CM_DREQ", "CM_DREP"] {
            let seen = kinds.get(kind).map_or(0, |&seen| seen as u64);
            assert!(seen >= COUNT, "{family}: {seen} {kind} in {kinds:?}");
        }
        assert_eq!(kinds.get("CM_REJ"), None, "{family}: {kinds:?}");
    }
    lab.finish();
}

/// The guest's objects.
fn resources(lab: &mut Lab) -> String {
    let (status, said) = lab.guest.start("rdma resource show").wait();
    assert_eq!(status, 0, "{said}");
    said
}

fn config() -> EndpointConfig {
    EndpointConfig {
        receives: 1,
        receive_len: 64,
        sends: 1,
        send_len: 64,
        requests: 1,
        limits: ReadLimits { inbound: 1, outbound: 1 },
        ..EndpointConfig::default()
    }
}
