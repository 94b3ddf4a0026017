//! A session on a server, and the transfers of a file.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ndk_consumer::{Buffer, Host, Region};
use zerocopy::{FromBytes, IntoBytes};

use super::direct::Transport;
use super::file::{Close, Create, Descriptor, FileId, Read, Transfer, Write};
use super::ntlm::{self, utf16};
use super::session::{Dialect, Logoff, Negotiate, SessionSetup, TreeConnect, TreeDisconnect};
use super::wire::{Header, Request, status};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Transfers under way.
const TRANSFERS: u32 = 4;
/// Bytes of the longest transfer.
const TRANSFER_MAX: usize = 1 << 20;
/// Bytes that one credit pays for.
const CREDIT: usize = 1 << 16;
/// The credits of all transfers at once.
const CREDITS: u16 = (TRANSFERS as usize * TRANSFER_MAX / CREDIT) as u16;
const STRAY: &str = "an answer to no request";

/// A share that a guest has connected to.
pub(crate) struct Session {
    transport: Transport,
    dialect: Dialect,
    /// The number of the next request.
    id: u64,
    credits: u16,
    session_id: u64,
    tree_id: u32,
    /// Bytes of the longest transfer, of WRITE and of READ.
    transfer_max: usize,
    regions: Vec<Region>,
}

impl Session {
    /// Connects to `share` of the server as a guest who calls himself `user`.
    pub(crate) fn connect(
        host: &Host,
        server: SocketAddr,
        share: &str,
        user: &str,
        dialect: Dialect,
    ) -> Result<Self> {
        // A registration and an invalidation for each transfer.
        let transport = Transport::connect(host, server, 2 * TRANSFERS)?;
        let mut session = Self {
            transfer_max: TRANSFER_MAX.min(transport.transfer_max),
            transport,
            dialect,
            id: 0,
            // For the first request.
            credits: 1,
            session_id: 0,
            tree_id: 0,
            regions: Vec::new(),
        };
        session.negotiate()?;
        session.log_on(user)?;
        let path = utf16(&format!(r"\\{}\{share}", server.ip()));
        let (header, _) = session.call(&TreeConnect::new(path.len()), &path)?;
        session.tree_id = header.tree.get();
        let region = |_| Region::new(host.pd(), session.transfer_max);
        session.regions = (0..TRANSFERS).map(region).collect::<ndk_consumer::Result<_>>()?;
        Ok(session)
    }

    fn negotiate(&mut self) -> Result<()> {
        let dialect = self.dialect as u16;
        let (_, reply) =
            self.call(&Negotiate::new(*b"ndk-consumer smb"), &dialect.to_le_bytes())?;
        if reply.dialect.get() != dialect {
            return Err(format!("the server speaks dialect {:#x}", reply.dialect.get()).into());
        }
        let most = [reply.read_max, reply.write_max].map(|most| most.get() as usize);
        self.transfer_max = most.into_iter().fold(self.transfer_max, usize::min);
        Ok(())
    }

    fn log_on(&mut self, user: &str) -> Result<()> {
        for token in [ntlm::negotiate(), ntlm::authenticate(user)] {
            let (header, _) = self.call(&SessionSetup::new(token.len()), &token)?;
            self.session_id = header.session.get();
        }
        Ok(())
    }

    /// Makes an empty file, which is no more when it is closed.
    pub(crate) fn create(&mut self, name: &str) -> Result<FileId> {
        let name = utf16(name);
        Ok(self.call(&Create::new(name.len()), &name)?.1.file)
    }

    /// Writes a whole buffer: the server READs it.
    pub(crate) fn write(&mut self, file: FileId, buffer: &Arc<Buffer>) -> Result<()> {
        self.transfer::<Write>(file, buffer)
    }

    /// Fills a buffer: the server WRITEs it.
    pub(crate) fn read(&mut self, file: FileId, buffer: &Arc<Buffer>) -> Result<()> {
        self.transfer::<Read>(file, buffer)
    }

    pub(crate) fn close(&mut self, file: FileId) -> Result<()> {
        self.call(&Close::new(file), &[]).map(drop)
    }

    /// Leaves the share and the server.
    pub(crate) fn disconnect(mut self) -> Result<()> {
        self.call(&TreeDisconnect::new(), &[])?;
        self.call(&Logoff::new(), &[])?;
        self.transport.endpoint.disconnect()?;
        Ok(())
    }

    /// Moves a whole buffer by several requests at once.
    fn transfer<R: Transfer>(&mut self, file: FileId, buffer: &Arc<Buffer>) -> Result<()> {
        let mut starts = (0..buffer.len()).step_by(self.transfer_max);
        let mut next = starts.next();
        let mut pending = BTreeMap::new();
        loop {
            while let Some(start) = next {
                let range = start..(start + self.transfer_max).min(buffer.len());
                if !pending.is_empty() && !self.has_room(range.len()) {
                    break;
                }
                let (id, region) = self.lend::<R>(file, buffer, range.clone())?;
                pending.insert(id, (region, range.len()));
                next = starts.next();
            }
            if pending.is_empty() {
                return Ok(());
            }
            let (header, message) = self.answer()?;
            let (region, len) = pending.remove(&header.id.get()).ok_or(STRAY)?;
            let moved = R::moved(&parse::<R>(&header, &message)?) as usize;
            // The server has ended the token, or has left that to us.
            self.transport.endpoint.invalidate(&region)?;
            self.regions.push(region);
            if moved != len {
                return Err(format!("the server moved {moved} of {len} bytes").into());
            }
        }
    }

    /// Whether a transfer may begin before others end.
    fn has_room(&self, len: usize) -> bool {
        !self.regions.is_empty() && self.credits >= charge(len)
    }

    /// Lends a part of a buffer to the server, which is a part of the file.
    fn lend<R: Transfer>(
        &mut self,
        file: FileId,
        buffer: &Arc<Buffer>,
        range: Range<usize>,
    ) -> Result<(u64, Region)> {
        let (start, len) = (range.start as u64, range.len());
        let mut region = self.regions.pop().expect("one is free");
        let lent = self.transport.endpoint.register(&mut region, buffer, range, R::RIGHTS)?;
        let request = R::new(self.dialect, file, start, len as u32);
        let descriptor = Descriptor::new(lent, len as u32);
        let id = self.submit(&request, descriptor.as_bytes(), charge(len))?;
        Ok((id, region))
    }

    /// Makes a request, with what follows its fixed part, and waits for the answer.
    fn call<R: Request>(&mut self, request: &R, rest: &[u8]) -> Result<(Header, R::Response)> {
        let id = self.submit(request, rest, 1)?;
        let (header, message) = self.answer()?;
        if header.id.get() != id {
            return Err(STRAY.into());
        }
        let response = parse::<R>(&header, &message)?;
        Ok((header, response))
    }

    /// Sends a request that takes `charge` credits; its number.
    fn submit<R: Request>(&mut self, request: &R, rest: &[u8], charge: u16) -> Result<u64> {
        let left = self.credits.checked_sub(charge).ok_or("the server grants too few credits")?;
        let id = self.id;
        let mut header = Header::new(R::COMMAND, id, charge, CREDITS.saturating_sub(left));
        header.session = self.session_id.into();
        header.tree = self.tree_id.into();
        self.credits = left;
        self.id += u64::from(charge);
        self.transport.send(&[header.as_bytes(), request.as_bytes(), rest].concat())?;
        Ok(id)
    }

    /// The next answer that is final.
    fn answer(&mut self) -> Result<(Header, Vec<u8>)> {
        loop {
            let message = self.transport.receive()?;
            let (header, _) = Header::read_from_prefix(&message).map_err(|_| "no SMB message")?;
            if !header.is_response() {
                return Err("no answer of SMB".into());
            }
            self.credits = self.credits.saturating_add(header.credits.get());
            if header.status.get() != status::PENDING {
                return Ok((header, message));
            }
        }
    }
}

/// The credits that a transfer takes.
fn charge(len: usize) -> u16 {
    len.div_ceil(CREDIT) as u16
}

/// The fixed part of an answer to a request `R`.
fn parse<R: Request>(header: &Header, message: &[u8]) -> Result<R::Response> {
    match header.status.get() {
        status::SUCCESS | status::MORE_PROCESSING_REQUIRED => {}
        failed => {
            return Err(format!("command {} ended with status {failed:#x}", R::COMMAND).into());
        }
    }
    let body = message.get(size_of::<Header>()..).unwrap_or_default();
    let response = R::Response::read_from_prefix(body);
    match (response, body) {
        // It counts the first byte of what follows, if anything may.
        (Ok((response, _)), [low, high, ..])
            if usize::from(u16::from_le_bytes([*low, *high]) & !1) == size_of_val(&response)
                && header.command.get() == R::COMMAND =>
        {
            Ok(response)
        }
        _ => Err(format!("command {} got an answer of another kind", R::COMMAND).into()),
    }
}
