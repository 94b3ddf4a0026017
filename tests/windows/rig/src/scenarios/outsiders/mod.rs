//! A consumer that others wrote, over two adapters, or over one and back to itself: those of the image, or of two providers in this
//! process.

mod process;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use driver::abi::NDK_VERSION;

use self::process::Providers;
use super::net::Net;
use super::*;
use crate::ndis::within;
use crate::outsider::{Consumer, boundary, kernel, late, waits};

/// Seconds for which a server of a READ or WRITE test lets its client work: nothing else ends them.
const WORK_S: u32 = 3;
/// Seconds for which another server waits for its client.
const PATIENCE_S: u32 = 15;
/// Both sides have ended by then, or one of them never does.
const LIMIT: Duration = Duration::from_secs(60);
const PORT: u16 = 9000;
/// Of NDKPing and of NDKPerf, behind which nothing is read.
const REQUEST_LEN: usize = 572;

/// What a consumer is asked for: the control code of a test, where its requests have the name of the file for the results, and the time
/// that its server has.
struct Test {
    code: u32,
    file_at: usize,
    seconds: u32,
}

/// The tests by consumer and name. The codes of READ and WRITE are those that no option of NDKPing.exe gives.
const TESTS: &[(&str, &str, Test)] = &[
    ("NDKPing", "rping", Test { code: 0x22_0418, file_at: 48, seconds: PATIENCE_S }),
    ("NDKPing", "read", Test { code: 0x22_0408, file_at: 48, seconds: WORK_S }),
    ("NDKPing", "write", Test { code: 0x22_0410, file_at: 48, seconds: WORK_S }),
    ("NDKPerf", "rping", Test { code: 0x22_0404, file_at: 52, seconds: PATIENCE_S }),
    ("NDKPerf", "rperf", Test { code: 0x22_0408, file_at: 52, seconds: WORK_S }),
];

/// What is to be done, from the arguments of the scenario: FILE TEST, and any of `self` (the server is on the client's adapter), `loss=EVERY`
/// (one frame of so many), `late=MICROSECONDS` (each event comes so late), `fill` (what it frees is filled), `verify` (of providers in this process).
struct Task<'a> {
    file: &'a Path,
    test: &'a str,
    how: &'a [String],
}

impl<'a> Task<'a> {
    fn new(arguments: &'a [String]) -> Self {
        let [file, test, how @ ..] = arguments else { panic!("outsiders FILE TEST [HOW...]") };
        Self { file: Path::new(file), test, how }
    }

    fn has(&self, word: &str) -> bool {
        self.how.iter().any(|known| known == word)
    }

    /// The number behind a word; 0: it is not there.
    fn number(&self, word: &str) -> usize {
        let found = self.how.iter().find_map(|known| known.strip_prefix(word)?.strip_prefix('='));
        found.map_or(0, |number| number.parse().expect("a number"))
    }

    /// The consumer's name.
    fn name(&self) -> String {
        self.file.file_stem().expect("a file").to_string_lossy().into_owned()
    }

    /// Has the consumer make the test between two interfaces, and tells how both sides ended.
    fn run(&self, indices: [u32; 2]) {
        let name = self.name();
        let found = TESTS.iter().find(|(of, test, _)| *of == name && *test == self.test);
        let (.., test) = found.expect("a test that the consumer has");
        let server = usize::from(!self.has("self"));
        let consumer = Consumer::load(self.file).expect("the consumer loads");
        late::set(self.number("late") as u64);
        if self.has("fill") {
            kernel::fill_freed();
        }
        let [client, serve] = std::thread::scope(|scope| {
            let serve = scope.spawn(|| {
                let status = consumer.control(test.code, &mut request(test, indices, server, true));
                say!("the server has ended");
                status
            });
            eventually("a listener", || serve.is_finished() || boundary::is_listening());
            let client = scope
                .spawn(|| consumer.control(test.code, &mut request(test, indices, server, false)));
            if !within(LIMIT, || serve.is_finished() && client.is_finished()) {
                boundary::tell();
                waits::tell();
                crate::log::verdict(format_args!("the consumer does not end"), false);
            }
            [client, serve].map(|side| side.join().expect("it ends"))
        });
        late::set(0);
        say!("{name} {}: client {client:#x}, server {serve:#x}", self.test);
        consumer.unload();
        boundary::tell();
    }
}

/// Over two adapters of the image.
pub(super) fn outsiders(host: &dyn Host, arguments: &[String]) {
    let task = Task::new(arguments);
    let net = Net::plug(host, 1500);
    net.vnics.into_iter().for_each(wait_for_ndk);
    switch::lose(task.number("loss"));
    task.run(net.vnics.map(|vnic| vnic.index));
    switch::lose(0);
    tell_counters(&net);
    net.end(host);
}

/// Over two providers in this process; no image is loaded.
pub(super) fn outsiders_process(_: &dyn Host, arguments: &[String]) {
    let task = Task::new(arguments);
    let providers = Providers::start(task.number("loss"), task.has("verify"));
    task.run(providers.indices());
    providers.end();
    clean("at the end");
}

/// NDK comes on a while after the adapter.
fn wait_for_ndk(vnic: &Vnic) {
    let opens = || {
        let opened = vnic.open_ndk(NDK_VERSION { Major: 2, Minor: 0 });
        opened.map(|adapter| vnic.close_ndk(adapter)).is_ok()
    };
    eventually("an NDK adapter", opens);
}

/// The buffer that the consumer's command gives its driver.
fn request(test: &Test, indices: [u32; 2], server: usize, is_server: bool) -> Vec<u8> {
    let mut bytes = vec![0; REQUEST_LEN];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(0, &socket_address(0, 0));
    put(16, &socket_address(server, PORT));
    put(32, &indices[0].to_le_bytes());
    put(36, &indices[server].to_le_bytes());
    put(40, &[u8::from(is_server)]);
    put(44, &test.seconds.to_le_bytes());
    let file: Vec<u8> = r"C:\results.log".encode_utf16().flat_map(u16::to_le_bytes).collect();
    put(test.file_at, &file);
    bytes
}

/// A `SOCKADDR_IN`: these consumers know IPv4 alone.
fn socket_address(number: usize, port: u16) -> [u8; 16] {
    let IpAddr::V4(address) = address(number) else { panic!("an IPv4 address") };
    let mut bytes = [0; 16];
    bytes[0] = 2;
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&address.octets());
    bytes
}

/// Connections that failed or broke, and CQ errors, of both adapters.
fn tell_counters(net: &Net) {
    for (number, vnic) in net.vnics.into_iter().enumerate() {
        let mut room = [0_u8; 248];
        let answer = oid::ask(vnic, oid::QUERY, oid::NDK_STATISTICS, &mut room, true);
        assert_eq!((answer.status, answer.done), (0, 248));
        let [failed, broken, cq_errors] = [2, 3, 25].map(|counter| {
            let place = 8 + 8 * counter;
            u64::from_le_bytes(room[place..place + 8].try_into().unwrap())
        });
        say!(
            "adapter {number}: {failed} connects failed, {broken} connections broke, {cq_errors} CQ errors"
        );
    }
}
