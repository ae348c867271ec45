"""The rules of include_rules.py hold for this repository, and each of them can fail."""

import tempfile
import unittest
from pathlib import Path

import include_rules

REPOSITORY = Path(__file__).resolve().parents[2]


class Repository(unittest.TestCase):
    def test_keeps_the_include_rules(self):
        self.assertGreater(len(list(include_rules.source_files(REPOSITORY))), 50, "the sources were not found")
        self.assertEqual("\n".join(include_rules.violations(REPOSITORY)), "")


class PlantedLine(unittest.TestCase):
    """One file with one line, and what is found in it."""

    def found(self, path, line):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(line + "\n")
            return include_rules.violations(Path(folder))

    def assert_found(self, path, line, message):
        self.assertEqual(self.found(path, line), [f"{path}{message}"])

    def assert_allowed(self, path, line):
        self.assertEqual(self.found(path, line), [])

    def test_may_not_open_a_door_to_a_later_room(self):
        line = '#include "kindling/nn/module.h"'
        message = ":1: kindling/nn/module.h: 'data' may not include 'nn', which comes after it"
        self.assert_found("src/data/x.cpp", line, message)
        self.assert_found("include/kindling/data/x.h", line, message)
        self.assert_allowed("src/nn/x.cpp", line)
        self.assert_allowed("src/training/x.cpp", line)
        self.assert_found("src/base/x.cpp", '#include "config/findings.h"',
                          ":1: config/findings.h: 'base' may not include 'config', which comes after it")

    def test_may_not_name_an_unknown_room(self):
        self.assert_found("src/misc/x.cpp", "", ": there is no room 'misc'")
        self.assert_found("src/nn/x.cpp", '#include "kindling/misc/x.h"',
                          ":1: kindling/misc/x.h: there is no room 'misc'")
        self.assert_found("src/nn/x.cpp", '#include "x.h"', ":1: x.h: includes name their room")

    def test_may_not_bring_libtorch_into_the_rooms_without_it(self):
        for room in ("base", "formats", "config", "launch", "loggers"):
            for header in ("ATen/core/Tensor.h", "torch/types.h", "c10/core/Device.h"):
                self.assert_found(f"src/{room}/x.cpp", f"#include <{header}>",
                                  f":1: {header}: '{room}' is built without LibTorch")
        self.assert_allowed("src/device/x.cpp", "#include <c10/core/Device.h>")

    def test_may_not_show_other_libraries_in_public(self):
        for header in ("torch/torch.h", "spdlog/spdlog.h", "fmt/core.h", "toml++/toml.h", "CLI/CLI.hpp",
                       "nlohmann/json_fwd.hpp"):
            self.assert_found("include/kindling/program/x.h", f"#include <{header}>",
                              f":1: {header}: not in a public header")
        self.assert_allowed("src/base/x.cpp", "#include <spdlog/spdlog.h>")

    def test_may_not_lead_from_public_into_private(self):
        self.assert_found("include/kindling/training/x.h", '#include "training/step.h"',
                          ":1: training/step.h: a private header")
        self.assert_found("apps/own/main.cpp", '#include "training/step.h"', ":1: training/step.h: a private header")

    def test_may_not_use_the_umbrella_inside(self):
        self.assert_found("src/program/x.cpp", '#include "kindling/kindling.h"',
                          ":1: kindling/kindling.h: the umbrella header is for users")
        self.assert_allowed("apps/own/main.cpp", "#include <kindling/kindling.h>")

    def test_may_not_spoil_a_public_header(self):
        header = "include/kindling/base/x.h"
        self.assert_found(header, "using namespace std;",
                          ":1: `using namespace` reaches everyone who includes this header")
        for macro in ("LOG(x)", "CHECK", "CHECK_EQ(a, b)"):
            self.assert_found(header, f"#define {macro}",
                              ":1: macros named LOG or CHECK clash with other libraries'")
        self.assert_found(header, "#ifdef USE_CUDA", ":1: no conditional compilation in public headers")
        self.assert_allowed(header, "#define KINDLING_API")


if __name__ == "__main__":
    unittest.main()
