//! An NVMe over RDMA target: `nvme connect -t rdma` of Linux sees a disk that this process serves from memory.
//!
//! ```text
//! cargo run --release -p ndk-consumer --example nvme-target -- --edge tap:rdma0 --address 10.0.0.1
//! nvme connect -t rdma -a 10.0.0.1 -s 4420 -n nqn.2026-11.ndkrocev2:disk      # on a machine with an RDMA device
//! ```

mod cli;
#[allow(dead_code, reason = "the host is another program's")]
mod nvme;

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use nvme::target::Target;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Serve a RAM disk by NVMe over RDMA.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    host: cli::HostArgs,
    /// Port to listen on
    #[arg(short, long, default_value_t = 4420)]
    port: u16,
    /// Name of the subsystem
    #[arg(short = 'n', long, default_value = "nqn.2026-11.ndkrocev2:disk", value_name = "NQN")]
    subsystem: String,
    /// Size of the disk in MiB
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    size: usize,
}

fn main() -> ExitCode {
    cli::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let stop = stop()?;
    let host = args.host.open()?;
    let target = Target::new(&host, &args.subsystem, args.size << 20, &stop)?;
    let listener = host.listen(args.port)?;
    println!("ready: {} at {}", args.subsystem, listener.local_address()?);
    target.serve(&listener);
    Ok(())
}

/// Becomes true when the user or the system asks this program to end, so that its capture gets whole.
fn stop() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
