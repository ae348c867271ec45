#include "kindling/base/sha256.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

std::string sha256_of(std::string_view bytes) {
  Sha256 sum;
  sum.update(bytes);
  return sum.hex();
}

// The examples of NIST (FIPS 180-4 and its test vectors).
TEST(Sha256, IsThatOfTheStandardsExamples) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// From Python's hashlib: lengths around the ends of blocks.
TEST(Sha256, PadsEveryLength) {
  EXPECT_EQ(sha256_of(std::string(55, 'x')),
            "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(sha256_of(std::string(56, 'x')),
            "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EXPECT_EQ(sha256_of(std::string(64, 'x')),
            "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  const std::string bytes(1000, 'y');
  for (const std::size_t piece : {1U, 7U, 63U, 64U, 65U, 999U}) {
    Sha256 sum;
    for (std::size_t begin = 0; begin < bytes.size(); begin += piece)
      sum.update(std::string_view(bytes).substr(begin, piece));
    EXPECT_EQ(sum.hex(), sha256_of(bytes)) << piece;
    EXPECT_EQ(sum.hex(), sha256_of(bytes)) << "asked twice";
  }
}

}  // namespace
}  // namespace kindling
