//! What programs and people hand to the driver and to the tools: snapshots of the control device, and strings.

#[allow(dead_code, reason = "the driver and ndkrocev2ctl need more of it")]
#[path = "../../../driver/ndis/src/control/snapshot.rs"]
mod format;

use format::{Field, Head, Snapshot, VERSION, Writer};
use netadapter_glue::host::EdgeSpec;

/// In the first two bytes the length of a room, then a snapshot, of which version and length are made right.
pub fn snapshot(data: &[u8]) {
    let Some(([high, low], bytes)) = data.split_first_chunk() else { return };
    let room_len = usize::from(u16::from_be_bytes([*high, *low]));
    // As they came they are hardly ever a snapshot.
    let _ = Snapshot::read(bytes);
    let mut bytes = bytes.to_vec();
    if let Some(start) = bytes.first_chunk_mut::<8>() {
        start[..4].copy_from_slice(&VERSION.to_le_bytes());
        let len = data.len() as u32 - 2;
        start[4..].copy_from_slice(&len.to_le_bytes());
    }
    let Some(read) = Snapshot::read(&bytes) else { return };
    let mut whole = vec![0; bytes.len()];
    assert_eq!(write(&mut whole, &read), Some((bytes.len(), bytes.len())));
    assert!(whole == bytes, "another snapshot than was read");
    let mut room = vec![0xaa; room_len];
    let Some((written, needed)) = write(&mut room, &read) else {
        return assert!(room_len < Head::LEN, "a room of {room_len} bytes is refused");
    };
    assert!(needed == bytes.len() && written <= needed.min(room_len), "{written} of {needed}");
    assert!(room[..written] == bytes[..written], "a part that is another");
    assert!(room[written..].iter().all(|byte| *byte == 0xaa), "written behind the last record");
}

fn write(room: &mut [u8], snapshot: &Snapshot) -> Option<(usize, usize)> {
    let mut writer = Writer::new(room)?;
    for (adapter, connections) in &snapshot.adapters {
        writer.add(adapter);
        connections.iter().for_each(|connection| writer.add(connection));
    }
    Some(writer.finish(snapshot.head))
}

/// The string of an edge, as users type it.
pub fn edge(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<EdgeSpec>() {
        Ok(spec) => {
            let said = spec.to_string();
            assert_eq!(said.parse(), Ok(spec.clone()), "{text} is told as {said}");
            assert_eq!(spec.check(), Ok(()));
            let mac = text.split(',').filter_map(|part| part.strip_prefix("mac=")).next_back();
            let is_digit = |c: char| c.is_ascii_hexdigit() || matches!(c, ':' | '-');
            assert!(mac.is_none_or(|mac| mac.chars().all(is_digit)), "{text} has a MAC address");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
