//! Two hosts joined in memory: the server lends memory and says where it is, and the client WRITEs into it.

use ndk_consumer::{EndpointConfig, EndpointError, Remote, Rights, pair};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [client, server] = pair()?;
    let listener = server.listen(7174)?;
    let address = listener.local_address()?;

    let serving = std::thread::spawn(move || -> Result<Vec<u8>, EndpointError> {
        let mut peer = server.accept(&listener, &EndpointConfig::default())?;
        let lent = server.register(&[0; 64][..], Rights::REMOTE_WRITE)?;
        peer.send(&lent.remote(0).to_bytes())?;
        peer.receive()?;
        Ok(lent.buffer().to_vec(0..21))
    });

    let mut peer = client.connect(address, &EndpointConfig::default())?;
    let target = Remote::from_bytes(&peer.receive()?.bytes).ok_or("no address")?;
    let source = client.register(b"one WRITE over RoCEv2".as_slice(), Rights::empty())?;
    peer.write(&[source.sge(0..21)], target)?;
    peer.send(b"it is written")?;

    let arrived = serving.join().expect("the server does not panic")?;
    assert_eq!(arrived, b"one WRITE over RoCEv2");
    println!("{} bytes arrived: {:?}", arrived.len(), String::from_utf8_lossy(&arrived));
    Ok(())
}
