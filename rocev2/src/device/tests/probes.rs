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
            self.wait();
            self.world.run();
        }
        self.world.now.saturating_since(start)
    }

    /// Waits until a device acts.
    fn wait(&mut self) {
        let timeouts = self.world.devices.iter_mut().filter_map(Device::poll_timeout);
        self.world.now = timeouts.min().unwrap();
        self.world.devices.iter_mut().for_each(|device| device.handle_timeout(self.world.now));
    }

    fn later(&mut self, us: u64) {
        self.world.now = self.world.now + Duration::from_micros(us);
    }

    /// Sends a message of 20 packets, of which the sixth is lost. Returns the last ten, which are late.
    fn send_with_a_gap(&mut self) -> VecDeque<Vec<u8>> {
        self.world.post(self.client, 1, self.world.write(), 20 * 1024);
        self.world.transmit(0);
        let late = self.world.wires[1].split_off(10);
        self.world.wires[1].remove(5);
        late
    }

    /// Node 1 reports what is missing, after 100 us, and the report comes after 50 more.
    fn report(&mut self) {
        self.world.deliver(1);
        self.wait();
        self.world.transmit(1);
        assert_eq!(self.world.wires[0].len(), 1, "a report");
        self.later(50);
        self.world.deliver(0);
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

/// A probe is sent once, so its answer is a round trip (Karn's rule).
#[test]
fn the_answer_to_a_probe_times_the_next() {
    let mut aged = Aged::new();
    assert_eq!(aged.without_ack(), UNMEASURED);
    assert_eq!(aged.without_ack(), Duration::from_micros(300), "the shortest");
}

/// A round trip takes no longer than until a report names what has come behind the packet that is measured, or comes with it.
#[test]
fn a_report_of_what_is_missing_times_the_next_probe() {
    let mut aged = Aged::new();
    let late = aged.send_with_a_gap();
    aged.world.wires[1].extend(late);
    aged.report();
    aged.later(200);
    aged.world.run();
    assert_eq!(aged.world.done[0].len(), 1);
    assert_eq!(aged.without_ack(), Duration::from_micros(3 * 150));
}

/// The same of the ACK that waited for what was lost, though the report said nothing of the packet that is measured.
#[test]
fn the_ack_behind_a_resend_times_the_next_probe() {
    let mut aged = Aged::new();
    let late = aged.send_with_a_gap();
    aged.report();
    aged.later(100);
    aged.world.wires[1].extend(late);
    aged.world.run();
    assert_eq!(aged.world.done[0].len(), 1);
    assert_eq!(aged.without_ack(), Duration::from_micros(3 * 250));
}

/// The same of a READ response behind one that is missing.
#[test]
fn a_response_behind_a_gap_times_the_next_probe() {
    let mut aged = Aged::new();
    let op = SendOp::Read { va: BASE, rkey: aged.world.keys[1] };
    aged.world.post(aged.client, 1, op, 20 * 1024);
    aged.world.transmit(0);
    aged.world.deliver(1);
    aged.world.transmit(1);
    aged.world.wires[0].remove(0);
    aged.later(200);
    aged.world.deliver(0);
    aged.later(1000);
    aged.world.devices[0].handle_timeout(aged.world.now);
    aged.world.run();
    assert_eq!(aged.world.done[0].len(), 1);
    assert_eq!(aged.without_ack(), Duration::from_micros(3 * 200));
}

/// An unsolicited ACK comes long after what it acknowledges, and is none of its round trips: here the answer to the probe is lost,
/// too.
#[test]
fn an_unsolicited_ack_is_not_measured() {
    let mut aged = Aged::new();
    aged.send();
    aged.world.wires[0].clear();
    aged.wait();
    aged.world.transmit(0);
    aged.world.deliver(1);
    aged.world.transmit(1);
    assert_eq!(aged.world.wires[0].len(), 1, "the answer to a probe");
    aged.world.wires[0].clear();
    aged.wait();
    aged.world.run();
    assert_eq!(aged.world.done[0].len(), 1);
    assert_eq!(aged.without_ack(), Duration::from_millis(3 * 25), "of the probe, 25 ms ago");
}
