//! What the consumer does, call after call, and the exchanges of connection management.

use super::*;
use crate::world::{MEMORY, World, address, created, incoming, left, notified, requested};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use tests::call;
use tests::kit::PORT;

/// A call or an exchange.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Does it, and leaves nothing of it where it fails.
    pub(crate) act: fn(&mut World) -> NTSTATUS,
}

macro_rules! steps {
    ($($name:ident)+) => { &[$(Step { name: stringify!($name), act: $name },)+] };
}

pub(crate) const STEPS: &[Step] = steps! {
    create_cq create_pd create_mr register_mr create_frmr initialize_frmr create_mw create_srq modify_srq resize_cq
    create_qp create_qp_with_srq create_shared_endpoint build_lam release_lam create_listener listen
    be_rejected connect disconnect connect_shared deregister_mr
};

const CREATED: Option<NDK_FN_CREATE_COMPLETION> = Some(created);
const REQUESTED: Option<NDK_FN_REQUEST_COMPLETION> = Some(requested);

/// Depths of queues, and elements of a receive: each queue takes more than what is set aside for any request, which the
/// tables of keys, as they may grow, make half a MiB.
const CQ_DEPTH: ULONG = 16_384;
const SRQ_DEPTH: ULONG = 2048;
const SRQ_SGE: ULONG = 16;
const QP_DEPTH: ULONG = 4096;

fn create_cq(world: &mut World) -> NTSTATUS {
    create_cq_of(world, 0, "cq")
}

fn create_cq_of(world: &mut World, host: usize, name: &'static str) -> NTSTATUS {
    let adapter = world.adapter(host);
    world.create(name, |context, out| {
        call!(
            adapter,
            NdkCreateCq,
            CQ_DEPTH,
            Some(notified),
            null_mut(),
            null(),
            CREATED,
            context,
            out
        )
    })
}

fn create_pd(world: &mut World) -> NTSTATUS {
    create_pd_of(world, 0, "pd")
}

fn create_pd_of(world: &mut World, host: usize, name: &'static str) -> NTSTATUS {
    let adapter = world.adapter(host);
    world.create(name, |context, out| call!(adapter, NdkCreatePd, CREATED, context, out))
}

fn create_mr_of(world: &mut World, name: &'static str, fast: BOOLEAN) -> NTSTATUS {
    let pd = world.get::<NDK_PD>("pd");
    world.create(name, |context, out| call!(pd, NdkCreateMr, fast, CREATED, context, out))
}

fn create_mr(world: &mut World) -> NTSTATUS {
    create_mr_of(world, "mr", FALSE)
}

fn register_mr(world: &mut World) -> NTSTATUS {
    let (mr, mdl) = (world.get::<NDK_MR>("mr"), world.mdl.as_mut_ptr());
    let rights = NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
    world.request(|context| call!(mr, NdkRegisterMr, mdl, MEMORY, rights, REQUESTED, context))
}

fn deregister_mr(world: &mut World) -> NTSTATUS {
    let mr = world.get::<NDK_MR>("mr");
    world.request(|context| call!(mr, NdkDeregisterMr, REQUESTED, context))
}

fn create_frmr(world: &mut World) -> NTSTATUS {
    create_mr_of(world, "frmr", TRUE)
}

fn initialize_frmr(world: &mut World) -> NTSTATUS {
    let mr = world.get::<NDK_MR>("frmr");
    world.request(|context| call!(mr, NdkInitializeFastRegisterMr, 512, TRUE, REQUESTED, context))
}

fn create_mw(world: &mut World) -> NTSTATUS {
    let pd = world.get::<NDK_PD>("pd");
    world.create("mw", |context, out| call!(pd, NdkCreateMw, CREATED, context, out))
}

fn create_srq(world: &mut World) -> NTSTATUS {
    let pd = world.get::<NDK_PD>("pd");
    world.create("srq", |context, out| {
        call!(
            pd,
            NdkCreateSrq,
            SRQ_DEPTH,
            SRQ_SGE,
            4,
            Some(notified),
            null_mut(),
            null(),
            CREATED,
            context,
            out
        )
    })
}

fn modify_srq(world: &mut World) -> NTSTATUS {
    let srq = world.get::<NDK_SRQ>("srq");
    world.request(|context| call!(srq, NdkModifySrq, 2 * SRQ_DEPTH, 4, REQUESTED, context))
}

fn resize_cq(world: &mut World) -> NTSTATUS {
    let cq = world.get::<NDK_CQ>("cq");
    world.request(|context| call!(cq, NdkResizeCq, 2 * CQ_DEPTH, REQUESTED, context))
}

fn create_qp(world: &mut World) -> NTSTATUS {
    create_qp_of(world, ["pd", "cq"], "inline", 64)
}

fn create_qp_of(
    world: &mut World,
    [pd, cq]: [&str; 2],
    name: &'static str,
    inline: ULONG,
) -> NTSTATUS {
    let (pd, cq) = (world.get::<NDK_PD>(pd), world.get::<NDK_CQ>(cq).0);
    world.create(name, |context, out| {
        let none = null_mut();
        call!(
            pd,
            NdkCreateQp,
            cq,
            cq,
            none,
            QP_DEPTH,
            QP_DEPTH,
            2,
            2,
            inline,
            CREATED,
            context,
            out
        )
    })
}

fn create_qp_with_srq(world: &mut World) -> NTSTATUS {
    let (pd, cq) = (world.get::<NDK_PD>("pd"), world.get::<NDK_CQ>("cq").0);
    let srq = world.get::<NDK_SRQ>("srq").0;
    world.create("sharer", |context, out| {
        let none = null_mut();
        call!(pd, NdkCreateQpWithSrq, cq, cq, srq, none, QP_DEPTH, 2, 0, CREATED, context, out)
    })
}

fn create_shared_endpoint(world: &mut World) -> NTSTATUS {
    let (adapter, at) = (world.adapter(0), SOCKADDR_INET::from(SocketAddr::new(address(0), 4000)));
    world.create("endpoint", |context, out| {
        call!(
            adapter,
            NdkCreateSharedEndpoint,
            at.as_ptr().cast_mut(),
            at.len(),
            CREATED,
            context,
            out
        )
    })
}

fn build_lam(world: &mut World) -> NTSTATUS {
    let (adapter, mdl) = (world.adapter(0), world.mdl.as_mut_ptr());
    let lam: *mut NDK_LOGICAL_ADDRESS_MAPPING = world.lam.as_mut_ptr().cast();
    let (mut size, mut fbo) = (size_of_val(&*world.lam) as ULONG, 0);
    world.request(|_| {
        let (none, size, fbo) = (null_mut(), &raw mut size, &raw mut fbo);
        call!(adapter, NdkBuildLAM, mdl, MEMORY, None, none, lam, size, fbo)
    })
}

fn release_lam(world: &mut World) -> NTSTATUS {
    let (adapter, lam) = (world.adapter(0), world.lam.as_mut_ptr().cast());
    world.request(|_| {
        call!(adapter, NdkReleaseLAM, lam);
        STATUS_SUCCESS
    })
}

fn create_listener(world: &mut World) -> NTSTATUS {
    let (adapter, event) = (world.adapter(1), world.ends[INCOMING].context());
    world.create("listener", |context, out| {
        call!(adapter, NdkCreateListener, Some(incoming), event, CREATED, context, out)
    })
}

fn listen(world: &mut World) -> NTSTATUS {
    let (listener, at) = (world.get::<NDK_LISTENER>("listener"), to());
    world.request(|context| call!(listener, NdkListen, at.as_ptr(), at.len(), REQUESTED, context))
}

fn to() -> SOCKADDR_INET {
    SOCKADDR_INET::from(SocketAddr::new(address(1), PORT))
}

/// The place of a connect, of an accept, and of a connect event among the ends.
const ACTIVE: usize = 0;
const PASSIVE: usize = 1;
const INCOMING: usize = 2;

/// The objects of one attempt, in the order in which they are closed.
const ATTEMPT: [&str; 8] =
    ["passive", "active", "far qp", "near qp", "far cq", "far pd", "near cq", "near pd"];

/// Runs an attempt. Where it fails all that it made is closed.
fn attempt(world: &mut World, act: impl FnOnce(&mut World) -> Result<(), NTSTATUS>) -> NTSTATUS {
    match act(world) {
        Ok(()) => STATUS_SUCCESS,
        Err(status) => {
            ATTEMPT.iter().for_each(|name| world.close_one(name));
            status
        }
    }
}

fn check(status: NTSTATUS) -> Result<(), NTSTATUS> {
    if status == STATUS_SUCCESS { Ok(()) } else { Err(status) }
}

/// Makes what an attempt needs, and begins it.
fn begin(world: &mut World, shared: bool) -> Result<(), NTSTATUS> {
    check(create_pd_of(world, 0, "near pd"))?;
    check(create_cq_of(world, 0, "near cq"))?;
    check(create_qp_of(world, ["near pd", "near cq"], "near qp", 0))?;
    check(create_pd_of(world, 1, "far pd"))?;
    check(create_cq_of(world, 1, "far cq"))?;
    check(create_qp_of(world, ["far pd", "far cq"], "far qp", 0))?;
    let adapter = world.adapter(0);
    check(world.create("active", |context, out| {
        call!(adapter, NdkCreateConnector, CREATED, context, out)
    }))?;
    world.expect(INCOMING);
    let (active, qp) = (world.get::<NDK_CONNECTOR>("active"), world.get::<NDK_QP>("near qp").0);
    let endpoint = world.get::<NDK_SHARED_ENDPOINT>("endpoint").0;
    let (from, to) = (SOCKADDR_INET::from(SocketAddr::new(address(0), 0)), to());
    let (data, len) = ([7_u8; 8], 8);
    world.begin(ACTIVE, |context| {
        let data = data.as_ptr().cast();
        if shared {
            call!(
                active,
                NdkConnectWithSharedEndpoint,
                qp,
                endpoint,
                to.as_ptr(),
                to.len(),
                1,
                1,
                data,
                len,
                REQUESTED,
                context
            )
        } else {
            call!(
                active,
                NdkConnect,
                qp,
                from.as_ptr(),
                from.len(),
                to.as_ptr(),
                to.len(),
                1,
                1,
                data,
                len,
                REQUESTED,
                context
            )
        }
    });
    // The peer hears of it, or the attempt has failed.
    assert!(world.run_until(|world| world.is_done(INCOMING) || world.is_done(ACTIVE)));
    if !world.is_done(INCOMING) {
        return Err(world.end(ACTIVE));
    }
    let passive = world.ends[INCOMING].object::<NDK_CONNECTOR>();
    world.keep("passive", passive);
    Ok(())
}

/// An attempt that the peer rejects.
fn be_rejected(world: &mut World) -> NTSTATUS {
    attempt(world, |world| {
        begin(world, false)?;
        let passive = world.get::<NDK_CONNECTOR>("passive");
        check(
            world.request_at(PASSIVE, |_| call!(passive, NdkReject, [1_u8, 2].as_ptr().cast(), 2)),
        )?;
        let status = world.end(ACTIVE);
        if status != STATUS_CONNECTION_REFUSED {
            return Err(status);
        }
        ATTEMPT.iter().for_each(|name| world.close_one(name));
        Ok(())
    })
}

fn establish(world: &mut World, shared: bool) -> Result<(), NTSTATUS> {
    begin(world, shared)?;
    let (active, passive) =
        (world.get::<NDK_CONNECTOR>("active"), world.get::<NDK_CONNECTOR>("passive"));
    let (qp, none) = (world.get::<NDK_QP>("far qp").0, null_mut());
    world.begin(PASSIVE, |context| {
        call!(passive, NdkAccept, qp, 1, 1, null(), 0, Some(left), none, REQUESTED, context)
    });
    // An accept that is refused leaves the request as it was.
    if world.is_done(PASSIVE) {
        return Err(world.end(PASSIVE));
    }
    check(world.end(ACTIVE))?;
    check(world.request_at(ACTIVE, |context| {
        call!(active, NdkCompleteConnect, Some(left), none, REQUESTED, context)
    }))?;
    check(world.end(PASSIVE))
}

fn connect(world: &mut World) -> NTSTATUS {
    attempt(world, |world| establish(world, false))
}

/// The message may be refused; what it asks for takes no memory.
fn disconnect(world: &mut World) -> NTSTATUS {
    let active = world.get::<NDK_CONNECTOR>("active");
    let status = world.request(|context| call!(active, NdkDisconnect, REQUESTED, context));
    if status == STATUS_SUCCESS {
        ATTEMPT.iter().for_each(|name| world.close_one(name));
    }
    status
}

fn connect_shared(world: &mut World) -> NTSTATUS {
    attempt(world, |world| establish(world, true))
}
