"""What the shared library shows to the programs that load it: its own names, and none of the libraries compiled into it."""

import os
import re
import subprocess
import unittest

UNVERSIONED = re.compile(r"(?<!\d)(3fmt|6spdlog|4toml|3CLI)")  # nlohmann's names have their version
FOREIGN = re.compile(r"(?<!\d)(3fmt|6spdlog|8nlohmann|4toml|3CLI)|^utf8proc_")  # as in mangled names


def exported_symbols(library):
    lines = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=posix", library], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return [line.split()[0] for line in lines]


def archive_symbols(library):
    lines = subprocess.run(["nm", "--extern-only", "--defined-only", "--format=posix", library], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return [line.split()[0] for line in lines if line and not line.endswith(":")]


@unittest.skipUnless(os.environ.get("KINDLING_PROGRAM_LIBRARY"), "built without the program")
class ProgramLibrary(unittest.TestCase):
    # A program that links it may bring its own CLI11, of any version: of two equal names the linker takes one.
    def test_has_no_name_that_another_version_of_a_library_has(self):
        symbols = archive_symbols(os.environ["KINDLING_PROGRAM_LIBRARY"])
        self.assertGreater(sum("8kindling" in symbol for symbol in symbols), 100, "the library's own names were not found")
        self.assertEqual([symbol for symbol in symbols if UNVERSIONED.search(symbol)], [])


class SharedLibrary(unittest.TestCase):
    def test_exports_its_own_names_alone(self):
        symbols = exported_symbols(os.environ["KINDLING_LIBRARY"])
        self.assertGreater(sum("8kindling" in symbol for symbol in symbols), 100, "the library's own names were not found")
        self.assertEqual([symbol for symbol in symbols if FOREIGN.search(symbol)], [])

    def test_would_notice_a_foreign_name(self):
        self.assertTrue(FOREIGN.search("_ZTVN6spdlog6loggerE"))
        self.assertTrue(FOREIGN.search("_ZN3fmt2v912format_errorD1Ev"))
        self.assertTrue(FOREIGN.search("utf8proc_charwidth"))
        self.assertFalse(FOREIGN.search("_ZN8kindling5ErrorD1Ev"))


if __name__ == "__main__":
    unittest.main()
