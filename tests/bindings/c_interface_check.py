"""The C interface is what its header says: it compiles as C11 and C++20 without warnings, its library exports the functions of the
checked-in list and nothing else, and calls with a wrong type do not compile."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT, LIBRARY, CXX = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
HEADER = ROOT / "include/kindling_c.h"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'include'}"]
CC = {"g++": "gcc", "c++": "cc", "clang++": "clang"}.get(re.sub(r"-\d+$", "", Path(CXX).name), "cc")

WRONG = {
    "a tensor for a trainer": "kindling_tensor t = 0; kindling_finish_epoch(t);",
    "a trainer for a group": "kindling_trainer t = 0; kindling_group_free(t);",
    "a trainer where its address belongs": "kindling_trainer t = 0; kindling_trainer_create(0, 0, 0, t);",
    "doubles for arrays": "double x[3]; kindling_trainer t = 0; kindling_train_step(t, x, 1, x, 1);",
    "too few arguments": "kindling_trainer t = 0; kindling_train_step(t, 0, 1);",
    "too many arguments": "kindling_trainer t = 0; kindling_finish_epoch(t, 1);",
    "a float for a loss": "float loss; kindling_trainer t = 0; kindling_loss_value(t, &loss);",
    "a function of another type": "extern void f(void); kindling_set_callback(0, 1, f, 0);",
    "a 32-bit shape": "int shape[] = {1}; kindling_array a; a.shape = shape;",
    "what a handle refers to": "kindling_trainer t = 0; (void)*t;",
}


def compiles(text, language="c", standard="c11"):
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.write_text(text)
        command = [CC if language == "c" else CXX, f"-std={standard}", *STRICT, "-fsyntax-only", "-x", language, str(source)]
        return subprocess.run(command, capture_output=True, text=True, check=False)


class CInterface(unittest.TestCase):
    def test_header_compiles_without_warnings(self):
        for language, standard in (("c", "c11"), ("c", "c99"), ("c++", "c++20")):
            text = "#include <kindling_c.h>\nint main(void) { return kindling_version()[0] == 0; }\n"
            result = compiles(text, language, standard)
            self.assertEqual(result.returncode, 0, f"{standard}: {result.stderr}")

    def test_library_exports_the_functions_of_the_header_alone(self):
        declared = set(re.findall(r"KINDLING_C_API [\w* ]*?\b(kindling_\w+)\(", HEADER.read_text()))
        listed = set(re.findall(r"^ +(kindling_\w+);$", (ROOT / "src/bindings/kindling_c.map").read_text(), re.M))
        lines = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout.splitlines()
        exported = {line.split()[-1] for line in lines if " A " not in line}
        self.assertGreater(len(declared), 35)
        self.assertEqual(declared, listed)
        self.assertEqual({f"{name}@@KINDLING_C_0.1" for name in listed}, {name for name in exported if name.startswith("kindling_")})
        instrumented = {name for name in exported if not name.startswith("kindling_")}  # a sanitizer's own
        self.assertEqual({name for name in instrumented if not re.match(r"_*(asan|ubsan|tsan|odr_asan|sanitizer)", name)}, set())

    def test_calls_with_wrong_types_do_not_compile(self):
        for what, statements in WRONG.items():
            text = f"#include <kindling_c.h>\nvoid call(void);\nvoid call(void) {{ {statements} }}\n"
            self.assertNotEqual(compiles(text).returncode, 0, what)
        right = "#include <kindling_c.h>\nvoid call(kindling_trainer t);\nvoid call(kindling_trainer t) { kindling_finish_epoch(t); }\n"
        self.assertEqual(compiles(right).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
