"""Who may include whom, and what a public header may not hold."""

import re
from pathlib import Path

# A room may include itself and the rooms before it.
ROOMS = ("base formats checkpoint config launch loggers device tensors graph distributed data metrics optim nn programs training "
         "measurements fast_mkl program").split()
WITHOUT_LIBTORCH = ROOMS[:6]
# Users like any other: they see the public headers.
OUTSIDE = ("apps", "benchmarks")

LIBTORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
# Other people's types stay out of the interface. LibTorch's umbrella costs every includer nine seconds.
BANNED_IN_PUBLIC = re.compile(r"torch/(torch|extension|all)\.h|(spdlog|fmt|toml\+\+|CLI|nlohmann|gtest|gmock)/|zlib\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
BANNED_TEXT = {
    re.compile(r"^\s*using\s+namespace\b"): "`using namespace` reaches everyone who includes this header",
    re.compile(r"^\s*#\s*define\s+(LOG|CHECK)(_\w+)?\b"): "macros named LOG or CHECK clash with other libraries'",
    re.compile(r"^\s*#\s*if"): "no conditional compilation in public headers",
}


def source_files(root):
    for top in ("include/kindling", "src", *OUTSIDE):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                yield path.relative_to(root)


def room_of(path):
    """The room of a file; None for the umbrella header."""
    parts = path.parts
    if parts[0] in OUTSIDE:
        return parts[0]
    inside = parts[2:] if parts[0] == "include" else parts[1:]
    return inside[0] if len(inside) > 1 else None


def included_room(target):
    """(room, is it public) for an include of Kindling's own, else None."""
    parts = Path(target).parts
    if parts[0] == "kindling" and len(parts) > 2:
        return parts[1], True
    return (parts[0], False) if parts[0] in ROOMS and len(parts) > 1 else None


def check_order(room, is_public, target, bracket):
    included = included_room(target)
    if included is None:
        if target == "kindling/kindling.h" and room not in OUTSIDE:
            return "the umbrella header is for users"
        if bracket == '"' and room in ROOMS and target != "kindling/kindling.h":
            return "includes name their room"
        return None
    other, other_is_public = included
    if other not in ROOMS:
        return f"there is no room '{other}'"
    if room in ROOMS and ROOMS.index(other) > ROOMS.index(room):
        return f"'{room}' may not include '{other}', which comes after it"
    if not other_is_public and (is_public or room in OUTSIDE):
        return "a private header"
    return None


def check_include(path, target, bracket):
    room, is_public = room_of(path), path.parts[0] == "include"
    problem = check_order(room, is_public, target, bracket)
    if problem:
        return problem
    if room in WITHOUT_LIBTORCH and LIBTORCH.match(target):
        return f"'{room}' is built without LibTorch"
    if is_public and BANNED_IN_PUBLIC.match(target):
        return "not in a public header"
    return None


def check_line(path, line):
    include = INCLUDE.match(line)
    if include:
        problem = check_include(path, include[2], include[1])
        return f"{include[2]}: {problem}" if problem else None
    if path.parts[0] == "include":
        return next((reason for pattern, reason in BANNED_TEXT.items() if pattern.search(line)), None)
    return None


def violations(root):
    """All of them as `file:line: what is wrong`."""
    found = []
    for path in source_files(root):
        room = room_of(path)
        if room is not None and room not in (*ROOMS, *OUTSIDE):
            found.append(f"{path}: there is no room '{room}'")
            continue
        for number, line in enumerate((root / path).read_text().splitlines(), 1):
            problem = check_line(path, line)
            if problem:
                found.append(f"{path}:{number}: {problem}")
    return found
