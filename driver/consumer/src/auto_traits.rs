//! The wrappers that threads may share, for the compiler to agree: all but what names memory by a pointer of its own.

use crate::{
    Adapter, Buffer, Connector, Cq, Endpoint, FastRegister, Frmr, InlineData, Lam, Listener, Mdl,
    Mr, Mw, Pd, Qp, Region, Remote, Request, Sge, SharedEndpoint, Srq,
};

driver::auto_traits! {
    Adapter: (Send, Sync);
    Pd: (Send, Sync);
    Cq: (Send, Sync);
    Srq: (Send, Sync);
    Qp: (Send, Sync);
    Mw: (Send, Sync);
    Connector: (Send, Sync);
    Listener: (Send, Sync);
    SharedEndpoint: (Send, Sync);
    Request: (Send, Sync);
    Endpoint: (Send, Sync);
    // Memory: its copies are atomic for each byte.
    Buffer: (Send, Sync);
    Mr: (Send, Sync);
    Frmr: (Send, Sync);
    Lam: (Send, Sync);
    Region: (Send, Sync);
    // These name memory for one call.
    Mdl: (!Send, !Sync);
    Sge<'static>: (!Send, !Sync);
    InlineData<'static>: (!Send, !Sync);
    // Numbers.
    Remote: (Send, Sync);
    FastRegister<'static>: (Send, Sync);
}
