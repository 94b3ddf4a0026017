#!/usr/bin/env python3
"""redirect.py IMAGE OUT RIG FOLDER: makes a copy of a PE32+ image that takes its imports from stand-ins.

Each module of an import becomes a DLL of its own, of which a .def file in FOLDER tells the linker that it
passes on to RIG what RIG lists for that module ("stand-in MODULE!FUNCTION"). A function that is not in its
module is an error, as it is in Windows. In the copy the names of the modules and the checksum change, and
nothing else: the code that runs is the code that was linked. A new name may not be longer than an old one.
"""
import os
import re
import struct
import sys

STAND_INS = {
    "ntoskrnl.exe": "rignt.dll",
    "hal.dll": "rh.dll",
    "cng.sys": "rc.dll",
    "ndis.sys": "rn.dll",
    "netio.sys": "ri.dll",
}


def main(source, destination, rig, folder):
    image = bytearray(open(source, "rb").read())
    functions = {module: set() for module in STAND_INS}
    for module, function in re.findall(rb"stand-in ([a-z.]+)!(\w+)\n", open(rig, "rb").read()):
        functions[module.decode()].add(function.decode())
    missing = []
    for name, module, imports in modules(image):
        stand_in = STAND_INS.get(module)
        missing += [f"{module}!{one}" for one in imports if one not in functions.get(module, ())]
        if stand_in:
            assert len(stand_in) <= len(module), f"{module} is too short for {stand_in}"
            image[name : name + len(module)] = stand_in.encode().ljust(len(module), b"\0")
    if missing:
        sys.exit(f"no stand-in has {', '.join(missing)}")
    write_checksum(image)
    open(destination, "wb").write(image)
    # The linker makes a DLL of an object at least: this one has a head alone.
    with open(os.path.join(folder, "empty.obj"), "wb") as nothing:
        nothing.write(struct.pack("<HHIIIHH", 0x8664, 0, 0, 0, 0, 0, 0))
    for module, stand_in in STAND_INS.items():
        with open(os.path.join(folder, stand_in.replace(".dll", ".def")), "w") as definition:
            definition.write(f"LIBRARY {stand_in}\nEXPORTS\n")
            definition.writelines(f"  {one} = rig.{one}\n" for one in sorted(functions[module]))


def modules(image):
    """Where the name of each imported module is, that name, and what is imported from it."""
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

    def text(at):
        return image[at : image.index(0, at)].decode()

    descriptor = offset(struct.unpack_from("<I", image, optional + 120)[0])
    while any(image[descriptor : descriptor + 20]):
        thunk, name = struct.unpack_from("<I", image, descriptor)[0], offset(
            struct.unpack_from("<I", image, descriptor + 12)[0]
        )
        thunk, imports = offset(thunk), []
        while hint := struct.unpack_from("<Q", image, thunk)[0]:
            imports.append(text(offset(hint) + 2))
            thunk += 8
        yield name, text(name).lower(), imports
        descriptor += 20


def write_checksum(image):
    optional = struct.unpack_from("<I", image, 0x3C)[0] + 24
    struct.pack_into("<I", image, optional + 64, 0)
    total = sum(word for (word,) in struct.iter_unpack("<H", image + b"\0" * (len(image) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("<I", image, optional + 64, total + len(image))


main(*sys.argv[1:])
