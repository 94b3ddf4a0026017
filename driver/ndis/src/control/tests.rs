use super::snapshot::*;
use std::vec::Vec;

fn sample() -> Snapshot {
    let head = Head {
        version: VERSION,
        len: 0,
        adapters: 2,
        stage: 8,
        problem: 2,
        problem_values: [11, 1500, 9000],
    };
    let adapter = |connections| Adapter {
        interface: 11,
        mac: [2, 0, 0, 0, 0, 1],
        nic: [0x41; 48],
        link: link::UP,
        speed_bps: 10_000_000_000,
        mtu: 1500,
        path_mtu: 1024,
        ndk: ndk::ON,
        endpoints: 1,
        connections,
        connects: 1,
        accepts: 2,
        connect_failures: 3,
        connection_errors: 4,
        cq_errors: 5,
        in_bytes: 6,
        out_bytes: 7,
        in_frames: 8,
        out_frames: 9,
    };
    let connection = Connection {
        qpn: 17,
        path_mtu: 1024,
        local: [1; 16],
        local_port: 445,
        remote: [2; 16],
        remote_port: 40_000,
        sent_bytes: 1 << 40,
        received_bytes: 3,
        resent_packets: 4,
    };
    Snapshot {
        head,
        adapters: [(adapter(2), [connection; 2].into()), (adapter(0), Vec::new())].into(),
    }
}

fn write(snapshot: &Snapshot, room: &mut [u8]) -> Option<(usize, usize)> {
    let mut writer = Writer::new(room)?;
    for (adapter, connections) in &snapshot.adapters {
        writer.add(adapter);
        connections.iter().for_each(|connection| writer.add(connection));
    }
    Some(writer.finish(snapshot.head))
}

/// Whatever the room, the records that fit are written and no others, and all that the whole takes is told.
#[test]
fn a_snapshot_is_read_as_it_was_written() {
    let mut whole = sample();
    let mut room = [0; 2000];
    let (written, needed) = write(&whole, &mut room).expect("there is room");
    assert_eq!(written, needed);
    whole.head.len = needed as u32;
    assert_eq!(Snapshot::read(&room[..needed]), Some(whole.clone()));
    for len in 0..needed {
        let mut room = std::vec![0xAA; len];
        let Some((written, told)) = write(&whole, &mut room) else {
            assert!(len < Head::LEN);
            continue;
        };
        assert!(written <= len && told == needed, "{len}");
        assert!(room[written..].iter().all(|&byte| byte == 0xAA), "{len}");
        assert_eq!(Snapshot::read(&room[..written]), None, "{len}");
    }
    room[0] += 1;
    assert_eq!(Snapshot::read(&room[..needed]), None, "another version");
}
