"""docs/dev/d2l_traceability.md covers the textbook's section with tests that exist, and every rule for that can fail."""

import tempfile
import unittest
from pathlib import Path

import textbook_table

REPOSITORY = Path(__file__).resolve().parents[2]


class Repository(unittest.TestCase):
    def test_covers_every_part_with_tests_that_exist(self):
        tests = textbook_table.defined_tests(REPOSITORY / "tests")
        self.assertGreater(len(tests), 200, "the tests were not found")
        text = (REPOSITORY / "docs/dev/d2l_traceability.md").read_text()
        self.assertEqual("\n".join(textbook_table.violations(text, tests)), "")


class PlantedTable(unittest.TestCase):
    TESTS = {"Suite.Name", "Suite.Other"}

    def table(self, **changed):
        lines = ["| part | API | tests |", "|---|---|---|"]
        for part in textbook_table.PARTS:
            line = changed.get(part, f"| {part} | `f()` | `Suite.Name` |")
            lines += [line] if line else []
        return "\n".join(lines)

    def assert_found(self, text, *messages):
        self.assertEqual(list(textbook_table.violations(text, self.TESTS)), list(messages))

    def test_whole_table_is_right(self):
        self.assert_found(self.table(S3="| S3 | `g(i)` | `Suite.Name`, `Suite.Other` |"))

    def test_every_part_is_there_once_and_in_order(self):
        order = "the parts are not S1 to S17, then E1 to E4, once each (missing: {})"
        self.assert_found(self.table(S9=""), order.format("S9"))
        self.assert_found(self.table(S9="| S8 | `f()` | `Suite.Name` |"), order.format("S9"))
        self.assert_found(self.table(E4="| E4 | `f()` | `Suite.Name` |\n| E4 | `f()` | `Suite.Name` |"),
                          order.format("none"))
        swapped = self.table(S1="| S2 | `f()` | `Suite.Name` |", S2="| S1 | `f()` | `Suite.Name` |")
        self.assert_found(swapped, order.format("none"))
        self.assert_found("", order.format(", ".join(textbook_table.PARTS)))

    def test_every_part_has_api_and_tests(self):
        self.assert_found(self.table(S4="| S4 | | `Suite.Name` |"), "S4: no API")
        self.assert_found(self.table(S4="| S4 | `f()` | |"), "S4: no test")
        self.assert_found(self.table(S4="| S4 | `f()` |"), "S4: 2 cells instead of part, API, tests", "S4: no test")
        self.assert_found(self.table(S4="| S4 | `f()` | later |"), "S4: no test", "S4: more than names of tests: later")

    def test_every_test_exists(self):
        self.assert_found(self.table(E1="| E1 | `f()` | `Suite.Name`, `Suite.Gone` |"),
                          "E1: `Suite.Gone` is not defined")
        self.assert_found(self.table(E1="| E1 | `f()` | `Suite` |"), "E1: `Suite` is no Suite.Name")


class PlantedTests(unittest.TestCase):
    def found(self, text, name="x_test.cpp"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "room").mkdir()
            (Path(folder) / "room" / name).write_text(text)
            return textbook_table.defined_tests(Path(folder))

    def test_are_found_in_every_form(self):
        self.assertEqual(self.found("TEST(A, B) {}\nTEST_F(C, D)\n{\n}\nTEST_P(\n    E, F) {\n}\n"), {"A.B", "C.D", "E.F"})

    def test_count_only_where_they_are_defined(self):
        self.assertEqual(self.found("// TEST(A, B) {}\n/* TEST(C, D) {\n} */\n#define MY_TEST(A, B) {\nTYPED_TEST(A, B) {}\n"),
                         set())
        self.assertEqual(self.found("TEST(A, B) {}", name="notes.md"), set())


if __name__ == "__main__":
    unittest.main()
