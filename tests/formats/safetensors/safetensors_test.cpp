#include "kindling/formats/safetensors.h"

#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using namespace std::string_literals;

// A file with this header and these values.
std::string file_of(const std::string& header, const std::string& values) {
  std::string bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + values;
}

std::string refusal(const std::string& bytes) {
  return error_text<CheckpointError>([&] { parse_safetensors(bytes, "x"); });
}

std::string values_of(const TensorEntry& entry, const std::string& bytes) {
  return bytes.substr(entry.begin, entry.end - entry.begin);
}

const std::string kTwoHeader =
    R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"a":{"dtype":"I16","shape":[1,2],"data_offsets":[0,4]}})";
const std::string kTwo = file_of(kTwoHeader, "wxyzAB");

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirValues) {
  const SafetensorsIndex file = parse_safetensors(kTwo, "x");
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_EQ(file.tensors[0].type, TensorType::int16);
  EXPECT_EQ(file.tensors[0].shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(values_of(file.tensors[0], kTwo), "wxyz");
  EXPECT_EQ(values_of(*file.find("b"), kTwo), "AB");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_TRUE(file.metadata.empty());
}

TEST(Safetensors, WritesTheExpectedBytes) {
  const float values[] = {1.0f, -2.0f};
  const std::uint8_t byte = 7;
  const std::vector<TensorToWrite> tensors = {{"n", TensorType::uint8, {}, &byte, 1},
                                              {"w", TensorType::float32, {2}, values, 8}};
  // 8 bytes of length, 120 of header, padded so that the values start at a multiple of 8; the wider type
  // first.
  const std::string header =
      R"({"__metadata__":{"k":"v\"\n"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("n":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(serialize_safetensors(tensors, {{"k", "v\"\n"}}),
            file_of(header + padding, "\0\0\x80\x3f\0\0\0\xc0\x07"s));
}

TEST(Safetensors, RoundTripsEveryTypeAndShape) {
  const std::string data = "0123456789abcdef";
  std::vector<TensorToWrite> tensors;
  for (const TensorType type :
       {TensorType::boolean, TensorType::uint8, TensorType::int8, TensorType::int16, TensorType::int32,
        TensorType::int64, TensorType::float16, TensorType::bfloat16, TensorType::float32,
        TensorType::float64, TensorType::uint16, TensorType::uint32, TensorType::uint64,
        TensorType::float8_e4m3fn, TensorType::float8_e4m3fnuz, TensorType::float8_e5m2,
        TensorType::float8_e5m2fnuz, TensorType::float8_e8m0fnu, TensorType::complex64}) {
    tensors.push_back({"two " + std::string(name_of(type)), type, {2, 1}, data.data(), 2 * size_of(type)});
    tensors.push_back({"rank 0 " + std::string(name_of(type)), type, {}, data.data(), size_of(type)});
    tensors.push_back({"empty " + std::string(name_of(type)), type, {0, 3}, nullptr, 0});
  }
  const Metadata metadata = {{"format", "pt"}, {"grüße", std::string("\0\x01", 2)}};
  const std::string bytes = serialize_safetensors(tensors, metadata);
  const SafetensorsIndex file = parse_safetensors(bytes, "x");
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const TensorToWrite& tensor : tensors) {
    const TensorEntry* const entry = file.find(tensor.name);
    ASSERT_NE(entry, nullptr) << tensor.name;
    EXPECT_EQ(entry->type, tensor.type);
    EXPECT_EQ(entry->shape, tensor.shape);
    EXPECT_EQ(entry->begin % size_of(entry->type), 0u) << tensor.name;
    EXPECT_EQ(values_of(*entry, bytes), data.substr(0, tensor.size_bytes)) << tensor.name;
  }
}

// Four bits a value are no type of LibTorch's. What the other tensors have is whole.
TEST(Safetensors, SkipsTensorsOfUnknownTypes) {
  const std::string bytes = file_of(
      R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[2,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
      R"("c":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})",
      "ABxyC");
  const SafetensorsIndex file = parse_safetensors(bytes, "x");
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(values_of(*file.find("b"), bytes), "AB");
  EXPECT_EQ(values_of(*file.find("c"), bytes), "C");
  EXPECT_EQ(file.find("a"), nullptr);
  ASSERT_EQ(file.skipped.size(), 1u);
  EXPECT_EQ(file.skipped[0].name, "a");
  EXPECT_EQ(file.skipped[0].dtype, "F4");
  EXPECT_EQ(bytes.substr(file.skipped[0].begin, file.skipped[0].end - file.skipped[0].begin), "xy");
}

TEST(Safetensors, WritesAndReadsFiles) {
  const Scratch scratch;
  const float values[] = {1.5f, -2.0f};
  const std::uint8_t byte = 7;
  const std::vector<TensorToWrite> tensors = {{"n", TensorType::uint8, {}, &byte, 1},
                                              {"w", TensorType::float32, {2}, values, 8}};
  write_safetensors(scratch / "two.safetensors", tensors, {{"k", "v"}});
  const SafetensorsFile file(scratch / "two.safetensors");
  EXPECT_EQ(file.index().metadata, (Metadata{{"k", "v"}}));
  ASSERT_EQ(file.index().tensors.size(), 2u);
  float read[2] = {};
  file.read(*file.index().find("w"), read);
  EXPECT_EQ(read[0], 1.5f);
  EXPECT_EQ(read[1], -2.0f);
  write_safetensors(scratch / "none.safetensors", {}, {});
  EXPECT_TRUE(SafetensorsFile(scratch / "none.safetensors").index().tensors.empty());
  EXPECT_THROW(write_safetensors(scratch / "no/x.safetensors", {}, {}), CheckpointError);
}

TEST(Safetensors, NamesFilesThatCannotBeRead) {
  const Scratch scratch;
  const auto open = [&](const std::string& name) {
    return error_text<CheckpointError>([&] { const SafetensorsFile file(scratch / name); });
  };
  EXPECT_NE(open("no").find("No such file"), std::string::npos);
  write_file_atomically(scratch / "short", kTwo.substr(0, 5));
  EXPECT_NE(open("short").find("byte 5: the file ends inside the header's length"), std::string::npos);
  write_file_atomically(scratch / "cut", kTwo.substr(0, 60));
  EXPECT_NE(open("cut").find("byte 60: the file ends inside the header"), std::string::npos);
  write_file_atomically(scratch / "values", kTwo.substr(0, kTwo.size() - 1));
  EXPECT_NE(open("values").find("are outside the file"), std::string::npos);
}

TEST(Safetensors, ThrowsIfAnOpenFileIsTruncated) {
  const Scratch scratch;
  write_file_atomically(scratch / "two", kTwo);
  const SafetensorsFile file(scratch / "two");
  std::filesystem::resize_file(scratch / "two", kTwo.size() - 1);
  char values[4];
  const std::string text = error_text<CheckpointError>([&] { file.read(*file.index().find("b"), values); });
  EXPECT_NE(text.find("the file ends here; expected: 1 more bytes"), std::string::npos) << text;
}

TEST(Safetensors, RefusesEveryTruncation) {
  for (std::size_t length = 0; length < kTwo.size(); ++length) {
    EXPECT_TRUE(refusal(kTwo.substr(0, length)).starts_with("x, ")) << length;
  }
}

std::string tensor(const std::string& type, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one(const std::string& type, const std::string& shape, const std::string& offsets,
                const std::string& values = "wxyz") {
  return file_of("{\"a\":" + tensor(type, shape, offsets) + "}", values);
}

std::string two(const std::string& offsets_a, const std::string& offsets_b,
                const std::string& values = "wxyz") {
  return file_of(
      "{\"a\":" + tensor("U8", "[2]", offsets_a) + ",\"b\":" + tensor("U8", "[2]", offsets_b) + "}", values);
}

struct Broken {
  std::string bytes, wanted;
};

void expect_refusals(const std::vector<Broken>& cases) {
  for (const Broken& broken : cases) {
    const std::string text = refusal(broken.bytes);
    EXPECT_NE(text.find(broken.wanted), std::string::npos) << text << "\n  lacks: " << broken.wanted;
    EXPECT_NE(text.find("copy or save it again"), std::string::npos) << text << "\n  lacks a hint";
  }
}

TEST(Safetensors, RefusesBrokenFrames) {
  expect_refusals({
      {"", "x, byte 0: the file ends inside the header's length; expected: 8 bytes"},
      {"\xff\xff\xff\xff\xff\xff\xff\xff", "x, byte 0: the header's length is 18446744073709551615"},
      {"\x01\xe1\xf5\x05\0\0\0\0{"s, "the header's length is 100000001; expected: at most 100000000"},
      {"\x09\0\0\0\0\0\0\0{}"s, "x, byte 10: the file ends inside the header; expected: 9 bytes of header"},
      {file_of("", ""), "x, byte 8: the header is not a JSON object"},
      {file_of(" {}", ""), "x, byte 8: the header is not a JSON object"},
      {file_of("[]", ""), "x, byte 8: the header is not a JSON object"},
      {file_of("{}\0{}"s, ""), "x, byte 10: the header contains a zero byte"},
      {file_of("{} x", ""), "x, byte 11: the header is not valid JSON"},
      {file_of("{\"a\":", ""), "the header is not valid JSON"},
      {file_of("{\"a\xff\":{}}", ""), "x, byte 11: the header is not valid JSON"},
      {file_of("{}", "left"), "x, byte 10: 4 bytes do not belong to a tensor"},
  });
}

TEST(Safetensors, RefusesHeadersOfAnotherStructure) {
  const std::string deep(100'000, '[');
  std::string long_shape = "[1";
  for (int i = 0; i < 64; ++i) long_shape += ",1";
  const std::string entry = tensor("U8", "[4]", "[0,4]");
  expect_refusals({
      {file_of("{\"a\":" + deep, ""), "header entry \"a\": a list is unexpected"},
      {one("U8", "[" + deep, "[0,4]"), "field \"shape\": a list is unexpected"},
      {file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", "wxyz"),
       "header entry \"a\": the name appears twice"},
      {file_of(R"({"__metadata__":{"k":"1","k":"2"}})", ""), "header entry \"k\": the key appears twice"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", ""), "\"__metadata__\": the name appears twice"},
      {file_of(R"({"__metadata__":{"k":1}})", ""), "header entry \"k\": a number is unexpected"},
      {file_of(R"({"__metadata__":{"k":{}}})", ""), "an object is unexpected"},
      {file_of(R"({"__metadata__":null})", ""), "null is unexpected"},
      {file_of(R"({"a":"text"})", ""), "a string is unexpected"},
      {file_of(R"({"a":true})", ""), "a boolean is unexpected"},
      {file_of(R"({"a":{}})", ""), "header entry \"a\": dtype, shape or data_offsets is missing"},
      {file_of(R"({"a":{"dtype":"U8","dtype":"U8"}})", ""),
       "field \"dtype\": a string is unexpected or repeated"},
      {file_of(R"({"a":{"dtype":"U8","shape":[],"shape":[]}})", ""), "field \"shape\": a list is unexpected"},
      {file_of(R"({"a":{"strides":1}})", ""), "field \"strides\": a number is unexpected"},
      {one("f32", "[4]", "[0,4]"), "field \"dtype\": dtype \"f32\" is unknown"},
      {one("", "[4]", "[0,4]"), "field \"dtype\": dtype \"\" is unknown"},
      {one("U8", "[-4]", "[0,4]"), "field \"shape\": a negative number is unexpected"},
      {one("U8", "[4.0]", "[0,4]"), "a fraction or a number that is too large"},
      {one("U8", "[18446744073709551616]", "[0,4]"), "a fraction or a number that is too large"},
      {one("U8", "[9223372036854775808]", "[0,4]"), "the number 9223372036854775808 is too large"},
      {one("U8", long_shape + "]", "[0,4]"), "field \"shape\": the list is too long"},
      {one("U8", "[4]", "[0,2,4]"), "field \"data_offsets\": the list is too long"},
      {one("U8", "[4]", "[4]"), "data_offsets does not have two numbers"},
  });
}

TEST(Safetensors, RefusesOffsetsThatDoNotFit) {
  expect_refusals({
      {one("U8", "[5]", "[0,5]"), "x, tensor \"a\": its data_offsets [0, 5] are outside the file"},
      {one("U8", "[4]", "[4,0]"), "its data_offsets [4, 0] are outside the file"},
      {one("U8", "[3]", "[0,4]"),
       "its data_offsets [0, 4] do not fit its dtype and shape; expected: 3 bytes"},
      {one("F32", "[4]", "[0,4]"), "expected: 16 bytes"},
      {one("U8", "[3]", "[1,4]"), "its data_offsets [1, 4] leave a gap; expected: a start at 0"},
      {one("U8", "[3]", "[0,3]"), "1 bytes do not belong to a tensor"},
      {one("F4", "[4]", "[0,5]"),
       "its data_offsets [0, 5] are outside the file"},  // of a type of unknown size
      {one("F4", "[4]", "[1,4]"), "its data_offsets [1, 4] leave a gap"},
      {one("F64", "[4611686018427387904,4611686018427387904]", "[0,4]"), "its shape overflows"},
      {one("I16", "[9223372036854775807,2,0]", "[0,0]", ""), "its shape overflows"},
      {one("F32", "[0,4611686018427387904,4]", "[0,0]", ""), "its shape overflows"},
      {two("[0,2]", "[1,3]", "wxy"), "tensor \"b\": its data_offsets [1, 3] overlap others"},
      {two("[0,2]", "[0,2]"), "overlap others"},
      {two("[0,2]", "[3,5]", "wxyz!"),
       "tensor \"b\": its data_offsets [3, 5] leave a gap; expected: a start at 2"},
  });
}

TEST(Safetensors, SurvivesEveryFlippedBit) {
  for (std::size_t bit = 0; bit < 8 * kTwo.size(); ++bit) {
    std::string flipped = kTwo;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    try {
      for (const SafetensorsIndex file = parse_safetensors(flipped, "x");
           const TensorEntry& entry : file.tensors) {
        EXPECT_LE(entry.end, flipped.size());
      }
    } catch (const CheckpointError&) {
    }
  }
}

TEST(Safetensors, RefusesToWriteInvalidTensors) {
  const auto refused = [](const std::vector<TensorToWrite>& tensors, const Metadata& metadata = {}) {
    return error_text<CheckpointError>([&] { serialize_safetensors(tensors, metadata); });
  };
  const TensorToWrite good = {"a", TensorType::uint8, {2}, "xy", 2};
  TensorToWrite wrong = good;
  EXPECT_NE(refused({good, good}).find("the name is used twice"), std::string::npos);
  wrong.name = "__metadata__";
  EXPECT_NE(refused({wrong}).find("the name is used twice"), std::string::npos);
  wrong.name = "\xff";
  EXPECT_NE(refused({wrong}).find("not valid UTF-8"), std::string::npos);
  wrong = good;
  wrong.size_bytes = 1;
  EXPECT_NE(refused({wrong}).find("it has 1 bytes; expected: 2"), std::string::npos);
  wrong.shape = {-1};
  EXPECT_NE(refused({wrong}).find("negative or overflows"), std::string::npos);
  EXPECT_NE(refused({good}, {{"k", "\xc3"}}).find("not valid UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace kindling
