#include "formats/tables/wrong_values.h"

#include <gtest/gtest.h>

#include <string>

#include "support/scratch.h"

namespace kindling {
namespace {

class WrongTable : public testing::Test {
 protected:
  std::string errors_in(const std::string& name, const std::string& text, const TableOptions& options = {}) {
    write_text(scratch_ / name, text);
    std::string errors = error_text<DataError>([&] { read_table_or_list_errors(scratch_ / name, options); });
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = errors.find(folder)) != std::string::npos;)
      errors.erase(at, folder.size());
    return errors;
  }
  const Scratch scratch_;
};

TEST_F(WrongTable, ListsEveryColumnAndTheFirstValueOfEachKind) {
  const std::string errors = errors_in("t.csv",
                                       "a,b,c,kind\n"
                                       "1,?,1,x\n"
                                       "2,?,\"1,5\",y\n"
                                       "?,3,\"2,5\",y\n"
                                       "4,-,3,x\n"
                                       "5,5\n"
                                       "6,6,4,x\n"
                                       "7,7,5\n"
                                       "8,8,6,x\n");
  const std::string mark = "; expected: a number; if it marks a missing value, set data.na_values = [";
  EXPECT_EQ(
      errors,
      "t.csv, row 5 (line 6), column 'c': the row ends before this column, after 2 fields, and 1 similar "
      "one; expected: 4 fields, as in the header\n"
      "t.csv, row 1 (line 2), column 'b': \"?\", and 1 similar one" +
          mark +
          "\"?\"]; otherwise correct it\n"
          "t.csv, row 2 (line 3), column 'c': \"1,5\", and 1 similar one; expected: a finite number with a "
          "decimal point; set data.decimal = \",\" if the comma is the decimal mark\n"
          "t.csv, row 3 (line 4), column 'a': \"?\"" +
          mark +
          "\"?\"]; otherwise correct it\n"
          "t.csv, row 4 (line 5), column 'b': \"-\"" +
          mark + "\"-\"]; otherwise correct it");
}

TEST_F(WrongTable, KeepsASingleErrorAsItIs) {
  EXPECT_EQ(errors_in("t.csv", "a,b\n1,2\n?,3\n3,4\n?,5\n"),
            "t.csv, row 2 (line 3), column 'a': \"?\"; expected: a number; if it marks a missing value, set "
            "data.na_values = [\"?\"]; otherwise correct it");
  EXPECT_EQ(errors_in("t.csv", "a,a\n1,2\n?,3\n"),
            "t.csv, header: two columns have the name 'a'; expected: distinct names; rename one of them");
}

TEST_F(WrongTable, ShortensTheListOfAColumn) {
  std::string text = "a\n";
  for (int i = 0; i < 20; ++i)
    text += std::to_string(i) + "\n" + (i % 2 == 0 ? "x" + std::to_string(i) + "\n" : "");
  const std::string errors = errors_in("t.csv", text);
  EXPECT_NE(errors.find("\"x8\""), std::string::npos) << errors;
  EXPECT_EQ(errors.find("\"x10\""), std::string::npos) << errors;
  EXPECT_NE(errors.find("column 'a': 5 more texts that are not numbers"), std::string::npos) << errors;
}

TEST_F(WrongTable, ListsThoseOfJsonLines) {
  EXPECT_EQ(
      errors_in("t.jsonl",
                "{\"a\": 1, \"b\": \"?\"}\n{\"a\": true, \"b\": 2}\n{\"a\": 3, \"b\": 4}\n{\"a\": 3, \"b\": "
                "\n{\"a\": 4, \"b\": 4}\n"),
      "t.jsonl, row 4 (line 4), column 'b': the line ends inside its object; expected: an object per line, "
      "such as {\"rooms\": 3, \"city\": \"Bern\"}; write each object on one line (pandas: "
      "orient=\"records\", lines=True)\n"
      "t.jsonl, row 1 (line 1), column 'b': \"?\"; expected: a number; if it marks a missing value, set "
      "data.na_values = [\"?\"]; otherwise correct it\n"
      "t.jsonl, row 2 (line 2), column 'a': true; expected: a number; write 1 or 0");
}

}  // namespace
}  // namespace kindling
