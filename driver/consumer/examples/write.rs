//! The smallest consumer: two adapters joined in memory, a connection between them, one RDMA WRITE.
//!
//! ```text
//! cargo run -p ndk-consumer --example write
//! ```
//!
//! Both sides run in one process here. On two machines each has its own half: an edge such as `AfPacket`
//! replaces the one in memory, and the region's address and token travel in private data.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use driver::abi::{NDK_MR_FLAG_ALLOW_REMOTE_WRITE, NDK_RESULT_EX, STATUS_SUCCESS};
use driver::{Provider, ProviderConfig};
use ndk_consumer::{Adapter, Buffer, Connector, Cq, Mr, NdkError, Pd, Qp, QpConfig, ReadLimits};
use netadapter_glue::Edge;
use netadapter_glue::memory::{MemoryConfig, pair};

const MESSAGE: &[u8] = b"one WRITE over RoCEv2";
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let (left, right) = pair(MemoryConfig::default());
    let client = Host::open(left, "10.0.0.1".parse()?)?;
    let server = Host::open(right, "10.0.0.2".parse()?)?;
    // The server gives the peer a region that it may write into.
    let target = server.pd.register(Buffer::new(4096), NDK_MR_FLAG_ALLOW_REMOTE_WRITE)?;

    let (active, _passive) = connect(&client, &server)?;
    client.write(&target)?;

    let mut bytes = vec![0; MESSAGE.len()];
    target.buffer().read(0, &mut bytes);
    assert_eq!(bytes, MESSAGE);
    println!("{} bytes arrived: {:?}", bytes.len(), String::from_utf8_lossy(&bytes));
    active.disconnect().wait()?;
    Ok(())
}

/// One end: an adapter, and the objects that a connection needs.
struct Host {
    ip: IpAddr,
    adapter: Arc<Adapter>,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
}

impl Host {
    fn open(edge: impl Edge + Send + 'static, ip: IpAddr) -> Result<Self, Box<dyn Error>> {
        let provider = Provider::start(Box::new(edge), ProviderConfig::new(vec![ip]))?;
        let adapter = Adapter::open(Arc::new(provider))?;
        let pd = adapter.create_pd()?;
        let cq = adapter.create_cq(16)?;
        let qp = pd.create_qp(&cq, &cq, QpConfig::default())?;
        Ok(Self { ip, adapter, pd, cq, qp })
    }

    /// Writes the message into the peer's region, and waits for the completion.
    fn write(&self, target: &Mr) -> Result<(), Box<dyn Error>> {
        let source = self.pd.register(Buffer::new(4096), 0)?;
        source.buffer().write(0, MESSAGE);
        let context = 1;
        self.qp.write(context, &[source.sge(0..MESSAGE.len())], target.remote(0), 0)?;
        let mut results = [NDK_RESULT_EX::EMPTY];
        let taken = self.cq.wait_results_ex(&mut results, PATIENCE)?;
        assert_eq!((taken, results[0].Status), (1, STATUS_SUCCESS));
        Ok(())
    }
}

/// Connects, accepts and completes the connect; the connection lives as long as both connectors.
fn connect(client: &Host, server: &Host) -> Result<(Connector, Connector), NdkError> {
    let to = SocketAddr::new(server.ip, 7174);
    let listener = server.adapter.listen(to)?;
    let active = client.adapter.create_connector()?;
    let request = active.connect(&client.qp, SocketAddr::new(client.ip, 0), to, LIMITS, b"hello");
    let passive = listener.next(PATIENCE).expect("the request arrives");
    let accept = passive.accept(&server.qp, LIMITS, b"welcome");
    request.wait()?;
    active.complete_connect().wait()?;
    accept.wait()?;
    Ok((active, passive))
}
