#!/usr/bin/env python3
"""redirect.py IMAGE OUT MODULE: makes a copy of a PE32+ image that takes all its imports from MODULE.

It changes the names of the modules in the import table and the checksum, and nothing else: the code
that runs is the code that was linked. A new name may not be longer than an old one.
"""
import struct
import sys


def main(source, destination, module):
    image = bytearray(open(source, "rb").read())
    pe = struct.unpack_from("<I", image, 0x3C)[0]
    optional = pe + 24
    assert image[pe : pe + 4] == b"PE\0\0" and struct.unpack_from("<H", image, optional)[0] == 0x20B
    sections = [
        struct.unpack_from("<IIII", image, optional + 240 + 40 * number + 8)
        for number in range(struct.unpack_from("<H", image, pe + 6)[0])
    ]

    def offset(rva):
        for size, start, _, raw in sections:
            if start <= rva < start + size:
                return rva - start + raw
        raise ValueError(f"no section holds {rva:#x}")

    descriptor = offset(struct.unpack_from("<I", image, optional + 120)[0])
    while any(image[descriptor : descriptor + 20]):
        name = offset(struct.unpack_from("<I", image, descriptor + 12)[0])
        old = image[name : image.index(0, name)]
        assert len(module) <= len(old), f"{old} is too short for {module}"
        image[name : name + len(old)] = module.encode().ljust(len(old), b"\0")
        descriptor += 20
    struct.pack_into("<I", image, optional + 64, 0)
    total = sum(word for (word,) in struct.iter_unpack("<H", image + b"\0" * (len(image) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("<I", image, optional + 64, total + len(image))
    open(destination, "wb").write(image)


main(*sys.argv[1:])
