//! What our two INFs must say. The reasons are in Microsoft's pages on INF files, and in
//! [INF requirements for NDKPI](https://learn.microsoft.com/windows-hardware/drivers/network/inf-requirements-for-ndkpi).

pub(crate) use driver::{IMAGE, SERVICE};

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

/// An advanced property: an enum of `values`, or without values a text of at most `limit`.
pub(crate) struct Keyword {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [&'static str],
    pub(crate) default: &'static str,
    pub(crate) limit: &'static str,
}

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
        Keyword { name: "*NetworkDirect", values: &["0", "1"], default: "1", limit: "" },
        Keyword { name: "*NetworkDirectTechnology", values: &["4"], default: "4", limit: "" },
        Keyword {
            name: "*NetworkDirectRoCEFrameSize",
            values: &["256", "512", "1024", "2048", "4096"],
            default: "1024",
            limit: "",
        },
        Keyword {
            name: "*JumboPacket",
            values: &["1514", "4088", "9014"],
            default: "1514",
            limit: "",
        },
        Keyword {
            name: "*PriorityVLANTag",
            values: &["0", "1", "2", "3"],
            default: "3",
            limit: "",
        },
        Keyword { name: "NetworkAddress", values: &[], default: "", limit: "12" },
        Keyword { name: "LowerAdapter", values: &[], default: "", limit: "38" },
        Keyword { name: "LowerMode", values: &["0", "1"], default: "0", limit: "" },
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
