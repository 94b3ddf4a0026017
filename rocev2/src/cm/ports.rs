//! Local endpoints: an address and port is free when its last user has released it.

use super::CmError;
use crate::env::Rng;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// First port of the ephemeral range, which ends with the last port of all.
pub(super) const EPHEMERAL_FIRST: u16 = 49152;

/// The number of ephemeral ports.
const EPHEMERAL_COUNT: u32 = (u16::MAX - EPHEMERAL_FIRST) as u32 + 1;

/// The users of each local endpoint. The port space is not that of TCP.
///
/// An unspecified address stands for all of its family: it has a port alone, or each address may bind that
/// port.
#[derive(Debug, Default)]
pub(super) struct Ports {
    users: BTreeMap<(u16, IpAddr), usize>,
}

impl Ports {
    /// Binds a free endpoint; port 0 chooses an ephemeral one.
    pub(super) fn bind(&mut self, local: IpAddr, port: u16, rng: &mut Rng) -> Result<u16, CmError> {
        if port == 0 {
            return self.bind_ephemeral(local, rng);
        }
        if !self.is_free(local, port) {
            return Err(CmError::AddressInUse);
        }
        self.users.insert((port, local), 1);
        Ok(port)
    }

    fn is_free(&self, local: IpAddr, port: u16) -> bool {
        let any = match local {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        if local != any {
            return ![local, any].iter().any(|&ip| self.users.contains_key(&(port, ip)));
        }
        // IPv4 addresses come before all of IPv6, and the unspecified one before all of its family.
        let mut users = self.users.range((port, any)..).map(|(key, _)| *key);
        !users.next().is_some_and(|(used, ip)| used == port && ip.is_ipv4() == local.is_ipv4())
    }

    /// Binds an ephemeral port. The search starts anywhere, so that a restarted host does not offer its
    /// peers its former ports.
    fn bind_ephemeral(&mut self, local: IpAddr, rng: &mut Rng) -> Result<u16, CmError> {
        let start = rng.below(EPHEMERAL_COUNT);
        let port = (0..EPHEMERAL_COUNT)
            .map(|i| EPHEMERAL_FIRST + ((start + i) % EPHEMERAL_COUNT) as u16)
            .find(|port| self.is_free(local, *port))
            .ok_or(CmError::NoPorts)?;
        self.users.insert((port, local), 1);
        Ok(port)
    }

    /// Adds a user to a bound endpoint. Returns false where it is not bound.
    pub(super) fn retain(&mut self, local: IpAddr, port: u16) -> bool {
        let users = self.users.get_mut(&(port, local));
        users.map(|users| *users += 1).is_some()
    }

    /// Removes a user; the last one frees the endpoint. Ignores an endpoint that is not bound.
    pub(super) fn unbind(&mut self, local: IpAddr, port: u16) {
        let Entry::Occupied(mut entry) = self.users.entry((port, local)) else { return };
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn rng() -> Rng {
        Rng::from_seed([1; 32])
    }

    #[test]
    fn an_endpoint_lives_as_long_as_its_last_user() {
        let (mut ports, mut rng) = (Ports::default(), rng());
        assert_eq!(ports.bind(LOCAL, 445, &mut rng), Ok(445));
        assert!(ports.retain(LOCAL, 445));
        ports.unbind(LOCAL, 445);
        assert_eq!(ports.bind(LOCAL, 445, &mut rng), Err(CmError::AddressInUse));
        assert_eq!(ports.bind(OTHER, 445, &mut rng), Ok(445));
        ports.unbind(LOCAL, 445);
        assert_eq!(ports.bind(LOCAL, 445, &mut rng), Ok(445));
    }

    #[test]
    fn an_unspecified_address_stands_for_all_of_its_family() {
        let (mut ports, mut rng) = (Ports::default(), rng());
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let six = IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let taken = Err(CmError::AddressInUse);
        assert_eq!(ports.bind(LOCAL, 445, &mut rng), Ok(445));
        assert_eq!(ports.bind(any[0], 445, &mut rng), taken);
        assert_eq!(ports.bind(any[1], 445, &mut rng), Ok(445));
        assert_eq!(ports.bind(six, 445, &mut rng), taken);
        assert_eq!(ports.bind(any[1], 446, &mut rng), Ok(446));
        assert_eq!(ports.bind(any[0], 446, &mut rng), Ok(446));
        assert_eq!(ports.bind(OTHER, 446, &mut rng), taken);
        assert_eq!(ports.bind(six, 444, &mut rng), Ok(444));
        assert_eq!(ports.bind(any[0], 444, &mut rng), Ok(444));
    }

    #[test]
    fn an_unbound_port_is_not_taken() {
        let mut ports = Ports::default();
        assert!(!ports.retain(LOCAL, 445));
        ports.unbind(LOCAL, 445);
        assert_eq!(ports.bind(LOCAL, 445, &mut rng()), Ok(445));
    }

    #[test]
    fn ephemeral_ports_are_distinct_and_end() {
        let (mut ports, mut rng) = (Ports::default(), rng());
        for _ in 0..EPHEMERAL_COUNT {
            assert!(ports.bind(LOCAL, 0, &mut rng).unwrap() >= EPHEMERAL_FIRST);
        }
        assert_eq!(ports.bind(LOCAL, 0, &mut rng), Err(CmError::NoPorts));
        ports.unbind(LOCAL, 50_000);
        assert_eq!(ports.bind(LOCAL, 0, &mut rng), Ok(50_000));
    }

    #[test]
    fn the_first_ephemeral_port_is_not_always_the_same() {
        let first = |seed| Ports::default().bind(LOCAL, 0, &mut Rng::from_seed([seed; 32]));
        assert_ne!(first(1), first(2));
    }
}
