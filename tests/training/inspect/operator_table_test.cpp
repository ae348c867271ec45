#include "training/inspect/operator_table.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

// mul [0, 100) calls copy [10, 30) and add [40, 90), which calls copy [50, 60).
std::vector<TracedCall> nested_calls() {
  return {{"copy", 1, 50, 10}, {"mul", 1, 0, 100}, {"add", 1, 40, 50}, {"copy", 1, 10, 20}};
}

const OperatorRow& row_of(const std::vector<OperatorRow>& rows, const std::string& name) {
  for (const OperatorRow& row : rows)
    if (row.name == name) return row;
  throw std::runtime_error(name);
}

TEST(OperatorTable, SelfTimeExcludesNestedCalls) {
  const auto rows = own_times(nested_calls());
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(row_of(rows, "mul").own_ns, 30);   // 100 - 20 - 50
  EXPECT_EQ(row_of(rows, "add").own_ns, 40);   // 50 - 10
  EXPECT_EQ(row_of(rows, "copy").own_ns, 30);  // 20 + 10
  EXPECT_EQ(row_of(rows, "copy").num_calls, 2);
  EXPECT_EQ(rows[0].name, "add") << "the longest comes first";
}

TEST(OperatorTable, CallsOfOtherThreadsAreNotNested) {
  const auto rows = own_times({{"mul", 1, 0, 100}, {"add", 2, 10, 20}});
  EXPECT_EQ(row_of(rows, "mul").own_ns, 100);
  EXPECT_EQ(row_of(rows, "add").own_ns, 20);
}

TEST(OperatorTable, SeparatesDeviceCalls) {
  const auto rows = own_times({{"gemm", 1, 10, 200, true}, {"mul", 1, 0, 100}, {"gemm", 1, 10, 20}});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].own_ns, 200);
  EXPECT_TRUE(rows[0].is_on_card);
  EXPECT_EQ(row_of(rows, "mul").own_ns, 80);
}

TEST(OperatorTable, ConsecutiveCallsAreNotNested) {
  const auto rows = own_times({{"mul", 1, 0, 10}, {"add", 1, 10, 10}});
  EXPECT_EQ(row_of(rows, "mul").own_ns, 10);
  EXPECT_EQ(row_of(rows, "add").own_ns, 10);
}

TEST(OperatorTable, IsAReadableTable) {
  const std::string text =
      operator_table({{"aten::mm", 4, 3000000, false}, {"aten::add", 2, 1000000, false}});
  EXPECT_NE(text.find("operator"), std::string::npos) << text;
  EXPECT_NE(text.find("aten::mm    host       4           3.000       75.0"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
