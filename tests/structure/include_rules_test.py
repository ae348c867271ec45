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

    def test_rejects_an_include_of_a_later_module(self):
        line = '#include "kindling/nn/module.h"'
        message = ":1: kindling/nn/module.h: 'data' may not include 'nn', which comes after it"
        self.assert_found("src/data/loading/x.cpp", line, message)
        self.assert_found("include/kindling/data/x.h", line, message)
        self.assert_allowed("src/nn/x.cpp", line)
        self.assert_allowed("src/training/loop/x.cpp", line)
        self.assert_found("src/training/state/x.h", '#include "training/loop/fit_loop.h"',
                          ":1: training/loop/fit_loop.h: 'training/state' may not include 'training/loop', which comes after it")
        self.assert_found("src/base/x.cpp", '#include "config/findings.h"',
                          ":1: config/findings.h: 'base' may not include 'config', which comes after it")

    def test_rejects_an_unknown_module(self):
        self.assert_found("src/misc/x.cpp", "", ": there is no module 'misc'")
        self.assert_found("src/training/x.cpp", "", ": 'training' has sub-modules only")
        self.assert_found("src/training/misc/x.cpp", "", ": there is no sub-module 'training/misc'")
        self.assert_found("src/nn/x.cpp", '#include "kindling/misc/x.h"',
                          ":1: kindling/misc/x.h: there is no module 'misc'")
        self.assert_found("src/nn/x.cpp", '#include "x.h"', ":1: x.h: includes name their module")

    def test_rejects_libtorch_in_modules_without_it(self):
        for module in ("base", "formats", "config", "launch", "loggers"):
            for header in ("ATen/core/Tensor.h", "torch/types.h", "c10/core/Device.h"):
                self.assert_found(f"src/{module}/x.cpp", f"#include <{header}>",
                                  f":1: {header}: '{module}' is built without LibTorch")
        self.assert_allowed("src/device/x.cpp", "#include <c10/core/Device.h>")

    def test_rejects_other_libraries_in_public_headers(self):
        for header in ("torch/torch.h", "spdlog/spdlog.h", "fmt/core.h", "toml++/toml.h", "CLI/CLI.hpp",
                       "nlohmann/json_fwd.hpp"):
            self.assert_found("include/kindling/cli/x.h", f"#include <{header}>",
                              f":1: {header}: not in a public header")
        self.assert_allowed("src/base/x.cpp", "#include <spdlog/spdlog.h>")

    def test_rejects_private_headers_in_public_ones(self):
        self.assert_found("include/kindling/training/x.h", '#include "training/step/step.h"',
                          ":1: training/step/step.h: a private header")
        self.assert_found("apps/own/main.cpp", '#include "training/step/step.h"', ":1: training/step/step.h: a private header")

        self.assert_found("src/cli/run/x.cpp", '#include "interop/onnx/x.h"', ":1: interop/onnx/x.h: a private header")
        self.assert_allowed("src/cli/run/x.cpp", '#include "kindling/interop/x.h"')

    def test_rejects_the_umbrella_header_inside(self):
        self.assert_found("src/cli/x.cpp", '#include "kindling/kindling.h"',
                          ":1: kindling/kindling.h: the umbrella header is for users")
        self.assert_allowed("apps/own/main.cpp", "#include <kindling/kindling.h>")

    def test_rejects_text_that_harms_includers(self):
        header = "include/kindling/base/x.h"
        self.assert_found(header, "using namespace std;",
                          ":1: `using namespace` reaches everyone who includes this header")
        for macro in ("LOG(x)", "CHECK", "CHECK_EQ(a, b)"):
            self.assert_found(header, f"#define {macro}",
                              ":1: macros named LOG or CHECK clash with other libraries'")
        self.assert_found(header, "#ifdef USE_CUDA", ":1: no conditional compilation in public headers")
        self.assert_allowed(header, "#define KINDLING_API")

    def test_rejects_a_deprecated_path(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in {
                "include/kindling/loggers/old.h": "#pragma once\n\n// Deprecated: moved to kindling/nn/new.h. Goes away.\n"
                                                  '#include "kindling/nn/new.h"\n',
                "src/nn/x.cpp": '#include "kindling/loggers/old.h"\n',
            }.items():
                (root / path).parent.mkdir(parents=True)
                (root / path).write_text(text)
            self.assertEqual(include_rules.violations(root), ["src/nn/x.cpp:1: kindling/loggers/old.h: a deprecated path"])

    def core_violations(self, texts):
        return include_rules.core_violations({Path(path): text for path, text in texts.items()})

    def test_keeps_what_the_core_does_not_need_out_of_it(self):
        for folder in ("state", "loop", "step"):
            for target, name in {"interop/run/program_call.h": "interop", "kindling/interop/exported_module.h": "interop",
                                 "kindling/programs/exported_module.h": "interop",
                                 "graph/replay/replay.h": "step capture and replay",
                                 "training/capture/x.h": "step capture and replay",
                                 "torch/csrc/distributed/c10d/Store.hpp": "c10d", "c10d/Store.hpp": "c10d"}.items():
                path = f"src/training/{folder}/x.cpp"
                self.assertEqual(self.core_violations({path: f"#include <{target}>\n"}),
                                 [f"{path} -> {target}: the core of training may not include {name}"])
        self.assertEqual(self.core_violations({"src/training/capture/x.cpp": '#include "graph/replay/replay.h"\n'}), [])
        self.assertEqual(self.core_violations({"src/training/step/x.cpp": '#include "graph/recording/x.h"\n'}), [])

    def test_follows_private_and_public_headers_from_the_core(self):
        texts = {
            "src/training/step/x.cpp": '#include "training/step/x.h"\n',
            "src/training/step/x.h": '#pragma once\n#include "kindling/training/a.h"\n#include "training/step/x.h"\n',
            "include/kindling/training/a.h": '#include "kindling/nn/b.h"\n',
            "include/kindling/nn/b.h": "#include <vector>\n",
        }
        self.assertEqual(self.core_violations(texts), [])
        texts["include/kindling/nn/b.h"] = "#include <torch/csrc/distributed/c10d/Store.hpp>\n"
        chain = "kindling/training/a.h -> kindling/nn/b.h -> torch/csrc/distributed/c10d/Store.hpp"
        message = "the core of training may not include c10d"
        self.assertEqual(self.core_violations(texts),
                         [f"src/training/step/x.cpp -> training/step/x.h -> {chain}: {message}",
                          f"src/training/step/x.h -> {chain}: {message}"])

    def test_rejects_a_crowded_folder(self):
        paths = [Path(f"src/nn/x{i}.cpp") for i in range(include_rules.MAX_FILES_IN_FOLDER)]
        self.assertEqual(include_rules.crowded_folders(paths), [])
        self.assertEqual(len(include_rules.crowded_folders([*paths, Path("src/nn/y.h")])), 1)


if __name__ == "__main__":
    unittest.main()
