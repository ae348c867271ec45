// CSV as programs write it. Each text is what the named program writes for a small table; the
// values are those that the table had. What needs a key of the config is refused without it, with an error
// that names the key.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/table.h"
#include "support/scratch.h"

namespace kindling {
namespace {

struct Dialect {
  std::string source{}, text{};
  std::string x{};         // the column x; c1 without a header: numbers, "-" for a missing one
  std::string texts{};     // the column `kind`, "-" for a missing value; empty: there is none
  TableOptions options{};  // with the delimiter that the header decides
  std::string
      refused_with{};  // without these options, the error contains this; empty: it is read all the same
};

std::string shown_values(const TableColumn* column) {
  if (column == nullptr) return "no such column";
  const std::size_t num_rows = std::max(column->numbers.size(), column->codes.size());
  std::string text;
  for (std::size_t row = 0; row < num_rows; ++row) {
    if (row > 0) text += " ";
    if (column->is_missing(row))
      text += "-";
    else if (column->kind == ColumnKind::number)
      text += number_text(column->numbers[row]);
    else
      text += column->categories[static_cast<std::size_t>(column->codes[row])];
  }
  return text;
}

Table read_dialect(const std::string& text, TableOptions options) {
  options.delimiter = 0;
  return parse_table(text, "t.csv", options);
}

void expect_values(const Dialect& dialect) {
  SCOPED_TRACE(dialect.source);
  const Table table = read_dialect(dialect.text, dialect.options);
  EXPECT_EQ(shown_values(table.find(dialect.options.has_header ? "x" : "c1")), dialect.x);
  if (!dialect.texts.empty()) {
    EXPECT_EQ(shown_values(table.find(dialect.options.has_header ? "kind" : "c2")), dialect.texts);
  }
  if (dialect.refused_with.empty()) return;
  const std::string error = error_text<DataError>([&] { read_dialect(dialect.text, {}); });
  EXPECT_NE(error.find(dialect.refused_with), std::string::npos) << error;
}

TEST(CsvDialects, OfDataFrames) {
  for (const Dialect& dialect : std::vector<Dialect>{
           {"pandas to_csv()", ",x,kind\n0,1.5,a\n1,,b\n2,-2e-05,\n", "1.5 - -2e-05", "a b -"},
           {"pandas to_csv(index=False)", "x,kind\n1.5,a\n,b\n3.0,\n", "1.5 - 3", "a b -"},
           {"pandas to_csv(sep=';', decimal=',')",
            "x;kind\n1,5;a\n;b\n-2,25;a\n",
            "1.5 - -2.25",
            "a b a",
            {.decimal = ','},
            "data.decimal = \",\""},
           {"pandas to_csv(sep='\\t')", "x\tkind\n1.5\ta b\n\tb\n", "1.5 -", "a b b"},
           {"pandas to_csv(na_rep='NA')", "x,kind\n1.5,NA\nNA,b\n", "1.5 -", "- b"},
           {"pandas to_csv(na_rep='-')",
            "x,kind\n1.5,a\n-,b\n2.5,a\n",
            "1.5 - 2.5",
            "a b a",
            {.na_values = {"-"}},
            "data.na_values = [\"-\"]"},
           {"pandas to_csv(quoting=QUOTE_ALL)", "\"x\",\"kind\"\n\"1.5\",\"a\"\n\"2.5\",\"b, c\"\n",
            "1.5 2.5", "a b, c"},
           {"pandas to_csv(quoting=QUOTE_NONNUMERIC)", "\"x\",\"kind\"\n1.5,\"a\"\n2.5,\"say \"\"b\"\"\"\n",
            "1.5 2.5", "a say \"b\""},
           {"pandas to_csv(float_format='%.3e')", "x,kind\n1.500e+00,a\n-2.000e-05,b\n", "1.5 -2e-05", "a b"},
           {"pandas to_csv(lineterminator='\\r\\n', encoding='utf-8-sig')",
            "\xef\xbb\xbfx,kind\r\n1,a\r\n2,b\r\n", "1 2", "a b"},
           {"pandas to_csv() of booleans with a missing one", "x,kind\n1,True\n2,\n3,False\n", "1 2 3",
            "True - False"},
           {"polars write_csv()", "x,kind\n1.5,a\n,b\n1e16,\"c,d\"\n", "1.5 - 1e+16", "a b c,d"},
           {"polars write_csv(null_value='null')", "x,kind\nnull,a\n2,null\n", "- 2", "a -"},
           {"polars write_csv(separator='|')", "x|kind\n1|a,b\n2|c\n", "1 2", "a,b c"},
           {"polars write_csv(quote_style='always')", "\"x\",\"kind\"\n\"1\",\"a\"\n\"2\",\"b\"\n", "1 2",
            "a b"},
           {"R write.csv()", "\"\",\"x\",\"kind\"\n\"1\",1.5,\"a\"\n\"2\",NA,NA\n", "1.5 -", "a -"},
           {"R write.csv2()",
            "\"\";\"x\";\"kind\"\n\"1\";1,5;\"a\"\n\"2\";NA;\"b\"\n\"3\";2,5;\"b\"\n",
            "1.5 - 2.5",
            "a b b",
            {.decimal = ','},
            "data.decimal = \",\""},
           {"R write.table(sep='\\t', col.names=NA)",
            "\"\"\t\"x\"\t\"kind\"\n\"1\"\t1.5\t\"a\"\n\"2\"\tNA\t\"b\"\n", "1.5 -", "a b"},
           {"R write.table(row.names=FALSE)", "\"x\" \"kind\"\n1.5 \"a b\"\nNA \"c\"\n", "1.5 -", "a b c"},
           {"readr write_csv()", "x,kind\n1.5,TRUE\nNA,FALSE\n", "1.5 -", "TRUE FALSE"},
           {"data.table fwrite()", "x,kind\n1.5,a\n,\"\"\n", "1.5 -", "a "},
           {"Julia CSV.write()", "x,kind\n1.5,true\n,false\n", "1.5 -", "true false"},
           {"MATLAB writetable()", "x,kind\n1.5,a\nNaN,b\n", "1.5 -", "a b"},
           {"Spark write.csv(header=True)", "x,kind\n1.5,\"\"\n,b\n", "1.5 -", " b"}})
    expect_values(dialect);
}

TEST(CsvDialects, OfSpreadsheets) {
  for (const Dialect& dialect : std::vector<Dialect>{
           {"Excel en-US, CSV UTF-8", "\xef\xbb\xbfx,kind\r\n1.5,a\r\n,\"b, c\"\r\n", "1.5 -", "a b, c"},
           {"Excel en-US, numbers with separators",
            "x,kind\r\n\"1,234.5\",a\r\n999,b\r\n",
            "1234.5 999",
            "a b",
            {.thousands = ','},
            "data.thousands = \",\""},
           {"Excel de-DE",
            "x;kind\r\n1,5;a\r\n2;b\r\n0,25;c\r\n",
            "1.5 2 0.25",
            "a b c",
            {.decimal = ','},
            "data.decimal = \",\""},
           {"Excel de-DE, numbers with separators",
            "x;kind\r\n1.234,5;a\r\n2,5;b\r\n",
            "1234.5 2.5",
            "a b",
            {.thousands = '.', .decimal = ','},
            "data.decimal = \",\""},
           {"Excel de-CH, numbers with separators",
            "x;kind\r\n1'234.5;a\r\n2.5;b\r\n3.5;b\r\n",
            "1234.5 2.5 3.5",
            "a b b",
            {.thousands = '\''}},
           {"Excel, errors of formulas",
            "x,kind\r\n1.5,a\r\n#N/A,b\r\n#DIV/0!,b\r\n2,b\r\n3,b\r\n",
            "1.5 - - 2 3",
            "a b b b b",
            {.na_values = {"auto"}},
            "data.na_values = [\"#N/A\"]"},
           {"Excel, Macintosh CSV", "x,kind\r1,a\r2,b\r", "1 2", "a b"},
           {"Excel, rows of notes above",
            "Sales of 2026\r\nAll numbers in kg\r\nx,kind\r\n1,a\r\n2,b\r\n",
            "1 2",
            "a b",
            {.num_skipped_lines = 2}},
           {"LibreOffice, all text quoted", "\"x\",\"kind\"\n1.5,\"a\"\n,\"\"\n", "1.5 -", "a "},
           {"Google Sheets", "x,kind\r\n1.5,TRUE\r\n2.5,FALSE", "1.5 2.5", "TRUE FALSE"}})
    expect_values(dialect);
}

TEST(CsvDialects, OfDatabases) {
  for (const Dialect& dialect :
       std::vector<Dialect>{{"PostgreSQL COPY ... CSV HEADER", "x,kind\n1.5,t\n,f\n", "1.5 -", "t f"},
                            {"PostgreSQL COPY ... (HEADER), text",
                             "x\tkind\n1.5\ta\n\\N\tb\n2\tb\n",
                             "1.5 - 2",
                             "a b b",
                             {.na_values = {"\\N"}},
                             "data.na_values = [\"\\N\"]"},
                            {"MySQL SELECT ... INTO OUTFILE",
                             "1.5\ta\n\\N\tb\n2\t\\N\n",
                             "1.5 - 2",
                             "a b -",
                             {.has_header = false, .na_values = {"\\N"}}},
                            {"mysql --batch", "x\tkind\n1.5\ta\nNULL\tb\n", "1.5 -", "a b"},
                            {"sqlite3 -header -csv", "x,kind\r\n1.5,a\r\n,\"b c\"\r\n", "1.5 -", "a b c"},
                            {"sqlite3 -header, list mode", "x|kind\n1.5|a\n|b\n", "1.5 -", "a b"},
                            {"DuckDB COPY ... (HEADER)", "x,kind\n1.5,a\n,\"b,c\"\n", "1.5 -", "a b,c"},
                            {"BigQuery extract", "x,kind\n1.5,true\n,false\n", "1.5 -", "true false"},
                            {"Stata outsheet",
                             "x\tkind\n1.5\t\"a\"\n.\t\"b\"\n2\t\"b\"\n",
                             "1.5 - 2",
                             "a b b",
                             {.na_values = {"."}},
                             "data.na_values = [\".\"]"}})
    expect_values(dialect);
}

TEST(CsvDialects, OfInstruments) {
  for (const Dialect& dialect : std::vector<Dialect>{
           {"a serial log with blanks after commas", "x, kind, z\n1, a, 2.5\n2, b, 3.5\n", "1 2", "a b"},
           {"a logger with a delimiter at each end", "x,kind,\n1,a,\n2,b,\n", "1 2", "a b"},
           {"GHCN-Daily, missing values as -9999",
            "x,kind\n1,a\n-9999,b\n",
            "1 -",
            "a b",
            {.na_values = {"-9999"}}},
           {"an oscilloscope with settings above",
            "Model,MSO24\nSample Interval,4e-08\nx,kind\n-1e-05,a\n0.5,b\n",
            "-1e-05 0.5",
            "a b",
            {.num_skipped_lines = 2}},
           {"NumPy savetxt()",
            "1.500000000000000000e+00 2.0e+00\n-2.5e-01 3.0e+00\n",
            "1.5 -0.25",
            "",
            {.has_header = false},
            "data.header = false"},
           {"NumPy savetxt(header='x y')",
            "# x y\n1.5e+00 2.0e+00\n2.5e+00 3.0e+00\n",
            "1.5 2.5",
            "",
            {.has_header = false, .comment = '#'}},
           {"Fortran, list-directed",
            "   1.50000000       2.00000000    \n  -2.25000000       3.00000000    \n",
            "1.5 -2.25",
            "",
            {.has_header = false},
            "data.header = false"},
           {"gnuplot with comments between", "x y\n1 2\n# run 2\n3 4\n", "1 3", "", {.comment = '#'}}})
    expect_values(dialect);
}

// There is no key that reads them.
TEST(CsvDialects, ThatAreRefused) {
  for (const std::array<std::string, 3>& one : std::vector<std::array<std::string, 3>>{
           {"R write.table()", "\"x\" \"kind\"\n\"1\" 1.5 \"a\"\n", "write the table with col.names = NA"},
           {"pandas to_csv() of two levels of columns", "x,x\nmean,std\n1,2\n",
            "two columns have the name 'x'"},
           {"Excel, Unicode text", std::string("\xff\xfex\0\t\0", 6), "the file is UTF-16"},
           {"pandas to_csv() of infinity", "x,y\n1,2\ninf,3\n2,3\n",
            "replace the value, or leave the field empty"},
           {"Excel on Windows, CSV in its code page", "x,kind\r\n1,caf\xe9\r\n",
            "iconv -f latin1 -t utf-8"}}) {
    const std::string found = error_text<DataError>([&] { read_dialect(one[1], {}); });
    EXPECT_NE(found.find(one[2]), std::string::npos) << one[0] << ": " << found;
  }
}

}  // namespace
}  // namespace kindling
