//! The stages of the driver's life, of which the last that it reached is left behind for who looks for it after a bug check.
//!
//! A stage is noted before its work begins. Of several adapters the stages are mixed: the last is that of whichever was last.

/// A stage. The discriminant is its number in a snapshot, and stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Stage {
    /// The image's entry point runs.
    Loading = 1,
    /// It has registered with NDIS.
    Loaded = 2,
    /// It refused to load.
    NotLoaded = 3,
    /// An adapter starts.
    Starting = 4,
    /// An adapter has started.
    Started = 5,
    /// An adapter refused to start.
    NotStarted = 6,
    /// A NIC is being opened for its adapter.
    Binding = 7,
    /// An adapter has its NIC.
    Bound = 8,
    /// An adapter lets go of its NIC.
    Unbinding = 9,
    /// A NIC is closed, or was not opened.
    Unbound = 10,
    /// NDK is being enabled.
    NdkOn = 11,
    /// A consumer opens NDK; then there may be traffic.
    NdkOpen = 12,
    /// NDK is being disabled.
    NdkOff = 13,
    /// An adapter halts.
    Halting = 14,
    /// An adapter has halted.
    Halted = 15,
    /// The driver unloads.
    Unloading = 16,
    /// It has nothing left to do.
    Unloaded = 17,
}

impl Stage {
    /// All of them, by their numbers.
    pub const ALL: [Self; 17] = [
        Self::Loading,
        Self::Loaded,
        Self::NotLoaded,
        Self::Starting,
        Self::Started,
        Self::NotStarted,
        Self::Binding,
        Self::Bound,
        Self::Unbinding,
        Self::Unbound,
        Self::NdkOn,
        Self::NdkOpen,
        Self::NdkOff,
        Self::Halting,
        Self::Halted,
        Self::Unloading,
        Self::Unloaded,
    ];

    /// Its name, as it stands in the registry.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loading => "Loading",
            Self::Loaded => "Loaded",
            Self::NotLoaded => "NotLoaded",
            Self::Starting => "Starting",
            Self::Started => "Started",
            Self::NotStarted => "NotStarted",
            Self::Binding => "Binding",
            Self::Bound => "Bound",
            Self::Unbinding => "Unbinding",
            Self::Unbound => "Unbound",
            Self::NdkOn => "NdkOn",
            Self::NdkOpen => "NdkOpen",
            Self::NdkOff => "NdkOff",
            Self::Halting => "Halting",
            Self::Halted => "Halted",
            Self::Unloading => "Unloading",
            Self::Unloaded => "Unloaded",
        }
    }

    /// The stage of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|&stage| stage as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (number, stage) in (1..).zip(Stage::ALL) {
            assert_eq!(Stage::from_number(number), Some(stage));
            assert_eq!(std::format!("{stage:?}"), stage.name());
        }
        assert_eq!(Stage::from_number(0), None);
    }
}
