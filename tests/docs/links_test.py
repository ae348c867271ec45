"""Every link of the README and of the pages leads to a file, every anchor to a heading of it, and the sources that pages name exist."""

import re
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md")),
         *sorted((REPOSITORY / "benchmarks").rglob("*.md")), *sorted((REPOSITORY / "apps").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`((?:src|include|tests|scripts|cmake)/[\w/.-]+\.\w+)`")


def without_code(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: "`" + "x" * (len(code[0]) - 2) + "`", text)


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    found, counts = set(), {}
    for heading in re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE):
        heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = counts.get(anchor, 0)
        counts[anchor] = count + 1
        found.add(f"{anchor}-{count}" if count else anchor)
    return found


def broken_links(page, text):
    for target in LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{page.name}: {target}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(text if file == page else file.read_text()):
            yield f"{page.name}: {target}: no such heading"


def missing_sources(page, text):
    """The files of the repository that a page names in code spans, and that are not there."""
    return [f"{page.name}: {path}: no such file" for path in SOURCE.findall(text) if not (REPOSITORY / path).exists()]


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        self.assertGreater(len(PAGES), 20, "the pages were not found")
        found = [problem for page in PAGES for problem in broken_links(page, page.read_text())]
        self.assertEqual("\n".join(found), "")

    def test_pages_name_sources_that_exist(self):
        walk = (REPOSITORY / "docs/dev/one_batch.md").read_text()
        self.assertGreater(len(SOURCE.findall(walk)), 20, "the page on one batch names its files")
        found = [problem for page in PAGES if page.name != "CHANGELOG.md" for problem in missing_sources(page, page.read_text())]
        self.assertEqual("\n".join(found), "")
        self.assertEqual(missing_sources(REPOSITORY / "x.md", "`src/no/file.cpp` `src/no`"), ["x.md: src/no/file.cpp: no such file"])

    def test_reports_what_is_broken(self):
        text = "# A page: `x`\n[a](nowhere.md) [b](#a-page-x) [c](#no) [d](https://example.org) `[e](nowhere.md)`\n```\n[f](g)\n```\n"
        page = REPOSITORY / "README.md"
        self.assertEqual(list(broken_links(page, text)),
                         ["README.md: nowhere.md: no such file", "README.md: #no: no such heading"])


if __name__ == "__main__":
    unittest.main()
