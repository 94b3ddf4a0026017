//! Deliberate bugs: a test turns them on one at a time and counts how many the simulator finds.
//!
//! `mutant!(Name)` at the place of a bug is the constant `false` unless this crate is built with the
//! feature `mutants`, which no product is; the compiler then removes it and what it guards.

/// Whether a bug is turned on.
#[cfg(feature = "mutants")]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutant::Mutant::$name.is_active()
    };
}

/// Whether a bug is turned on: never.
#[cfg(not(feature = "mutants"))]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

pub(crate) use mutant;

#[cfg(feature = "mutants")]
mod switch {
    use core::sync::atomic::{AtomicU32, Ordering};

    /// 1 + the bug that is on.
    static ACTIVE: AtomicU32 = AtomicU32::new(0);

    macro_rules! mutants {
        ($($name:ident)+) => {
            /// A bug.
            #[allow(missing_docs, reason = "the names say what goes wrong")]
            #[derive(Clone, Copy, Debug, Eq, PartialEq)]
            #[repr(u32)]
            pub enum Mutant {
                $($name,)+
            }

            impl Mutant {
                /// Every bug.
                pub const ALL: &[Self] = &[$(Self::$name,)+];
            }
        };
    }

    mutants! {
        FenceIsIgnored
        WindowIsIgnored
        ReadDepthIsIgnored
        LastPacketAsksForNoAck
        WriteSolicits
        ResentReadStartsOver
        WriteAnnouncesTooMuch
        AckCoversOneMore
        AckCompletesReads
        LostReadDataIsAccepted
        RnrPauseIsSkipped
        ResendSkipsAPacket
        NeverGivesUp
        GivesUpAtOnce
        FailureIsSilent
        FlushIsBackwards
        DuplicateIsExecuted
        EveryGapIsNaked
        GapIsExecuted
        AckNamesTheNextPacket
        AckOvertakesRead
        MsnMissesReads
        SendWithoutReceiveIsDropped
        LastLengthIsReported
        ResentReadIsAnsweredFromTheStart
        RightsAreIgnored
        IcrcIsNotChecked
        IcrcCoversTtl
        PadIsDelivered
        RepeatedReqIsNew
        DreqIsNotAnswered
        ConnectGivesUpAtOnce
        FailureSucceeds
        FlushForgets
        LongSendIsNotNoticed
        NakCoversItsPacket
        PadIsNotZero
        ReadNeverEnds
        ResentReadIsNotAnswered
        WriteGoesBack
        SharedReceivesComeNewestFirst
        SharedReceiveStays
        LowReceivesAreNotTold
        LowReceivesAreToldAgain
        PeerInvalidatesNothing
        PeerInvalidatesAnything
        InvalidationKeepsTargets
        InvalidateDoesNotWait
        ReadInvalidatesNothing
        WindowIsAsWideAsItsRegion
        MappingForgetsItsOffset
        InlineDataShareASlot
    }

    impl Mutant {
        /// Whether it is turned on.
        pub fn is_active(self) -> bool {
            ACTIVE.load(Ordering::Relaxed) == 1 + self as u32
        }

        /// Turns one bug on for the whole process, and all others off.
        pub fn activate(mutant: Option<Self>) {
            ACTIVE.store(mutant.map_or(0, |mutant| 1 + mutant as u32), Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "mutants")]
pub use switch::Mutant;
