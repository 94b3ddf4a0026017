//! What an administrator may have written into the registry: the values of an adapter's keywords.

use arbitrary::{Arbitrary, Unstructured};
use netadapter_glue::ndis::chain::Tag;
use rocev2::wire::Pmtu;

/// Of the driver's declarations of Windows.
mod abi {
    pub(super) const NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET: u32 = 1;
}
#[allow(dead_code, reason = "the driver needs more of it")]
#[path = "../../../driver/ndis/src/frame.rs"]
mod frame;
#[allow(dead_code, reason = "the driver needs more of it")]
#[path = "../../../driver/ndis/src/keywords.rs"]
mod meaning;

use frame::Tagging;
use meaning::{Config, Keywords, LOWER_ADDRESS, Mode, hex_of};

const NAMES: [&str; 15] = [
    "*JumboPacket",
    "LowerMode",
    "*NetworkDirectRoCEFrameSize",
    "*NetworkDirect",
    "PollCores",
    "*NetworkDirectGlobalFlags",
    "*PriorityVLANTag",
    "VlanId",
    "RoCEPriority",
    "RoCEDscp",
    "CongestionControl",
    "RoCESegmentation",
    "AckTimeout",
    "RetryCount",
    "*QOS",
];

/// A registry, and what is asked of its adapter.
#[derive(Arbitrary, Debug)]
struct Registry {
    /// By [`NAMES`].
    integers: [Option<u32>; NAMES.len()],
    lower: Vec<u16>,
    lower_address: LowerAddress,
    network_address: Option<[u8; 6]>,
    processors: u8,
    /// The name of a NIC.
    name: Vec<u16>,
    /// The control information of a tag.
    tci: u16,
}

/// What the driver has kept, or anybody else.
#[derive(Arbitrary, Debug)]
enum LowerAddress {
    Kept([u8; 6]),
    Text(Vec<u16>),
}

impl Keywords for Registry {
    fn integer(&self, keyword: &str) -> Option<u32> {
        let place = NAMES.iter().position(|name| *name == keyword);
        self.integers[place.unwrap_or_else(|| panic!("{keyword} is read, too"))]
    }

    fn string(&self, keyword: &str) -> Vec<u16> {
        match (keyword, &self.lower_address) {
            (LOWER_ADDRESS, LowerAddress::Kept(address)) => hex_of(*address).to_vec(),
            (LOWER_ADDRESS, LowerAddress::Text(text)) => text.clone(),
            (_, _) => {
                assert_eq!(keyword, "LowerAdapter");
                self.lower.clone()
            }
        }
    }

    fn network_address(&self) -> Option<[u8; 6]> {
        self.network_address
    }
}

/// The values of a registry: whatever they are, the adapter has sizes, cores, tags and names that it can have.
pub fn keywords(data: &[u8]) {
    let Ok(registry) = Registry::arbitrary(&mut Unstructured::new(data)) else { return };
    let processors = usize::from(registry.processors.max(1));
    let config = Config::of(&registry, processors);
    check_sizes(&config);
    assert!((1..=processors.min(64)).contains(&config.poll_cores), "{config:?}");
    assert!(config.dscp < 64 && config.units() <= 64, "{config:?}");
    let [ack_timeout, retries] = [12, 13].map(|place: usize| registry.integers[place]);
    assert_eq!(config.ack_timeout_code.is_some(), ack_timeout.is_some());
    assert_eq!(config.retry_count.is_some(), retries.is_some());
    assert!(config.ack_timeout_code.is_none_or(|code| code < 32), "{config:?}");
    assert!(config.retry_count.is_none_or(|count| count < 8), "{config:?}");
    assert_eq!(config.mode == Mode::Own, registry.integers[1] == Some(1));
    assert_eq!(config.mode == Mode::Share, registry.integers[1] == Some(2));
    let is_station = |mac: [u8; 6]| mac[0] & 1 == 0 && mac != [0; 6];
    assert!(config.network_address.is_none_or(is_station));
    assert!(config.lower_address.is_none_or(is_station));
    if let LowerAddress::Kept(address) = registry.lower_address {
        assert_eq!(config.lower_address, Some(address).filter(|&address| is_station(address)));
    }
    assert_eq!(config.qos, registry.integers[14].map(|on| on != 0));
    assert!(config.tagging.priority || config.qos != Some(true), "{config:?}");
    check_tags(config.tagging, registry.tci);
    check_names(&config, &registry.name);
}

fn check_sizes(config: &Config) {
    let (mtu, frame_size) = (config.roce_mtu(), config.frame_size.clamp(256, 4096));
    assert!((576..=9000).contains(&config.mtu) && mtu <= config.mtu, "{config:?}");
    let path_mtu = Pmtu::for_mtu(mtu).unwrap_or_else(|| panic!("no packet fits: {config:?}"));
    assert!(path_mtu.bytes() <= frame_size, "{config:?}");
}

/// What leaves without a VLAN leaves in the adapter's, and comes back without one.
fn check_tags(tagging: Tagging, tci: u16) {
    assert!(tagging.own < 4095 && (tagging.vlan || tagging.own == 0), "{tagging:?}");
    let tag = |tci| (tci != 0).then(|| Tag::from_tci(tci));
    let tci_of = |tag: Option<Tag>| tag.map_or(0, Tag::tci);
    let plain = tag(tci & 0xf000);
    for sent in [tagging.outgoing(plain), tagging.outgoing_roce(plain)] {
        assert_eq!(tci_of(sent) & 0xfff, tagging.own, "{tagging:?}");
        let shown = tagging.incoming(sent).unwrap_or_else(|_| panic!("it is ours: {tagging:?}"));
        assert_eq!(tci_of(shown) & 0xfff, 0, "{tagging:?}");
    }
    assert!(tagging.tags_roce() || tagging.outgoing_roce(None).is_none());
    if let Ok(shown) = tagging.incoming(tag(tci)) {
        assert!(tagging.priority || tci_of(shown) < 0x1000, "{tagging:?}");
    }
}

/// A name that fits does so in capitals, too; the registry's does as that of a device.
fn check_names(config: &Config, name: &[u16]) {
    let capitals = |text: &[u16]| -> Vec<u16> {
        let byte = |unit| u8::try_from(unit).map_or(unit, |byte| byte.to_ascii_uppercase().into());
        text.iter().map(|unit| byte(*unit)).collect()
    };
    assert_eq!(config.names(name), config.names(&capitals(name)));
    assert!(!config.names(&[]), "nothing is no name");
    let has_braces = config.lower.iter().any(|unit| b"{}".map(u16::from).contains(unit));
    let device = "\\DEVICE\\{".encode_utf16().chain(config.lower.iter().copied());
    let device: Vec<u16> = device.chain([b'}'.into()]).collect();
    assert!(has_braces || config.lower.is_empty() || config.names(&device), "{config:?}");
}
