#include "kindling/formats/table.h"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Texts = std::vector<std::string>;
using Codes = std::vector<std::int32_t>;

Table table_of(std::string_view text, const TableOptions& options = {}) {
  return parse_table(text, "t.csv", options);
}

std::string table_error(std::string_view text, const TableOptions& options = {}) {
  return error_text<DataError>([&] { table_of(text, options); });
}

// The numbers of a column as text, "-" for a missing one.
std::string numbers_in(const TableColumn& column) {
  EXPECT_EQ(column.kind, ColumnKind::number);
  std::string text;
  for (const double number : column.numbers) {
    if (!text.empty()) text += ' ';
    text += std::isnan(number) ? "-" : std::to_string(number).substr(0, std::to_string(number).find('.') + 3);
  }
  return text;
}

void expect_categories(const TableColumn& column, const Texts& categories, const Codes& codes) {
  EXPECT_EQ(column.kind, ColumnKind::category);
  EXPECT_EQ(column.categories, categories);
  EXPECT_EQ(column.codes, codes);
}

TEST(Table, FindsNumbersAndCategories) {
  const Table table = table_of("rooms,kind,price\n3,house,1.5\n2,flat,-2e1\n4,house,.25\n");
  EXPECT_EQ(table.num_rows, 3U);
  ASSERT_EQ(table.columns.size(), 3U);
  EXPECT_EQ(numbers_in(table.columns[0]), "3.00 2.00 4.00");
  expect_categories(table.columns[1], {"flat", "house"}, {1, 0, 1});
  EXPECT_EQ(numbers_in(table.columns[2]), "1.50 -20.00 0.25");
  EXPECT_EQ(table.find("price"), &table.columns[2]);
  EXPECT_EQ(table.find("prize"), nullptr);
}

TEST(Table, ReadsQuotedFields) {
  const Table table = table_of("\"a, b\",c\n\"1\",\"x, \"\"y\"\"\"\n\"2\",\"two\nlines\"\n\"3\" ,\"\"\"\"\n");
  EXPECT_EQ(table.columns[0].name, "a, b");
  EXPECT_EQ(numbers_in(table.columns[0]), "1.00 2.00 3.00");
  expect_categories(table.columns[1], {"\"", "two\nlines", "x, \"y\""}, {2, 1, 0});
}

TEST(Table, KeepsQuotesInsideUnquotedFields) {
  expect_categories(table_of("a\n5\" pipe\nx\n").columns[0], {"5\" pipe", "x"}, {0, 1});
}

TEST(Table, ReadsAllLineEndsAndSkipsBlankLines) {
  for (const char* text :
       {"a,b\n1,2\n3,4", "a,b\r\n1,2\r\n3,4\r\n", "a,b\r1,2\r3,4\r", "\n\na,b\n\r\n1,2\n\n3,4\n\n\n",
        "\xef\xbb\xbf"
        "a,b\n1,2\n3,4\n"}) {
    const Table table = table_of(text);
    EXPECT_EQ(table.num_rows, 2U) << text;
    EXPECT_EQ(table.columns[0].name, "a") << text;
    EXPECT_EQ(numbers_in(table.columns[0]), "1.00 3.00") << text;
    EXPECT_EQ(numbers_in(table.columns[1]), "2.00 4.00") << text;
  }
}

TEST(Table, IgnoresSpacesAroundUnquotedFields) {
  const Table table = table_of(" a ,b\n 1 , x\n\t+2,x \n");
  EXPECT_EQ(table.columns[0].name, "a");
  EXPECT_EQ(numbers_in(table.columns[0]), "1.00 2.00");
  expect_categories(table.columns[1], {"x"}, {0, 0});
}

TEST(Table, ReadsMissingValues) {
  const Table table =
      table_of("a,b\n1,x\n,\nNA,NA\nN/A,N/A\nNaN,NaN\nnan,nan\nNULL,NULL\nnull,null\n\"\",x\n");
  EXPECT_EQ(numbers_in(table.columns[0]), "1.00 - - - - - - - -");
  expect_categories(table.columns[1], {"x"}, {0, -1, -1, -1, -1, -1, -1, -1, 0});
}

TEST(Table, ReadsAColumnWithoutValuesAsNumbers) {
  EXPECT_EQ(numbers_in(table_of("a,b\n1,\n2,NA\n").columns[1]), "- -");
  EXPECT_EQ(table_of("a,b\n").num_rows, 0U);
}

TEST(Table, TakesQuotedTextAsCategories) {
  expect_categories(table_of("a\nx\n\"\"\n\"NA\"\n NA\n").columns[0], {"", "NA", "x"}, {2, 0, 1, -1});
  // The same where text that could also be a missing number comes first.
  expect_categories(table_of("a,b\n\"\",1\nNA,2\n\"NA\",3\nx,4\n").columns[0], {"", "NA", "x"},
                    {0, -1, 1, 2});
}

TEST(Table, ReadsDeclaredCategories) {
  const Table table = table_of("zip,n\n01234,1\n1234,2\n,3\nNA,4\n", {.categories = {"zip"}});
  expect_categories(table.columns[0], {"", "01234", "1234"}, {1, 2, 0, -1});
  EXPECT_EQ(numbers_in(table.columns[1]), "1.00 2.00 3.00 4.00");
}

TEST(Table, ReadsNumbersExactly) {
  const Table table = table_of("a\n0.1\n1e23\n9007199254740993\n2.2250738585072011e-308\n4.9e-324\n-0\n");
  EXPECT_EQ(table.columns[0].numbers,
            (std::vector<double>{0.1, 1e23, 9007199254740992, 2.2250738585072011e-308, 4.9e-324, -0.0}));
}

TEST(Table, ReadsNumbersInEveryLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {
    std::setlocale(LC_ALL, name);  // does nothing where the system lacks it
    EXPECT_EQ(table_of("a\n1.5\n").columns[0].numbers, std::vector<double>{1.5});
  }
  std::setlocale(LC_ALL, before.c_str());
}

TEST(Table, SplitsAtOtherDelimiters) {
  EXPECT_EQ(numbers_in(table_of("a;b\n1;2\n", {.delimiter = ';'}).columns[1]), "2.00");
  EXPECT_EQ(numbers_in(table_of("a\tb\n1\t2\n", {.delimiter = '\t'}).columns[1]), "2.00");
  EXPECT_EQ(table_error("a;b\n1;2\n"),
            "t.csv, header: one column, \"a;b\"; expected: fields separated by \",\"; set data.delimiter to "
            "that of the "
            "file, or data.skip_rows to the number of lines before the header");
  EXPECT_EQ(table_error("a\n", {.delimiter = 'x'}),
            "TableOptions::delimiter: \"x\"; expected: a comma, semicolon, tab, | or blank");
}

TEST(Table, TakesTheDelimiterThatTheHeaderDecides) {
  const auto second = [](const std::string& text) {
    const Table table = table_of(text, {.delimiter = 0});
    return table.columns.size() == 2 ? table.columns[1].name + " " + numbers_in(table.columns[1]) : "another";
  };
  for (const char* const delimiter : {",", ";", "\t", "|", " ", "   "}) {
    const std::string d = delimiter;
    EXPECT_EQ(second("a" + d + "b\n1" + d + "2.5\n" + d.substr(1) + "3" + d + "4\n"), "b 2.50 4.00") << d;
  }
  EXPECT_EQ(table_of("a;b c\n1 2\n3 4\n", {.delimiter = 0}).columns[0].name, "a;b");
  EXPECT_EQ(
      table_of("1,5;2,5\n3,5;4,5\n", {.delimiter = 0, .has_header = false, .decimal = ','}).columns.size(),
      2u);
  EXPECT_EQ(second("\"a;x\",b\n1,2\n"), "b 2.00");  // what a name contains decides nothing
  EXPECT_EQ(second("a, in m;b\n1;2\n"), "b 2.00");  // a comma in a name, as the rows show
  EXPECT_EQ(numbers_in(table_of("price in EUR\n1\n", {.delimiter = 0}).columns[0]), "1.00");
  EXPECT_EQ(numbers_in(table_of(" a   b \n  1   \"x y\"  \n 2 z\n", {.delimiter = 0}).columns[0]),
            "1.00 2.00");
}

TEST(Table, CallsAColumnWithoutANameRow) {
  const Table table = table_of("\"\",a,b\n01,2,x\n02,3,y\n");
  EXPECT_EQ(table.row_name, "row");
  expect_categories(table.columns[0], {"01", "02"}, {0, 1});
  EXPECT_EQ(table_of("a,\n1,\n").row_name, "row");  // the only one
  EXPECT_EQ(table_of("a,b\n1,2\n").row_name, "");
  const Table several = table_of("a,,b,\n1,2,3,4\n");
  EXPECT_EQ(several.row_name, "");
  EXPECT_EQ(several.num_unnamed, 2u);
  EXPECT_EQ(several.columns.size(), 2u);
  EXPECT_EQ(numbers_in(several.columns[1]), "3.00");
  const Table taken = table_of(",row\n1,2\n");
  EXPECT_EQ(taken.row_name, "");
  EXPECT_EQ(numbers_in(taken.columns[0]), "2.00");
  // A reader that names its columns gets this one by its name.
  EXPECT_EQ(table_of(",a\n1,2\n", {.numbers = {"a"}, .skips_others = true}).columns.size(), 1u);
  EXPECT_EQ(table_of(",a\n1,2\n", {.categories = {"row"}, .skips_others = true}).columns.size(), 1u);
  EXPECT_EQ(table_error(",\n1,2\n"),
            "t.csv, header: no column has a name; expected: a header row with the names of the columns");
}

TEST(Table, ReadsFilesWithoutAHeader) {
  const Table table = table_of("1,x\n2,y\n", {.has_header = false});
  EXPECT_EQ(table.columns[0].name, "c1");
  EXPECT_EQ(numbers_in(table.columns[0]), "1.00 2.00");
  expect_categories(table.columns[1], {"x", "y"}, {0, 1});
  EXPECT_NE(table_error("1,2\n3\n", {.has_header = false}).find("row 2 (line 2), column 'c2'"),
            std::string::npos);
}

TEST(Table, CountsNamesThatAreNumbers) {
  EXPECT_EQ(table_of("60,2,red,blue\n1,2,3,4\n").num_number_names, 2u);
  EXPECT_EQ(table_of("a,b\n1,2\n").num_number_names, 0u);
  EXPECT_EQ(table_of("1,2\n", {.has_header = false}).num_number_names, 0u);
}

TEST(Table, SkipsLinesThatAreNoRows) {
  const std::string table = "report, of May\n\n# unit: m\na,b\n1,2\n# half\n3,4\n";
  EXPECT_EQ(numbers_in(table_of(table, {.num_skipped_lines = 2, .comment = '#'}).columns[1]), "2.00 4.00");
  EXPECT_NE(table_error("x\na,b\n1,2\n3\n", {.num_skipped_lines = 1}).find("row 2 (line 4)"),
            std::string::npos);
}

TEST(Table, IgnoresBlanksAroundQuotedNumbers) {
  EXPECT_EQ(numbers_in(table_of("a\n\"6.2 \"\n\" 1\"\n2\n").columns[0]), "6.20 1.00 2.00");
  expect_categories(table_of("a\n\"x \"\n\"x\"\n").columns[0], {"x", "x "}, {1, 0});
}

TEST(Table, ReadsNumbersAsOtherProgramsWriteThem) {
  const TableOptions english{.delimiter = ';', .thousands = ','},
      german{.delimiter = ';', .thousands = '.', .decimal = ','}, swiss{.thousands = '\''};
  EXPECT_EQ(numbers_in(table_of("a;b\n1,234.5;1\n-12,345,678;2\n999;3\n", english).columns[0]),
            "1234.50 -12345678.00 999.00");
  EXPECT_EQ(numbers_in(table_of("a;b\n1.234,5;1\n0,25;2\n1.000.000;3\n12,5e3;3\n", german).columns[0]),
            "1234.50 0.25 1000000.00 12500.00");
  EXPECT_EQ(numbers_in(table_of("a\n1'234.5\n2\n", swiss).columns[0]), "1234.50 2.00");
  for (const char* const wrong : {"12,34", "1,2345", "1234,567", ",123", "1,234,56", "0,101", "-0,101"})
    EXPECT_NE(table_error("a;b\n1;1\n2;1\n" + std::string(wrong) + ";1\n", english).find("row 3"),
              std::string::npos)
        << wrong;
  EXPECT_NE(table_error("a;b\n1,5;1\n2,5;1\n1.5;1\n", {.delimiter = ';', .decimal = ','}).find("row 3"),
            std::string::npos);
  // Marks of missing values are written as the numbers of the file are.
  EXPECT_EQ(numbers_in(
                table_of("a;b\n-9,9;1\n1,5;2\n9.999;3\n1;4\n",
                         {.delimiter = ';', .thousands = '.', .decimal = ',', .na_values = {"-9,9", "9.999"}})
                    .columns[0]),
            "- 1.50 - 1.00");
  // A mark that is also the delimiter is one within quotes alone.
  const Table quoted = table_of("a,b\n1,234\n\"1,234\",5\n", {.thousands = ','});
  EXPECT_EQ(numbers_in(quoted.columns[0]), "1.00 1234.00");
  EXPECT_EQ(numbers_in(quoted.columns[1]), "234.00 5.00");
}

TEST(Table, TakesMarksOfMissingValues) {
  const std::string table = "a,b\n1,x\n?,?\n3,-\n-,y\n";
  EXPECT_NE(
      table_error(table).find("\"?\"; expected: a number; if it marks a missing value, set data.na_values "
                              "= [\"?\"]; otherwise correct it"),
      std::string::npos)
      << table_error(table);
  const Table listed = table_of(table, {.na_values = {"?", "-"}});
  expect_categories(table_of("a\nauto\n?\nmanual\n", {.na_values = {"auto"}}).columns[0], {"auto", "manual"},
                    {0, -1, 1});
  // As R and Python's csv write texts: quoted. "NA" stays a text, since nothing lists it.
  expect_categories(table_of("a\n\"?\"\n\"x\"\n\"NA\"\n", {.na_values = {"?"}}).columns[0], {"NA", "x"},
                    {-1, 1, 0});
  EXPECT_EQ(numbers_in(listed.columns[0]), "1.00 - 3.00 -");
  expect_categories(listed.columns[1], {"x", "y"}, {0, -1, -1, 1});
  EXPECT_EQ(numbers_in(table_of("a\n-999\n2\n-999.0\n\"-999\"\n", {.na_values = {"-999"}}).columns[0]),
            "- 2.00 - -");
  for (const char* const mark :
       {"n/a", "?", "-", ".", "None", "#N/A", "<NA>", "\\N", "nil", "-nan", "#VALUE!"})
    EXPECT_EQ(
        numbers_in(table_of("a\n1\n" + std::string(mark) + "\n2\n", {.na_values = {"auto"}}).columns[0]),
        "1.00 - 2.00")
        << mark;
}

TEST(Table, SaysWhatLongerRowsAre) {
  EXPECT_EQ(
      table_error("a b\nr1 1 2\nr2 3 4\n", {.delimiter = 0}),
      "t.csv, row 1 (line 2): the row has one field more than the header, as R's write.table writes names of "
      "rows; expected: 2 fields, as in the header; add a first name to the header, or write the table with "
      "col.names = NA");
  EXPECT_EQ(
      table_error("a,b\n1,2,\n3,4,\n"),
      "t.csv, row 1 (line 2): the row ends with a delimiter, and the header does not; expected: 2 fields, as "
      "in the header; add a delimiter at the end of the header, or remove those of the rows");
}

TEST(Table, RefusesTextAmongNumbers) {
  EXPECT_EQ(
      table_error("a,price\n1,2\n3,about 4\n5,6\n"),
      "t.csv, row 2 (line 3), column 'price': \"about 4\"; expected: a number; if it marks a missing value, "
      "set data.na_values = [\"about 4\"]; otherwise correct it");
  // One number of three values: names.
  expect_categories(table_of("a\n7\nA 1\nB 2\n").columns[0], {"7", "A 1", "B 2"}, {0, 1, 2});
  EXPECT_EQ(
      table_error("a\n7\n8\n12b\n", {.numbers = {"a"}}),
      "t.csv, row 3 (line 4), column 'a': \"12b\"; expected: a number; correct it, or list the column in "
      "data.categories if its values are names");
}

TEST(Table, HintsAtDecimalCommas) {
  const std::string expected = "expected: a finite number with a decimal point; ";
  EXPECT_EQ(table_error("a;b\n1;\"1.234,5\"\n2;3,5\n", {.delimiter = ';'}),
            "t.csv, row 1 (line 2), column 'b': \"1.234,5\"; " + expected +
                "set data.decimal = \",\" and data.thousands = \".\" if the comma is the decimal mark");
  EXPECT_EQ(table_error("a\n1\n\"1,234.5\"\n"),
            "t.csv, row 2 (line 3), column 'a': \"1,234.5\"; " + expected +
                "set data.thousands = \",\" if the comma separates thousands");
  EXPECT_EQ(
      table_error("a\n1\n\"52,276\"\n"),
      "t.csv, row 2 (line 3), column 'a': \"52,276\"; " + expected +
          "set data.thousands = \",\" if the comma separates thousands, or data.decimal = \",\" if it is the "
          "decimal mark");
  EXPECT_EQ(table_error("a\n1\n\"0,5\"\n"), "t.csv, row 2 (line 3), column 'a': \"0,5\"; " + expected +
                                                "set data.decimal = \",\" if the comma is the decimal mark");
}

TEST(Table, RefusesNumbersThatAreNotFinite) {
  for (const std::string text : {"inf", "-Infinity", "1e999"})
    EXPECT_EQ(
        table_error("a\n1\n" + text + "\n"),
        "t.csv, row 2 (line 3), column 'a': \"" + text +
            "\"; expected: a finite number with a decimal point; replace the value, or leave the field empty "
            "if it is missing");
  EXPECT_EQ(table_error("a\n0x10\n").substr(0, 15), "(no error)");
}

TEST(Table, RefusesRaggedRows) {
  EXPECT_EQ(table_error("a,b,c\n1,2,3\n\n\"4\n\",5\n"),
            "t.csv, row 2 (line 4), column 'c': the row ends before this column, after 2 fields; expected: 3 "
            "fields, "
            "as in the header");
  EXPECT_EQ(
      table_error("a,b\n1,2\n1,2,3\n"),
      "t.csv, row 2 (line 3), column 'b': the row continues after this column, the last one; expected: 2 "
      "fields, as in the header; quote fields that contain delimiters");
}

TEST(Table, RefusesBrokenQuotes) {
  EXPECT_EQ(table_error("a,b\n1,\"x\n2,y\n"),
            "t.csv, row 1 (line 2), column 'b': the field's opening quote has no closing one; expected: \" "
            "at the end "
            "of the field; write quotes inside a quoted field twice");
  EXPECT_EQ(table_error("a,b\n1,\"x\"y\n"),
            "t.csv, row 1 (line 2), column 'b': there is text after the field's closing quote; expected: a "
            "delimiter "
            "or the end of the line; write quotes inside a quoted field twice");
}

TEST(Table, SkipsBrokenRows) {
  const TableOptions skip{.numbers = {"n"}, .skips_broken = true};
  const Table table = table_of(
      "n,kind,guessed\n"
      "1,a,1\n"
      "x,b,2\n"          // 2: text in a column that is declared
      "2,\"a\nb\",3\n"   // 3: two lines
      "3,c\n"            // 4: too short
      "4,c,5,6\n"        // 5: too long
      "5,\"c\"d,5\n"     // 6: text after a quote
      "6,\"e,6\n"        // 7: its quote opens a field that would swallow the next rows
      "7,f,7\n"          // 8
      "8,\"g\",seven\n"  // 9: text in a column that is found to have numbers
      "9,\"h\",9\n",     // 10
      skip);
  EXPECT_EQ(table.num_rows, 4U);
  EXPECT_EQ(numbers_in(table.columns[0]), "1.00 2.00 7.00 9.00");
  expect_categories(table.columns[1], {"a", "a\nb", "f", "h"}, {0, 1, 2, 3});
  EXPECT_EQ(numbers_in(table.columns[2]), "1.00 3.00 7.00 9.00");
  std::string rows;
  for (const BrokenRow& row : table.skipped) rows += std::to_string(row.row) + " ";
  EXPECT_EQ(rows, "2 4 5 6 7 9 ");
  EXPECT_TRUE(
      table.skipped[0].error.starts_with("t.csv, row 2 (line 3), column 'n': \"x\"; expected: a number"))
      << table.skipped[0].error;
  EXPECT_TRUE(table.skipped[5].error.starts_with("t.csv, row 9 (line 11), column 'guessed': \"seven\""))
      << table.skipped[5].error;
  EXPECT_EQ(table.row_number(0), 1U);
  EXPECT_EQ(table.row_number(2), 8U);
  EXPECT_EQ(table.row_number(3), 10U);
}

// As if the file did not have these rows: also which columns have numbers, and their categories.
TEST(Table, SkipsBrokenRowsWithoutATrace) {
  const std::string good = "a,b,c\n1,x,1\n2,y,two\n3,z,three\n",
                    bad = "4,only-here\nw,x,y\n5,\xff,y\n6,\xff,y\n7,\"\n";
  const TableOptions skip{.numbers = {"a"}, .skips_broken = true};
  const Table table = table_of(good + bad, skip), expected = table_of(good, {.numbers = {"a"}});
  EXPECT_EQ(table.skipped.size(), 5U);
  EXPECT_EQ(numbers_in(table.columns[0]), numbers_in(expected.columns[0]));
  for (std::size_t i : {1, 2})
    expect_categories(table.columns[i], expected.columns[i].categories, expected.columns[i].codes);
  EXPECT_EQ(table_of("a\nx\ny\n", skip).num_rows, 0U);
}

TEST(Table, RefusesUnusableHeaders) {
  EXPECT_EQ(table_error(""),
            "t.csv: the table is empty; expected: a header row with the names of the columns");
  EXPECT_EQ(table_error("\n\n"), table_error(""));
  EXPECT_EQ(
      table_error("1,2.5\n3,4\n"),
      "t.csv, header: the first row contains numbers only; expected: a header row with the names of the "
      "columns; set data.header = false if the file has none, or insert a first line such as x,y,price");
  EXPECT_EQ(table_error("a,b,a\n"),
            "t.csv, header: two columns have the name 'a'; expected: distinct names; rename one of them");
}

TEST(Table, RefusesOtherEncodings) {
  EXPECT_EQ(table_error("\xff\xfe"
                        "a"),
            "t.csv: the file is UTF-16; expected: a file in UTF-8; save it again as \"CSV UTF-8\"");
  EXPECT_EQ(
      table_error("a,name\n1,M\xfcller\n"),
      "t.csv, row 1 (line 2), column 'name': the text is not UTF-8; expected: a file in UTF-8; convert it: "
      "iconv -f latin1 -t utf-8 OLD > NEW");
}

TEST(Table, RefusesDeclarationsOfOtherColumns) {
  EXPECT_EQ(table_error("price,rooms\n1,2\n", {.numbers = {"prize"}}),
            "t.csv: no column has the name 'prize'; expected: one of price, rooms; did you mean 'price'?");
  EXPECT_EQ(table_error("a,b\n1,2\n", {.numbers = {"a"}, .categories = {"a"}}),
            "t.csv: the column 'a' is declared as numbers and as categories; expected: one of them");
}

TEST(Table, RefusesTooManyColumns) {
  std::string header;
  for (int i = 0; i < 70'000; ++i) header += "c" + std::to_string(i) + ",";
  EXPECT_EQ(table_error(header),
            "t.csv, header: more than 65536 columns; expected: a table with samples in rows");
}

TEST(Table, ReadsFilesUpToTheirLimit) {
  const Scratch scratch;
  const auto path = scratch / "t.csv";
  std::ofstream(path) << "a,b\n1,x\n";
  EXPECT_EQ(read_table(path).num_rows, 1U);
  EXPECT_EQ(read_table(path, {.max_bytes = 8}).num_rows, 1U);
  EXPECT_NE(error_text<DataError>([&] { read_table(path, {.max_bytes = 7}); }).find("t.csv"),
            std::string::npos);
  EXPECT_NE(error_text<DataError>([&] { read_table(scratch / "none.csv"); }).find("none.csv"),
            std::string::npos);
}

TEST(Table, ReadsCompressedFilesAndArraysOfJson) {
  const Scratch scratch;
  const auto written = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(scratch / name, std::ios::binary) << bytes;
    return scratch / name;
  };
  // gzip.compress(b"a,b\n1,x\n", 9, mtime=0) of Python
  const std::string gzip(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x4b\xd4\x49\xe2\x32\xd4\xa9\xe0\x02\x00\xf4\xa0\x01\x00\x08"
      "\x00\x00\x00",
      28);
  EXPECT_EQ(numbers_in(read_table(written("t.csv.gz", gzip)).columns[0]), "1.00");
  EXPECT_EQ(numbers_in(read_table(written("t.csv", gzip)).columns[0]), "1.00");
  const Table array = read_table(
      written("t.json", "[\n  {\"a\": 1, \"b\": \"x, \\\"y\\\" ]\"},\n  {\"a\": 2,\n   \"b\": \"z\"}\n]\n"));
  EXPECT_EQ(numbers_in(array.columns[0]), "1.00 2.00");
  expect_categories(array.columns[1], {"x, \"y\" ]", "z"}, {0, 1});
  EXPECT_EQ(read_table(written("t.json", "{\"a\": 1}\n{\"a\": 2}\n")).num_rows, 2u);
  EXPECT_EQ(read_table(written("t.json", "\xef\xbb\xbf[{\"a\": 1}]")).num_rows, 1u);
  for (const char* const cut : {"[{\"a\": 1}, {\"a\": 2}", "[{\"a\": 1}] [", "[{\"a\": \"x]}"})
    EXPECT_NE(error_text<DataError>([&] { read_table(written("t.json", cut)); }).find("array"),
              std::string::npos)
        << cut;
  EXPECT_EQ(read_table(written("t.csv", "PAR1,PAR2\n1,2\n")).columns.size(), 2u);
  EXPECT_NE(error_text<DataError>([&] { read_table(written("t.json", "[{\"a\": [1]}]")); }).find("an array"),
            std::string::npos);
}

TEST(Table, NamesOtherFormats) {
  const Scratch scratch;
  const std::pair<std::string, std::string> cases[] = {
      {std::string("PK\x03\x04\0\0", 6), "zip archive"},
      {"BZh91AY&SY", "bzip2"},
      {"PAR1\x15PAR1", "Parquet"},
      {" <!DOCTYPE html>\n", "HTML"},
      {"version https://git-lfs.github.com/spec/v1\n", "Git LFS"}};
  for (const auto& [bytes, found] : cases) {
    std::ofstream(scratch / "t.csv", std::ios::binary) << bytes;
    const std::string error = error_text<DataError>([&] { read_table(scratch / "t.csv"); });
    EXPECT_NE(error.find(found), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace kindling
