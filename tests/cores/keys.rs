//! Keys: a table for all cores.

use super::*;
use ndk_consumer::{FastRegister, Frmr, Invalidate, Lam, Sge};
use std::sync::mpsc;
use tests::kit::raw::start;

/// A page of a host with logical addresses, and a region that may name it.
struct Mapped {
    frmr: Arc<Frmr>,
    lam: Lam,
}

/// Where the peer finds the mapped page.
const BASE: u64 = 0x7_0000;

impl Mapped {
    fn new(domain: &Domain, fill: u8) -> Self {
        let buffer = Arc::new(Buffer::from(&[fill; PAGE_SIZE][..]));
        let lam = domain.adapter.build_lam(buffer, 0..PAGE_SIZE).unwrap();
        Self { frmr: domain.pd.create_frmr(2, true).unwrap(), lam }
    }

    /// Registers the page through a queue pair, for everything.
    fn register(&self, side: &Side) {
        let base = BASE + u64::from(self.lam.fbo());
        let pages = &self.lam.pages();
        let what = FastRegister { pages, fbo: self.lam.fbo(), len: PAGE_SIZE, base };
        let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
        side.qp.fast_register(1, &self.frmr, what, rights).unwrap();
        assert_eq!(side.statuses(1), [STATUS_SUCCESS]);
    }

    fn read_by(&self, side: &Side) -> NTSTATUS {
        let from = self.frmr.remote(BASE + u64::from(self.lam.fbo()));
        side.qp.read(2, &[side.mr.sge(0..PAGE_SIZE)], from, 0).unwrap();
        side.statuses(1)[0]
    }
}

/// Goal: what a queue pair of one core registers, all of the domain offer; what one ends, none does.
#[test]
fn a_region_is_registered_on_one_core_and_used_on_all() {
    let cores = [2, 3];
    let mesh = Mesh::of(cores);
    let mapped = Mapped::new(&mesh.domains[1], 0x5a);
    for round in 0..30 {
        let by = |shift: usize| &mesh.pairs[(round + shift) % mesh.pairs.len()].0;
        mapped.register(&by(0)[1]);
        for (sides, _) in &mesh.pairs {
            mesh.domains[0].mr.buffer().write(0, &[0; PAGE_SIZE]);
            assert_eq!(mapped.read_by(&sides[0]), STATUS_SUCCESS);
            assert!(sides[0].bytes(0, PAGE_SIZE) == [0x5a; PAGE_SIZE]);
        }
        let ends = &by(1)[1];
        ends.qp.invalidate(3, Invalidate::Region(&mapped.frmr), 0).unwrap();
        assert_eq!(ends.statuses(1), [STATUS_SUCCESS]);
    }
    // It ends the connection, so each is asked once.
    for (sides, _) in &mesh.pairs {
        assert_eq!(mapped.read_by(&sides[0]), STATUS_ACCESS_VIOLATION);
    }
    drop(mapped);
    mesh.finish();
}

/// Goal: a SEND of the peer over one core ends a region that was registered on another one.
#[test]
fn a_peer_ends_a_region_of_another_core() {
    let mesh = Mesh::of([2, 2]);
    let mapped = Mapped::new(&mesh.domains[1], 1);
    mapped.register(&mesh.pairs[0].0[1]);
    let [near, far] = &mesh.pairs[3].0;
    far.qp.receive(4, &[far.mr.sge(0..10)]).unwrap();
    let token = mapped.frmr.remote_token();
    near.qp.send_and_invalidate(5, &[near.mr.sge(0..10)], 0, token).unwrap();
    assert_eq!(near.statuses(1), [STATUS_SUCCESS]);
    let ended = far.results(1)[0];
    assert_eq!(
        (ended.Status, ended.TypeSpecificCompletionOutput),
        (STATUS_SUCCESS, token as usize)
    );
    assert_eq!(mapped.read_by(&mesh.pairs[1].0[0]), STATUS_ACCESS_VIOLATION);
    drop(mapped);
    mesh.finish();
}

/// Goal: keys are read on some cores while others register and end other keys.
#[test]
fn keys_come_and_go_beside_traffic() {
    let mesh = Mesh::of([2, 3]);
    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        let domains = &mesh.domains;
        scope.spawn(move || {
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                for domain in domains {
                    let buffer = Buffer::new(PAGE_SIZE);
                    drop(domain.pd.register(buffer, ALL_ACCESS).unwrap());
                    drop(domain.pd.create_mw().unwrap());
                }
            }
        });
        (0..5).for_each(|_| mesh.exchange());
        drop(stop);
    });
    mesh.finish();
}

/// Goal: a region with a window does not close, whichever core has bound the window; a window that another core has
/// bound elsewhere, or ended, holds it no more.
#[test]
fn a_region_waits_for_windows_of_any_core() {
    let mesh = Mesh::of([2, 3]);
    let domain = &mesh.domains[1];
    let read = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    let side = |core: usize| &mesh.pairs[core].0[1];
    let done = |side: &Side| assert_eq!(side.statuses(1), [STATUS_SUCCESS]);
    for core in 0..3 {
        let windows = [(); 2].map(|()| domain.pd.create_mw().unwrap());
        let first = domain.pd.register(Buffer::new(100), ALL_ACCESS).unwrap();
        for (window, by) in windows.iter().zip([core, (core + 1) % 3]) {
            side(by).qp.bind(1, &first, window, 0..50, read).unwrap();
            done(side(by));
        }
        // The wrapper's drop waits for the close.
        let closed = start(|then| {
            drop(thread::spawn(|| {
                drop(first);
                then(());
            }))
        });
        let by = (core + 2) % 3;
        side(by).qp.invalidate(2, Invalidate::Window(&windows[0]), 0).unwrap();
        done(side(by));
        side(core).qp.bind(2, &domain.mr, &windows[0], 0..50, read).unwrap();
        done(side(core));
        // Anything that is asked for now is done after that.
        drop(domain.pd.create_mw().unwrap());
        assert!(closed.try_recv().is_err(), "a window is left");
        side(by).qp.invalidate(3, Invalidate::Window(&windows[1]), 0).unwrap();
        done(side(by));
        closed.recv_timeout(PATIENCE).expect("no window is left");
    }
    mesh.finish();
}

/// Goal: logical addresses are known to every core from the return of their call on.
#[test]
fn logical_addresses_are_known_to_every_core() {
    let mesh = Mesh::of([3, 2]);
    let domain = &mesh.domains[0];
    for round in 0..20_u8 {
        for (sides, _) in &mesh.pairs {
            let [near, far] = sides;
            let buffer = Arc::new(Buffer::from(&[round; 100][..]));
            let lam = domain.adapter.build_lam(buffer, 0..100).unwrap();
            let address = lam.pages()[0].QuadPart.cast_unsigned() + u64::from(lam.fbo());
            let sge = Sge::at(address, 100, domain.pd.privileged_token());
            near.qp.write(1, &[sge], far.mr.remote(0), 0).unwrap();
            assert_eq!(near.statuses(1), [STATUS_SUCCESS]);
            assert!(far.bytes(0, 100) == [round; 100]);
        }
    }
    mesh.finish();
}
