#!/usr/bin/env python3
"""lines.py LIST [FORGIVEN] < LCOV: which lines of the Windows-only code ran, by file and in all.

Fails below 85 %, where a line that did not run is not in LIST, and where an entry of LIST fits no such line. An entry
stands under a comment with the reason, and is `FILE FUNCTION: TEXT`, the text of the line, or `FILE FUNCTION` for every
line of a function. One that begins with "? " runs in some runs and not in others. As races decide that, so many complaints of
the second and third kind are told and FORGIVEN (0). A comment and a line without a word, such as a brace, do not count.
"""
import re
import sys

ROOMS = ("driver/ndis/src/", "driver/image/src/")
LEAST = 85
FUNCTION = re.compile(r"\bfn (\w+)")
CODE = re.compile(r"(?!\s*//).*\w")


def main(path, forgiven="0"):
    hits = read(sys.stdin)
    sources = {file: open(file).read().splitlines() for file in hits}
    lines = {file: named(hits[file], sources[file], file) for file in hits}
    missed = [name for file in sorted(lines) for name, hit in lines[file] if not hit]
    print_table(lines)
    complaints = judge(missed, entries(path), sources)
    every = [hit for file in lines.values() for _, hit in file]
    too_few = not every or 100 * sum(every) < LEAST * len(every)
    if too_few:
        complaints.append(f"less than {LEAST} % of {len(every)} lines")
    print("\n".join(complaints))
    sys.exit(too_few or len(complaints) > int(forgiven))


def read(lcov):
    """The lines of each file, and whether they ran."""
    hits, here = {}, None
    for line in lcov:
        kind, _, value = line.rstrip("\n").partition(":")
        if kind == "SF":
            room = next((room for room in ROOMS if room in value), None)
            here = room and hits.setdefault(value[value.index(room) :], {})
        elif kind == "DA" and here is not None:
            number, count = value.split(",")[:2]
            here[int(number)] = int(count) > 0
    return hits


def named(hits, source, file):
    """The lines as the list names them."""
    function, at = "-", {}
    for number, text in enumerate(source, 1):
        found = FUNCTION.search(text)
        function = found[1] if found and not text.lstrip().startswith("//") else function
        at[number] = (f"{file} {function}: {text.strip()}", text)
    return [(at[number][0], hit) for number, hit in sorted(hits.items()) if CODE.match(at[number][1])]


def entries(path):
    """The list: each entry, and whether its lines may run."""
    lines = [line.strip() for line in open(path)]
    lines = [line for line in lines if line and not line.startswith("#")]
    return {line.removeprefix("? "): line.startswith("? ") for line in lines}


def judge(missed, listed, sources):
    """Complaints about lines without an entry and entries without a line."""
    functions = {name.split(": ", 1)[0] for name in missed}
    unlisted = [n for n in missed if n not in listed and n.split(": ", 1)[0] not in listed]
    gone = [e for e, may_run in listed.items() if not may_run and e not in missed and e not in functions]
    gone += [e for e, may_run in listed.items() if may_run and not exists(e, sources)]
    complaints = [f"does not run, and is not listed: {name}" for name in dict.fromkeys(unlisted)]
    return complaints + [f"is listed, and runs or is gone: {entry}" for entry in gone]


def exists(entry, sources):
    file, _, rest = entry.partition(" ")
    function, _, text = rest.partition(": ")
    return any(text in line if text else f"fn {function}" in line for line in sources.get(file, ()))


def print_table(lines):
    for file, of in sorted(lines.items(), key=lambda item: share(item[1])):
        print(f"{share(of):6.2f} % of {len(of):4} {file}")
    every = [line for of in lines.values() for line in of]
    print(f"{share(every):6.2f} % of {len(every):4} lines of the Windows-only code")


def share(lines):
    return 100 * sum(hit for _, hit in lines) / max(len(lines), 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
