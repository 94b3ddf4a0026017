//! The path MTU: payload bytes of a full packet.

/// A path MTU, as its code on the wire.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Pmtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512,
    /// 1024 bytes.
    B1024,
    /// 2048 bytes.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl Pmtu {
    /// The largest path MTU whose packets fit `l3_mtu` bytes of IP packet; `None` below 352.
    pub fn for_mtu(l3_mtu: usize) -> Option<Self> {
        [Self::B4096, Self::B2048, Self::B1024, Self::B512, Self::B256]
            .into_iter()
            .find(|pmtu| pmtu.bytes() + HEADER_ROOM <= l3_mtu)
    }

    /// The path MTU of a wire code (REQ byte 50), if it is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::B256,
            2 => Self::B512,
            3 => Self::B1024,
            4 => Self::B2048,
            5 => Self::B4096,
            _ => return None,
        })
    }

    /// The wire code, 1 to 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }
}

/// IPv6 40, UDP 8, BTH 12, XRCETH 4, AtomicETH 28 and ICRC 4: the room that Linux' rdma_cm reserves, so
/// that both ends of a link choose the same path MTU.
const HEADER_ROOM: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_agrees_with_rdma_cm() {
        let choices = [
            (351, None),
            (352, Some(Pmtu::B256)),
            (1500, Some(Pmtu::B1024)),
            (2143, Some(Pmtu::B1024)),
            (2144, Some(Pmtu::B2048)),
            (4191, Some(Pmtu::B2048)),
            (4192, Some(Pmtu::B4096)),
            (9000, Some(Pmtu::B4096)),
        ];
        for (l3_mtu, pmtu) in choices {
            assert_eq!(Pmtu::for_mtu(l3_mtu), pmtu, "L3 MTU {l3_mtu}");
        }
    }

    #[test]
    fn codes_and_sizes() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            let pmtu = Pmtu::from_code(code).unwrap();
            assert_eq!((pmtu.code(), pmtu.bytes()), (code, bytes));
        }
        assert_eq!(Pmtu::from_code(0), None);
        assert_eq!(Pmtu::from_code(6), None);
    }
}
