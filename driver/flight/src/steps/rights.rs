//! The limits of a peer's rights.

use ndk_abi::*;

use crate::Failure;
use crate::completion::Expected;
use crate::connection::{MEMORY_LEN, Pair};
use crate::posting::Remote;
use crate::step::Step;
use crate::steps::transfers::remote;

/// A peer reaches no byte beyond a region, nor one by a token that nobody gave it. Its request fails, and the memory stays
/// as it is.
pub(super) fn rights(step: &mut Step<'_>) -> Result<(), Failure> {
    for (kind, is_write) in [(NdkOperationTypeWrite, true), (NdkOperationTypeRead, false)] {
        for case in 0..3 {
            let Pair { client, server, .. } = step.pair()?;
            let there = remote(&server, 0);
            let to = match case {
                0 => Remote { address: there.address + MEMORY_LEN as u64 - 99, ..there },
                1 => Remote { address: there.address - 1, ..there },
                _ => Remote { token: there.token ^ 0x100, ..there },
            };
            let memory = server.region.memory;
            memory.fill(0..MEMORY_LEN, 3);
            client.region.memory.fill(0..100, 4);
            let sges = [client.region.sge(0..100)];
            if is_write {
                client.qp.write(1, &sges, to, 0)?;
            } else {
                client.qp.read(1, &sges, to, 0)?;
            }
            step.expect(client.queue, Expected::ended(1, kind, STATUS_ACCESS_VIOLATION))?;
            memory.expect(0..MEMORY_LEN, 3)?;
            step.finish()?;
        }
    }
    Ok(())
}
