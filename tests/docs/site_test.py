"""The site of the pages builds without a warning, has every page in its navigation, and needs no other site."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
VENV_PYTHON = REPOSITORY / ".deps/venv-docs/bin/python"
sys.path.insert(0, str(REPOSITORY / "docs/api"))
from site_hooks import anchor, name_files_outside, navigation  # noqa: E402


def python_with_mkdocs():
    for python in (sys.executable, str(VENV_PYTHON)):
        if Path(python).exists() and subprocess.run([python, "-c", "import mkdocs"], capture_output=True).returncode == 0:
            return python
    return None


class Navigation(unittest.TestCase):
    def test_follows_the_folders_and_the_index(self):
        pages = ["start/a.md", "guides/a.md", "guides/b.md", "guides/c.md", "other/a.md", "index.md"]
        self.assertEqual(navigation(pages, "[b](guides/b.md#x) [c](guides/c.md)"),
                         ["index.md", {"Getting started": ["start/a.md"]},
                          {"Guides": ["guides/b.md", "guides/c.md", "guides/a.md"]}, {"Other": ["other/a.md"]}])

    def test_anchors_are_those_of_github(self):
        self.assertEqual(anchor("Where `fit` / `test` stop, and why", "-"), "where-fit--test-stop-and-why")


class LinksOutsideDocs(unittest.TestCase):
    def test_become_names_of_files(self):
        self.assertEqual(name_files_outside("see the [README](../../README.md#x)", "guides/a.md"), "see the README (`README.md`)")
        self.assertEqual(name_files_outside("[`configs`](../../configs/)", "guides/a.md"), "`configs`")

    def test_leave_other_links_and_code_alone(self):
        text = "[a](b.md) [c](../start/d.md#e) [f](https://example.org) [g](#h) [i](../../missing) `[j](../../README.md)`"
        self.assertEqual(name_files_outside(text, "guides/a.md"), text)


ITEM = re.compile(r"\s*([-*]|\d+\.) ")


def lists_that_break(text):
    """Lines that GitHub shows as items of a list and MkDocs as text: the first item follows a paragraph, or is nested."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    before = ""
    for line in text.splitlines():
        if ITEM.match(line) and (line[0] == " " or (before.strip() and before[0] != " " and not ITEM.match(before))):
            yield line
        before = line


class Lists(unittest.TestCase):
    def test_are_lists_on_the_site_too(self):
        for page in sorted((REPOSITORY / "docs").rglob("*.md")):
            self.assertEqual(list(lists_that_break(page.read_text())), [], f"{page.name}: put an empty line before a list, and "
                             "do not nest lists")

    def test_are_found_where_they_break(self):
        self.assertEqual(list(lists_that_break("text\n- a\n- b\n\n- c\n  more\n- d\n  - e\n")), ["- a", "  - e"])


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = python_with_mkdocs()
        if python is None:
            raise unittest.SkipTest("MkDocs is not installed; scripts/docs_site.sh installs it into .deps/venv-docs")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.site = Path(folder.name)
        environment = {name: value for name, value in os.environ.items() if name != "KINDLING_SITE_API"}
        cls.build = subprocess.run([python, "-B", "-m", "mkdocs", "build", "--strict", "--site-dir", folder.name],
                                   cwd=REPOSITORY, env=environment, capture_output=True, text=True)

    def setUp(self):
        self.assertEqual(self.build.returncode, 0, self.build.stdout + self.build.stderr)

    def test_has_every_page_in_its_navigation(self):
        index = (self.site / "index.html").read_text()
        docs = REPOSITORY / "docs"
        for page in sorted(docs.rglob("*.md")):
            if docs / "api" in page.parents:
                continue
            address = page.relative_to(docs).with_suffix(".html").as_posix()
            self.assertTrue((self.site / address).exists(), address)
            self.assertIn(f'href="{address}"', index.replace('href="./', 'href="'))

    def test_loads_nothing_from_other_sites(self):
        for page in sorted(self.site.rglob("*.html")):
            loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"(https?:[^\"]*)\"", page.read_text())
            self.assertEqual(loaded, [], page.name)


if __name__ == "__main__":
    unittest.main()
