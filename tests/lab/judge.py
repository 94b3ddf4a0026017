#!/usr/bin/env python3
"""Judges a capture (classic pcap, Ethernet) by means that share no code with the project.

  judge.py icrc FILE              every invariant CRC by zlib; prints `NAME COUNT` for each kind of packet, and
                                  `NAK_CODE_ADDRESS COUNT` for the senders of NAKs
  judge.py scapy FILE [COUNT]     every invariant CRC over IPv4, or the first so many, by scapy.contrib.roce
  judge.py tshark FILE            no packet that tshark calls malformed
  judge.py twice FILE [PATH_MTU]  prints `twice_ADDRESS COUNT`: requests at this path MTU (1024) that tshark saw before,
                                  in whole or in part, by their sender

Exit status: 0 all right, 1 a packet is wrong (listed on stderr), 77 the judge's tool is not installed.
"""

import collections
import ipaddress
import itertools
import os
import shutil
import struct
import subprocess
import sys
import zlib

ROCE_PORT = 4791
# Debian's scapy is for Debian's python3, beside which a version manager's may come first in the path.
DEBIANS = "/usr/bin/python3"
LOOKED = "JUDGE_LOOKED_FOR_SCAPY"
OPCODES = {
    0x00: "SEND_FIRST", 0x01: "SEND_MIDDLE", 0x02: "SEND_LAST", 0x03: "SEND_LAST_IMM",
    0x04: "SEND_ONLY", 0x05: "SEND_ONLY_IMM", 0x06: "WRITE_FIRST", 0x07: "WRITE_MIDDLE",
    0x08: "WRITE_LAST", 0x09: "WRITE_LAST_IMM", 0x0A: "WRITE_ONLY", 0x0B: "WRITE_ONLY_IMM",
    0x0C: "READ_REQUEST", 0x0D: "READ_RESPONSE_FIRST", 0x0E: "READ_RESPONSE_MIDDLE",
    0x0F: "READ_RESPONSE_LAST", 0x10: "READ_RESPONSE_ONLY", 0x11: "ACKNOWLEDGE",
    0x12: "ATOMIC_ACKNOWLEDGE", 0x13: "COMPARE_SWAP", 0x14: "FETCH_ADD",
    0x16: "SEND_LAST_INVALIDATE", 0x17: "SEND_ONLY_INVALIDATE",
}  # fmt: skip
SENDS = {opcode for opcode, name in OPCODES.items() if name.startswith("SEND")}
RESPONSES = set(range(0x0D, 0x13))
UD_SEND_ONLY = 0x64
CM_ATTRIBUTES = {0x10: "REQ", 0x11: "MRA", 0x12: "REJ", 0x13: "REP", 0x14: "RTU", 0x15: "DREQ", 0x16: "DREP"}


def main():
    judges = {"icrc": judge_icrc, "scapy": judge_scapy, "tshark": judge_tshark, "twice": judge_twice}
    name, *arguments = sys.argv[1:] or [""]
    if name not in judges or not 1 <= len(arguments) <= (2 if name in ("scapy", "twice") else 1):
        sys.exit(__doc__)
    wrong = judges[name](*arguments)
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


# --- the capture -------------------------------------------------------------


def frames(path):
    """(number from 1, frame, its length on the wire) of each record."""
    with open(path, "rb") as file:
        data = file.read()
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}
    if data[:4] not in order:
        sys.exit(f"{path}: not a classic pcap")
    record = struct.Struct(order[data[:4]] + "IIII")
    if struct.unpack_from(order[data[:4]] + "I", data, 20) != (1,):
        sys.exit(f"{path}: not Ethernet")
    at, number = 24, 1
    while at + record.size <= len(data):
        _, _, captured, wire = record.unpack_from(data, at)
        at += record.size
        yield number, data[at : at + captured], wire
        at += captured
        number += 1


def roce(path):
    """(number, IP packet up to and with the ICRC, length of the IP header) of each RoCEv2 frame."""
    for number, frame, wire in frames(path):
        at = 18 if frame[12:14] == b"\x81\x00" else 14
        ethertype, packet = frame[at - 2 : at], frame[at:]
        if ethertype == b"\x08\x00" and packet[9] == 17:
            header, length = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
        elif ethertype == b"\x86\xdd" and packet[6] == 17:
            header, length = 40, 40 + int.from_bytes(packet[4:6], "big")
        else:
            continue
        if int.from_bytes(packet[header + 2 : header + 4], "big") != ROCE_PORT:
            continue
        if len(frame) < wire or len(packet) < length:
            sys.exit(f"{path}: frame {number} is cut short")
        if int.from_bytes(packet[header + 4 : header + 6], "big") != length - header:
            sys.exit(f"{path}: frame {number}: the UDP length is not what the IP length leaves")
        yield number, packet[:length], header


# --- the judges --------------------------------------------------------------


def judge_icrc(path):
    wrong, kinds = [], collections.Counter()
    for number, packet, header in roce(path):
        kinds["packets"] += 1
        name = kind(packet[header + 8 :])
        kinds[name] += 1
        if name.startswith("NAK_"):
            kinds[f"{name}_{source(packet)}"] += 1
        if icrc(packet[:-4], header) != packet[-4:]:
            wrong.append(f"frame {number}: ICRC {packet[-4:].hex()}, not {icrc(packet[:-4], header).hex()}")
    for name, count in sorted(kinds.items()):
        print(name, count)
    return wrong


def icrc(packet, header):
    """The invariant CRC (IBTA annex A17): CRC-32 as of Ethernet, over eight bytes of ones for the absent LRH,
    then the packet with ones in every field that a router may change, then as sent, low byte first."""
    masked = bytearray(packet)
    if header == 40:
        masked[0] |= 0x0F  # traffic class, flow label
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF  # hop limit
    else:
        masked[1] = 0xFF  # type of service
        masked[8] = 0xFF  # time to live
        masked[10:12] = b"\xff\xff"  # header checksum
    masked[header + 6 : header + 8] = b"\xff\xff"  # UDP checksum
    masked[header + 12] = 0xFF  # FECN, BECN and the reserved bits of the BTH
    return zlib.crc32(masked, zlib.crc32(b"\xff" * 8)).to_bytes(4, "little")


def source(packet):
    if packet[0] >> 4 == 4:
        return ipaddress.IPv4Address(packet[12:16])
    return ipaddress.IPv6Address(packet[8:24])


def kind(bth):
    opcode, destination = bth[0], int.from_bytes(bth[5:8], "big")
    if opcode == UD_SEND_ONLY and destination == 1:
        # BTH 12 bytes, DETH 8, then the MAD with its attribute id at 16.
        attribute = int.from_bytes(bth[36:38], "big")
        return f"CM_{CM_ATTRIBUTES.get(attribute, hex(attribute))}"
    if opcode == 0x11 and bth[12] >> 5 == 3:
        return f"NAK_{bth[12] & 31}"
    if opcode == 0x11 and bth[12] >> 5 == 1:
        return "RNR_NAK"
    return OPCODES.get(opcode, f"OPCODE_{opcode:#04x}")


def judge_scapy(path, count=None):
    try:
        from scapy.contrib.roce import BTH
        from scapy.layers.l2 import Ether
    except ImportError:
        if LOOKED not in os.environ and os.access(DEBIANS, os.X_OK):
            os.execve(DEBIANS, [DEBIANS, *sys.argv], {**os.environ, LOOKED: "1"})
        print("scapy missing", file=sys.stderr)
        sys.exit(77)
    wrong = []
    # scapy 2.5 has the rule for IPv4 alone.
    for number, packet, header in itertools.islice(roce(path), count and int(count)):
        if header != 20:
            continue
        bth = Ether(b"\0" * 12 + b"\x08\x00" + packet)[BTH]
        if bth.compute_icrc(bytes(bth)[:-4]) != packet[-4:]:
            wrong.append(f"frame {number}: scapy computes another ICRC")
    return wrong


def judge_tshark(path):
    """tshark guesses at the payload of a SEND by its bytes alone, and takes some short ones (a length, an address
    and a key that look like version 1 of a header) for RPC-over-RDMA, which it then calls malformed. What is
    malformed only while that one guess is on, and is a SEND, is excused; all else counts. So is the token of an SMB
    server that is a NegTokenInit2 ([MS-SPNG] 2.2.1), which tshark reads as RFC 4178's NegTokenInit."""
    if not shutil.which("tshark"):
        print("tshark missing", file=sys.stderr)
        sys.exit(77)
    guessing = malformed(path)
    less = ["--disable-heuristic", "rpcrdma_infiniband", "--disable-protocol", "spnego"]
    sound = malformed(path, *less) if guessing else {}
    excused = [frame for frame, opcode in guessing.items() if frame not in sound and opcode in SENDS]
    if excused:
        print(f"excused {len(excused)}")
    return [f"frame {frame}: malformed" for frame in {**guessing, **sound} if frame not in excused]


def judge_twice(path, path_mtu="1024"):
    """A probe, a WRITE of nothing under a PSN of before, is no request that was seen."""
    if not shutil.which("tshark"):
        print("tshark missing", file=sys.stderr)
        sys.exit(77)
    names = ["ip.src", "ipv6.src", "infiniband.bth.destqp", "infiniband.bth.opcode", "infiniband.bth.psn"]
    names.append("infiniband.reth.dmalen")
    seen, twice = collections.defaultdict(set), collections.Counter()
    for row in fields(path, "infiniband.bth.opcode < 0x18", names):
        source, queue, opcode, first, length = row[0] or row[1], row[2], int(row[3], 0), int(row[4], 0), row[5]
        read = OPCODES.get(opcode) == "READ_REQUEST"
        if OPCODES.get(opcode) == "WRITE_ONLY" and int(length, 0) == 0 or opcode in RESPONSES:
            continue
        packets = -(-int(length, 0) // int(path_mtu)) if read else 1
        psns = {(first + offset) % 2**24 for offset in range(max(packets, 1))}
        twice[source] += not psns.isdisjoint(seen[source, queue])
        seen[source, queue] |= psns
    for source, count in twice.items():
        print(f"twice_{source} {count}")
    return []


def malformed(path, *options):
    """BTH opcode (None if there is none) by the number of each frame that tshark calls malformed."""
    rows = fields(path, "_ws.malformed", ["frame.number", "infiniband.bth.opcode"], *options)
    return {int(frame): int(opcode, 0) if opcode else None for frame, opcode in rows}


def fields(path, condition, names, *options):
    """These fields of each frame that meets the condition, as tshark prints them."""
    command = ["tshark", "-r", path, *options, "-Y", condition, "-T", "fields"]
    command += [argument for name in names for argument in ("-e", name)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"tshark: {done.stderr}")
    return [line.split("\t") for line in done.stdout.splitlines()]


if __name__ == "__main__":
    main()
