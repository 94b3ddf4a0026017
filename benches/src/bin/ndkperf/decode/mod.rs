//! `ndkperf decode`: explains a capture as conversations of queue pairs.
//!
//! The file is read twice. The first pass ([`survey`]) counts, follows connection management and finds out which queue
//! pairs speak to each other; the second one ([`analysis`]) follows the PSNs of each [`direction`], and prints the timeline
//! as it goes. Memory is bounded for each conversation, whatever the capture's length.

mod analysis;
mod capture;
mod connection;
mod conversation;
mod direction;
mod findings;
mod gaps;
mod json;
mod live;
mod packet;
mod reads;
mod resend;
mod survey;
mod text;
mod timeline;

use std::io;
use std::path::PathBuf;

use clap::Args;

use analysis::{Analysis, Report};
use conversation::Conversation;
pub(crate) use live::{Facts, Seen, examine};
use packet::Frame;
use survey::Survey;

#[derive(Args, Debug)]
pub(crate) struct Decode {
    /// Capture to explain: pcap or pcapng, Ethernet
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Show only conversations of this queue pair, decimal or with 0x
    #[arg(long, value_name = "N", value_parser = qpn)]
    pub(crate) qp: Option<u32>,
    /// Print each packet of the conversations in one line
    #[arg(long, conflicts_with = "json")]
    pub(crate) timeline: bool,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl Decode {
    fn shows(&self, conversation: &Conversation) -> bool {
        self.qp.is_none_or(|qpn| conversation.ends.iter().any(|end| end.qpn == Some(qpn)))
    }
}

/// The reason why a capture was not explained to its end.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// It cannot be read to its end, and why.
    Capture(String),
    /// Nothing can be printed.
    Output(io::Error),
}

/// Prints what a capture holds, as far as it can be read.
///
/// # Errors
/// [`DecodeError::Capture`] where it cannot be read to its end, [`DecodeError::Output`] where nothing can be printed.
pub(crate) fn run(args: &Decode, out: &mut impl io::Write) -> Result<(), DecodeError> {
    let mut survey = Survey::default();
    let mut start_ns = None;
    let (frames, error) = capture::read(&args.file, u64::MAX, &mut |record| {
        let start_ns = *start_ns.get_or_insert(record.at_ns);
        let at_ns = record.at_ns.saturating_sub(start_ns);
        survey.take(record.number, at_ns, &Frame::of(record, start_ns));
    });
    if frames == 0
        && let Some(error) = error
    {
        return Err(DecodeError::Capture(error.to_string()));
    }
    let start_ns = start_ns.unwrap_or(0);
    let mut analysis = Analysis::new(survey, args.qp);
    let mut printed = Ok(());
    // The file may have grown since.
    capture::read(&args.file, frames, &mut |record| {
        let frame = Frame::of(record, start_ns);
        let step = analysis.take(&frame);
        if args.timeline
            && printed.is_ok()
            && let Some(step) = step
        {
            printed = timeline::write(out, &analysis, &step);
        }
    });
    let report = analysis.finish(start_ns, error.as_ref().map(ToString::to_string));
    printed.and_then(|()| print(out, args, &report)).map_err(DecodeError::Output)?;
    error.map_or(Ok(()), |error| Err(DecodeError::Capture(error.to_string())))
}

fn print(out: &mut impl io::Write, args: &Decode, report: &Report) -> io::Result<()> {
    if args.json {
        writeln!(out, "{:#}", json::document(args, report))?;
    } else {
        if args.timeline {
            writeln!(out)?;
        }
        text::write(out, args, report)?;
    }
    out.flush()
}

fn qpn(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.ok().filter(|qpn| *qpn < 1 << 24).ok_or_else(|| "not a number of a queue pair".into())
}
