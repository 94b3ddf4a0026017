//! Queue pairs of two adapters in this process, connected with each other: of the benches, and of `cores`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ndk_consumer::{Adapter, Connector, Qp, ReadLimits};

/// The port of the benches.
pub const PORT: u16 = 7174;
const PATIENCE: Duration = Duration::from_mins(1);
const LIMITS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };

/// The address of the client, 0, or of the server, 1.
#[must_use]
pub const fn address(side: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + side as u8))
}

/// Connects each queue pair of the client with the server's at its place, through a port of the server. Both lists are of the
/// client and of the server.
///
/// # Panics
/// The connections cannot be made.
#[must_use]
pub fn connect(
    [client, server]: [&Arc<Adapter>; 2],
    [near, far]: [&[Arc<Qp>]; 2],
    port: u16,
) -> Vec<[Connector; 2]> {
    let [from, to] = [SocketAddr::new(address(0), 0), SocketAddr::new(address(1), port)];
    let listener = server.listen(to).expect("the port is free");
    let connect_one = |(near, far)| {
        let active = client.create_connector().expect("a connector");
        let connecting = active.connect(near, from, to, LIMITS, &[]);
        let passive = listener.next(PATIENCE).expect("a connect event");
        let accepting = passive.accept(far, LIMITS, &[]);
        connecting.wait().expect("the offer comes");
        active.complete_connect().wait().expect("the connection is made");
        accepting.wait().expect("the connection is made");
        [active, passive]
    };
    near.iter().zip(far).map(connect_one).collect()
}
