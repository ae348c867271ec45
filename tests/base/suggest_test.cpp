#include "kindling/base/suggest.h"

#include <gtest/gtest.h>

#include <vector>

namespace kindling {
namespace {

const std::vector<std::string> kOptionNames{"max_epochs", "max_steps", "lr", "momentum"};

TEST(Nearest, FindsInsertedDeletedReplacedAndSwappedLetters) {
  EXPECT_EQ(nearest("max_epoch", kOptionNames), "max_epochs");
  EXPECT_EQ(nearest("max_stepss", kOptionNames), "max_steps");
  EXPECT_EQ(nearest("nomentum", kOptionNames), "momentum");
  EXPECT_EQ(nearest("rl", kOptionNames), "lr");
}

TEST(Nearest, IsEmptyBeyondAThirdOfTheName) {
  EXPECT_EQ(nearest("max_e", kOptionNames), "");
  EXPECT_EQ(nearest("entum", kOptionNames), "");     // 3 edits, 1 allowed
  EXPECT_EQ(nearest("xyzentum", kOptionNames), "");  // 3 edits, 2 allowed
  EXPECT_EQ(nearest("x", kOptionNames), "");
  EXPECT_EQ(nearest("", kOptionNames), "");
  EXPECT_EQ(nearest("lr", {}), "");
}

TEST(Nearest, IsNeverTheNameItself) { EXPECT_EQ(nearest("lr", kOptionNames), ""); }

TEST(Nearest, ReturnsTheFirstOfEquallyNear) {
  const std::vector<std::string> names{"adamw", "adams"};
  EXPECT_EQ(nearest("adamx", names), "adamw");
}

TEST(Nearest, PrefersTheSameNameInAnotherSpelling) {
  const std::vector<std::string> names{"adam", "adamw", "small_cnn"};
  EXPECT_EQ(nearest("adamW", names), "adamw");  // adam is as near
  EXPECT_EQ(nearest("SmallCNN", names), "small_cnn");
  EXPECT_EQ(nearest("small-cnn", names), "small_cnn");
  EXPECT_EQ(nearest("small_cnn", names), "");
  EXPECT_EQ(nearest("_", names), "");
}

TEST(ListNames, SeparatesByCommas) {
  EXPECT_EQ(list_names(std::vector<std::string>{"a", "b"}), "a, b");
  EXPECT_EQ(list_names({}), "");
}

}  // namespace
}  // namespace kindling
