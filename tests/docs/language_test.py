"""The words that CONTRIBUTING.md asks for: what a user reads has no wording of the list below.

    language_test.py            runs the tests
    language_test.py --list     prints every place in the repository, tests and private comments included
"""

import re
import sys
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# What is not written, and what is written instead.
WORDS = [
    (r"\bcards?\b", "GPU, or device"),
    (r"\banew\b", "again, from scratch"),
    (r"\b(hangs?|hung) on\b", "depends on"),
    (r"\b(go|goes|going|went|gone) on\b", "continues, resumes"),
    (r"\b(left|leaves?|leaving) out\b", "skips, omits"),
    (r"\bto the (last )?bit\b|\bbit for bit\b|\bsame bits\b", "bit-identical"),
    (r"\bheed(s|ed|ing)?\b", "respects, handles"),
    (r"\b(is|are|was|were|be) told\b|\btells? of\b|\bhears? of\b|\bsaid aloud\b", "reports, logs, warns"),
    (r"\bone's own\b|\b(?<!your )(?<!its )(?<!a host's )own loops?\b", "custom, user-defined, separate"),
    (r"\bbehind (the|its|each|every|it|them|step|which|whose|one|those|this|that)\b", "after"),
    (r"\bwish(es|ed)?\b", "request"),
    (r"\bat work\b", "running, active"),
    (r"\bstands? (in|for|at|there)\b|\blies? in\b", "is in, means"),
    (r"\bbeside\b", "next to, in addition to"),
    (r"\btrainings\b", "runs, fits"),
    (r"\bprocess 0\b", "rank 0"),
    (r"\btextbooks?\b", "Dive into Deep Learning (d2l)"),
    (r"\bfor ever\b", "forever, indefinitely"),
    (r"\bproducts of matrices\b", "matrix multiplications"),
    (r"\bshares? of\b", "fraction of"),
    (r"\brecorded steps?\b|\bsteps? (is|are) (not )?recorded\b", "captured steps, step capture"),
    (r"\bremedy\b|\bwanted:", "hint, expected"),
    (r"(?<!here )\b(is|are) no\b(?! (longer|more|element|other))", "is not a"),
    (r"(?:^|[.:] |// )(Who|What) [a-z' ]+ (is|are|was|does|has|gives)\b", "subject, verb, object"),
]
PATTERNS = [(re.compile(pattern, re.MULTILINE), instead) for pattern, instead in WORDS]

# (end of the file's path, words): at most twenty.
EXCEPTIONS = [
    ("CONTRIBUTING.md", 'negation by "is no …"'),  # the rule itself
    ("docs/reference/errors_and_exit_codes.md", ".remedy ="),  # a member of ErrorParts
    ("benchmarks/README.md", "benchmarks/card.py"),  # the name of a script
]


def pages():
    for path in [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md")),
                 *sorted((REPOSITORY / "benchmarks").rglob("*.md")), *sorted((REPOSITORY / "apps").rglob("*.md"))]:
        # The glossary of CONTRIBUTING.md names the words.
        text = re.sub(r"^\|.*\|$", "", path.read_text(), flags=re.MULTILINE) if path.name == "CONTRIBUTING.md" else path.read_text()
        yield path, re.sub(r"`[^`\n]*`", "``", text)


def sources(*tops):
    for top in tops:
        for path in sorted((REPOSITORY / top).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                yield path, path.read_text()


STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def without_code(line):
    """The comment of a line of C++."""
    bare = STRING.sub(lambda string: '"' + "x" * (len(string[0]) - 2) + '"', line)
    start = bare.find("//")
    return line[start:] if start >= 0 else ""


def comments(text):
    return "\n".join(without_code(line) for line in text.split("\n"))


def strings(text):
    """Literals that are sentences: those with a blank in them."""
    return "\n".join(" ".join(part for part in STRING.findall(line.partition(" // ")[0]) if " " in part) if "#include" not in line else ""
                     for line in text.split("\n"))


def what_users_read():
    yield from pages()
    for path, text in sources("include/kindling"):
        yield path, comments(text)
    for path, text in sources("include/kindling", "src", "apps"):
        yield path, strings(text)
    for path, text in sources("apps"):
        yield path, comments(text)


def found_in(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, instead in PATTERNS:
            for match in pattern.finditer(line):
                if not any(str(path).endswith(end) and words in line for end, words in EXCEPTIONS):
                    yield f"{path.relative_to(REPOSITORY)}:{number}: '{match[0].strip()}' (write: {instead})"


class Language(unittest.TestCase):
    def test_of_what_users_read(self):
        found = sorted({place for path, text in what_users_read() for place in found_in(path, text)})
        self.assertEqual("\n".join(found), "")

    def test_has_few_exceptions_all_of_them_needed(self):
        self.assertLessEqual(len(EXCEPTIONS), 20)
        texts = [(str(path), text) for path, text in what_users_read()]
        unused = [entry for entry in EXCEPTIONS if not any(path.endswith(entry[0]) and entry[1] in text for path, text in texts)]
        self.assertEqual(unused, [])

    def test_reports_what_it_finds(self):
        page = REPOSITORY / "README.md"
        self.assertEqual(list(found_in(page, "fine\nThe card goes on.")),
                         ["README.md:2: 'card' (write: GPU, or device)", "README.md:2: 'goes on' (write: continues, resumes)"])
        self.assertEqual(list(found_in(page, "There is no limit; it is no longer set.")), [])
        self.assertEqual(list(found_in(page, "A stop is no error")), ["README.md:1: 'is no' (write: is not a)"])
        self.assertEqual(strings('f("two cards", "card");  // "a card"').strip(), "two cards")
        self.assertEqual(comments('f("// no");  // yes'), "// yes")


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        everything = list(what_users_read()) + [(path, comments(text)) for path, text in sources("src", "tests", "benchmarks")]
        print("\n".join(sorted({place for path, text in everything for place in found_in(path, text)})))
    else:
        unittest.main()
