//! The shares of the reorder pool: the slots that each connection holds, and each peer address.
//!
//! Peers are in the order of their slots, so the one that holds most is the first. A number of slots changes by one, which
//! moves a peer within its order by one exchange.

use crate::index::{Index, Secret};
use crate::path::address_words;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Connections of a peer that are compared to find the one that holds most.
const COMPARED: usize = 8;

/// Entries whose places stay. All memory is reserved at once, and touched when it is first used.
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Vec<T>,
    free: Vec<u32>,
    limit: usize,
}

impl<T> Table<T> {
    /// One for `limit` entries, fewer than 2^32; `None` where the memory is refused.
    pub(super) fn new(limit: usize) -> Option<Self> {
        let (mut entries, mut free) = (Vec::new(), Vec::new());
        entries.try_reserve_exact(limit).ok()?;
        free.try_reserve_exact(limit).ok()?;
        Some(Self { entries, free, limit })
    }

    /// One for none.
    pub(super) const fn empty() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), limit: 0 }
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.entries.len() >= self.limit
    }

    /// Adds an entry, for which there is a place.
    pub(super) fn put(&mut self, entry: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.entries[place as usize] = entry;
            return place;
        }
        debug_assert!(self.entries.len() < self.limit, "the owner has asked");
        self.entries.push(entry);
        self.entries.len() as u32 - 1
    }

    /// Lets another entry have the place.
    pub(super) fn give_back(&mut self, place: u32) {
        self.free.push(place);
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        self.entries.get(place as usize)
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.entries.get_mut(place as usize)
    }

    /// Entries that were not given back.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Places that were ever used.
    pub(super) fn used(&self) -> usize {
        self.entries.len()
    }
}

impl<T> core::ops::Index<u32> for Table<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        &self.entries[place as usize]
    }
}

impl<T> core::ops::IndexMut<u32> for Table<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.entries[place as usize]
    }
}

/// A connection that holds slots, one at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    /// Its oldest and its newest packet.
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) held: u32,
    /// Another one for each time that a connection begins to hold slots.
    pub(super) stamp: u64,
    peer: u32,
    /// Its neighbours in the ring of its peer's connections.
    prev: u32,
    next: u32,
}

/// A peer address whose connections hold slots.
#[derive(Debug)]
struct Peer {
    address: IpAddr,
    held: u32,
    /// One of its connections, where the next comparison begins.
    hand: u32,
    /// Its place in [`Shares::ranks`].
    rank: u32,
}

/// The connections and peers that hold slots.
#[derive(Debug)]
pub(super) struct Shares {
    holders: Table<Holder>,
    peers: Table<Peer>,
    by_address: Index,
    secret: Secret,
    /// Peers, in descending order of the slots that they hold.
    ranks: Vec<u32>,
    /// For each number of slots, the peers that hold more.
    above: Vec<u32>,
    stamp: u64,
}

impl Shares {
    /// Those of a pool of so many slots; `None` where the memory is refused.
    pub(super) fn new(slots: usize, secret: Secret) -> Option<Self> {
        let (holders, peers) = (Table::new(slots)?, Table::new(slots)?);
        let (mut ranks, mut above, mut by_address) = (Vec::new(), Vec::new(), Index::default());
        ranks.try_reserve_exact(slots).ok()?;
        above.try_reserve_exact(slots + 1).ok()?;
        above.resize(slots + 1, 0);
        by_address.make_room(slots)?;
        Some(Self { holders, peers, by_address, secret, ranks, above, stamp: 0 })
    }

    /// Those of a pool without slots.
    pub(super) fn none(secret: Secret) -> Self {
        let (holders, peers) = (Table::empty(), Table::empty());
        let (by_address, ranks, above) = (Index::default(), Vec::new(), Vec::new());
        Self { holders, peers, by_address, secret, ranks, above, stamp: 0 }
    }

    pub(super) fn get(&self, holder: u32) -> Option<&Holder> {
        self.holders.get(holder)
    }

    pub(super) fn get_mut(&mut self, holder: u32) -> &mut Holder {
        &mut self.holders[holder]
    }

    /// Adds a connection to `address`, whose only slot is `slot`.
    pub(super) fn open(&mut self, address: IpAddr, slot: u32) -> u32 {
        self.stamp += 1;
        let known = self.find(address);
        let peer = known.unwrap_or_else(|| self.open_peer(address));
        let stamp = self.stamp;
        let opened = Holder { first: slot, last: slot, held: 0, stamp, peer, prev: 0, next: 0 };
        let holder = self.holders.put(opened);
        let next = known.map_or(holder, |peer| self.peers[peer].hand);
        let prev = known.map_or(holder, |_| self.holders[next].prev);
        (self.holders[holder].prev, self.holders[holder].next) = (prev, next);
        (self.holders[prev].next, self.holders[next].prev) = (holder, holder);
        self.peers[peer].hand = holder;
        self.add(holder);
        holder
    }

    /// Counts a slot more.
    pub(super) fn add(&mut self, holder: u32) {
        let Holder { held, peer, .. } = &mut self.holders[holder];
        *held += 1;
        let peer = *peer;
        let place = &mut self.above[self.peers[peer].held as usize];
        let rank = core::mem::replace(place, *place + 1);
        self.exchange(peer, rank);
        self.peers[peer].held += 1;
    }

    /// Counts a slot less. A connection without any is gone.
    pub(super) fn remove(&mut self, holder: u32) {
        let Holder { held, peer, .. } = &mut self.holders[holder];
        *held -= 1;
        let (held, peer) = (*held, *peer);
        self.peers[peer].held -= 1;
        let place = &mut self.above[self.peers[peer].held as usize];
        *place -= 1;
        let rank = *place;
        self.exchange(peer, rank);
        if held == 0 {
            self.close(holder);
        }
    }

    /// The connection that gives a slot to one of `address`, which may be a `holder`: the largest one of the peer that holds
    /// most, and else of its own. `None` where they hold no more than that has then.
    pub(super) fn giver(&mut self, holder: Option<u32>, address: IpAddr) -> Option<u32> {
        let peer = holder.map(|holder| self.holders[holder].peer).or_else(|| self.find(address));
        let (of_peer, own) = (
            peer.map_or(0, |peer| self.peers[peer].held),
            holder.map_or(0, |holder| self.holders[holder].held),
        );
        let most = *self.ranks.first()?;
        if self.peers[most].held > of_peer + 1 {
            return Some(self.largest_of(most));
        }
        let largest = self.largest_of(peer?);
        (self.holders[largest].held > own + 1).then_some(largest)
    }

    /// The connection of a peer that holds most, of those that the hand passes.
    fn largest_of(&mut self, peer: u32) -> u32 {
        let (mut largest, mut hand) = (self.peers[peer].hand, self.peers[peer].hand);
        for _ in 0..COMPARED {
            if self.holders[hand].held > self.holders[largest].held {
                largest = hand;
            }
            hand = self.holders[hand].next;
        }
        self.peers[peer].hand = hand;
        largest
    }

    fn find(&self, address: IpAddr) -> Option<u32> {
        let mut found = self.by_address.find(self.hash(address)).map(|place| place as u32);
        found.find(|peer| self.peers[*peer].address == address)
    }

    fn hash(&self, address: IpAddr) -> u32 {
        self.secret.hash(address_words(address))
    }

    fn open_peer(&mut self, address: IpAddr) -> u32 {
        let rank = self.ranks.len() as u32;
        let peer = self.peers.put(Peer { address, held: 0, hand: 0, rank });
        self.by_address.insert(self.hash(address), peer as usize);
        self.ranks.push(peer);
        peer
    }

    fn close(&mut self, holder: u32) {
        let Holder { peer, prev, next, .. } = self.holders[holder];
        (self.holders[prev].next, self.holders[next].prev) = (next, prev);
        // No stamp is that of a place without a connection.
        self.holders[holder].stamp = 0;
        self.holders.give_back(holder);
        let Peer { address, held, hand, .. } = &mut self.peers[peer];
        let (address, held) = (*address, *held);
        if *hand == holder {
            *hand = next;
        }
        if held == 0 {
            self.close_peer(peer, address);
        }
    }

    /// Forgets a peer that holds nothing, and so is the last one.
    fn close_peer(&mut self, peer: u32, address: IpAddr) {
        let last = self.ranks.pop();
        debug_assert_eq!(last, Some(peer), "all others hold something");
        self.by_address.remove(self.hash(address), peer as usize);
        self.peers.give_back(peer);
    }

    /// Gives a peer this rank, and the other one its own.
    fn exchange(&mut self, peer: u32, rank: u32) {
        let other = core::mem::replace(&mut self.ranks[rank as usize], peer);
        let before = core::mem::replace(&mut self.peers[peer].rank, rank);
        self.ranks[before as usize] = other;
        self.peers[other].rank = before;
    }
}
