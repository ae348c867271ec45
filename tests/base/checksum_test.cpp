#include "kindling/base/checksum.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

std::string checksum_of(const std::string& bytes) {
  Checksum checksum;
  checksum.update(bytes);
  return checksum.hex();
}

// From Python's xxhash.xxh3_64_hexdigest: an independent implementation.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(checksum_of(""), "2d06800538d394c2");
  EXPECT_EQ(checksum_of("kindling"), "781e17e0c6216312");
  EXPECT_EQ(checksum_of(std::string(100'000, 'x')), "d8b99a30e426ac41");
}

TEST(Checksum, DoesNotDependOnThePieces) {
  Checksum pieces;
  pieces.update("kin");
  pieces.update(nullptr, 0);
  pieces.update("dling");
  EXPECT_EQ(pieces.hex(), checksum_of("kindling"));
  EXPECT_EQ(pieces.hex(), pieces.hex());
}

TEST(Checksum, HasSixteenDigits) {
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(checksum_of(std::to_string(i)).size(), 16u);
}

}  // namespace
}  // namespace kindling
