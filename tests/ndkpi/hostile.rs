//! Frames that no honest peer sends: rewritten on the way, with the right checksums.

use rocev2::ids::Qpn;
use rocev2::psn::Msn;
use rocev2::wire::{
    Aeth, Bth, DropReason, Ext, NakCode, Opcode, Operation, Packet, Syndrome, Template, UnitWriter,
};
use tests::kit::Fate;

/// A rule that lets `change` rewrite the headers of each packet of a queue pair other than the one
/// of connection management; `None` lets it pass as it is.
pub(crate) fn rewrite(
    mut change: impl FnMut(&Packet<'_>) -> Option<(Bth, Ext)> + Send + 'static,
) -> impl FnMut(&[u8]) -> Fate + Send + 'static {
    move |frame| match Packet::parse(frame) {
        Ok(packet) if packet.bth.dest_qpn != Qpn::new(1) => match change(&packet) {
            Some((bth, ext)) => Fate::Replace(written(&packet, &bth, &ext)),
            None => Fate::Pass,
        },
        _ => Fate::Pass,
    }
}

fn written(packet: &Packet<'_>, bth: &Bth, ext: &Ext) -> Vec<u8> {
    // An answer without data carries none of what it replaces.
    let data: &[u8] = match bth.opcode.operation() {
        Operation::Acknowledge | Operation::AtomicAcknowledge => &[],
        _ => packet.payload,
    };
    let mut frame = vec![0; 2048];
    let template = Template::new(&packet.encap);
    let mut writer = UnitWriter::new(&mut frame, &template, packet.encap.ip_id);
    let filled = writer.push(bth, ext, data.len(), |out| {
        out.copy_from_slice(data);
        Ok::<(), DropReason>(())
    });
    filled.unwrap();
    let len = writer.finish().len;
    frame.truncate(len);
    frame
}

/// Every answer refuses.
pub(crate) fn refuse(code: NakCode) -> impl FnMut(&[u8]) -> Fate + Send + 'static {
    answer_with(Opcode::Acknowledge, move |msn| {
        Ext::Aeth(Aeth { syndrome: Syndrome::Nak(code), msn })
    })
}

/// Every answer is one to an atomic, which nobody asked for.
pub(crate) fn answer_nonsense() -> impl FnMut(&[u8]) -> Fate + Send + 'static {
    answer_with(Opcode::AtomicAcknowledge, |msn| {
        Ext::AtomicAck(Aeth { syndrome: Syndrome::ACK, msn }, 7)
    })
}

fn answer_with(
    opcode: Opcode,
    ext: impl Fn(Msn) -> Ext + Send + 'static,
) -> impl FnMut(&[u8]) -> Fate + Send + 'static {
    rewrite(move |packet| match (packet.bth.opcode.operation(), packet.ext) {
        (Operation::Acknowledge | Operation::ReadResponse, Ext::Aeth(aeth)) => {
            Some((Bth { opcode, ..packet.bth }, ext(aeth.msn)))
        }
        _ => None,
    })
}

/// A message ends with the beginning of another one.
pub(crate) fn begin_anew() -> impl FnMut(&[u8]) -> Fate + Send + 'static {
    rewrite(|packet| {
        (packet.bth.opcode == Opcode::SendLast)
            .then_some((Bth { opcode: Opcode::SendOnly, ..packet.bth }, Ext::None))
    })
}
