//! The bytes of a consumer's requests: what has arrived is what was sent.
//!
//! Both sides are in this process, each with one queue pair, and what a consumer gives to the provider leads to its memory: elements of
//! an adapter's logical addresses to the MDL that they were built of, remote addresses to the pages of the fast registration. So the data of each SEND,
//! WRITE and READ are compared once their result is there, whatever the consumer makes of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{LazyLock, Mutex, PoisonError};

use driver::abi::{MDL, NDK_LOGICAL_ADDRESS_MAPPING, NDK_SGE};

use super::thunk::ARGUMENTS;

const PAGE: u64 = 4096;
const MASK: u64 = PAGE - 1;

/// A stretch of logical addresses.
type Stretch = (u64, usize);

/// The region of a remote token.
#[derive(Debug)]
struct Region {
    base: u64,
    pages: Vec<u64>,
    fbo: u64,
}

/// A request whose result has not come.
#[derive(Debug)]
enum Kind {
    Receive(Vec<Stretch>),
    Write { data: Option<Vec<u8>>, remote: u64, token: u32 },
    Read { elements: Vec<Stretch>, remote: u64, token: u32 },
}

#[derive(Debug, Default)]
struct Books {
    /// The parent of each PD and QP, and of those that are being created, by the contexts of their creation.
    parents: HashMap<u64, u64>,
    creating: HashMap<u64, u64>,
    /// The memory of each adapter's logical pages.
    pages: HashMap<(u64, u64), u64>,
    /// The remote token of each MR, and the region behind each token of a QP's.
    tokens: HashMap<u64, u32>,
    regions: HashMap<(u64, u32), Region>,
    /// By their contexts, which are addresses of the consumer's, with their QPs.
    requests: HashMap<u64, (u64, Kind)>,
    /// By the sending QP; `None`: its memory is not known.
    sent: HashMap<u64, VecDeque<Option<Vec<u8>>>>,
    compared: usize,
}

static BOOKS: LazyLock<Mutex<Books>> = LazyLock::new(Mutex::default);

fn with<R>(f: impl FnOnce(&mut Books) -> R) -> R {
    f(&mut BOOKS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Requests whose bytes were compared, and SENDs that have not arrived.
pub(crate) fn compared() -> [usize; 2] {
    with(|books| [books.compared, books.sent.values().map(VecDeque::len).sum()])
}

/// Notes a request that the consumer is about to post, or a mapping that it is about to release.
///
/// # Safety
/// The arguments are those of a call of this function.
pub(crate) unsafe fn begins(name: &str, words: &[u64; ARGUMENTS]) {
    let &[qp, context, list, count, remote, token, ..] = words;
    let elements = || {
        let list = std::slice::from_raw_parts(list as *const NDK_SGE, count as u32 as usize);
        let element = |sge: &NDK_SGE| (sge.Address.VirtualAddress as u64, sge.Length as usize);
        list.iter().map(element).collect::<Vec<_>>()
    };
    let kind = match name {
        "NdkReceive" => Kind::Receive(elements()),
        "NdkRead" => Kind::Read { elements: elements(), remote, token: token as u32 },
        "NdkWrite" => {
            let data = with(|books| books.read(books.adapter(qp), &elements()));
            Kind::Write { data, remote, token: token as u32 }
        }
        _ => return with(|books| books.begins(name, words, elements)),
    };
    with(|books| books.requests.insert(context, (qp, kind)));
}

/// Notes what a function has given, or that it has refused a request.
///
/// # Safety
/// The arguments are those of a call of this function, which has returned `result`.
pub(crate) unsafe fn ends(name: &str, words: &[u64; ARGUMENTS], result: u64) {
    let refused = result as u32 != 0;
    with(|books| match name {
        "NdkSend" if refused => {
            books.sent.get_mut(&words[0]).map(VecDeque::pop_back);
        }
        "NdkReceive" | "NdkWrite" | "NdkRead" if refused => {
            books.requests.remove(&words[1]);
        }
        "NdkBuildLAM" if !refused => {
            let adapter = words[0];
            let mdl = words[1] as *const MDL;
            let start = mdl.cast::<u64>().add(0x20 / 8).read();
            for (page, memory) in pages_of(words[5]).into_iter().zip((start..).step_by(4096)) {
                books.pages.insert((adapter, page), memory);
            }
        }
        "NdkGetRemoteTokenFromMr" => {
            books.tokens.insert(words[0], result as u32);
        }
        _ => {}
    });
}

unsafe fn pages_of(lam: u64) -> Vec<u64> {
    let lam = lam as *const NDK_LOGICAL_ADDRESS_MAPPING;
    let count = (&raw const (*lam).AdapterPageCount).read() as usize;
    let start = (&raw const (*lam).AdapterPageArray).cast::<u64>();
    std::slice::from_raw_parts(start, count).to_vec()
}

/// An object is there, of the creation with this context.
pub(crate) fn created(context: u64, object: u64) {
    with(|books| {
        if let Some(parent) = books.creating.remove(&context) {
            books.parents.insert(object, parent);
        }
    });
}

/// Compares the data of the request with this context, which has succeeded or not, with so many bytes for a receive.
pub(crate) fn result(context: u64, status: u32, received: usize) {
    with(|books| {
        let Some((qp, kind)) = books.requests.remove(&context) else { return };
        if status == 0 {
            books.compare(qp, kind, received);
        }
    });
}

impl Books {
    unsafe fn begins(
        &mut self,
        name: &str,
        words: &[u64; ARGUMENTS],
        elements: impl FnOnce() -> Vec<Stretch>,
    ) {
        match name {
            "NdkCreatePd" => {
                self.creating.insert(words[2], words[0]);
            }
            "NdkCreateQp" => {
                self.creating.insert(words[10], words[0]);
            }
            "NdkSend" => {
                let data = self.read(self.adapter(words[0]), &elements());
                self.sent.entry(words[0]).or_default().push_back(data);
            }
            "NdkFastRegister" => self.register(words),
            "NdkReleaseLAM" => {
                for page in pages_of(words[1]) {
                    self.pages.remove(&(words[0], page));
                }
            }
            _ => {}
        }
    }

    /// The adapter of a QP; 0: it is not known.
    fn adapter(&self, qp: u64) -> u64 {
        let parent = |of: &u64| self.parents.get(of);
        parent(&qp).and_then(parent).copied().unwrap_or(0)
    }

    unsafe fn register(&mut self, words: &[u64; ARGUMENTS]) {
        let &[qp, _, mr, count, pages, fbo, _, base, ..] = words;
        let Some(&token) = self.tokens.get(&mr) else { return };
        let pages = std::slice::from_raw_parts(pages as *const u64, count as u32 as usize);
        let region = Region { base, pages: pages.to_vec(), fbo: u64::from(fbo as u32) };
        self.regions.insert((qp, token), region);
    }

    /// The bytes in memory; `None`: not all of it is known.
    fn read(&self, adapter: u64, elements: &[Stretch]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for &(start, len) in elements {
            let (mut at, end) = (start, start + len as u64);
            while at < end {
                let memory = self.pages.get(&(adapter, at & !MASK))? + (at & MASK);
                let part = (PAGE - (at & MASK)).min(end - at);
                let memory = memory as *const u8;
                // SAFETY: the consumer holds the memory of a mapping until it releases that.
                bytes.extend(unsafe { std::slice::from_raw_parts(memory, part as usize) });
                at += part;
            }
        }
        Some(bytes)
    }

    /// The bytes of a region of the peer of `qp`; `None`: not all of it is known.
    fn remote(&self, qp: u64, address: u64, token: u32, len: usize) -> Option<Vec<u8>> {
        let is_peers = |(of, known): &&(u64, u32)| *of != qp && *known == token;
        let key = self.regions.keys().find(is_peers)?;
        let region = &self.regions[key];
        let start = address.checked_sub(region.base)? + region.fbo;
        let mut elements = Vec::new();
        let (mut at, end) = (start, start + len as u64);
        while at < end {
            let part = (PAGE - (at & MASK)).min(end - at);
            let page = region.pages.get((at / PAGE) as usize)?;
            elements.push((page + (at & MASK), part as usize));
            at += part;
        }
        self.read(self.adapter(key.0), &elements)
    }

    fn compare(&mut self, qp: u64, kind: Kind, received: usize) {
        let adapter = self.adapter(qp);
        let (what, [sent, arrived]) = match kind {
            Kind::Receive(elements) => {
                let mut others = self.sent.iter_mut().filter(|(of, _)| **of != qp);
                let sent = others.find_map(|(_, queue)| queue.pop_front()).flatten();
                let mut arrived = self.read(adapter, &elements);
                arrived.iter_mut().for_each(|bytes| bytes.truncate(received));
                ("SEND", [sent, arrived])
            }
            Kind::Write { data, remote, token } => {
                let len = data.as_ref().map_or(0, Vec::len);
                ("WRITE", [data, self.remote(qp, remote, token, len)])
            }
            Kind::Read { elements, remote, token } => {
                let data = self.read(adapter, &elements);
                let len = data.as_ref().map_or(0, Vec::len);
                ("READ", [self.remote(qp, remote, token, len), data])
            }
        };
        if let (Some(sent), Some(arrived)) = (sent, arrived) {
            self.compared += 1;
            if sent != arrived {
                breach!("a {what} of {} bytes arrived as {} others", sent.len(), arrived.len());
            }
        }
    }
}
