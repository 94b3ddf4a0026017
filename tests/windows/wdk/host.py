#!/usr/bin/env python3
"""host.py TREE WDK_BUILD: makes a copy of the sources, in TREE, build on Linux as if it were Windows.

WDK_BUILD is the published source of that crate. Of it, what asks the registry and what refuses other
hosts goes; a WDK is found by WDKContentRoot alone. Of the repository, dependencies that a Windows host
would have become those of this host. Files that would not change keep their time.
"""
import pathlib
import re
import shutil
import sys

tree, published = map(pathlib.Path, sys.argv[1:])
repository = pathlib.Path.cwd()


def write(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def edit(path, text, *edits):
    """Each edit is (pattern, replacement, how often it must match)."""
    for pattern, replacement, count in edits:
        text, found = re.subn(pattern, replacement, text, flags=re.S)
        assert found == count, f"{path}: {found} times {pattern}"
    write(path, text)


def mirror(crate, edited):
    """Copies a crate; what is `edited` is left to others, and what is gone goes."""
    wanted = {path.relative_to(repository) for path in (repository / crate).rglob("*") if path.is_file()}
    for path in wanted - set(map(pathlib.Path, edited)):
        copy, bytes_now = tree / path, (repository / path).read_bytes()
        if not copy.exists() or copy.read_bytes() != bytes_now:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(bytes_now)
    for copy in [path for path in (tree / crate).rglob("*") if path.is_file()]:
        if copy.relative_to(tree) not in wanted:
            copy.unlink()


def wdk_build():
    copy = tree / "wdk-build"
    if not copy.exists():
        shutil.copytree(published, copy)
    text = lambda name: (published / name).read_text()
    edit(copy / "Cargo.toml", text("Cargo.toml"), (r"\n\[(dev-)?dependencies\.windows\]\n.*?(?=\n\[)", "", 2))
    edit(copy / "src/lib.rs", text("src/lib.rs"), (r"\A", "#![allow(warnings)]\n", 1))
    edit(
        copy / "src/utils.rs",
        text("src/utils.rs"),
        (r"\nuse windows::\{.*?\n\};", "", 1),
        (r"= read_registry_key_string_value\(.*?\n    \)", "= None::<String>", 2),
        (r"\nfn read_registry_key_string_value\(.*?\n\}\n", "\n", 1),
        (r'cfg\(not\(target_os = "windows"\)\)', "cfg(any())", 2),
        (r'cfg\(target_os = "windows"\)', "cfg(all())", 3),
    )
    edit(
        copy / "src/cargo_make.rs",
        text("src/cargo_make.rs"),
        (r"std::os::windows::fs::symlink_file", "std::os::unix::fs::symlink", 2),
    )


def workspace():
    edit(
        tree / "Cargo.toml",
        (repository / "Cargo.toml").read_text(),
        (r"\nmembers = [^\n]*", '\nmembers = ["rocev2", "netadapter-glue", "driver", "driver/ndis", "driver/image"]', 1),
        (r"\ndefault-members = [^\n]*", "", 1),
        (r"\Z", '\n[patch.crates-io]\nwdk-build = { path = "wdk-build" }\n', 1),
    )
    image, script = "driver/image/Cargo.toml", "driver/image/build.rs"
    for crate in "rocev2", "netadapter-glue", "driver":
        mirror(crate, [image, script])
    edit(
        tree / image,
        (repository / image).read_text(),
        (r"\[target\.'cfg\(windows\)'\.build-dependencies\]", "[target.'cfg(unix)'.build-dependencies]", 1),
    )
    edit(tree / script, (repository / script).read_text(), (r"#\[cfg\(windows\)\]\n", "\n", 1))
    # cargo drops from it what the copy does not need; begun anew only where the original changed.
    lock = (repository / "Cargo.lock").read_text()
    original = tree / "Cargo.lock.original"
    if not original.exists() or original.read_text() != lock:
        (tree / "Cargo.lock").write_text(lock)
        original.write_text(lock)


wdk_build()
workspace()
