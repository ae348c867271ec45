"""With KINDLING_INTEROP=OFF one source stands for the module interop: it defines every function of the module that is called elsewhere
or exported, so that the library, the program and the programs of users link."""

import os
import re
import subprocess
import unittest

# Exported, but in no public header or private to its class.
PRIVATE = re.compile(r"operators_in_onnx|ExportedModule(4step|9inputs_in|7Program)|ExportedBackbone6logits|CompiledPackage4Impl")


def symbols(files, *options):
    """Mangled names of strong symbols."""
    lines = subprocess.run(["nm", "--format=posix", *options, *files], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    words = [line.split() for line in lines]
    return {word[0] for word in words if len(word) > 1 and word[1] in "TBDRU"}


def objects(variable):
    """Without precompiled headers, which CMake counts among the objects of a target."""
    return [path for path in os.environ[variable].split(",") if not path.endswith((".gch", ".pch"))]


class WithoutInterop(unittest.TestCase):
    def setUp(self):
        self.interop = symbols(objects("KINDLING_INTEROP_OBJECTS"), "--defined-only")
        self.without = symbols(objects("KINDLING_WITHOUT_INTEROP_OBJECTS"), "--defined-only")
        self.assertGreater(len(self.interop), 20, "the module's symbols were not found")

    def missing(self, wanted):
        return sorted(symbol for symbol in wanted & self.interop - self.without if not PRIVATE.search(symbol))

    def test_defines_what_the_program_calls(self):
        called = symbols(objects("KINDLING_CALLERS"), "--undefined-only") & self.interop
        self.assertGreater(len(called), 1, "the calls of the program were not found")
        self.assertEqual(self.missing(called), [])

    def test_the_other_modules_of_the_library_call_nothing_of_it(self):
        self.assertEqual(sorted(symbols(objects("KINDLING_OTHER_OBJECTS"), "--undefined-only") & self.interop), [])

    def test_defines_what_the_library_exports(self):
        exported = symbols(objects("KINDLING_LIBRARY"), "--dynamic", "--defined-only") & self.interop
        self.assertGreater(len(exported), 10, "the exported symbols were not found")
        self.assertEqual(self.missing(exported), [])


if __name__ == "__main__":
    unittest.main()
