//! The programs of the matrix. To add one is to add an element.

use tests::lab::Side;

use crate::event::Event::{CableOut3, CableOut10, GuestPaused, OursKilled, PeerKilled};
use crate::program::{Ending, Fate, GuestEnd, OurEnd, Program};
use crate::spread::{Family, Kernel};

pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "rping-serve",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 1,
        listens: Side::Ours,
        guest: process("rping -c -a {ours} -p 7174 -V -C {count} -S 65535", "rping"),
        ours: ndkperf("rping serve -a {ours} -p 7174 -V -C {count} -S 65535", "listening"),
        counts: [20, 60],
        at_work_kib: 500,
        packets: PINGS,
        endings: &[
            (PeerKilled, Ending { ours: LEFT, guest: Fate::Struck, seconds: 10 }),
            (OursKilled, Ending { ours: Fate::Struck, guest: Fate::Waits, seconds: 10 }),
            (CableOut3, Ending::UNHARMED),
            (CableOut10, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
    Program {
        name: "rping-connect",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 1,
        listens: Side::Guest,
        guest: process("rping -s -a {guest} -p 7174 -V -C {count} -S 65535", "rping"),
        ours: ndkperf("rping connect -a {guest} -p 7174 -V -C {count} -S 65535", ""),
        counts: [20, 60],
        at_work_kib: 500,
        packets: PINGS,
        endings: &[
            (PeerKilled, Ending { ours: LEFT, guest: Fate::Struck, seconds: 10 }),
            (OursKilled, Ending { ours: Fate::Struck, guest: Fate::Waits, seconds: 10 }),
            (CableOut3, Ending::UNHARMED),
            (CableOut10, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
    Program {
        name: "ucmatose-server",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 1,
        listens: Side::Ours,
        guest: process("ucmatose -s {ours} -C {count} -S 8000", "ucmatose"),
        ours: peer("ucmatose-server --count {count} --size 8000", "listening"),
        counts: [100, 1000],
        at_work_kib: 500,
        packets: MESSAGES,
        endings: &[
            (PeerKilled, Ending { ours: LEFT, guest: Fate::Struck, seconds: 10 }),
            (CableOut3, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
    Program {
        name: "ucmatose-client",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 1,
        listens: Side::Guest,
        guest: process("ucmatose -b {guest} -C {count} -S 8000", "ucmatose"),
        ours: peer("ucmatose-client --to {guest} --count {count} --size 8000", ""),
        counts: [100, 1000],
        at_work_kib: 500,
        packets: MESSAGES,
        endings: &[
            (PeerKilled, Ending { ours: LEFT, guest: Fate::Struck, seconds: 10 }),
            (CableOut3, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
    // One message each way in a connection: a strike would hit its opening or its end.
    Program {
        name: "rdma-server",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 1,
        listens: Side::Ours,
        guest: process(
            "for n in $(seq {count}); do rdma_client -s {ours} || exit; done",
            "rdma_client",
        ),
        ours: peer("rdma-server --count {count}", "listening"),
        counts: [40, 40],
        at_work_kib: 500,
        packets: MESSAGE,
        endings: &[],
    },
    Program {
        name: "rdma-client",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 1,
        listens: Side::Guest,
        guest: process(
            "for n in $(seq {count}); do rdma_server -s {guest} || exit; done",
            "rdma_server",
        ),
        ours: peer("rdma-client --to {guest} --count {count}", ""),
        counts: [40, 40],
        at_work_kib: 500,
        packets: MESSAGE,
        endings: &[],
    },
    Program {
        name: "nvme-target",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 4,
        listens: Side::Ours,
        guest: GuestEnd {
            command: Some("sh /lab/jobs/nvme-disk {ours} nqn.2026-11.ndkrocev2:disk {count}"),
            ..KERNEL
        },
        ours: OurEnd { stays: true, ..consumer("nvme-target", "--size 96", "ready") },
        counts: [64, 32],
        // Behind the making of the file system.
        at_work_kib: 20_000,
        packets: &[
            "READ_REQUEST",
            "READ_RESPONSE_LAST",
            "WRITE_LAST",
            "SEND_ONLY_INVALIDATE",
            "CM_REQ",
            "CM_DREQ",
        ],
        endings: &[
            (PeerKilled, Ending { ours: Fate::Finishes, guest: Fate::Struck, seconds: 60 }),
            // The disk was in the memory of the killed target: the guest connects anew, and misses its data.
            (
                OursKilled,
                Ending {
                    ours: Fate::Struck,
                    guest: Fate::Fails(&["Successfully reconnected"]),
                    seconds: 60,
                },
            ),
            (CableOut3, Ending::UNHARMED),
            (CableOut10, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
    Program {
        name: "nvme-host",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 4,
        listens: Side::Guest,
        guest: GuestEnd {
            before: "sh /lab/jobs/nvmet start {guest}",
            after: "sh /lab/jobs/nvmet stop",
            ..KERNEL
        },
        ours: consumer(
            "nvme-host",
            "connect {guest} -n nqn.2026-11.lab:ram --queues 4 --size {count}",
            "",
        ),
        counts: [2, 8],
        at_work_kib: 5000,
        packets: &["READ_RESPONSE_LAST", "WRITE_LAST", "SEND_ONLY_INVALIDATE", "CM_REQ", "CM_DREQ"],
        endings: &[
            (
                PeerKilled,
                Ending { ours: Fate::Fails(&["TIMEOUT"]), guest: Fate::Struck, seconds: 60 },
            ),
            (OursKilled, Ending { ours: Fate::Struck, guest: Fate::Finishes, seconds: 60 }),
            (CableOut3, Ending::UNHARMED),
            (CableOut10, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
    Program {
        name: "nfs-read",
        kernels: &Kernel::ALL,
        families: &Family::ALL,
        cpus: 4,
        listens: Side::Guest,
        guest: GuestEnd {
            before: "sh /lab/jobs/nfsd start {count}",
            after: "sh /lab/jobs/nfsd stop",
            ..KERNEL
        },
        ours: OurEnd { prints: Some("random"), ..consumer("nfs-read", "{guest} /random", "") },
        counts: [2, 16],
        at_work_kib: 1000,
        packets: &["WRITE_LAST", "SEND_ONLY", "CM_REQ", "CM_DREQ"],
        endings: &[
            (OursKilled, Ending { ours: Fate::Struck, guest: Fate::Finishes, seconds: 60 }),
            (CableOut3, Ending::UNHARMED),
            (CableOut10, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
    Program {
        name: "smb-direct",
        // The kernel that a module with SMB Direct is built for; its server listens on IPv4 alone.
        kernels: &[Kernel::Bookworm],
        families: &[Family::V4],
        cpus: 4,
        listens: Side::Guest,
        guest: GuestEnd {
            before: "sh /lab/jobs/ksmbd start",
            after: "sh /lab/jobs/ksmbd stop",
            smb_direct: true,
            ..KERNEL
        },
        ours: consumer("smb-direct", "{guest} share --size {count}", ""),
        counts: [64, 64],
        at_work_kib: 20_000,
        packets: &[
            "READ_REQUEST",
            "READ_RESPONSE_LAST",
            "WRITE_LAST",
            "SEND_ONLY",
            "SEND_ONLY_INVALIDATE",
            "CM_REQ",
            "CM_DREQ",
        ],
        endings: &[
            // The client has messages under way, or waits for answers alone, which nothing but its own limit ends.
            (
                PeerKilled,
                Ending {
                    ours: Fate::Fails(&["TIMEOUT", "nothing happened for too long"]),
                    guest: Fate::Struck,
                    seconds: 60,
                },
            ),
            (OursKilled, Ending { ours: Fate::Struck, guest: Fate::Finishes, seconds: 60 }),
            (CableOut3, Ending::UNHARMED),
            (CableOut10, Ending::UNHARMED),
            (GuestPaused, Ending::UNHARMED),
        ],
    },
];

/// A guest's end that is its kernel.
const KERNEL: GuestEnd =
    GuestEnd { before: "", after: "", command: None, process: None, smb_direct: false };
/// One message each way.
const MESSAGE: &[&str] = &["SEND_ONLY", "ACKNOWLEDGE", "CM_REQ", "CM_REP", "CM_DREQ"];
/// Messages of several packets.
const MESSAGES: &[&str] = &["SEND_FIRST", "SEND_LAST", "CM_REQ", "CM_REP", "CM_DREQ"];
/// The packets of a ping: a READ and a WRITE of many packets, four messages.
const PINGS: &[&str] = &[
    "READ_REQUEST",
    "READ_RESPONSE_LAST",
    "WRITE_LAST",
    "SEND_ONLY",
    "CM_REQ",
    "CM_REP",
    "CM_DREQ",
];

/// A guest's end that is one process.
const fn process(command: &'static str, process: &'static str) -> GuestEnd {
    GuestEnd { command: Some(command), process: Some(process), ..KERNEL }
}

const fn ndkperf(arguments: &'static str, ready: &'static str) -> OurEnd {
    OurEnd {
        package: "ndkperf",
        kind: "bin",
        name: "ndkperf",
        arguments,
        ready,
        stays: false,
        prints: None,
    }
}

/// Of an end whose peer was killed: it disconnects. Where Linux takes away its memory before the DREQ has left, a
/// request of ours is refused in between (`cell::refused`).
const LEFT: Fate =
    Fate::Fails(&["disconnected", "STATUS_ACCESS_VIOLATION", "STATUS_REMOTE_RESOURCES"]);

/// The other end of a program of librdmacm: see `peer/main.rs`.
const fn peer(arguments: &'static str, ready: &'static str) -> OurEnd {
    OurEnd {
        package: "tests",
        kind: "example",
        name: "peer",
        arguments,
        ready,
        stays: false,
        prints: None,
    }
}

/// An example of the consumer crate.
const fn consumer(name: &'static str, arguments: &'static str, ready: &'static str) -> OurEnd {
    OurEnd {
        package: "ndk-consumer",
        kind: "example",
        name,
        arguments,
        ready,
        stays: false,
        prints: None,
    }
}
