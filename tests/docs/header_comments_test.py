"""What Doxygen is given to read of a header."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/api"))
from header_comments import Filter, of_c  # noqa: E402

HEADER = """\
#pragma once

// About the file.
namespace kindling {

// Free text that belongs to nothing.

// One <T> in front.
struct FooOptions {
  double lr = 1;   // behind
  bool quick = true;

  static constexpr auto fields = fields(field("lr", &FooOptions::lr, {.doc = "not shown"}),
                                        field("quick", &FooOptions::quick, {.doc = "in few "
                                                                                   "steps"}));
};

struct BarOptions {
};
// For two:
//
//   bar(1);
//
// "a < b" is no tag.
void bar(int);
void bar(double,
         int);
int other(BarOptions);
Bar(const Bar&) = delete;
}  // namespace kindling
"""


class HeaderComments(unittest.TestCase):
    def setUp(self):
        self.lines = Filter(HEADER).run().splitlines()

    def line(self, end):
        return next(line for line in self.lines if line.endswith(end))

    def test_lines_stay_where_they_are(self):
        self.assertEqual(len(self.lines), len(HEADER.splitlines()))
        self.assertEqual(self.lines[8], "struct FooOptions {")

    def test_comments_in_front_become_documentation(self):
        self.assertEqual(self.lines[7], r"/// One \<T\> in front.")
        self.assertEqual(self.lines[1:3], ["/// @file", "/// About the file."])
        self.assertEqual(self.lines[5], "// Free text that belongs to nothing.")

    def test_comments_of_c_become_documentation(self):
        text = "/* The file. */\n#define A\n\n/* --- Part --- */\n\n/* A call.\n * More. */\nint call(void);\n"
        self.assertEqual(of_c(text), text.replace("/* A call", "/** A call"))

    def test_comments_behind_belong_to_their_line(self):
        self.assertEqual(self.line("///< behind"), "  double lr = 1;  ///< behind")
        self.assertEqual(self.lines[-1], "}  // namespace kindling")

    def test_options_are_described_by_their_field_list(self):
        self.assertEqual(self.line("steps"), "  bool quick = true;  ///< in few steps")
        self.assertFalse(any("fields" in line for line in self.lines))

    def test_option_structs_name_what_they_are_for(self):
        self.assertEqual(self.line("struct BarOptions {"), "/** Options of bar(). */ struct BarOptions {")

    def test_code_is_indented_and_quotations_are_left_alone(self):
        self.assertIn("///       bar(1);", self.lines)
        self.assertIn('/// "a < b" is no tag.', self.lines)

    def test_those_that_follow_share_or_point_to_the_comment(self):
        self.assertTrue(self.line("void bar(double,").startswith("/** For two:"))
        self.assertEqual(self.line("int other(BarOptions);"), "/** See bar(). */ int other(BarOptions);")

    def test_what_nobody_looks_up_is_left_out(self):
        self.assertFalse(any("delete" in line for line in self.lines))


if __name__ == "__main__":
    unittest.main()
