#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/formats/table.h"
#include "support/scratch.h"

namespace kindling {
namespace {

Table json_table(std::string_view text, const TableOptions& options = {}) {
  return parse_json_lines(text, "t.jsonl", options);
}

std::string json_lines_error(std::string_view text, const TableOptions& options = {}) {
  return error_text<DataError>([&] { json_table(text, options); });
}

// Numbers and categories of a column, "-" for a missing value.
std::string values_of(const TableColumn& column) {
  std::string text;
  for (const double number : column.numbers)
    text += (std::isnan(number) ? "-" : std::to_string(static_cast<int>(number))) + " ";
  for (const std::int32_t code : column.codes)
    text += (code < 0 ? "-" : "'" + column.categories.at(static_cast<std::size_t>(code)) + "'") + " ";
  return text;
}

constexpr const char* kExpectedObject =
    "; expected: an object per line, such as {\"rooms\": 3, \"city\": \"Bern\"}; ";
constexpr const char* kOneLineEach = "write each object on one line (pandas: orient=\"records\", lines=True)";

TEST(JsonLines, HaveTheTypesOfJson) {
  const Table table = json_table(
      "{\"rooms\": 3, \"city\": \"Bern, old\", \"sold\": true}\n"
      "\n"
      "  {\"city\": \"\", \"rooms\": -2e1, \"sold\": false}\r\n"
      "{\"rooms\": 0.1, \"city\": \"NA\", \"sold\": true}");
  EXPECT_EQ(table.num_rows, 3U);
  ASSERT_EQ(table.columns.size(), 3U);
  EXPECT_EQ(table.columns[0].name, "rooms");
  EXPECT_EQ(table.columns[0].kind, ColumnKind::number);
  EXPECT_EQ(table.columns[0].numbers, (std::vector<double>{3, -20, 0.1}));
  EXPECT_EQ(table.columns[1].kind, ColumnKind::category);
  EXPECT_EQ(values_of(table.columns[1]), "'Bern, old' '' 'NA' ");
  EXPECT_EQ(table.columns[1].categories, (std::vector<std::string>{"", "Bern, old", "NA"}));
  EXPECT_EQ(values_of(table.columns[2]), "'true' 'false' 'true' ");
}

TEST(JsonLines, NullAndAnAbsentKeyAreMissing) {
  const Table table =
      json_table("{\"a\": null, \"b\": \"x\"}\n{\"c\": 7}\n{\"a\": 1, \"b\": null}\n{\"d\": null}\n");
  EXPECT_EQ(table.num_rows, 4U);
  EXPECT_EQ(values_of(*table.find("a")), "- - 1 - ");
  EXPECT_EQ(values_of(*table.find("b")), "'x' - - - ");
  EXPECT_EQ(values_of(*table.find("c")), "- 7 - - ");
  EXPECT_EQ(values_of(*table.find("d")), "- - - - ");
  EXPECT_EQ(table.find("d")->kind, ColumnKind::number);
}

TEST(JsonLines, TextsThatLookLikeNumbersAreCategories) {
  EXPECT_EQ(values_of(json_table("{\"zip\": \"01234\"}\n{\"zip\": \"1234\"}\n").columns[0]),
            "'01234' '1234' ");
}

TEST(JsonLines, NumbersOfADeclaredCategoryAreTheTextsOfTheFile) {
  const TableOptions zip{.categories = {"zip"}};
  EXPECT_EQ(values_of(json_table("{\"zip\": 1234}\n{\"zip\": 1.50}\n{\"zip\": null}\n{\"zip\": \"x\"}\n", zip)
                          .columns[0]),
            "'1234' '1.50' - 'x' ");
  EXPECT_EQ(json_table("{\"zip\": null}\n", {.known_categories = {"zip"}}).columns[0].kind,
            ColumnKind::category);
}

// Two of three values are texts: a second pass finds the text of the number before them.
TEST(JsonLines, ANumberAmongTextsIsACategory) {
  EXPECT_EQ(values_of(json_table("{\"a\": 7.0}\n{}\n{\"a\": \"A 1\"}\n{\"a\": \"B 2\"}\n").columns[0]),
            "'7.0' - 'A 1' 'B 2' ");
  EXPECT_EQ(values_of(json_table("{\"a\": \"A 1\"}\n{\"a\": \"B 2\"}\n{\"a\": 7}\n").columns[0]),
            "'A 1' 'B 2' '7' ");
}

TEST(JsonLines, TakeMarksOfMissingValues) {
  const Table table =
      parse_json_lines("{\"a\": 1, \"b\": \"?\"}\n{\"a\": \"?\", \"b\": \"x\"}\n{\"a\": 2}\n{\"a\": -9}\n",
                       "t.jsonl", {.na_values = {"?", "-9"}});
  EXPECT_EQ(table.columns[0].kind, ColumnKind::number);
  EXPECT_TRUE(std::isnan(table.columns[0].numbers[1]));
  EXPECT_TRUE(std::isnan(table.columns[0].numbers[3]));
  EXPECT_EQ(table.columns[1].codes, (std::vector<std::int32_t>{-1, 0, -1, -1}));
}

TEST(JsonLines, RefuseATextAmongNumbers) {
  const std::string expected =
      "t.jsonl, row 2 (line 3), column 'a': \"about 4\"; expected: a number; if it marks a missing "
      "value, set data.na_values = [\"about 4\"]; otherwise correct it";
  EXPECT_EQ(json_lines_error("{\"a\": 1}\n\n{\"a\": \"about 4\"}\n{\"a\": 5}\n"), expected);
  EXPECT_EQ(json_lines_error("{}\n\n{\"a\": \"about 4\"}\n{\"a\": 5}\n{\"a\": 6}\n"), expected);
  EXPECT_EQ(json_lines_error("{}\n\n{\"a\": \"about 4\"}\n{\"a\": \"x\"}\n", {.numbers = {"a"}}), expected);
  EXPECT_EQ(
      json_lines_error("{\"a\": \"4.5\"}\n", {.numbers = {"a"}}),
      "t.jsonl, row 1 (line 1), column 'a': \"4.5\"; expected: a number; write the number without quotes");
  EXPECT_EQ(json_lines_error("{\"a\": 1}\n{\"a\": true}\n"),
            "t.jsonl, row 2 (line 2), column 'a': true; expected: a number; write 1 or 0");
}

TEST(JsonLines, RefuseNestedValues) {
  EXPECT_EQ(
      json_lines_error("{\"a\": 1, \"b\": {\"c\": 1}}\n"),
      "t.jsonl, row 1 (line 1), column 'b': an object; expected: a number, a text, true, false, or null; "
      "write its values under separate keys, or remove the key");
  EXPECT_EQ(
      json_lines_error("{\"a\": 1}\n{\"b\": []}\n"),
      "t.jsonl, row 2 (line 2), column 'b': an array; expected: a number, a text, true, false, or null; "
      "write its values under separate keys, or remove the key");
  const std::string deep(1'000'000, '[');
  EXPECT_NE(json_lines_error("{\"a\": " + deep).find("an array"), std::string::npos);
}

TEST(JsonLines, RefuseLinesThatAreNotObjects) {
  const std::string place = "t.jsonl, row 1 (line 1): ";
  EXPECT_EQ(json_lines_error("[{\"a\": 1}]\n"), place + "an array" + kExpectedObject + kOneLineEach);
  EXPECT_EQ(json_lines_error("3\n"), place + "a number" + kExpectedObject + kOneLineEach);
  EXPECT_EQ(json_lines_error("null\n"), place + "null" + kExpectedObject + kOneLineEach);
  EXPECT_EQ(json_lines_error("{\n  \"a\": 1\n}\n"),
            place + "the line ends inside its object" + kExpectedObject + kOneLineEach);
  EXPECT_EQ(json_lines_error("{\"a\": 1},\n"),
            place + "the line is not valid JSON at byte 9" + kExpectedObject + kOneLineEach);
  EXPECT_EQ(json_lines_error("a,b\n1,2\n"),
            place + "the line is not valid JSON at byte 1" + kExpectedObject + kOneLineEach);
  EXPECT_EQ(json_lines_error("\n \n"),
            "t.jsonl: the table is empty; expected: an object per line, such as "
            "{\"rooms\": 3, \"city\": \"Bern\"}");
}

// The parser of JSON ends there, and would leave out the rows behind it.
TEST(JsonLines, RefuseAZeroByte) {
  using namespace std::string_literals;
  EXPECT_EQ(json_lines_error("{\"a\": 1}\n{\"a\": 2}\0{\"a\": 3}\n"s),
            "t.jsonl, row 2 (line 2): byte 9 of the line is 0"s + kExpectedObject +
                "the file is damaged there: write it again");
  EXPECT_NE(json_lines_error("{\"a\": 1}\n\0\0\0"s).find("line 2): byte 1 of the line is 0"),
            std::string::npos);
}

TEST(JsonLines, RefuseBrokenValuesByTheirKey) {
  const std::string place = "t.jsonl, row 2 (line 2), column 'b': ";
  EXPECT_EQ(
      json_lines_error("{\"a\": 1}\n{\"b\": NaN}\n"),
      place + "the line is not valid JSON at byte 7" + kExpectedObject + "write null for a missing value");
  EXPECT_EQ(
      json_lines_error("{\"a\": 1}\n{\"b\": -Infinity}\n"),
      place + "the line is not valid JSON at byte 8" + kExpectedObject + "write null for a missing value");
  EXPECT_EQ(json_lines_error("{\"a\": 1}\n{\"b\": 1e999}\n"),
            place +
                "a number that is too large for a double; expected: a finite number; replace the value, or "
                "write null if it is missing");
  EXPECT_EQ(json_lines_error("{\"a\": 1}\n{\"b\": 1, \"a\": 2, \"b\": 3}\n"),
            place + "the line has this key twice; expected: distinct keys");
  EXPECT_EQ(
      json_lines_error("{\"a\": 1}\n{\"b\": \"M\xfcller\"}\n"),
      place +
          "the text is not UTF-8; expected: a file in UTF-8; convert it: iconv -f latin1 -t utf-8 OLD > NEW");
  EXPECT_EQ(json_lines_error("{\"\": 1}\n"),
            "t.jsonl, row 1 (line 1): a key is empty; expected: keys with a name");
  EXPECT_EQ(json_lines_error("\xff\xfe{"),
            "t.jsonl: the file is UTF-16; expected: a file in UTF-8; save it again as UTF-8");
}

TEST(JsonLines, RefuseDeclarationsOfOtherColumns) {
  EXPECT_EQ(json_lines_error("{\"price\": 1, \"rooms\": 2}\n", {.numbers = {"prize"}}),
            "t.jsonl: no column has the name 'prize'; expected: one of price, rooms; did you mean 'price'?");
  EXPECT_EQ(json_lines_error("{\"a\": 1}\n", {.numbers = {"a"}, .categories = {"a"}}),
            "t.jsonl: the column 'a' is declared as numbers and as categories; expected: one of them");
}

TEST(JsonLines, SkipOtherColumns) {
  const Table table = json_table("{\"id\": \"x\", \"a\": 1, \"z\": 2}\n",
                                 {.numbers = {"a", "b"}, .categories = {"id"}, .skips_others = true});
  ASSERT_EQ(table.columns.size(), 2U);
  EXPECT_EQ(table.columns[0].name, "id");
  EXPECT_EQ(table.columns[1].name, "a");
}

// A new key per line would need memory for the square of the number of lines.
TEST(JsonLines, RefuseKeysThatEachLineHasAnotherOf) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "{\"k" + std::to_string(i) + "\": 1}\n";
  EXPECT_EQ(
      json_lines_error(text),
      "t.jsonl, row 2049 (line 2049): until here, the lines have 2049 different keys, and almost all "
      "values are missing; expected: lines with the same keys; write names that vary as texts under one "
      "key, not as keys");
}

TEST(JsonLines, SkipBrokenLines) {
  const std::string text =
      "{\"n\": 1, \"kind\": \"a\"}\n"
      "{\"n\": \"x\", \"kind\": \"b\"}\n"
      "\n"
      "{\"n\": 2, \"kind\": \"c\"\n"
      "{\"n\": 3, \"kind\": [1]}\n"
      "[4]\n"
      "{\"n\": 5, \"n\": 5}\n"
      "{\"n\": 6}\n";
  const Table table = parse_json_lines(text, "t.jsonl", {.skips_broken = true});
  EXPECT_EQ(table.num_rows, 2U);
  ASSERT_EQ(table.columns.size(), 2U);
  EXPECT_EQ(table.columns[0].numbers, (std::vector<double>{1, 6}));
  EXPECT_EQ(table.columns[1].categories, (std::vector<std::string>{"a"}));
  EXPECT_EQ(table.columns[1].codes, (std::vector<std::int32_t>{0, -1}));
  std::string errors;
  for (const BrokenRow& row : table.skipped) errors += row.error.substr(0, row.error.find(')')) + ")\n";
  EXPECT_EQ(errors,
            "t.jsonl, row 2 (line 2)\nt.jsonl, row 3 (line 4)\nt.jsonl, row 4 (line 5)\n"
            "t.jsonl, row 5 (line 6)\nt.jsonl, row 6 (line 7)\n");
}

// As if the file did not have these lines, also in the kinds of its columns.
TEST(JsonLines, SkipBrokenLinesWithoutATrace) {
  const std::string
      numbers = "{\"a\": 1, \"b\": 1}\n{\"a\": 2, \"b\": 2}\n{\"a\": 3}\n{\"a\": 3}\n",
      texts = "{\"a\": \"t\", \"b\": \"u\"}\n{\"a\": \"t\", \"b\": \"v\"}\n{\"a\": \"t\", \"b\": \"w\"}\n";
  const Table table = parse_json_lines(numbers + texts, "t.jsonl", {.skips_broken = true});
  EXPECT_EQ(table.skipped.size(), 3U);
  EXPECT_EQ(table.num_rows, 4U);
  for (const TableColumn& column : table.columns) EXPECT_EQ(column.kind, ColumnKind::number) << column.name;
  std::string wide = "{\"a\": 1";
  for (int i = 0; i < 70'000; ++i) wide += ", \"k" + std::to_string(i) + "\": 1";
  const Table narrow = parse_json_lines(numbers + wide + "}\n", "t.jsonl", {.skips_broken = true});
  EXPECT_EQ(narrow.columns.size(), 2U);
  EXPECT_EQ(narrow.skipped.size(), 1U);
  const Table none = parse_json_lines("[1]\n{\"x\":\n", "t.jsonl", {.numbers = {"x"}, .skips_broken = true});
  EXPECT_EQ(none.num_rows, 0U);
  EXPECT_EQ(none.skipped.size(), 2U);
}

// Columns whose kinds the reader has found are not declared: they may lose all of their values.
TEST(JsonLines, SkipBrokenLinesOfColumnsThatVanish) {
  const std::string good = "{\"x\": 3, \"c\": 3}\n{\"x\": 4, \"c\": 4}\n{\"x\": 5, \"c\": 5}\n";
  const Table table =
      parse_json_lines("{\"x\": 1, \"c\": 1, \"d\": \"q\"}\n{\"x\": 2, \"c\": \"q\", \"d\": 1}\n" + good,
                       "t.jsonl", {.skips_broken = true});
  EXPECT_NE(table.num_rows, 0U);
}

// Their columns would have a value for each line.
TEST(JsonLines, RefuseManyLinesWithoutValues) {
  std::string text = "{\"k0\": 0";
  for (int i = 1; i < 100; ++i) text += ",\"k" + std::to_string(i) + "\":0";
  text += "}\n";
  for (int i = 0; i < 100'000; ++i) text += "{}\n";
  EXPECT_NE(
      json_lines_error(text).find("the lines have 100 different keys, and almost all values are missing"),
      std::string::npos);
}

TEST(JsonLines, RefuseTooManyColumns) {
  std::string text = "{\"a\": 0";
  for (int i = 0; i < 70'000; ++i) text += ",\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(json_lines_error(text + "}"),
            "t.jsonl, row 1 (line 1): more than 65536 columns; expected: a table with samples in rows");
}

TEST(JsonLines, AreReadFromFilesWithTheirExtension) {
  const Scratch scratch;
  for (const char* name : {"t.jsonl", "t.NDJSON"}) {
    std::ofstream(scratch / name) << "\xef\xbb\xbf{\"a\": 1}\n";
    EXPECT_EQ(read_table(scratch / name).find("a")->numbers, std::vector<double>{1}) << name;
  }
  std::ofstream(scratch / "t.csv") << "{\"a\": 1}\n2\n";
  EXPECT_EQ(read_table(scratch / "t.csv").columns[0].name, "{\"a\": 1}");
}

}  // namespace
}  // namespace kindling
