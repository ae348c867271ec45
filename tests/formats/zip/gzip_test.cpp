#include "kindling/formats/gzip.h"

#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/gzip_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr std::size_t kMax = 1 << 20;

std::string unpacked(const std::string& bytes) {
  std::string content(kMax, '\0');
  GzipReader reader(bytes, "x.gz");
  content.resize(reader.read(content.data(), content.size()));
  return content;
}

std::string gzip_refusal(const std::string& bytes) {
  return error_text<DataError>([&] { unpacked(bytes); });
}

std::string counting(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; text.size() < size; ++i) text += std::to_string(i);
  return text.substr(0, size);
}

TEST(GzipReader, ReturnsTheContent) {
  EXPECT_EQ(unpacked(gzip_bytes("hello")), "hello");
  EXPECT_EQ(unpacked(gzip_bytes("")), "");
  EXPECT_EQ(unpacked(gzip_bytes(counting(100'000))), counting(100'000));
}

TEST(GzipReader, JoinsConsecutiveMembers) {
  EXPECT_EQ(unpacked(gzip_bytes("one ") + gzip_bytes("two")), "one two");
}

TEST(GzipReader, RefusesEveryTruncation) {
  const std::string whole = gzip_bytes("hello hello hello");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(
        gzip_refusal(whole.substr(0, length)),
        "x.gz, byte " + std::to_string(length) +
            " of the gzip file: the file ends within the compressed data; download or copy the file again");
  }
}

TEST(GzipReader, DetectsEveryRelevantFlippedBit) {
  const std::string whole = gzip_bytes("hello hello hello");
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    try {
      EXPECT_EQ(unpacked(flipped), "hello hello hello") << "bit " << bit;
    } catch (const DataError&) {
    }
  }
}

TEST(GzipReader, NamesTheProblem) {
  std::string checksum = gzip_bytes("hello");
  checksum[checksum.size() - 8] ^= 1;
  EXPECT_NE(gzip_refusal(checksum).find("incorrect data check"), std::string::npos);
  EXPECT_NE(gzip_refusal("hello, world").find("incorrect header check"), std::string::npos);
  EXPECT_NE(gzip_refusal(gzip_bytes("hello") + "abc").find("3 bytes follow the end"), std::string::npos);
}

TEST(GzipReader, ReadsPieceByPiece) {
  const std::string bytes = gzip_bytes("hello") + gzip_bytes(" world");
  GzipReader reader(bytes, "x.gz");
  std::string piece(8, '\0');
  EXPECT_EQ(reader.read(piece.data(), 3), 3u);
  EXPECT_EQ(piece.substr(0, 3), "hel");
  EXPECT_EQ(reader.read(piece.data(), 8), 8u);
  EXPECT_EQ(piece, "lo world");
  EXPECT_EQ(reader.read(piece.data(), 8), 0u);
}

TEST(IsGzip, ChecksTheFirstTwoBytes) {
  EXPECT_TRUE(is_gzip(gzip_bytes("")));
  EXPECT_FALSE(is_gzip("\x1f"));
  EXPECT_FALSE(is_gzip(""));
}

}  // namespace
}  // namespace kindling
