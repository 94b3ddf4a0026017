//! Logical address mappings (LAM): buffers that a scatter/gather element names by page.
//!
//! A logical address is private to this provider: it names a mapping, not a physical page, and means
//! nothing but through the table that each poll core keeps ([`Lams`](self::core::Lams)). An address is never given out
//! twice, a page without a mapping lies behind each mapping, and an access must lie inside one
//! mapping; so a stale, invented or overlong element fails instead of meeting foreign memory.
//!
//! * A consumer may do arithmetic inside a mapping: merge neighbouring pages, add a page offset. All
//!   pages of one mapping are neighbours here, whatever the MDLs' physical pages are.
//! * The bytes before the first and behind the last of the buffer cannot be reached, though their
//!   pages are in the page array.
//! * Building never pends: the completion is optional in the header, and nothing says that the out
//!   parameters may be written after `STATUS_PENDING`. The mapping reaches each core by a ring of its
//!   own, which the core reads after every look into the rings of posts, and when it meets an address that it does not
//!   know: what was built before a post is known before the post is worked on, and what was released is not.

pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod shared;
