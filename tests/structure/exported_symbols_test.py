"""What the shared library shows to the programs that load it: its own names, and none of the libraries compiled into it."""

import os
import re
import subprocess
import unittest

FOREIGN = re.compile(r"(?<!\d)(3fmt|6spdlog|8nlohmann|4toml|3CLI)|^utf8proc_")  # as in mangled names


def exported_symbols(library):
    lines = subprocess.run(["nm", "--dynamic", "--defined-only", "--format=posix", library], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return [line.split()[0] for line in lines]


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
