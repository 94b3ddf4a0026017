//! The other ends of librdmacm's own programs, over the tables of `ndkpi.h`.
//!
//! `peer ucmatose-server|ucmatose-client|rdma-server|rdma-client --edge EDGE --address IP`; a client
//! takes `--to IP`, too. ucmatose moves `--count` messages of `--size` bytes each way, the server's first. An `rdma_client`
//! sends one message of 16 bytes and gets one, here `--count` times, in a connection each.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use driver::abi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_RESULT_EX, NdkOperationTypeReceive,
    STATUS_CONNECTION_REFUSED, STATUS_SUCCESS,
};
use driver::{Provider, ProviderConfig};
use ndk_consumer::{
    Adapter, Buffer, Connector, Cq, Listener, Mr, NdkError, Qp, QpConfig, ReadLimits,
};
use netadapter_glue::host::EdgeSpec;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The other end of a program of librdmacm
#[derive(Parser)]
struct Arguments {
    program: Program,
    /// As of `ndkperf`
    #[arg(long)]
    edge: EdgeSpec,
    #[arg(long)]
    address: IpAddr,
    /// Largest IP packet in bytes
    #[arg(long)]
    mtu: Option<usize>,
    /// The server, of a client
    #[arg(long)]
    to: Option<IpAddr>,
    /// Messages each way, or connections
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// Bytes of a message
    #[arg(long, default_value_t = 16)]
    size: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Program {
    UcmatoseServer,
    UcmatoseClient,
    RdmaServer,
    RdmaClient,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let adapter = open(arguments)?;
    let listener = match arguments.program {
        Program::UcmatoseServer | Program::RdmaServer => Some(listen(&adapter, arguments.address)?),
        Program::UcmatoseClient | Program::RdmaClient => None,
    };
    let (times, messages) = match arguments.program {
        Program::UcmatoseServer | Program::UcmatoseClient => (1, arguments.count),
        Program::RdmaServer | Program::RdmaClient => (arguments.count, 1),
    };
    for _ in 0..times {
        let peer = match &listener {
            Some(listener) => Peer::accept(&adapter, listener, messages, arguments.size)?,
            None => connect(&adapter, messages, arguments)?,
        };
        speak(peer, arguments.program)?;
    }
    println!("{times} times {messages} messages of {} bytes each way", arguments.size);
    Ok(())
}

/// A server of ucmatose speaks first, and ends the connection; a server of `rdma_client` answers.
fn speak(mut peer: Peer, program: Program) -> Result<()> {
    match program {
        Program::UcmatoseServer | Program::RdmaClient => {
            peer.send()?;
            peer.receive()?;
        }
        Program::UcmatoseClient | Program::RdmaServer => {
            peer.receive()?;
            peer.send()?;
        }
    }
    peer.end(program == Program::UcmatoseServer)
}

fn listen(adapter: &Arc<Adapter>, address: IpAddr) -> Result<Arc<Listener>> {
    let listener = adapter.listen(SocketAddr::new(address, PORT))?;
    println!("listening");
    Ok(listener)
}

/// Connects; a server that serves one client may not be there anew yet.
fn connect(adapter: &Arc<Adapter>, messages: usize, arguments: &Arguments) -> Result<Peer> {
    let server = arguments.to.ok_or("a client needs --to")?;
    let [local, remote] = [(arguments.address, 0), (server, PORT)].map(SocketAddr::from);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Peer::connect(adapter, local, remote, messages, arguments.size) {
            Err(error) if is_refusal(&*error) && Instant::now() < deadline => thread::sleep(SLICE),
            other => return other,
        }
    }
}

fn is_refusal(error: &(dyn Error + 'static)) -> bool {
    let ndk = error.downcast_ref::<NdkError>();
    ndk.is_some_and(|error| error.status == STATUS_CONNECTION_REFUSED)
}

/// An adapter at the end of a link.
fn open(arguments: &Arguments) -> Result<Arc<Adapter>> {
    let mut edge = arguments.edge.clone();
    edge.options.mtu = arguments.mtu.or(edge.options.mtu);
    let provider = Provider::start(edge.open()?, ProviderConfig::new(vec![arguments.address]))?;
    Ok(Adapter::open(Arc::new(provider))?)
}

/// One connection.
struct Peer {
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    /// A message to send, and one where all that come may lie: what they say means nothing.
    mr: Arc<Mr>,
    connector: Connector,
    count: usize,
    size: usize,
    /// Messages that came and were sent.
    done: [usize; 2],
}

impl Peer {
    fn accept(
        adapter: &Arc<Adapter>,
        listener: &Arc<Listener>,
        count: usize,
        size: usize,
    ) -> Result<Self> {
        let connector = listener.next(PATIENCE).ok_or("nobody connects")?;
        let peer = Self::new(adapter, connector, count, size)?;
        peer.connector.accept(&peer.qp, LIMITS, b"").wait()?;
        Ok(peer)
    }

    fn connect(
        adapter: &Arc<Adapter>,
        local: SocketAddr,
        remote: SocketAddr,
        count: usize,
        size: usize,
    ) -> Result<Self> {
        let peer = Self::new(adapter, adapter.create_connector()?, count, size)?;
        peer.connector.connect(&peer.qp, local, remote, LIMITS, b"").wait()?;
        peer.connector.complete_connect().wait()?;
        Ok(peer)
    }

    /// An endpoint that is ready for all messages.
    fn new(
        adapter: &Arc<Adapter>,
        connector: Connector,
        count: usize,
        size: usize,
    ) -> Result<Self> {
        let cq = adapter.create_cq(2 * count as u32)?;
        let pd = adapter.create_pd()?;
        let depth = count as u32;
        let config =
            QpConfig { receive_depth: depth, initiator_depth: depth, ..QpConfig::default() };
        let qp = pd.create_qp(&cq, &cq, config)?;
        let mr = pd.register(Buffer::new(2 * size), NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
        for context in 0..count {
            qp.receive(context, &[mr.sge(size..2 * size)])?;
        }
        Ok(Self { cq, qp, mr, connector, count, size, done: [0; 2] })
    }

    fn send(&mut self) -> Result<()> {
        for context in 0..self.count {
            self.qp.send(context, &[self.mr.sge(0..self.size)], 0)?;
        }
        self.wait_for(1)
    }

    fn receive(&mut self) -> Result<()> {
        self.wait_for(0)
    }

    /// Until all messages of one direction are done.
    fn wait_for(&mut self, direction: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.done[direction] < self.count {
            let mut results = [NDK_RESULT_EX::EMPTY; 64];
            let taken = self.cq.wait_results_ex(&mut results, SLICE)?;
            for result in &results[..taken] {
                self.take(result)?;
            }
            // What came before the end is still there.
            if taken == 0 && self.connector.is_disconnected() {
                // A guest that has all messages leaves at once, and may not acknowledge the last. It says itself what it misses.
                let all_came = direction == 1 && self.done[0] == self.count;
                return if all_came {
                    Ok(())
                } else {
                    Err("the peer disconnected before the end".into())
                };
            }
            if Instant::now() > deadline {
                return Err(format!("after {:?} of messages {:?}", PATIENCE, self.done).into());
            }
        }
        Ok(())
    }

    fn take(&mut self, result: &NDK_RESULT_EX) -> Result<()> {
        if result.Status != STATUS_SUCCESS {
            return Err(format!("{:?} ended with {}", result.Type, result.Status).into());
        }
        let received = result.Type == NdkOperationTypeReceive;
        if received && result.BytesTransferred as usize != self.size {
            return Err(format!("a message of {} bytes", result.BytesTransferred).into());
        }
        self.done[usize::from(!received)] += 1;
        Ok(())
    }

    /// Ends the connection, or waits until the other side does.
    fn end(self, first: bool) -> Result<()> {
        if first {
            self.connector.disconnect().wait()?;
        } else if !self.connector.wait_disconnected(PATIENCE) {
            return Err("the peer does not disconnect".into());
        }
        Ok(())
    }
}

/// Of all these programs.
const PORT: u16 = 7471;
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
const PATIENCE: Duration = Duration::from_secs(60);
const SLICE: Duration = Duration::from_millis(100);
