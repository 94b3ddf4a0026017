//! Memory windows, fast registration, and the ends of both.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use core::ptr::{null_mut, with_exposed_provenance_mut};

use ndk_abi::*;

use crate::Failure;
use crate::completion::{Expected, request};
use crate::connection::{End, MEMORY_LEN, Pair};
use crate::kinds::{Object, call};
use crate::posting::Remote;
use crate::step::Step;

/// Both remote rights.
const REMOTE: u32 = NDK_OP_FLAG_ALLOW_REMOTE_WRITE | NDK_OP_FLAG_ALLOW_REMOTE_READ;
/// The part of the memory that is mapped.
const AT: usize = 1000;
const LEN: usize = 6000;

/// A peer reaches a part of a region by a window, until the window is invalidated; then its request fails.
pub(super) fn window(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client, server, .. } = step.pair()?;
    let mw = step.mw(server.pd)?;
    let memory = server.region.memory;
    let address: PVOID = memory.start.wrapping_add(AT).cast();
    let (mr, number) = (server.region.mr.as_ptr(), request(1));
    let posted = call!(server.qp, NdkBind(number, mr, mw.as_ptr(), address, LEN, REMOTE));
    Failure::unless_status("NdkBind", posted, STATUS_SUCCESS)?;
    let token = call!(mw, NdkGetRemoteTokenFromMw());
    step.expect(server.queue, Expected::done(1, NdkOperationTypeBind))?;
    let there = Remote { address: memory.address(AT), token };
    use_mapping(step, &client, &server, there)?;
    server.qp.invalidate(2, mw.header())?;
    step.expect(server.queue, Expected::done(2, NdkOperationTypeInvalidate))?;
    expect_refusal(step, &client, there)
}

/// Writes and reads the mapped part from the other end.
fn use_mapping(
    step: &mut Step<'_>,
    client: &End<'_>,
    server: &End<'_>,
    there: Remote,
) -> Result<(), Failure> {
    client.region.memory.fill(0..LEN, 42);
    client.qp.write(10, &[client.region.sge(0..LEN)], there, 0)?;
    step.expect(client.queue, Expected::done(10, NdkOperationTypeWrite))?;
    server.region.memory.expect(AT..AT + LEN, 42)?;
    client.region.memory.fill(0..LEN, 0);
    client.qp.read(11, &[client.region.sge(0..LEN)], there, 0)?;
    step.expect(client.queue, Expected::done(11, NdkOperationTypeRead))?;
    client.region.memory.expect(0..LEN, 42)
}

/// The mapping has ended.
fn expect_refusal(step: &mut Step<'_>, client: &End<'_>, there: Remote) -> Result<(), Failure> {
    client.qp.write(12, &[client.region.sge(0..8)], there, 0)?;
    let refused = Expected::ended(12, NdkOperationTypeWrite, STATUS_ACCESS_VIOLATION);
    step.expect(client.queue, refused)
}

/// A peer reaches pages by a fast registration, until its owner invalidates it.
pub(super) fn fast_register(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client, server, .. } = step.pair()?;
    let (fast, there) = register(step, &server)?;
    use_mapping(step, &client, &server, there)?;
    server.qp.invalidate(2, fast.header())?;
    step.expect(server.queue, Expected::done(2, NdkOperationTypeInvalidate))?;
    expect_refusal(step, &client, there)
}

/// A peer ends a fast registration by the message with which it says that it is done, as SMB Direct does; the pages are
/// registered anew, and it does so again.
pub(super) fn invalidate(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client, server, .. } = step.pair()?;
    let (fast, there) = register(step, &server)?;
    for round in 0..2 {
        use_mapping(step, &client, &server, there)?;
        server.qp.receive(3, &[server.region.sge(0..10)])?;
        client.qp.send_and_invalidate(4, &[client.region.sge(0..10)], there.token)?;
        let got = step.next(server.queue, "NdkReceive")?;
        Failure::unless_status("NdkReceive", got.Status, STATUS_SUCCESS)?;
        let kind = NdkOperationTypeReceiveAndInvalidate;
        Failure::unless_same("a completion's type", got.Type.0 as u64, kind.0 as u64)?;
        let token = got.TypeSpecificCompletionOutput as u64;
        Failure::unless_same("the token that was invalidated", token, there.token.into())?;
        step.expect(client.queue, Expected::done(4, NdkOperationTypeSend))?;
        if round == 0 {
            post_registration(step, &server, fast)?;
        }
    }
    expect_refusal(step, &client, there)
}

/// A region for fast registration, with a part of the end's memory in it.
fn register(step: &mut Step<'_>, end: &End<'_>) -> Result<(Object<NDK_MR>, Remote), Failure> {
    let fast = step.mr(end.pd, TRUE)?;
    let call = step.begin("NdkInitializeFastRegisterMr", |completion, context| {
        call!(fast, NdkInitializeFastRegisterMr(8, TRUE, completion, context))
    })?;
    step.succeed(call)?;
    post_registration(step, end, fast)?;
    let token = call!(fast, NdkGetRemoteTokenFromMr());
    Ok((fast, Remote { address: BASE + AT as u64, token }))
}

/// The address by which requests name the first mapped page.
const BASE: u64 = 0x70_0000;

/// Maps the part by logical addresses, and waits for it.
fn post_registration(
    step: &mut Step<'_>,
    end: &End<'_>,
    fast: Object<NDK_MR>,
) -> Result<(), Failure> {
    let mapping = Mapping::build(step, end)?;
    let base = with_exposed_provenance_mut(BASE as usize + AT);
    let fbo = mapping.fbo as usize + AT;
    let (pages, count) = (mapping.pages(), (fbo + LEN).div_ceil(PAGE_SIZE));
    Failure::unless_same(
        "pages of a mapping",
        mapping.count().into(),
        (mapping.fbo as usize + MEMORY_LEN).div_ceil(PAGE_SIZE) as u64,
    )?;
    let (number, mr) = (request(1), fast.as_ptr());
    let posted = call!(
        end.qp,
        NdkFastRegister(number, mr, count as u32, pages, fbo as u32, LEN, base, REMOTE)
    );
    Failure::unless_status("NdkFastRegister", posted, STATUS_SUCCESS)?;
    step.expect(end.queue, Expected::done(1, NdkOperationTypeFastRegister))
}

/// The logical addresses of an end's memory. The step keeps them until its end, where the closed adapter forgets them.
struct Mapping {
    start: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    fbo: u32,
}

impl Mapping {
    fn build(step: &mut Step<'_>, end: &End<'_>) -> Result<Self, Failure> {
        let memory = end.region.memory;
        let (mut len, mut fbo) = (0, 0);
        let adapter = step.adapter(1);
        let none = null_mut();
        let asked = call!(
            adapter,
            NdkBuildLAM(memory.mdl, memory.len, None, none, null_mut(), &raw mut len, &raw mut fbo)
        );
        Failure::unless_status("NdkBuildLAM", asked, STATUS_BUFFER_TOO_SMALL)?;
        let start = step.allocate(len as usize)?.cast::<NDK_LOGICAL_ADDRESS_MAPPING>();
        let call = step.begin("NdkBuildLAM", |completion, context| {
            call!(
                adapter,
                NdkBuildLAM(
                    memory.mdl,
                    memory.len,
                    completion,
                    context,
                    start,
                    &raw mut len,
                    &raw mut fbo,
                )
            )
        })?;
        step.succeed(call)?;
        step.mapped(start)?;
        Ok(Self { start, fbo })
    }

    fn count(&self) -> u32 {
        // SAFETY: built, and not released before the end of the step.
        unsafe { (*self.start).AdapterPageCount }
    }

    fn pages(&self) -> *const NDK_LOGICAL_ADDRESS {
        // SAFETY: as above; the pages stand behind the head.
        unsafe { (&raw const (*self.start).AdapterPageArray).cast() }
    }
}
