//! Reads a file of an NFS 4.0 server by NFS over RDMA: the server WRITEs the data into a region of ours.
//!
//! ```text
//! cargo run --release -p ndk-consumer --example nfs-read -- 10.0.0.2 /random --edge tap:rdma0 --address 10.0.0.1 >copy
//! ```

mod cli;
mod nfs;

use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use ndk_consumer::{Buffer, Endpoint, EndpointConfig, Region, Remote, Rights};
use nfs::{Answer, Operation, answers, call};

/// Read a file by NFS over RDMA; its bytes go to the standard output.
#[derive(Debug, Parser)]
struct Args {
    /// Address of the server
    server: IpAddr,
    /// Path of the file, from the server's root
    path: String,
    #[command(flatten)]
    host: cli::HostArgs,
    /// Port of the server
    #[arg(short, long, default_value_t = 20049)]
    port: u16,
    /// Bytes of a READ
    #[arg(long, default_value_t = 65_536, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    chunk: u32,
}

fn main() -> ExitCode {
    cli::end(run(&Args::parse()))
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let host = args.host.open()?;
    let server = SocketAddr::new(args.server, args.port);
    let endpoint = host.connect(server, &EndpointConfig::default())?;
    let chunk = args.chunk as usize;
    let (region, buffer) = (Region::new(host.pd(), chunk)?, Arc::new(Buffer::new(chunk)));
    let mut client = Client { endpoint, xid: 0x6e66_7301, region, buffer };
    let (handle, size) = client.find(&args.path)?;
    let copied = client.copy(&handle, &mut io::stdout().lock())?;
    client.endpoint.disconnect()?;
    eprintln!("{copied} of {size} bytes");
    if copied == size { Ok(()) } else { Err("the file has another size".into()) }
}

/// A connection to a server.
struct Client {
    endpoint: Endpoint,
    xid: u32,
    region: Region,
    buffer: Arc<Buffer>,
}

impl Client {
    /// The handle and the size of a file.
    fn find(&mut self, path: &str) -> Result<(Vec<u8>, u64), Box<dyn Error>> {
        let names = path.split('/').filter(|name| !name.is_empty()).map(Operation::Lookup);
        let operations: Vec<_> = std::iter::once(Operation::PutRoot)
            .chain(names)
            .chain([Operation::GetHandle, Operation::GetSize])
            .collect();
        let answers = self.call(None, &operations)?;
        match answers.as_slice() {
            [.., Answer::Handle(handle), Answer::Size(size)] => Ok((handle.clone(), *size)),
            _ => Err("the server answers something else".into()),
        }
    }

    /// Copies a whole file; the number of its bytes.
    fn copy(&mut self, handle: &[u8], to: &mut impl Write) -> Result<u64, Box<dyn Error>> {
        let mut offset = 0;
        loop {
            let len = self.buffer.len();
            let (endpoint, region) = (&mut self.endpoint, &mut self.region);
            let lent = endpoint.register(region, &self.buffer, 0..len, Rights::REMOTE_WRITE)?;
            let count = len as u32;
            let operations = [Operation::PutHandle(handle), Operation::Read { offset, count }];
            let answers = self.call(Some((lent, count)), &operations)?;
            // The server may write no more before its bytes are looked at.
            self.endpoint.invalidate(&self.region)?;
            let [_, Answer::Read { len, eof }] = answers.as_slice() else {
                return Err("the server answers something else".into());
            };
            let bytes = self.buffer.to_vec(0..(*len).min(count) as usize);
            to.write_all(&bytes)?;
            offset += bytes.len() as u64;
            if *eof || bytes.is_empty() {
                return Ok(offset);
            }
        }
    }

    fn call(
        &mut self,
        chunk: Option<(Remote, u32)>,
        operations: &[Operation<'_>],
    ) -> Result<Vec<Answer>, Box<dyn Error>> {
        self.xid += 1;
        self.endpoint.send(&call(self.xid, chunk, operations))?;
        let message = self.endpoint.receive()?;
        Ok(answers(&message.bytes, self.xid, operations)?)
    }
}
