#include "kindling/formats/idx.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/gzip_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using namespace std::string_literals;
using Shape = std::vector<std::int64_t>;

template <class Value>
std::vector<Value> values_of(const IdxArray& array) {
  std::vector<Value> values(array.bytes.size() / sizeof(Value));
  std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

// Two rows of three bytes.
const std::string kSmall = "\0\0\x08\x02\0\0\0\x02\0\0\0\x03"s + "abcdef";

TEST(Idx, ReadsShapeAndBytes) {
  const IdxArray array = parse_idx(kSmall, "x");
  EXPECT_EQ(array.type, IdxType::uint8);
  EXPECT_EQ(array.shape, (Shape{2, 3}));
  EXPECT_EQ(std::string(array.bytes.begin(), array.bytes.end()), "abcdef");
}

TEST(Idx, ConvertsEveryTypeToHostByteOrder) {
  EXPECT_EQ(values_of<std::int8_t>(parse_idx("\0\0\x09\x01\0\0\0\x01\xfe"s, "x")),
            (std::vector<std::int8_t>{-2}));
  EXPECT_EQ(values_of<std::int16_t>(parse_idx("\0\0\x0b\x01\0\0\0\x02\x01\x02\xff\xfe"s, "x")),
            (std::vector<std::int16_t>{0x0102, -2}));
  EXPECT_EQ(values_of<std::int32_t>(parse_idx("\0\0\x0c\x01\0\0\0\x01\x01\x02\x03\x04"s, "x")),
            (std::vector<std::int32_t>{0x01020304}));
  EXPECT_EQ(values_of<float>(parse_idx("\0\0\x0d\x01\0\0\0\x01\x3f\xc0\0\0"s, "x")),
            (std::vector<float>{1.5f}));
  EXPECT_EQ(values_of<double>(parse_idx("\0\0\x0e\x01\0\0\0\x01\xc0\x04\0\0\0\0\0\0"s, "x")),
            (std::vector<double>{-2.5}));
}

TEST(Idx, ReadsEmptyArrays) {
  const IdxArray array = parse_idx("\0\0\x08\x02\0\0\0\0\0\0\0\x1c"s, "x");
  EXPECT_EQ(array.shape, (Shape{0, 28}));
  EXPECT_TRUE(array.bytes.empty());
}

TEST(Idx, DetectsGzipByItsBytesNotByItsName) {
  const Scratch scratch;
  write_file_atomically(scratch / "packed.idx", gzip_bytes(kSmall));
  write_file_atomically(scratch / "plain.gz", kSmall);
  EXPECT_EQ(read_idx(scratch / "packed.idx").bytes, parse_idx(kSmall, "x").bytes);
  EXPECT_EQ(read_idx(scratch / "plain.gz").shape, (Shape{2, 3}));
}

TEST(Idx, RefusesEveryTruncation) {
  for (std::size_t length = 0; length < kSmall.size(); ++length) {
    const std::string text = error_text<DataError>([&] { parse_idx(kSmall.substr(0, length), "x"); });
    EXPECT_TRUE(text.starts_with("x, byte ")) << text;
    EXPECT_THROW(parse_idx(gzip_bytes(kSmall.substr(0, length)), "x"), DataError) << length;
  }
  const std::string packed = gzip_bytes(kSmall);
  for (std::size_t length = 0; length < packed.size(); ++length) {
    EXPECT_THROW(parse_idx(packed.substr(0, length), "x"), DataError) << length;
  }
}

TEST(Idx, RefusesBrokenFilesWithLocationAndReason) {
  struct Broken {
    std::string bytes, wanted;
  };
  const std::vector<Broken> cases = {
      {""s, "x, byte 0: the file ends inside the first 4 bytes; expected: 4 bytes more"},
      {"PK\x03\x04"s, "x, byte 0: this is not an IDX file; expected: two zero bytes"},
      {"\0\0\x0a\x01\0\0\0\x01z"s, "x, byte 2: type code 10 is unknown"},
      {"\0\0\x08\0z"s, "x, byte 3: the array has no dimension"},
      {"\0\0\x08\x02\0\0\0\x02"s, "x, byte 8: the file ends inside the header; expected: 4 bytes more"},
      {kSmall.substr(0, 15),
       "x, byte 4: the header declares shape [2, 3], which is more than the file can contain"},
      {kSmall.substr(0, 11) + "\xff", "the header declares shape [2, 255]"},
      {kSmall + "!", "x, byte 18: the file continues after the values of shape [2, 3]"},
      {"\0\0\x08\x03"s + std::string(12, '\xff') + "z",
       "declares shape [4294967295, 4294967295, 4294967295]"},
      {"\0\0\x0e\x01\xff\xff\xff\xff"s, "more than the file can contain; expected: at most 0 bytes"},
      {gzip_bytes(kSmall.substr(0, 15)),
       "x, byte 15: the file ends inside the values of shape [2, 3]; expected: 3"},
      {gzip_bytes(kSmall + "!"), "x, byte 18: the file continues after"},
      {gzip_bytes("\0\0\x08\x01\xff\xff\xff\xff"s + std::string(9999, 'x')),
       "shape [4294967295], which is more than"},
      {gzip_bytes(kSmall) + "tail", "4 bytes follow the end of the compressed data"},
  };
  for (const Broken& broken : cases) {
    const std::string text = error_text<DataError>([&] { parse_idx(broken.bytes, "x"); });
    EXPECT_NE(text.find(broken.wanted), std::string::npos) << text << "\n  lacks: " << broken.wanted;
    EXPECT_NE(text.find("copy "), std::string::npos) << text << "\n  lacks a remedy";
  }
}

TEST(Idx, NamesAMissingFile) {
  const Scratch scratch;
  const std::string text = error_text<DataError>([&] { read_idx(scratch / "missing.gz"); });
  EXPECT_NE(text.find("missing.gz: cannot open it: No such file"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
