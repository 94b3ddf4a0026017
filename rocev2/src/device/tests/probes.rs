//! The wait for a probe, between two devices whose handshake was long ago, so that it tells nothing of a round trip.

use super::*;

/// Two devices, and the queue pair that sends.
struct Aged {
    world: World,
    client: Qpn,
}

impl Aged {
    fn new() -> Self {
        let (mut world, [client, _], _) = World::connected(false);
        world.now = world.now + Duration::from_secs(1);
        Self { world, client }
    }

    /// Sends a message, whose ACK then waits on the wire.
    fn send(&mut self) {
        self.world.done = Default::default();
        self.world.post(self.client, 1, self.world.write(), 8);
        self.world.transmit(0);
        self.world.deliver(1);
        self.world.transmit(1);
        assert_eq!(self.world.wires[0].len(), 1, "the ACK");
    }

    /// The time that a message takes whose ACK is lost.
    fn without_ack(&mut self) -> Duration {
        let start = self.world.now;
        self.send();
        self.world.wires[0].clear();
        while self.world.done[0].is_empty() {
            let timeouts = self.world.devices.iter_mut().filter_map(Device::poll_timeout);
            self.world.now = timeouts.min().unwrap();
            self.world.devices.iter_mut().for_each(|device| device.handle_timeout(self.world.now));
            self.world.run();
        }
        self.world.now.saturating_since(start)
    }
}

const UNMEASURED: Duration = Duration::from_millis(100);

/// An ACK that comes the short way answers no probe, whatever came before it.
#[test]
fn the_ack_behind_the_answer_to_a_probe_is_measured() {
    let mut aged = Aged::new();
    assert_eq!(aged.without_ack(), UNMEASURED);
    aged.send();
    aged.world.now = aged.world.now + Duration::from_micros(200);
    aged.world.run();
    assert_eq!(aged.world.done[0].len(), 1);
    assert_eq!(aged.without_ack(), Duration::from_micros(600), "three round trips");
}
