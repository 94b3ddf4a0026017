//! What our two INFs must say. The reasons are in Microsoft's pages on INF files, and in
//! [INF requirements for NDKPI](https://learn.microsoft.com/windows-hardware/drivers/network/inf-requirements-for-ndkpi).

pub(crate) use ndis_driver::{IMAGE, SERVICE};

/// What one INF is for.
pub(crate) struct Spec {
    pub(crate) file: &'static str,
    pub(crate) class: &'static str,
    pub(crate) class_guid: &'static str,
    pub(crate) catalog: &'static str,
    pub(crate) hardware_id: &'static str,
    /// Entries of every install section.
    pub(crate) install: &'static [(&'static str, &'static str)],
    pub(crate) upper_range: &'static str,
    pub(crate) lower_range: &'static str,
    pub(crate) service_flags: u32,
    /// A network component removes its service by itself; a device does not.
    pub(crate) removal: bool,
    pub(crate) keywords: &'static [Keyword],
}

/// An advanced property: an enum of `values`, or without values a text of at most `limit` or a number
/// of a range.
pub(crate) struct Keyword {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [&'static str],
    pub(crate) default: &'static str,
    pub(crate) limit: &'static str,
    /// Least and most of a number.
    pub(crate) range: Option<[&'static str; 2]>,
}

const fn one_of(
    name: &'static str,
    values: &'static [&'static str],
    default: &'static str,
) -> Keyword {
    Keyword { name, values, default, limit: "", range: None }
}

const fn text(name: &'static str, limit: &'static str) -> Keyword {
    Keyword { name, values: &[], default: "", limit, range: None }
}

const fn number(name: &'static str, range: [&'static str; 2], default: &'static str) -> Keyword {
    Keyword { name, values: &[], default, limit: "", range: Some(range) }
}

/// What the driver reads, but the adapter's INF must not offer: the value is the system's.
pub(crate) const GLOBAL_KEYWORD: &str = "*NetworkDirectGlobalFlags";
/// What NDIS and its tools read for the driver.
pub(crate) const READ_BY_NDIS: [&str; 2] = ["*NetworkDirectTechnology", "NetworkAddress"];

/// The virtual adapter.
pub(crate) const VNIC: Spec = Spec {
    file: "inf/ndkrocev2.inx",
    class: "Net",
    class_guid: "{4d36e972-e325-11ce-bfc1-08002be10318}",
    catalog: "ndkrocev2.cat",
    hardware_id: r"root\ndkrocev2",
    install: &[
        ("Characteristics", "0x1"),
        ("*IfType", "6"),
        ("*MediaType", "0"),
        ("*PhysicalMediaType", "14"),
    ],
    upper_range: "ndis5",
    lower_range: "ethernet",
    service_flags: 2,
    removal: false,
    keywords: &[
        one_of("*NetworkDirect", &["0", "1"], "1"),
        one_of("*NetworkDirectTechnology", &["4"], "4"),
        one_of("*NetworkDirectRoCEFrameSize", &["256", "512", "1024", "2048", "4096"], "1024"),
        one_of("CongestionControl", &["0", "1"], "1"),
        number("AckTimeout", ["14", "22"], "19"),
        number("RetryCount", ["0", "7"], "7"),
        one_of("RoCESegmentation", &["0", "1"], "1"),
        number("PollCores", ["1", "64"], "1"),
        number("RoCEPriority", ["0", "7"], "0"),
        number("RoCEDscp", ["0", "63"], "0"),
        one_of("*JumboPacket", &["1514", "4088", "9014"], "1514"),
        one_of("*PriorityVLANTag", &["0", "1", "2", "3"], "3"),
        one_of("*QOS", &["0", "1"], "1"),
        number("VlanId", ["0", "4094"], "0"),
        text("NetworkAddress", "12"),
        text("LowerAdapter", "38"),
        one_of("LowerMode", &["0", "1", "2"], "0"),
    ],
};

/// The protocol under it.
pub(crate) const LOWER: Spec = Spec {
    file: "inf/ndkrocev2-lower.inx",
    class: "NetTrans",
    class_guid: "{4d36e975-e325-11ce-bfc1-08002be10318}",
    catalog: "ndkrocev2-lower.cat",
    hardware_id: "ndkrocev2_lower",
    install: &[("Characteristics", "0x0")],
    upper_range: "noupper",
    lower_range: "ndis5",
    service_flags: 0,
    removal: true,
    keywords: &[],
};
