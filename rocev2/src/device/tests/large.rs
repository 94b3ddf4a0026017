//! Goal: no message stalls, however many packets are lost by chance. Method: two devices over a link with a rate, a delay and seeded
//! losses, joined so long ago that the handshake tells nothing of a round trip, one message at a time. A message that takes as long
//! as the timer of an unknown path has waited for that.

use super::loss::{Faults, NONE, Run};
use super::*;

const LEN: usize = 1 << 20;
const LARGE: u64 = 0x9000_0000;
/// The timer before anything is known.
const UNKNOWN: Duration = Duration::from_millis(100);

/// 8 Gb/s, and all that the window lets leave at once.
const LINKS: [u64; 2] = [1_000, 10];

struct Large {
    run: Run,
    client: Qpn,
    keys: [Rkey; 2],
}

impl Large {
    fn new(faults: Faults, seed: u8) -> Self {
        let (mut world, [client, _], _) = World::connected(false);
        world.now = world.now + Duration::from_secs(1);
        let keys = [0, 1].map(|node| {
            world.memory[node].0.push(vec![node as u8; LEN]);
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
            let (region, len) = (RegionId(1), LEN as u64);
            let registration = Registration { pd: PD, region, base: LARGE, len, access };
            world.devices[node].register(registration).unwrap()
        });
        Self { run: Run::of(world, faults, seed), client, keys }
    }

    /// The time that a READ or WRITE takes.
    fn take(&mut self, read: bool, len: usize) -> Duration {
        let [lkey, rkey] = self.keys;
        let sge = Sge { addr: LARGE, len: len as u32, lkey: Lkey::new(lkey.get()) };
        let va = LARGE;
        let op = if read { SendOp::Read { va, rkey } } else { SendOp::Write { va, rkey } };
        let sgl = SgList::from_slice(&[sge]).unwrap();
        let wr = SendWr { id: 1, op, sgl, solicited: false, read_fence: false, silent: false };
        let world = &mut self.run.world;
        let start = world.now;
        world.done = Default::default();
        world.devices[0].post_send(self.client, wr).unwrap();
        while self.run.world.done[0].is_empty() {
            self.run.step();
        }
        assert_eq!(self.run.world.statuses(0), [(1, WcStatus::Success)]);
        self.run.world.now.saturating_since(start)
    }
}

/// The times of the first `messages` of some connections, in order of length.
fn times(faults: Faults, read: bool, len: usize, (seeds, messages): (u8, usize)) -> Vec<Duration> {
    let mut times = Vec::new();
    for seed in 0..seeds {
        let mut large = Large::new(faults, seed);
        times.extend((0..messages).map(|_| large.take(read, len)));
    }
    times.sort();
    let [median, longest] = [times[times.len() / 2], times[times.len() - 1]];
    std::println!("{len} bytes, read: {read}, {faults:?}: median {median:?}, longest {longest:?}");
    times
}

/// Each loses some packet before its last one, and what comes behind that tells how long a round trip takes at most.
#[test]
fn no_message_of_a_megabyte_stalls() {
    for packet_ns in LINKS {
        for (loss, median) in [(10, 2), (100, 15)] {
            for read in [false, true] {
                let times = times(Faults { loss, packet_ns, ..NONE }, read, LEN, (8, 2));
                assert!(times[times.len() / 2] <= Duration::from_millis(median));
                assert!(times[times.len() - 1] < UNKNOWN);
            }
        }
    }
}

/// The first may lose its last packet alone, of which nothing tells.
#[test]
fn few_short_messages_wait_for_an_unknown_path() {
    for len in [60_000, 8] {
        for read in [false, true] {
            let times = times(Faults { loss: 100, ..NONE }, read, len, (100, 8));
            let waited = times.iter().filter(|time| **time >= UNKNOWN).count();
            std::println!("{waited} of {}", times.len());
            assert!(waited <= 20 && times[times.len() - 1] <= 8 * UNKNOWN);
        }
    }
}
