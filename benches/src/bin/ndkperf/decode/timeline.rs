//! The timeline: a line for each packet.

use std::fmt::Write as _;
use std::io::{self, Write};

use rocev2::wire::{Operation, Syndrome};

use super::analysis::{Analysis, Step};
use super::direction::{MarkKind, nak_name};
use super::packet::{Packet, Standing, opcode_name};
use super::resend::Cause;

/// Writes the line of a packet.
///
/// # Errors
/// The operating system's.
pub(super) fn write(out: &mut impl Write, analysis: &Analysis, step: &Step<'_>) -> io::Result<()> {
    let packet = step.packet;
    let place = step.conversation.map_or_else(|| "-".into(), |index| format!("#{}", index + 1));
    let ms = packet.at_ns as f64 / 1e6;
    let (src, dst) = (packet.src, packet.dst);
    let name = match analysis.survey.connections.in_frame(packet.number) {
        Some((_, event)) => event.kind.name().to_owned(),
        None => opcode_name(packet.bth.opcode),
    };
    let relative =
        step.mark.and_then(|mark| mark.at).map_or_else(String::new, |at| format!("{at:+}"));
    write!(
        out,
        "{:>6} {ms:>12.3} ms {place:>3} {src} > {dst} QP {:#x} {name:<22} PSN {relative:>6} {:#08x} len {:<5}",
        packet.number,
        packet.bth.dest_qpn.get(),
        packet.psn().get(),
        packet.payload_len,
    )?;
    writeln!(out, "{}", details(analysis, step))
}

/// Syndrome, flags and marks.
fn details(analysis: &Analysis, step: &Step<'_>) -> String {
    let packet = step.packet;
    let mut text = String::new();
    if let Some(aeth) = packet.ext.and_then(|ext| ext.aeth()) {
        match (nak_name(aeth.syndrome), aeth.syndrome) {
            (Some("RNR"), Syndrome::RnrNak(timer)) => {
                let _ = write!(text, " RNR NAK, {} us", timer.duration().as_micros());
            }
            (Some(name), _) => text.extend([" NAK ", name]),
            (None, Syndrome::Ack { .. }) => text.push_str(" ACK"),
            (None, syndrome) => {
                let _ = write!(text, " syndrome {:#04x}", syndrome.byte());
            }
        }
    }
    if packet.operation() == Some(Operation::ReadRequest)
        && let Some(len) = packet.message_len()
    {
        let _ = write!(text, " of {len} bytes");
    }
    for (flag, word) in [
        (packet.bth.ack_req, " A"),
        (packet.bth.solicited, " SE"),
        (packet.is_marked, " CE"),
        (packet.bth.becn, " BECN"),
    ] {
        if flag {
            text.push_str(word);
        }
    }
    text.push_str(&marks(analysis, packet, step.mark.map(|mark| mark.kind)));
    text
}

fn marks(analysis: &Analysis, packet: &Packet, mark: Option<MarkKind>) -> String {
    match packet.standing {
        Standing::Bad(reason) => return format!(" [dropped: {reason}]"),
        Standing::Cut | Standing::Sound => {}
    }
    if let Some((_, event)) = analysis.survey.connections.in_frame(packet.number) {
        return if event.is_again { " [again]".into() } else { String::new() };
    }
    match mark {
        None | Some(MarkKind::InOrder | MarkKind::Response) => String::new(),
        Some(MarkKind::Gap(missing)) => format!(" [gap: {missing} missing]"),
        Some(MarkKind::Again(Cause::Unknown)) => " [again]".into(),
        Some(MarkKind::Again(cause)) => format!(" [again {}]", cause.words()),
        Some(MarkKind::OutOfOrder) => " [out of order]".into(),
        Some(MarkKind::Duplicate) => " [duplicate]".into(),
        Some(MarkKind::Probe) => " [probe]".into(),
        Some(MarkKind::OutOfWindow) => " [out of window]".into(),
        Some(MarkKind::ResponseAgain) => " [again]".into(),
    }
}
