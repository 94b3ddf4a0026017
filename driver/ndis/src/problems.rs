//! The problems that an administrator has to solve. From this one list come the events of the trace, the sentences of the
//! event log, which the image's build script compiles into the image, and the table in `inf/README.md`.

/// A problem. The discriminant is the number that the event viewer shows, and stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Problem {
    /// `LowerAdapter` names no NIC.
    NoLowerAdapter = 1,
    /// The NIC's MTU is smaller than the adapter's. Values: the NIC's, the adapter's, in bytes.
    LowerMtuTooSmall = 2,
    /// In mode Inherit the NIC has another address than the adapter was started with.
    AddressDiffers = 3,
    /// The RoCE frame size does not fit the MTU. Values: configured, room for a frame, in bytes.
    FrameSizeReduced = 4,
    /// `NetworkAddress` is no address of a station.
    BadNetworkAddress = 5,
    /// The NIC refused the packet filter. Value: its status.
    FilterRefused = 6,
    /// The NIC could not be opened. Value: the status.
    OpenFailed = 7,
    /// The adapter did not start. Value: the status.
    StartFailed = 8,
    /// The driver did not load. Value: the status.
    LoadFailed = 9,
    /// The NIC refuses frames that it is to send. Value: its status.
    FramesRefused = 10,
    /// Units of several packets are lost. Values: those that were lost for sure, those that were sent.
    UnitsLost = 11,
    /// The NIC serves another adapter. Value: the interface index of that.
    NicTaken = 12,
    /// The NIC keeps frames that it was to send while somebody waits for their end. Values: frames, seconds.
    FramesKept = 13,
}

/// The refusals of a NIC after which an administrator is told, once. Fewer may come from a change of its settings.
pub const REFUSALS_TOLD: u32 = 16;

/// The consequence of a problem.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// The adapter works, but not as it was configured.
    Warning,
    /// The adapter does not work.
    Error,
}

/// The two values of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Values {
    /// Decimal numbers.
    Numbers,
    /// An `NTSTATUS`, which is hexadecimal everywhere.
    Status,
}

/// The words of a problem. In them stands `%2` for the adapter's interface index, and `%3` and `%4` for the values; `%1` is
/// Windows' own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Words {
    /// Its name in the trace.
    pub name: &'static str,
    /// Its consequence.
    pub severity: Severity,
    /// The form of the values.
    pub values: Values,
    /// The fact.
    pub sentence: &'static str,
    /// The deed that mends it.
    pub remedy: &'static str,
}

impl Problem {
    /// All of them, by their numbers.
    pub const ALL: [Self; 13] = [
        Self::NoLowerAdapter,
        Self::LowerMtuTooSmall,
        Self::AddressDiffers,
        Self::FrameSizeReduced,
        Self::BadNetworkAddress,
        Self::FilterRefused,
        Self::OpenFailed,
        Self::StartFailed,
        Self::LoadFailed,
        Self::FramesRefused,
        Self::UnitsLost,
        Self::NicTaken,
        Self::FramesKept,
    ];

    /// The problem of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|&problem| problem as u32 == number)
    }

    /// The identifier of its message, by
    /// [the page of identifiers](https://learn.microsoft.com/windows/win32/eventlog/event-identifiers): severity, the mark
    /// of those that are not Microsoft's, no facility, number.
    pub const fn message_id(self) -> u32 {
        const CUSTOMER: u32 = 1 << 29;
        let severity = match self.words().severity {
            Severity::Warning => 2,
            Severity::Error => 3,
        };
        severity << 30 | CUSTOMER | self as u32
    }

    /// Its words.
    pub const fn words(self) -> Words {
        use Severity::{Error, Warning};
        let (name, severity, sentence, remedy) = match self {
            Self::NoLowerAdapter => (
                "NoLowerAdapter",
                Error,
                "The adapter with the interface index %2 has no NIC: its keyword LowerAdapter is empty.",
                "Install it with `ndkrocev2ctl install --nic`, or set LowerAdapter to the GUID of the NIC's interface and restart the adapter.",
            ),
            Self::LowerMtuTooSmall => (
                "LowerMtuTooSmall",
                Error,
                "The NIC of the adapter with the interface index %2 carries packets of %3 bytes, and the adapter is set to %4.",
                "Set *JumboPacket of the NIC to at least that of the adapter, or lower that of the adapter.",
            ),
            Self::AddressDiffers => (
                "AddressDiffers",
                Warning,
                "The NIC of the adapter with the interface index %2 has another MAC address than the adapter, which is to inherit it.",
                "Restart the adapter.",
            ),
            Self::FrameSizeReduced => (
                "FrameSizeReduced",
                Warning,
                "The adapter with the interface index %2 is set to RoCE frames of %3 bytes, and with their headers its MTU leaves room for %4.",
                "Raise *JumboPacket of NIC and adapter by the 96 bytes of the headers, or lower *NetworkDirectRoCEFrameSize.",
            ),
            Self::BadNetworkAddress => (
                "BadNetworkAddress",
                Warning,
                "The keyword NetworkAddress of the adapter with the interface index %2 is no address of a station, and was ignored.",
                "Set an address whose first byte is even and which is not zero, or remove the keyword.",
            ),
            Self::FilterRefused => (
                "FilterRefused",
                Error,
                "The NIC of the adapter with the interface index %2 refused the packet filter with status 0x%3.",
                "Update the NIC's driver. In a guest, let the host allow MAC address spoofing, which mode Own needs.",
            ),
            Self::OpenFailed => (
                "OpenFailed",
                Error,
                "The NIC of the adapter with the interface index %2 could not be opened: status 0x%3.",
                "Disable and enable the NIC. A NIC that a virtual switch or a team has taken cannot be used by itself.",
            ),
            Self::StartFailed => (
                "StartFailed",
                Error,
                "The adapter with the interface index %2 did not start: status 0x%3.",
                "Free memory where the status is 0xC000009A, then disable and enable the adapter.",
            ),
            Self::LoadFailed => (
                "LoadFailed",
                Error,
                "The driver did not load: status 0x%3.",
                "0xC00000BB is a processor without SSSE3, SSE4.1 or PCLMULQDQ; 0xC000009A is a lack of memory.",
            ),
            Self::FramesRefused => (
                "FramesRefused",
                Warning,
                "The NIC of the adapter with the interface index %2 refuses frames that it is to send, 16 so far, with status 0x%3.",
                "Set *JumboPacket of the NIC to at least that of the adapter, and update the NIC's driver. The counter edge_refused goes on.",
            ),
            Self::UnitsLost => (
                "UnitsLost",
                Warning,
                "The NIC of the adapter with the interface index %2 loses the packets that it is to divide: at least %3 of %4 units, while single packets pass. Packets leave singly now.",
                "Set RoCESegmentation of the adapter to 0. An update of the NIC's driver may mend it, in a guest that of the virtual NIC.",
            ),
            Self::NicTaken => (
                "NicTaken",
                Error,
                "The NIC of the adapter with the interface index %2 serves the adapter with the interface index %3, and no second one.",
                "Set LowerAdapter of one of the two to another NIC, or disable or remove one: the other has the NIC at once.",
            ),
            Self::FramesKept => (
                "FramesKept",
                Warning,
                "The NIC of the adapter with the interface index %2 keeps %3 frames that it was to send, %4 seconds after it was to stop.",
                "Its pause, its sleep or the end of its adapter waits for them, and no other adapter does. Update the NIC's driver; where the wait has no end, restart the machine.",
            ),
        };
        let values = match self {
            Self::FilterRefused
            | Self::OpenFailed
            | Self::StartFailed
            | Self::LoadFailed
            | Self::FramesRefused => Values::Status,
            Self::NoLowerAdapter
            | Self::LowerMtuTooSmall
            | Self::AddressDiffers
            | Self::FrameSizeReduced
            | Self::BadNetworkAddress
            | Self::UnitsLost
            | Self::NicTaken
            | Self::FramesKept => Values::Numbers,
        };
        Words { name, severity, values, sentence, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    /// The table of the instructions, as it should be.
    fn table() -> String {
        let mut table =
            String::from("| Event | Level | Sentence | Mended by |\n| --- | --- | --- | --- |\n");
        for problem in Problem::ALL {
            let Words { name, severity, sentence, remedy, .. } = problem.words();
            let number = problem as u32;
            let sentence = sentence.replace("%2", "N").replace("%3", "X").replace("%4", "Y");
            table += &format!("| {number} `{name}` | {severity:?} | {sentence} | {remedy} |\n");
        }
        table
    }

    #[test]
    fn the_instructions_have_the_table() {
        let instructions = include_str!("../../../inf/README.md");
        let table = table();
        assert!(instructions.contains(&table), "inf/README.md lacks this table:\n{table}");
    }

    #[test]
    fn numbers_are_places_and_identify_a_problem() {
        for (number, problem) in (1..).zip(Problem::ALL) {
            assert_eq!(problem as u32, number);
            assert_eq!(Problem::from_number(number), Some(problem));
        }
        assert_eq!(Problem::from_number(0), None);
        assert_eq!(Problem::NoLowerAdapter.message_id(), 0xE000_0001);
        assert_eq!(Problem::AddressDiffers.message_id(), 0xA000_0003);
    }
}
