//! The processors that serve poll cores: which of them an adapter gets, and which of its cores is near a consumer.

use rocev2::ids::MAX_CORES;

/// Poll cores by the place of their processor, of all adapters.
pub(crate) struct Seats([u16; MAX_CORES]);

impl Seats {
    /// Nobody sits.
    pub(crate) const fn new() -> Self {
        Self([0; MAX_CORES])
    }

    /// Takes so many of the first `processors` places for the cores of an adapter, each once: those that serve the fewest cores of
    /// others. Fewer, where there are not so many. Returns them as bits.
    pub(crate) fn take(&mut self, cores: usize, processors: usize) -> u64 {
        let mut taken = 0;
        for _ in 0..cores {
            let free = (0..processors.min(MAX_CORES)).filter(|place| taken >> place & 1 == 0);
            let Some(place) = free.min_by_key(|place| self.0[*place]) else { break };
            self.0[place] += 1;
            taken |= 1 << place;
        }
        taken
    }

    /// Gives a place back.
    pub(crate) fn leave(&mut self, place: usize) {
        self.0[place] -= 1;
    }
}

const _: () = assert!(MAX_CORES <= u64::BITS as usize, "a bit for each place");

/// The core that is nearest to the processors of `group` in `mask`, of cores on these processors: one that is among them, else that
/// with the nearest number. `None` where any is as good as another: all are among them, or there is no mask.
pub(crate) fn nearest(cores: &[(u16, u8)], group: u16, mask: u64) -> Option<usize> {
    let is_in = |&(own, number): &(u16, u8)| own == group && mask >> number & 1 != 0;
    if mask == 0 || cores.iter().all(is_in) {
        return None;
    }
    let wanted = linear(group, mask.trailing_zeros() as u8);
    let distance =
        |core: &(u16, u8)| if is_in(core) { 0 } else { linear(core.0, core.1).abs_diff(wanted) };
    let cores = cores.iter().enumerate();
    cores.min_by_key(|(_, core)| distance(core)).map(|(place, _)| place)
}

fn linear(group: u16, number: u8) -> u32 {
    u32::from(group) * u64::BITS + u32::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_has_a_processor_of_its_own() {
        let mut seats = Seats::new();
        assert_eq!(seats.take(3, 4), 0b0111);
        // Another adapter has what is free first.
        assert_eq!(seats.take(2, 4), 0b1001);
        assert_eq!(seats.take(4, 4), 0b1111);
        for place in [1, 1, 2, 2] {
            seats.leave(place);
        }
        assert_eq!(seats.take(2, 4), 0b0110);
    }

    #[test]
    fn no_adapter_has_more_cores_than_there_are_processors() {
        assert_eq!(Seats::new().take(3, 2), 0b11);
        assert_eq!(Seats::new().take(200, 200), u64::MAX);
    }

    #[test]
    fn the_nearest_core_is_among_the_processors_or_beside_them() {
        let cores = [(0, 1), (0, 2), (0, 9), (1, 3)];
        assert_eq!(nearest(&cores, 0, 1 << 2), Some(1));
        assert_eq!(nearest(&cores, 0, 0b1111_1000), Some(1), "of the first processor in the mask");
        assert_eq!(
            nearest(&cores, 0, 0b10_0000_1000),
            Some(2),
            "in the mask, though another is near"
        );
        assert_eq!(nearest(&cores, 0, 1 << 7), Some(2));
        assert_eq!(nearest(&cores, 1, 1 << 3), Some(3));
        assert_eq!(nearest(&cores, 1, 1 << 63), Some(3));
        assert_eq!(nearest(&cores, 1, 1 << 2), Some(3), "the same number in another group is far");
    }

    #[test]
    fn any_core_will_do_where_all_are_near() {
        let cores = [(0, 1), (0, 2)];
        assert_eq!(nearest(&cores, 0, u64::MAX), None);
        assert_eq!(nearest(&cores, 0, 0), None);
    }
}
