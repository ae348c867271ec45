#include "kindling/base/text.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0U);
  EXPECT_EQ(display_width("val acc"), 7U);
  EXPECT_EQ(display_width("3 µs … ━─⠒"), 10U);
  EXPECT_EQ(display_width("损失"), 4U);
  EXPECT_EQ(display_width("한글ａ"), 6U);
  EXPECT_EQ(display_width("\U0001F525"), 2U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
}

TEST(DisplayWidth, CountsABrokenByteAsOneColumn) {
  EXPECT_EQ(display_width("a\xff\xc3"), 3U);
  EXPECT_EQ(display_width("\xe6\x8d"), 2U) << "the first two bytes of three";
}

TEST(Padded, FillsUpToTheWidth) {
  EXPECT_EQ(padded("损失", 6), "损失  ");
  EXPECT_EQ(padded("损失", 6, true), "  损失");
  EXPECT_EQ(padded("too wide", 3), "too wide");
}

TEST(Shortened, CutsAtAWholeCharacter) {
  EXPECT_EQ(shortened("accuracy", 8), "accuracy");
  EXPECT_EQ(shortened("accuracy", 7), "accura…");
  EXPECT_EQ(shortened("困惑度", 5), "困惑…");
  EXPECT_EQ(shortened("困惑度", 4), "困…");
  EXPECT_EQ(shortened("e\u0301e\u0301e\u0301", 2), "e\u0301…");
  EXPECT_EQ(shortened("abc", 1), "…");
  EXPECT_EQ(shortened("abc", 0), "");
}

TEST(OneLine, RemovesControlCharacters) {
  EXPECT_EQ(one_line("\x1b[31m\ta\nb\x7f\xc2\x9b"), " [31m a b  ");
  EXPECT_EQ(one_line("\xff ä \xed\xa0\x80"), "\uFFFD ä \uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(one_line("\xef\xbf\xbe"), "\uFFFD") << "no character, and forbidden in XML";
}

TEST(TableText, MakesEachColumnAsWideAsItNeeds) {
  const std::vector<std::vector<std::string>> rows = {{"loss", "1.5", ""}, {"准确率", "12.25", "best"}};
  EXPECT_EQ(table_text({{"name"}, {.title = "value", .right = true}, {"note"}}, rows),
            "name     value   note\n"
            "loss       1.5\n"
            "准确率   12.25   best\n");
}

TEST(TableLine, LetsAWideCellShiftTheOthers) {
  const std::vector<TextColumn> columns = {{.right = true, .width = 3}, {.width = 3}, {}};
  EXPECT_EQ(table_line(columns, std::vector<std::string>{"1", "b", "c"}, "|"), "  1|b  |c");
  EXPECT_EQ(table_line(columns, std::vector<std::string>{"12345", "b", ""}, " "), "12345 b");
}

}  // namespace
}  // namespace kindling
