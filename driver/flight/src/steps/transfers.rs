//! SEND, WRITE and READ.

use ndk_abi::*;

use crate::Failure;
use crate::completion::Expected;
use crate::connection::{End, MEMORY_LEN, Pair};
use crate::objects::INLINE_LEN;
use crate::posting::Remote;
use crate::step::Step;

/// Lengths of messages in bytes: none, one, around a path MTU of 1024 and of 4096, and several packets.
const LENGTHS: [usize; 9] = [0, 1, 255, 1023, 1024, 1025, 4096, 4097, MEMORY_LEN - 64];

/// How a peer names a byte of an end's memory.
pub(super) fn remote(end: &End<'_>, place: usize) -> Remote {
    Remote { address: end.region.memory.address(place), token: end.region.remote_token() }
}

/// Messages of each length go both ways, from two elements into two; one waits for its receive; one has its bytes inline.
pub(super) fn send(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client, server, .. } = step.pair()?;
    for (number, &len) in LENGTHS.iter().enumerate() {
        exchange(step, [&client, &server], number, len)?;
        exchange(step, [&server, &client], number, len)?;
    }
    // The receive comes behind its message.
    client.qp.send(1, &[client.region.sge(0..500)], NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT)?;
    server.qp.receive(2, &[server.region.sge(0..500)])?;
    step.expect(server.queue, Expected::received(2, 500))?;
    step.expect(client.queue, Expected::done(1, NdkOperationTypeSend))?;
    let inline = INLINE_LEN as usize;
    client.region.memory.fill(0..inline, 9);
    server.qp.receive(3, &[server.region.sge(0..inline)])?;
    client.qp.send(4, &[client.region.sge(0..inline)], NDK_OP_FLAG_INLINE)?;
    // The bytes were taken by the call.
    client.region.memory.fill(0..inline, 0);
    step.expect(server.queue, Expected::received(3, inline))?;
    step.expect(client.queue, Expected::done(4, NdkOperationTypeSend))?;
    server.region.memory.expect(0..inline, 9)
}

/// One message from the first end to the second.
fn exchange(
    step: &mut Step<'_>,
    [from, to]: [&End<'_>; 2],
    number: usize,
    len: usize,
) -> Result<(), Failure> {
    let (seed, half) = (number as u8 + 1, len / 3);
    from.region.memory.fill(0..len, seed);
    to.region.memory.fill(0..MEMORY_LEN, !seed);
    to.qp.receive(number, &[to.region.sge(7..7 + half), to.region.sge(7 + half..MEMORY_LEN)])?;
    let sges = [from.region.sge(0..len - half), from.region.sge(len - half..len)];
    from.qp.send(number + 100, &sges, 0)?;
    step.expect(to.queue, Expected::received(number, len))?;
    step.expect(from.queue, Expected::done(number + 100, NdkOperationTypeSend))?;
    to.region.memory.expect(7..7 + len, seed)?;
    to.region.memory.expect_rest(0..7, !seed)?;
    to.region.memory.expect_rest(7 + len..MEMORY_LEN, !seed)
}

/// WRITEs of each length, to an odd address, change these bytes and no others. The last of a chain tells of those before it.
pub(super) fn write(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client, server, .. } = step.pair()?;
    let (at, ours, theirs) = (13, client.region, server.region);
    for (number, &len) in LENGTHS.iter().enumerate() {
        let seed = number as u8 + 1;
        ours.memory.fill(0..len, seed);
        theirs.memory.fill(0..MEMORY_LEN, !seed);
        client.qp.write(number, &[ours.sge(0..len)], remote(&server, at), 0)?;
        step.expect(client.queue, Expected::done(number, NdkOperationTypeWrite))?;
        theirs.memory.expect(at..at + len, seed)?;
        theirs.memory.expect_rest(0..at, !seed)?;
        theirs.memory.expect_rest(at + len..MEMORY_LEN, !seed)?;
    }
    ours.memory.fill(0..2000, 77);
    let silent = NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER;
    for part in 0..4 {
        let bytes = 500 * part..500 * part + 500;
        let flags = if part == 3 { 0 } else { silent };
        client.qp.write(part, &[ours.sge(bytes.clone())], remote(&server, bytes.start), flags)?;
    }
    step.expect(client.queue, Expected::done(3, NdkOperationTypeWrite))?;
    step.expect_nothing(client.queue)?;
    theirs.memory.expect(0..2000, 77)
}

/// READs of each length, and more of them at once than the connection has agreed on.
pub(super) fn read(step: &mut Step<'_>) -> Result<(), Failure> {
    const AT_ONCE: usize = 12;
    let Pair { client, server, .. } = step.pair()?;
    let (ours, theirs) = (client.region, server.region);
    for (number, &len) in LENGTHS.iter().enumerate() {
        let seed = number as u8 + 1;
        theirs.memory.fill(5..5 + len, seed);
        ours.memory.fill(0..MEMORY_LEN, !seed);
        client.qp.read(number, &[ours.sge(3..3 + len)], remote(&server, 5), 0)?;
        step.expect(client.queue, Expected::done(number, NdkOperationTypeRead))?;
        ours.memory.expect(3..3 + len, seed)?;
        ours.memory.expect_rest(0..3, !seed)?;
        ours.memory.expect_rest(3 + len..MEMORY_LEN, !seed)?;
    }
    theirs.memory.fill(0..1500 * AT_ONCE, 55);
    for number in 0..AT_ONCE {
        let part = 1500 * number..1500 * number + 1500;
        client.qp.read(number, &[ours.sge(part.clone())], remote(&server, part.start), 0)?;
    }
    for number in 0..AT_ONCE {
        step.expect(client.queue, Expected::done(number, NdkOperationTypeRead))?;
    }
    ours.memory.expect(0..1500 * AT_ONCE, 55)
}

/// Requests complete in the order of their posts, and a fence keeps a SEND behind the READ whose bytes it brings.
pub(super) fn order(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client, server, .. } = step.pair()?;
    let (ours, theirs) = (client.region, server.region);
    theirs.memory.fill(0..4000, 21);
    server.qp.receive(1, &[theirs.sge(8000..12_000)])?;
    client.qp.write(1, &[ours.sge(0..100)], remote(&server, 5000), 0)?;
    client.qp.read(2, &[ours.sge(0..4000)], remote(&server, 0), 0)?;
    client.qp.send(3, &[ours.sge(0..4000)], NDK_OP_FLAG_READ_FENCE)?;
    step.expect(client.queue, Expected::done(1, NdkOperationTypeWrite))?;
    step.expect(client.queue, Expected::done(2, NdkOperationTypeRead))?;
    step.expect(client.queue, Expected::done(3, NdkOperationTypeSend))?;
    step.expect(server.queue, Expected::received(1, 4000))?;
    theirs.memory.expect(8000..12_000, 21)
}
