"""The table of docs/dev/d2l_traceability.md: for every part of the textbook's section its API and the tests that hold it to that."""

import re

PARTS = [f"S{i}" for i in range(1, 18)] + [f"E{i}" for i in range(1, 5)]

CODE = re.compile(r"`([^`]*)`")
TEST_NAME = re.compile(r"[A-Z]\w*\.[A-Z]\w*")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
DEFINITION = re.compile(r"\bTEST(?:_F|_P)?\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)\s*\{")


def defined_tests(folder):
    """Every Suite.Name that a .cpp below the folder defines with TEST, TEST_F or TEST_P."""
    names = set()
    for path in folder.rglob("*.cpp"):
        names.update(".".join(match) for match in DEFINITION.findall(COMMENT.sub("", path.read_text())))
    return names


def rows(text):
    """The rows whose first cell is a part, as lists of cells. A pipe inside of code separates cells too, as in Markdown."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(r"[SE]\d+", cells[0]):
            yield cells


def check_row(cells, tests):
    part, api, named = (cells + ["", ""])[:3]
    if len(cells) != 3:
        yield f"{part}: {len(cells)} cells instead of part, API, tests"
    if not api:
        yield f"{part}: no API"
    names = CODE.findall(named)
    if not names:
        yield f"{part}: no test"
    if CODE.sub("", named).strip(" ,"):
        yield f"{part}: more than names of tests: {CODE.sub('', named).strip(' ,')}"
    for name in names:
        if not TEST_NAME.fullmatch(name):
            yield f"{part}: `{name}` is no Suite.Name"
        elif name not in tests:
            yield f"{part}: `{name}` is not defined"


def violations(text, tests):
    """What is wrong with the table in `text`, given the names of all tests."""
    found = list(rows(text))
    parts = [cells[0] for cells in found]
    if parts != PARTS:
        missing = [part for part in PARTS if part not in parts]
        yield f"the parts are not S1 to S17, then E1 to E4, once each (missing: {', '.join(missing) or 'none'})"
    for cells in found:
        yield from check_row(cells, tests)
