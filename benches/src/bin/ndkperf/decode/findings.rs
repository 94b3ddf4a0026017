//! Findings: what is wrong, in sentences.

use std::collections::HashMap;

/// The kinds of findings, the most serious first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    StaleRead,
    Refused,
    RetriesExhausted,
    Rejected,
    OutOfWindow,
    ReadChanged,
    LateRead,
    Unanswered,
    AfterRelease,
    ConnectionUnanswered,
    WrongIcrc,
    Malformed,
    NotReady,
    Missing,
    Resent,
    Unseen,
    Congestion,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Severity {
    Error,
    Warning,
    Note,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl Kind {
    pub(super) const fn severity(self) -> Severity {
        match self {
            Self::StaleRead | Self::Refused | Self::RetriesExhausted => Severity::Error,
            Self::Rejected | Self::OutOfWindow | Self::ReadChanged => Severity::Error,
            Self::LateRead | Self::Unanswered | Self::AfterRelease => Severity::Warning,
            Self::ConnectionUnanswered | Self::WrongIcrc => Severity::Warning,
            Self::Malformed | Self::NotReady => Severity::Warning,
            Self::Missing | Self::Resent | Self::Unseen | Self::Congestion => Severity::Note,
        }
    }

    pub(super) fn is_error(self) -> bool {
        self.severity() == Severity::Error
    }

    /// The name in a document.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::StaleRead => "stale_read",
            Self::Refused => "refused",
            Self::RetriesExhausted => "retries_exhausted",
            Self::Rejected => "rejected",
            Self::OutOfWindow => "out_of_window",
            Self::ReadChanged => "read_changed",
            Self::LateRead => "late_read",
            Self::Unanswered => "unanswered",
            Self::AfterRelease => "after_release",
            Self::ConnectionUnanswered => "connection_unanswered",
            Self::WrongIcrc => "wrong_icrc",
            Self::Malformed => "malformed",
            Self::NotReady => "receiver_not_ready",
            Self::Missing => "missing",
            Self::Resent => "sent_again",
            Self::Unseen => "unseen",
            Self::Congestion => "congestion",
        }
    }
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// Index of the conversation; `None` where it is about the capture.
    pub(super) conversation: Option<usize>,
    pub(super) frame: u64,
    pub(super) at_ns: u64,
    pub(super) text: String,
    /// Further ones of the kind, in the same direction.
    pub(super) more: u64,
}

/// The findings of a capture: of each kind the first one of a direction is told, the others are counted.
#[derive(Debug, Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    known: HashMap<(Kind, Option<(usize, usize)>), usize>,
}

impl Findings {
    /// About the direction that a side of a conversation sends.
    pub(super) fn about(&mut self, conversation: usize, sender: usize) -> Sink<'_> {
        Sink { findings: self, place: Some((conversation, sender)) }
    }

    /// About the capture.
    pub(super) fn capture(&mut self) -> Sink<'_> {
        Sink { findings: self, place: None }
    }

    /// All of them, the most serious first, then by frame.
    pub(super) fn into_sorted(self) -> Vec<Finding> {
        let mut all = self.all;
        all.sort_by_key(|finding| (finding.kind, finding.frame));
        all
    }
}

/// Where the findings about one thing go.
pub(super) struct Sink<'a> {
    findings: &'a mut Findings,
    place: Option<(usize, usize)>,
}

impl Sink<'_> {
    pub(super) fn add(
        &mut self,
        kind: Kind,
        frame: u64,
        at_ns: u64,
        text: impl FnOnce() -> String,
    ) {
        let Findings { all, known } = &mut *self.findings;
        if let Some(finding) = known.get(&(kind, self.place)).and_then(|index| all.get_mut(*index))
        {
            finding.more += 1;
            return;
        }
        known.insert((kind, self.place), all.len());
        let conversation = self.place.map(|(conversation, _)| conversation);
        all.push(Finding { kind, conversation, frame, at_ns, text: text(), more: 0 });
    }

    /// One of which each is told, such as the fate of a connection.
    pub(super) fn add_each(&mut self, kind: Kind, frame: u64, at_ns: u64, text: String) {
        let conversation = self.place.map(|(conversation, _)| conversation);
        self.findings.all.push(Finding { kind, conversation, frame, at_ns, text, more: 0 });
    }
}
