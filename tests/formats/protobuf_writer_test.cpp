#include "formats/protobuf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kindling {
namespace {

std::string written(const ProtobufWriter& message) {
  std::string bytes;
  for (const std::string_view piece : message.pieces()) bytes += piece;
  EXPECT_EQ(bytes.size(), message.size());
  return bytes;
}

// The examples of https://protobuf.dev/programming-guides/encoding, and a negative number: ten bytes.
TEST(ProtobufWriter, WritesTheExamplesOfItsManual) {
  ProtobufWriter number;
  number.integer(1, 150);
  EXPECT_EQ(written(number), "\x08\x96\x01");
  ProtobufWriter text;
  text.text(2, "testing");
  EXPECT_EQ(written(text), "\x12\x07testing");
  ProtobufWriter inside;
  inside.message(3, number);
  EXPECT_EQ(written(inside), "\x1a\x03\x08\x96\x01");
  ProtobufWriter negative;
  negative.integer(2, -2);
  EXPECT_EQ(written(negative), "\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  ProtobufWriter real;
  real.real(5, 1.5F);
  EXPECT_EQ(written(real), std::string("\x2d\x00\x00\xc0\x3f", 5));
}

TEST(ProtobufWriter, BorrowsBytesThroughAllLevels) {
  const std::string large(1000, 'x');
  ProtobufWriter inner, outer;
  inner.bytes(9, large);
  inner.integer(1, 1);
  outer.integer(1, 2);
  outer.message(7, inner);
  outer.text(2, "end");
  EXPECT_EQ(written(outer), "\x08\x02\x3a\xed\x07\x4a\xe8\x07" + large +
                                "\x08\x01\x12\x03"
                                "end");
  EXPECT_TRUE(std::ranges::any_of(outer.pieces(),
                                  [&](std::string_view piece) { return piece.data() == large.data(); }));
}

}  // namespace
}  // namespace kindling
