//! The processors that serve poll cores: which of them an adapter gets, and which of its cores is near a consumer.

use rocev2::ids::MAX_CORES;

/// Poll cores by the place of their processor, of all adapters.
pub(crate) struct Seats([u16; MAX_CORES]);

impl Seats {
    /// Nobody sits.
    pub(crate) const fn new() -> Self {
        Self([0; MAX_CORES])
    }

    /// Takes so many of `places` for the cores of an adapter, each once: those that serve the fewest cores of others, and of these the
    /// first. Fewer, where there are not so many. Returns them as bits.
    pub(crate) fn take(&mut self, cores: usize, places: &[u8]) -> u64 {
        let mut taken = 0;
        for _ in 0..cores {
            let free = places.iter().filter(|place| taken >> **place & 1 == 0);
            let Some(place) = free.min_by_key(|place| self.0[usize::from(**place)]) else { break };
            self.0[usize::from(*place)] += 1;
            taken |= 1 << place;
        }
        taken
    }

    /// Gives places back.
    pub(crate) fn leave(&mut self, places: u64) {
        for (place, cores) in self.0.iter_mut().enumerate() {
            *cores -= (places >> place & 1) as u16;
        }
    }
}

/// Places that have a poll core, at most.
pub(crate) type Places = heapless::Vec<u8, MAX_CORES>;

/// The places for so many cores, the nearest first, of places at these distances: those that have one, unless they are too few.
/// Places at the same distance keep their order.
pub(crate) fn nearest_first(cores: usize, distances: &[Option<u16>]) -> Places {
    let distance = |place: &u8| distances[usize::from(*place)];
    let farness = |place: &u8| (distance(place).is_none(), distance(place));
    let mut places = Places::new();
    for place in 0..distances.len().min(MAX_CORES) as u8 {
        let behind = places.iter().position(|other| farness(other) > farness(&place));
        places.insert(behind.unwrap_or(places.len()), place).expect("a room for each");
    }
    let near = places.iter().filter(|place| distance(place).is_some()).count();
    if near >= cores {
        places.truncate(near);
    }
    places
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
    use alloc::vec::Vec;

    #[test]
    fn each_core_has_a_processor_of_its_own() {
        let (mut seats, all) = (Seats::new(), [0, 1, 2, 3]);
        assert_eq!(seats.take(3, &all), 0b0111);
        // Another adapter has what is free first.
        assert_eq!(seats.take(2, &all), 0b1001);
        assert_eq!(seats.take(4, &all), 0b1111);
        seats.leave(0b0110);
        seats.leave(0b0110);
        assert_eq!(seats.take(2, &all), 0b0110);
    }

    #[test]
    fn no_adapter_has_more_cores_than_there_are_processors() {
        assert_eq!(Seats::new().take(3, &[0, 1]), 0b11);
        let all: Vec<u8> = (0..64).collect();
        assert_eq!(Seats::new().take(200, &all), u64::MAX);
    }

    #[test]
    fn the_first_of_the_places_are_taken_first() {
        let mut seats = Seats::new();
        assert_eq!(seats.take(1, &[2, 0, 1]), 0b100);
        assert_eq!(seats.take(1, &[2, 0, 1]), 0b001);
    }

    #[test]
    fn near_places_come_first_and_far_ones_where_they_are_needed() {
        let distances = [None, Some(4), None, Some(0), Some(4)];
        assert_eq!(nearest_first(2, &distances), [3, 1, 4]);
        assert_eq!(nearest_first(4, &distances), [3, 1, 4, 0, 2]);
        assert_eq!(nearest_first(1, &[None; 100]).len(), MAX_CORES);
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
