#include "kindling/base/name_pattern.h"

#include <gtest/gtest.h>

#include <vector>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(NamePattern, MatchesTheWholeName) {
  EXPECT_TRUE(matches("net.0.weight", "net.0.weight"));
  EXPECT_FALSE(matches("net.0.weight", "net.0"));
  EXPECT_FALSE(matches("net.0.weight", "0.weight"));
  EXPECT_FALSE(matches("net.0.weight", ""));
  EXPECT_TRUE(matches("", ""));
  EXPECT_TRUE(matches("", "**"));
  EXPECT_FALSE(matches("net.0", "net?0?"));
}

TEST(NamePattern, MatchesAnyCharactersWithAStar) {
  EXPECT_TRUE(matches("net.0.conv.weight", "net.0.*"));
  EXPECT_TRUE(matches("net.0.conv.weight", "*"));
  EXPECT_TRUE(matches("net.0.conv.weight", "*.weight"));
  EXPECT_TRUE(matches("net.0.conv.weight", "n*0*weight"));
  EXPECT_FALSE(matches("net.0.conv.weight", "net.0.*.bias"));
  EXPECT_FALSE(matches("net.10.weight", "net.1.*"));
  EXPECT_TRUE(matches("aXbXabXab", "a*Xab")) << "a star that has to take more than it first did";
}

TEST(NamePattern, MatchesOneCharacterWithAQuestionMark) {
  EXPECT_TRUE(matches("net.1.bias", "net.?.bias"));
  EXPECT_FALSE(matches("net.10.bias", "net.?.bias"));
  EXPECT_TRUE(matches("net.10.bias", "net.??.b*"));
}

TEST(NamePattern, NamesTheNearestIfNothingMatches) {
  const std::vector<std::string> names{"net.1.weight", "net.1.bias", "head.weight"};
  require_match(names, "net.*", "here");
  EXPECT_EQ(
      error_text<ConfigError>([&] { require_match(names, "net.2.*", "here"); }),
      "here: 'net.2.*' matches no name; expected: one of net.1.weight, net.1.bias, head.weight; did you mean "
      "'net.1.*'?");
  EXPECT_EQ(
      error_text<ConfigError>([&] { require_match(std::vector<std::string>(21, "a.b"), "zzzzzz", "here"); }),
      "here: 'zzzzzz' matches no name; expected: one of the model's 21 names");
}

}  // namespace
}  // namespace kindling
