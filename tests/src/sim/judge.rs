//! Management datagrams, judged one by one: what a host of ours sends must fit what it has sent and
//! taken before (IBTA ch. 12, Communication Establishment; Message Formats; Annex A11).

use super::packet::{Seen, number};
use super::watch::Objection;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

/// The first wait before a message is sent again, in ns; it doubles, up to what was negotiated.
const FIRST_RESEND: u64 = 500_000_000;
/// The longest wait that a REQ of ours asks for itself: 4.3 s there, and the way.
const LONGEST: u64 = 4_290_000_000;

/// After REJ 10 a REQ is sent again no sooner, and for no longer, in ns.
const STALE_PAUSE: u64 = 250_000_000;
const STALE_LIMIT: u64 = 3_000_000_000;

macro_rules! require {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

/// The kinds of messages, by their attribute.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) enum Kind {
    Req,
    Mra,
    Rej,
    Rep,
    Rtu,
    Dreq,
    Drep,
    SidrReq,
    SidrRep,
    Lap,
    Apr,
}

impl Kind {
    /// All of them, from attribute 0x10 on.
    pub(crate) const ALL: [Self; 11] = [
        Self::Req,
        Self::Mra,
        Self::Rej,
        Self::Rep,
        Self::Rtu,
        Self::Dreq,
        Self::Drep,
        Self::SidrReq,
        Self::SidrRep,
        Self::Lap,
        Self::Apr,
    ];
}

/// A message.
struct Message<'a> {
    kind: Kind,
    transaction: u64,
    local: u32,
    remote: u32,
    body: &'a [u8],
    hash: u64,
}

impl<'a> Message<'a> {
    fn read(seen: &Seen<'a>) -> Option<Self> {
        let mad = seen.payload.get(..256)?;
        let body = &mad[24..];
        let mut hasher = DefaultHasher::new();
        mad.hash(&mut hasher);
        Some(Self {
            kind: *Kind::ALL.get(number(mad, 16, 2).checked_sub(0x10)? as usize)?,
            transaction: number(mad, 8, 8),
            local: number(body, 0, 4) as u32,
            remote: number(body, 4, 4) as u32,
            body,
            hash: hasher.finish(),
        })
    }

    fn get(&self, at: usize, len: usize) -> u64 {
        number(self.body, at, len)
    }

    fn is_zero(&self, from: usize) -> bool {
        self.body[from..].iter().all(|&byte| byte == 0)
    }
}

/// A message that is sent until it is answered.
struct Said {
    hash: u64,
    last: u64,
    times: u32,
    /// What the peer has said until then is no reason to tell it this beside the timer.
    told: u64,
}

/// One side of a connection, as its host and its ID name it.
#[derive(Default)]
struct Side {
    peer: Option<IpAddr>,
    active: bool,
    remote: u32,
    peer_qpn: u64,
    qpn: u32,
    transaction: u64,
    req: Option<Said>,
    rep: Option<Said>,
    dreq: Option<Said>,
    rtus: u32,
    /// REPs of the peer that it has taken, and when the first came.
    reps: u32,
    answered: Option<u64>,
    mras: u32,
    /// Since when the peer is known to have it.
    established: Option<u64>,
    /// Some packet of the peer has come, if not the first one.
    reached: bool,
    /// The peer still has a connection of its QP: when it has said so first, and, if the REQ was not sent
    /// again since, last.
    stale: Option<(u64, Option<u64>)>,
    /// The path MTU that the peer has named when it refused the REQ; and that another REQ has asked for it.
    smaller: Option<u64>,
    lowered: bool,
    /// Since when it need not say anything more by itself.
    over: Option<u64>,
    /// The peer has asked for more time since the last sending.
    patient: bool,
}

/// What a host has taken of a peer, by the peer's ID.
#[derive(Default)]
struct Heard {
    reqs: u32,
    reps: u32,
    dreqs: u32,
    others: u32,
    rejs_sent: u32,
    mras_sent: u32,
    dreps_sent: u32,
    transactions: Vec<u64>,
    qpn: u64,
}

/// Judges what hosts say.
#[derive(Default)]
pub(crate) struct Judge {
    /// How long what a host has said may wait until it leaves, in ns: it may learn meanwhile that it
    /// need not have said it.
    pub(crate) queued: u64,
    /// Hosts do not look at all that they take: nobody knows what they have heard.
    pub(crate) crowded: bool,
    /// The message that a host takes next may be lost on the way to its core: it need not end anything.
    pub(crate) maybe_lost: bool,
    sides: BTreeMap<(IpAddr, u32), Side>,
    heard: BTreeMap<(IpAddr, IpAddr, u32), Heard>,
    /// When somebody has taken messages of a peer, at whichever address.
    spoke: BTreeMap<IpAddr, Vec<u64>>,
    sidr: BTreeMap<(IpAddr, IpAddr, u32), [u32; 2]>,
    /// Messages judged, by [`Kind`].
    judged: [u64; Kind::ALL.len()],
    /// Those of them that had been sent before.
    pub(crate) again: u64,
}

impl Judge {
    /// A host has restarted: nothing of before binds it.
    pub(crate) fn forget(&mut self, host: IpAddr) {
        self.sides.retain(|(of, _), _| *of != host);
        self.heard.retain(|(of, ..), _| *of != host);
        self.sidr.retain(|(of, ..), _| *of != host);
    }

    /// The clock of a host has jumped: what it said before may still wait to leave.
    pub(crate) fn jump(&mut self, host: IpAddr, by: u64) {
        for (_, side) in self.sides.range_mut((host, 0)..=(host, u32::MAX)) {
            let times = [&mut side.over, &mut side.answered, &mut side.established];
            times.into_iter().flatten().for_each(|since| *since += by);
        }
    }

    /// The first data of the peer has reached a QP, which says what an RTU says.
    pub(crate) fn data(&mut self, now: u64, host: IpAddr, qpn: u32, first: bool) {
        let of = |side: &&mut Side| side.qpn == qpn && side.rep.is_some();
        let mut sides = self.sides.range_mut((host, 0)..=(host, u32::MAX)).map(|(_, side)| side);
        if let Some(side) = sides.find(of) {
            side.reached = true;
            if first {
                side.established.get_or_insert(now);
            }
        }
    }

    /// Messages judged, of a kind.
    pub(crate) const fn count(&self, kind: Kind) -> u64 {
        self.judged[kind as usize]
    }

    /// A host has taken a message.
    pub(crate) fn taken(&mut self, now: u64, seen: &Seen<'_>) {
        let maybe_lost = std::mem::take(&mut self.maybe_lost);
        let Some(message) = Message::read(seen) else { return };
        let Message { kind, transaction, local, remote, .. } = message;
        self.spoke.entry(seen.src).or_default().push(now);
        let heard = self.heard.entry((seen.dst, seen.src, local)).or_default();
        heard.transactions.push(transaction);
        match kind {
            Kind::Req => {
                heard.reqs += 1;
                heard.qpn = message.get(32, 3);
            }
            Kind::Rep => heard.reps += 1,
            Kind::Dreq => heard.dreqs += 1,
            _ => heard.others += 1,
        }
        if kind == Kind::SidrReq {
            self.sidr.entry((seen.dst, seen.src, local)).or_default()[0] += 1;
        }
        let Some(side) = self.sides.get_mut(&(seen.dst, remote)) else { return };
        if side.peer != Some(seen.src) || (side.remote != local && kind != Kind::Rep) {
            return;
        }
        match kind {
            Kind::Rep if side.active && side.over.is_none() => {
                if side.reps == 0 {
                    (side.remote, side.peer_qpn) = (local, message.get(12, 3));
                    side.answered = Some(now);
                    side.over = None;
                }
                side.reps += u32::from(side.remote == local);
            }
            Kind::Rtu if side.rep.is_some() => {
                side.established.get_or_insert(now);
            }
            Kind::Mra => side.patient = true,
            Kind::Rej if side.active && message.get(8, 1) == 0 && message.get(10, 2) == 10 => {
                let (first, _) = side.stale.unwrap_or((now, None));
                side.stale = Some((first, Some(now)));
            }
            // A copy of the REJ of the first REQ says nothing of the second.
            Kind::Rej if side.lowered && transaction != side.transaction => {}
            Kind::Rej if side.active && !side.lowered && refuses_path_mtu(&message) => {
                side.smaller = Some(message.get(12, 1));
            }
            Kind::Rej | Kind::Dreq | Kind::Drep if !maybe_lost => {
                side.over.get_or_insert(now);
            }
            _ => {}
        }
    }

    /// A host has sent a message. If it keeps what comes early its REQ and REP show that, and how many bits of a QPN name
    /// a core.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn sent(&mut self, now: u64, seen: &Seen<'_>, shows: Option<u8>) -> Objection {
        let payload = seen.payload;
        require!(seen.qpn == 1 && payload.len() == 256, "a datagram that is no MAD");
        require!(seen.ext == [0x80, 1, 0, 0, 0, 0, 0, 1], "a MAD of another QP or Q_Key");
        let head = payload[..8] == [1, 7, 2, 3, 0, 0, 0, 0] && payload[20..24] == [0; 4];
        require!(head, "a MAD with another head");
        let message = Message::read(seen).ok_or("a MAD of no kind")?;
        let shows = shows.filter(|_| matches!(message.kind, Kind::Req | Kind::Rep));
        let make = shows.map_or([0; 2], |bits| [b'N', b'D' + bits]);
        require!(payload[18..20] == make, "a MAD of another make");
        self.judged[message.kind as usize] += 1;
        if self.crowded {
            return Ok(());
        }
        self.judge(now, seen, &message).map_err(|what| {
            let Message { kind, local, remote, .. } = message;
            format!("{kind:?} {local:#x} {remote:#x} from {} to {}: {what}", seen.src, seen.dst)
        })
    }

    fn judge(&mut self, now: u64, seen: &Seen<'_>, message: &Message<'_>) -> Objection {
        let (host, peer) = (seen.src, seen.dst);
        match message.kind {
            Kind::Req => self.req(now, host, peer, message),
            Kind::Rep => self.rep(now, host, peer, message),
            Kind::Rtu => self.rtu(now, host, peer, message),
            Kind::Mra => self.mra(host, peer, message),
            Kind::Rej => self.rej(now, host, peer, message),
            Kind::Dreq => self.dreq(now, host, peer, message),
            Kind::Drep => self.drep(host, peer, message),
            Kind::SidrRep => {
                let counts = self.sidr.entry((host, peer, message.local)).or_default();
                counts[1] += 1;
                require!(counts[1] <= counts[0], "an answer that nobody asked for");
                require!(message.get(4, 1) == 1, "a service that is not there");
                Ok(())
            }
            Kind::SidrReq | Kind::Lap | Kind::Apr => Err("never sent by us".into()),
        }
    }

    fn req(&mut self, now: u64, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
        let queued = self.queued;
        let side = self.sides.entry((host, message.local)).or_default();
        let first = side.peer.is_none();
        if first {
            check_req(host, peer, message)?;
            (side.active, side.peer) = (true, Some(peer));
            (side.qpn, side.transaction) = (message.get(32, 3) as u32, message.transaction);
        }
        require!(side.active && side.peer == Some(peer), "the ID is another connection's");
        let is_another = side.req.as_ref().is_some_and(|said| said.hash != message.hash);
        if let Some(named) = side.smaller.take_if(|_| is_another) {
            require!(message.get(50, 1) >> 4 == named, "another path MTU than the peer has named");
            (side.transaction, side.req, side.lowered) = (message.transaction, None, true);
        }
        let late = side.answered.is_some_and(|since| now > since + queued);
        require!(!late, "sent again after it was answered");
        self.again += u64::from(!first);
        check_over(side, now, queued)?;
        if let Some((since, Some(told))) = side.stale {
            side.stale = Some((since, None));
            return put_off(side, now, since, told, message, queued);
        }
        repeat(&mut side.req, now, message, &mut side.patient, queued)
    }

    fn rep(&mut self, now: u64, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
        let queued = self.queued;
        let heard = self.heard.get(&(host, peer, message.remote)).filter(|heard| heard.reqs > 0);
        let heard = heard.ok_or("nobody asked")?;
        let asked = heard.transactions.contains(&message.transaction);
        require!(asked, "another transaction than that of the REQ");
        let side = self.sides.entry((host, message.local)).or_default();
        let first = side.peer.is_none();
        if first {
            (side.peer, side.remote, side.peer_qpn) = (Some(peer), message.remote, heard.qpn);
            side.qpn = message.get(12, 3) as u32;
            side.transaction = message.transaction;
            require!(side.qpn > 1, "no QPN");
            require!(message.get(28, 8) != 0, "no GUID");
            require!(message.get(8, 4) == 0 && message.get(16, 3) == 0, "fields of datagrams");
            require!(message.is_zero(40), "more private data than the consumer's");
        }
        require!(side.remote == message.remote && !side.active, "the IDs are another connection's");
        let late = side.established.is_some_and(|since| now > since + queued);
        require!(!late, "sent again after the connection was established");
        self.again += u64::from(!first);
        check_over(side, now, queued)?;
        repeat(&mut side.rep, now, message, &mut side.patient, queued)
    }

    fn side(&mut self, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Option<&mut Side> {
        let side = self.sides.get_mut(&(host, message.local))?;
        (side.peer == Some(peer) && side.remote == message.remote).then_some(side)
    }

    fn rtu(&mut self, now: u64, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
        let side = self.side(host, peer, message).ok_or("the IDs are no connection's")?;
        side.rtus += 1;
        require!(side.active && side.rtus <= side.reps, "for no REP");
        require!(
            message.transaction == side.transaction,
            "another transaction than that of the REQ"
        );
        require!(message.is_zero(8), "private data that nobody gave");
        side.established.get_or_insert(now);
        Ok(())
    }

    /// More time is asked for only when the peer has repeated itself.
    fn mra(&mut self, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
        let heard = self.heard.get_mut(&(host, peer, message.remote)).ok_or("for nobody")?;
        heard.mras_sent += 1;
        let of = message.get(8, 1);
        let repeats = match of {
            0x00 => heard.reqs,
            0x40 => heard.reps,
            _ => return Err(format!("for message {of:#x}")),
        };
        require!(heard.mras_sent < repeats, "{} for {repeats}", heard.mras_sent);
        require!(message.get(9, 1) >> 3 > 0, "for no time");
        require!(message.is_zero(10), "private data that nobody gave");
        if let Some(side) = self.side(host, peer, message) {
            let waits = if of == 0 { side.rep.is_none() } else { side.rtus == 0 };
            require!(waits, "the answer was sent before");
            side.mras += 1;
        }
        Ok(())
    }

    fn rej(&mut self, now: u64, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
        let queued = self.queued;
        let (of, reason, ari) = (message.get(8, 1), message.get(10, 2), message.get(9, 1) >> 1);
        require!(matches!(of, 0x00 | 0x40 | 0x80), "of message {of:#x}");
        let right = match reason {
            3 | 8 | 9 | 10 | 12 | 28 => ari == 0,
            26 => ari == 1 && (1..=5).contains(&message.get(12, 1)),
            4 => ari == 8 && of == 0x80 && message.get(12, 8) != 0,
            _ => false,
        };
        require!(right, "reason {reason} with {ari} bytes");
        if let Some(side) = self.side(host, peer, message) {
            let mut up = side.established.is_some_and(|since| now > since + queued);
            // The peer offered again what was refused, or asks for what is over.
            up &= side.over.is_none();
            require!(!up, "of a connection that is established");
            if side.active && of == 0x40 && reason == 10 {
                // The offer was of a QP that another connection still has: the REQ stands.
                (side.reps, side.remote, side.answered) = (0, 0, None);
            } else {
                side.over.get_or_insert(now);
            }
        }
        // A connector that gives up unanswered names nobody, whoever else may use the ID 0.
        let asks = self.sides.get(&(host, message.local)).is_some_and(|side| side.active);
        if message.remote == 0 && reason == 4 && asks {
            return Ok(());
        }
        let heard = self.heard.get_mut(&(host, peer, message.remote)).ok_or("of nothing")?;
        heard.rejs_sent += 1;
        // Each message of the peer is refused at most once, and one that was not answered is given up.
        let most = heard.reqs + heard.reps + heard.others + 1;
        require!(heard.rejs_sent <= most, "{} for {most}", heard.rejs_sent);
        Ok(())
    }

    fn dreq(&mut self, now: u64, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
        let queued = self.queued;
        let spoke = self.spoke.get(&peer).cloned().unwrap_or_default();
        let side = self.side(host, peer, message).ok_or("the IDs are no connection's")?;
        require!(
            side.established.is_some() || side.reached,
            "of a connection that is not established"
        );
        require!(message.get(8, 3) == side.peer_qpn, "another QPN than the peer's");
        require!(message.is_zero(12), "private data that nobody gave");
        let again = side.dreq.is_some();
        // A peer that speaks is told at once again: it may have restarted.
        // That moves no timer, and each time that it speaks is good for one.
        check_over(side, now, queued)?;
        let cause =
            |said: &Said| spoke.iter().find(|at| **at > said.told && **at + queued >= now).copied();
        let said = side.dreq.as_mut().and_then(|said| cause(said).map(|at| (said, at)));
        let result = match said {
            Some((said, at)) => {
                require!(said.hash == message.hash, "sent again with other bytes");
                said.told = at;
                Ok(())
            }
            None => repeat(&mut side.dreq, now, message, &mut side.patient, queued),
        };
        self.again += u64::from(again);
        result
    }

    fn drep(&mut self, host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
        let heard = self.heard.get_mut(&(host, peer, message.remote)).ok_or("for nobody")?;
        heard.dreps_sent += 1;
        require!(heard.dreps_sent <= heard.dreqs, "{} for {}", heard.dreps_sent, heard.dreqs);
        let right = heard.transactions.contains(&message.transaction);
        require!(right, "another transaction than that of the DREQ");
        require!(message.is_zero(8), "private data that nobody gave");
        Ok(())
    }
}

/// Whether a REJ refuses the path MTU of a REQ.
fn refuses_path_mtu(rej: &Message<'_>) -> bool {
    rej.get(8, 1) == 0 && rej.get(10, 2) == 26
}

/// Nothing is repeated to a peer that has ended it.
fn check_over(side: &Side, now: u64, queued: u64) -> Objection {
    let late = side.over.is_some_and(|since| now > since + queued);
    require!(!late, "sent again after the peer has ended it");
    Ok(())
}

/// A REQ is sent again to a peer that has to find out first what became of an older connection: after a
/// pause, and not for long.
fn put_off(
    side: &mut Side,
    now: u64,
    since: u64,
    told: u64,
    message: &Message<'_>,
    queued: u64,
) -> Objection {
    let said = side.req.as_mut().ok_or("never sent")?;
    require!(said.hash == message.hash, "sent again with other bytes");
    let waited = now.saturating_sub(told) + queued;
    require!(waited >= STALE_PAUSE, "sent again {} us after REJ 10", waited / 1000);
    require!(now <= since + STALE_LIMIT + queued, "sent again long after REJ 10");
    (said.last, said.told) = (now, now);
    Ok(())
}

/// What is sent again is the same, and not too soon.
fn repeat(
    said: &mut Option<Said>,
    now: u64,
    message: &Message<'_>,
    patient: &mut bool,
    queued: u64,
) -> Objection {
    let Some(said) = said else {
        // What the peer has said while this waited may have made it be said twice.
        let told = now.saturating_sub(queued);
        *said = Some(Said { hash: message.hash, last: now, times: 1, told });
        return Ok(());
    };
    require!(said.hash == message.hash, "sent again with other bytes");
    let waited = now.saturating_sub(said.last);
    // A peer that asked for time gets the time that was negotiated from then on.
    let least = (FIRST_RESEND << (said.times - 1).min(10)).min(LONGEST);
    let least = if std::mem::take(patient) { FIRST_RESEND } else { least };
    // A message may have waited for room.
    require!(waited + queued >= least, "sent again after {} us", waited / 1000);
    require!(said.times <= 15, "sent {} times", said.times + 1);
    (said.last, said.times) = (now, said.times + 1);
    Ok(())
}

/// What a REQ of ours says whoever asks.
fn check_req(host: IpAddr, peer: IpAddr, message: &Message<'_>) -> Objection {
    let gid = |ip| match ip {
        IpAddr::V4(ip) => std::net::Ipv4Addr::to_ipv6_mapped(&ip).octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    // The IP header of the private data pads IPv4 with zeros instead.
    let padded = |ip| match ip {
        IpAddr::V4(ip) => (u128::from(ip.to_bits())).to_be_bytes(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let body = message.body;
    require!(message.remote == 0, "a remote ID");
    require!(body[56..72] == gid(host) && body[72..88] == gid(peer), "other GIDs");
    require!(message.get(16, 8) != 0, "no GUID");
    require!(message.get(32, 3) > 1, "no QPN");
    require!(message.get(43, 1) & 0x07 == 0, "another transport, or flow control");
    require!(message.get(48, 2) == 0xffff, "another P_Key");
    require!((1..=5).contains(&(message.get(50, 1) >> 4)), "no path MTU");
    require!(message.get(51, 1) >> 4 > 0, "no retries");
    require!(message.get(8, 6) == 0x106, "another service");
    let version = if host.is_ipv4() { 0x40 } else { 0x60 };
    require!(message.get(140, 2) == version, "another IP version");
    require!(message.get(142, 2) != 0, "no port");
    require!(body[144..160] == padded(host) && body[160..176] == padded(peer), "other addresses");
    require!(message.is_zero(180), "more private data than the consumer's");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const US: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const DETH: [u8; 8] = [0x80, 1, 0, 0, 0, 0, 0, 1];

    fn mad(kind: Kind, local: u8, body: &[u8]) -> [u8; 256] {
        let mut mad = [0; 256];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[17] = 0x10 + kind as u8;
        mad[27] = local;
        mad[32..32 + body.len()].copy_from_slice(body);
        mad
    }

    fn seen(from: IpAddr, payload: &[u8]) -> Seen<'_> {
        Seen {
            src: from,
            dst: if from == US { PEER } else { US },
            opcode: super::super::packet::opcode::UD_SEND_ONLY,
            solicited: false,
            qpn: 1,
            ack_req: false,
            psn: 0,
            marks: 0,
            congested: false,
            ext: &DETH,
            payload,
        }
    }

    /// Goal: a connector that gave up unanswered tells so each REP that comes late, though somebody has
    /// asked with the ID 0, who is refused but once.
    #[test]
    fn a_connector_that_gave_up_names_nobody() {
        let mut judge = Judge::default();
        judge.taken(0, &seen(PEER, &mad(Kind::Req, 0, &[])));
        judge.sides.insert((US, 7), Side { active: true, peer: Some(PEER), ..Side::default() });
        let timeout = [0x80, 16, 0, 4, 1, 1, 1, 1, 1, 1, 1, 1];
        let mut told = |local| judge.sent(1, &seen(US, &mad(Kind::Rej, local, &timeout)), Some(0));
        for local in [7, 7, 7, 8, 8] {
            assert_eq!(told(local), Ok(()), "{local}");
        }
        assert!(told(8).is_err(), "one REQ, and given up once");
    }
}
