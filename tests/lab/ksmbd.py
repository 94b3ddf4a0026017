"""ksmbd with SMB Direct, built for the guest's kernel: Debian's own leaves it off (CONFIG_SMB_SERVER_SMBDIRECT).

The source, the headers and the build's tools are Debian's packages of that very kernel, unpacked in the cache; the
compiler is this machine's, of the version that the kernel was built with.
"""

import os
import re
import shutil
import subprocess

CONFIG = "CONFIG_SMB_SERVER_SMBDIRECT"
# What the module is made of, and what the headers lack: a header of its neighbours, and a tool with what it includes.
SOURCES = "fs/smb fs/internal.h scripts/asn1_compiler.c include/linux/asn1.h include/linux/asn1_ber_bytecode.h".split()


def missing():
    """What this machine lacks for it, if anything."""
    for program, package in (("make", "make"), ("x86_64-linux-gnu-gcc-12", "gcc-12"), ("xz", "xz-utils")):
        if not shutil.which(program):
            return f"ksmbd needs {program} for SMB Direct (package {package})"
    return None


def build(root, release):
    """The module's bytes. `root` holds the unpacked packages of the headers, the tools and the source of a kernel."""
    headers = root / "usr/src" / f"linux-headers-{release}"
    move(root, headers)
    source = root / "source"
    extract(root / "usr/src", source)
    scripts = (headers / "scripts").resolve()
    run(["gcc", "-O2", "-w", f"-I{source}/include", "-o", scripts / "asn1_compiler", source / "scripts/asn1_compiler.c"])
    server = source / "fs/smb/server"
    make = ["make", "-s", f"-j{len(os.sched_getaffinity(0))}", "-C", headers, f"M={server}"]
    # The headers' configuration says no to the compiler, too.
    run([*make, f"{CONFIG}=y", f"KCFLAGS=-D{CONFIG}=1", "modules"])
    run(["strip", "-g", server / "ksmbd.ko"])
    return (server / "ksmbd.ko").read_bytes()


def move(root, headers):
    """The headers name each other by where they would be installed."""
    for path in (headers / "Makefile", headers / ".kernelvariables"):
        if path.exists():
            path.write_text(path.read_text().replace("/usr/", f"{root}/usr/"))
    for path in root.glob("usr/src/linux-headers-*/**/*"):
        if path.is_symlink() and os.readlink(path).startswith("/usr/"):
            target = f"{root}{os.readlink(path)}"
            path.unlink()
            path.symlink_to(target)


def extract(packed, to):
    to.mkdir()
    (archive,) = packed.glob("linux-source-*.tar.xz")
    name = re.sub(r"\.tar\.xz$", "", archive.name)
    run(["tar", "-xf", archive, "-C", to, "--strip-components=1", *(f"{name}/{path}" for path in SOURCES)])
    archive.unlink()


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}lab: {command[0]} ends with status {done.returncode}")
