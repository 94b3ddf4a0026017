//! The rules that a consumer can break, and the reports of it.

use std::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident $page:literal $sentence:literal;)+) => {
        /// A rule of NDKPI.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Rule {
            $($(#[$doc])* #[doc = $sentence] $name,)+
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The rule as a sentence.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)+
                }
            }

            /// The page under <https://learn.microsoft.com/windows-hardware/drivers/> that states it.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self {
                    $(Self::$name => $page,)+
                }
            }
        }
    };
}

rules! {
    ConcurrentPosts "network/ndkpi-work-request-posting-requirements"
        "Posts to one queue come one after the other.";
    ConcurrentPolls "network/ndkpi-completion-handling-requirements"
        "Taking completions of a CQ and arming it come one after the other.";
    PostAfterClose "ddi/ndkpi/nc-ndkpi-ndk_fn_close_object"
        "Nothing is posted to a queue whose object was closed.";
    CallAfterClose "ddi/ndkpi/nc-ndkpi-ndk_fn_close_object"
        "An object is not used after the call of its close.";
    ClosedTwice "network/ndkpi-object-lifetime-requirements"
        "An object is closed once.";
    WrongObject "ddi/ndkpi/ns-ndkpi-_ndk_object_header"
        "A function gets an object of the type that its table belongs to.";
    NoCompletion "ddi/ndkpi/nc-ndkpi-ndk_fn_request_completion"
        "A call that may pend has a completion callback.";
    NoResults "ddi/ndkpi/nc-ndkpi-ndk_fn_get_cq_results"
        "There is room for the completions that are asked for.";
    NewerFunction "ddi/ndkpi/ns-ndkpi-_ndk_object_header"
        "A function belongs to the version that the adapter runs at.";
    ForeignToken "ddi/ndkpi/ns-ndkpi-_ndk_sge"
        "The token of an element belongs to the adapter and the PD of the queue.";
    DeadToken "ddi/ndkpi/nc-ndkpi-ndk_fn_invalidate"
        "The token of an element names memory that is registered, and not invalidated.";
    BeyondRegion "ddi/ndkpi/ns-ndkpi-_ndk_sge"
        "An element lies inside the memory that its token names.";
    NoLocalWrite "ddi/ndkpi/nc-ndkpi-ndk_fn_register_mr"
        "Memory of a receive or a READ is registered for local writes.";
    BufferWritten "ddi/ndkpi/nc-ndkpi-ndk_fn_send"
        "The bytes of a SEND or WRITE stay as they are until its completion.";
    BufferFreed "ddi/ndkpi/nc-ndkpi-ndk_fn_send"
        "Memory is not freed while a request or a registration uses it.";
    MdlFreed "ddi/ndkpi/nc-ndkpi-ndk_fn_register_mr"
        "An MDL stays until the registration or mapping of its memory has ended.";
    LamFreed "ddi/ndkpi/ns-ndkpi-_ndk_logical_address_mapping"
        "The structure of a mapping stays until it is released.";
    LamReleased "ddi/ndkpi/nc-ndkpi-ndk_fn_release_lam"
        "Logical addresses are not released while a request uses them.";
    /// No mistake by the letter of the page: the peer may still reach the memory.
    LamUnderRegion "ddi/ndkpi/nc-ndkpi-ndk_fn_release_lam"
        "A fast registration ends before the mapping that it was made of.";
    RegionEnded "ddi/ndkpi/nc-ndkpi-ndk_fn_deregister_mr"
        "A region is not deregistered or closed while an initiator request names it.";
    CallbackBlocks "network/implementing-ndkpi-callback-functions"
        "A callback returns soon, as it may run at DISPATCH_LEVEL.";
    CallbackWaits "network/implementing-ndkpi-callback-functions"
        "A callback does not wait for the provider, whose thread it may be.";
    PassiveInCallback "ddi/ndkpi/nc-ndkpi-ndk_fn_query_adapter_info"
        "A function of PASSIVE_LEVEL is not called in a callback, which may run at DISPATCH_LEVEL.";
    DeferredLeft "network/ndkpi-deferred-processing-scheme"
        "The last of a chain of deferred requests is not deferred.";
    Leak "network/ndkpi-object-lifetime-requirements"
        "All objects of an adapter are closed, and all mappings released, when the adapter is closed.";
    /// No mistake by itself: the report tells what a close waits for.
    CloseHeldBack "network/ndkpi-object-lifetime-requirements"
        "A close pends until the successors of the object are closed and its requests have ended.";
}

impl Rule {
    /// False where a report is only information.
    #[must_use]
    pub const fn is_mistake(self) -> bool {
        !matches!(self, Self::CloseHeldBack | Self::LamUnderRegion)
    }
}

/// A rule that was broken. It prints as one line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The rule.
    pub rule: Rule,
    /// The function, or the callback.
    pub call: &'static str,
    /// The object: its kind, and its number among those of its adapter.
    pub object: String,
    /// The particulars.
    pub detail: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, call, object, detail } = self;
        write!(f, "{call}, {object}: {detail}. Rule {rule:?}: {}", rule.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line() {
        let report = Report {
            rule: Rule::ClosedTwice,
            call: "NdkCloseCq",
            object: "CQ 3 of adapter 1".into(),
            detail: "it was closed before".into(),
        };
        assert_eq!(
            report.to_string(),
            "NdkCloseCq, CQ 3 of adapter 1: it was closed before. Rule ClosedTwice: An object is closed once."
        );
    }

    #[test]
    fn each_rule_is_a_sentence_of_its_own_with_a_page() {
        for rule in Rule::ALL {
            let same = Rule::ALL.iter().filter(|other| other.sentence() == rule.sentence());
            assert_eq!(same.count(), 1, "{rule:?}");
            assert!(rule.sentence().ends_with('.'), "{rule:?}");
            assert!(rule.page().contains("ndkpi"), "{rule:?}");
        }
    }
}
