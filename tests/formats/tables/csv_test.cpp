#include "kindling/formats/csv.h"

#include <gtest/gtest.h>

#include <vector>

namespace kindling {
namespace {

TEST(CsvLine, JoinsFieldsWithCommas) {
  EXPECT_EQ(csv_line(std::vector<std::string>{"epoch", "", "0.5"}), "epoch,,0.5\n");
  EXPECT_EQ(csv_line({}), "\n");
}

TEST(CsvLine, QuotesSpecialCharacters) {
  EXPECT_EQ(csv_line(std::vector<std::string>{"a,b", "say \"hi\"", "x\ny", "plain"}),
            "\"a,b\",\"say \"\"hi\"\"\",\"x\ny\",plain\n");
}

}  // namespace
}  // namespace kindling
