//! A peer outside of this process.

use std::net::SocketAddr;
use std::sync::Arc;

use ndk_consumer::Adapter;

use super::net::{PATIENCE, PORT};
use super::*;
use crate::ndis::vnic::Opener;
use crate::rping;

/// `rping -c` to a peer on the other side of a UDP port: PORT PEER COUNT SIZE.
pub(super) fn rping_connect(host: &dyn Host, arguments: &[String]) {
    let peer: IpAddr = arguments[1].parse().expect("an address");
    let end = End::start(host, &arguments[0]);
    let local = if peer.is_ipv4() { address(1) } else { address6(1) };
    let (from, to) = (SocketAddr::new(local, 0), SocketAddr::new(peer, PORT));
    let options = rping_options(&arguments[2..]);
    let pinged = rping::connect(&end.adapter, from, to, options);
    let pinged = pinged.unwrap_or_else(|failure| panic!("rping -c: {failure}"));
    let end_is = if pinged.confirmed { "confirmed" } else { "not confirmed" };
    say!("{} pings verified, as their client; the end is {end_is}", pinged.pings);
    end.stop(host);
}

/// `rping -s` for a peer on the other side of a UDP port: PORT ADDRESS COUNT SIZE.
pub(super) fn rping_serve(host: &dyn Host, arguments: &[String]) {
    let end = End::start(host, &arguments[0]);
    let local: IpAddr = arguments[1].parse().expect("an address");
    let options = rping_options(&arguments[2..]);
    let listener = end.adapter.listen(SocketAddr::new(local, PORT)).expect("a listener");
    say!("listening");
    let connector = listener.next(PATIENCE).expect("a connect event");
    let served = rping::serve(&end.adapter, connector, options);
    let served = served.unwrap_or_else(|failure| panic!("rping -s: {failure}"));
    say!("{} pings verified, as their server", served.pings);
    drop(listener);
    end.stop(host);
}

fn rping_options(arguments: &[String]) -> rping::Options {
    rping::Options {
        count: Some(arguments[0].parse().expect("a count")),
        size: arguments[1].parse().expect("a size"),
        verbose: false,
        validate: true,
        patience: PATIENCE,
        stop: crate::completions::never,
    }
}

/// One adapter whose wire leads out of this process.
struct End {
    vnic: &'static Vnic,
    adapter: Arc<Adapter>,
}

impl End {
    fn start(host: &dyn Host, port: &str) -> Self {
        switch::bridge(port.parse().expect("a port"));
        host.load().expect("DriverEntry succeeds");
        let nic = Nic::plug_in(1500);
        let vnic = add(1, nic);
        expect_link(vnic, true);
        let adapter = Adapter::open(Arc::new(Opener(vnic))).expect("an NDK adapter");
        Self { vnic, adapter }
    }

    fn stop(self, host: &dyn Host) {
        drop(self.adapter);
        self.vnic.remove();
        finish(host);
    }
}
