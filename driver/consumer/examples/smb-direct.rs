//! Writes a file of an SMB server by SMB Direct, reads it back and compares: the server READs the data from regions of
//! ours, and WRITEs them into others. The file is removed.
//!
//! ```text
//! cargo run --release -p ndk-consumer --example smb-direct -- 10.0.0.2 share --edge tap:rdma0 --address 10.0.0.1
//! ```

mod cli;
mod data;
mod smb;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use data::random;
use ndk_consumer::Buffer;
use smb::client::Session;
use smb::session::Dialect;

/// Write a file by SMB Direct, read it back and compare.
#[derive(Debug, Parser)]
struct Args {
    /// Address of the server
    server: IpAddr,
    /// Name of the share, which has to take guests
    share: String,
    #[command(flatten)]
    host: cli::HostArgs,
    /// Port of the server
    #[arg(short, long, default_value_t = 445)]
    port: u16,
    /// Name of the guest
    #[arg(short, long, default_value = "guest")]
    user: String,
    /// Name of the file, which is overwritten and then removed; smb-direct and the process's number unless given: a
    /// server may hold the file of a killed run for long
    #[arg(short, long)]
    file: Option<String>,
    /// Dialect of SMB
    #[arg(long, value_enum, default_value_t = Dialect::V302)]
    dialect: Dialect,
    /// MiB that are written and read
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1024))]
    size: u64,
    /// Seed of the data
    #[arg(long, default_value_t = 1)]
    data: u64,
}

fn main() -> ExitCode {
    cli::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let server = SocketAddr::new(args.server, args.port);
    let host = args.host.open()?;
    let mut session = Session::connect(&host, server, &args.share, &args.user, args.dialect)?;
    let start = Instant::now();
    let name = args.file.clone();
    let name = name.unwrap_or_else(|| format!("smb-direct-{}", std::process::id()));
    let file = session.create(&name)?;
    let bytes = random((args.size as usize) << 20, args.data);
    session.write(file, &Arc::new(Buffer::from(bytes.as_slice())))?;
    let back = Arc::new(Buffer::new(bytes.len()));
    session.read(file, &back)?;
    let back = back.to_vec(0..bytes.len());
    if let Some(place) = (0..bytes.len()).find(|place| bytes[*place] != back[*place]) {
        return Err(format!("byte {place} of the file is another one").into());
    }
    session.close(file)?;
    session.disconnect()?;
    println!("wrote and read {} MiB, all equal, in {:.1?}", args.size, start.elapsed());
    Ok(())
}
