#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "kindling/base/checksum.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/safetensors.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const float kWeights[] = {1.0f, -2.0f};
const std::uint8_t kByte = 7;
const std::vector<TensorToWrite> kChecked = {{"n", TensorType::uint8, {}, &kByte, 1},
                                             {"w", TensorType::float32, {2}, kWeights, 8}};

std::string checksum_hex(std::string_view bytes) {
  Checksum checksum;
  checksum.update(bytes);
  return checksum.hex();
}

std::string header_in(const std::string& bytes) {
  return bytes.substr(8, static_cast<unsigned char>(bytes[0]) + 256u * static_cast<unsigned char>(bytes[1]));
}

std::string damage_in(const std::string& bytes) {
  return error_text<CheckpointError>([&] { parse_safetensors(bytes, "x"); });
}

TEST(SafetensorsChecksums, AreStoredInTheMetadata) {
  const std::string bytes = serialize_safetensors(kChecked, {{"k", "v"}}, WithChecksums::yes);
  const std::string header = header_in(bytes);
  const std::string values = bytes.substr(8 + header.size());
  const std::string of_tensors = checksum_hex(values.substr(0, 8)) + checksum_hex(values.substr(8));
  const auto header_with = [&](const std::string& digits) {
    std::string text = R"({"__metadata__":{"xxh3.header":")" + digits + R"(","xxh3.tensors":")" + of_tensors +
                       R"(","k":"v"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("n":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
    return text + std::string((8 - text.size() % 8) % 8, ' ');
  };
  EXPECT_EQ(header, header_with(checksum_hex(header_with("0000000000000000"))));
}

TEST(SafetensorsChecksums, AreHiddenFromUsers) {
  const Scratch scratch;
  for (const WithChecksums checksums : {WithChecksums::no, WithChecksums::yes}) {
    write_safetensors(scratch / "x", kChecked, {{"k", "v"}}, checksums);
    const SafetensorsFile file(scratch / "x");
    EXPECT_EQ(file.index().metadata, (Metadata{{"k", "v"}}));
    EXPECT_EQ(file.has_checksums(), checksums == WithChecksums::yes);
    float weights[2] = {};
    file.read(*file.index().find("w"), weights);
    EXPECT_TRUE(std::ranges::equal(weights, kWeights));
    EXPECT_NO_THROW(file.check());
    EXPECT_EQ(read_file(scratch / "x", 1000), serialize_safetensors(kChecked, {{"k", "v"}}, checksums));
  }
  write_safetensors(scratch / "x", {}, {}, WithChecksums::yes);
  EXPECT_TRUE(SafetensorsFile(scratch / "x").has_checksums());
  EXPECT_TRUE(SafetensorsFile(scratch / "x").index().metadata.empty());
}

TEST(SafetensorsChecksums, CoverLargeTensors) {
  const Scratch scratch;
  constexpr std::size_t kPiece = std::size_t{1} << 18;
  for (const std::size_t size : {kPiece - 1, kPiece, kPiece + 1, 3 * kPiece + 5}) {
    std::string values(size, '\0');
    for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<char>(i * 31 >> 3);
    const TensorToWrite tensor = {
        "t", TensorType::uint8, {static_cast<std::int64_t>(size)}, values.data(), size};
    write_safetensors(scratch / "x", {&tensor, 1}, {}, WithChecksums::yes);
    const SafetensorsFile file(scratch / "x");
    std::string read(size, '\0');
    file.read(file.index().tensors[0], read.data());
    EXPECT_EQ(read, values);
    file.check();
  }
}

TEST(SafetensorsChecksums, NameTheDamagedTensorWithAHint) {
  const Scratch scratch;
  write_safetensors(scratch / "x", kChecked, {}, WithChecksums::yes);
  std::string bytes = read_file(scratch / "x", 1000);
  const std::string good(reinterpret_cast<const char*>(kWeights), 8);
  std::string damaged = good;
  damaged[3] ^= 0x10;
  bytes.replace(bytes.size() - 9, 8, damaged);
  std::ofstream(scratch / "x") << bytes;
  const std::string wanted = (scratch / "x").string() + ", tensor \"w\": its values have the checksum " +
                             checksum_hex(damaged) + "; expected: \"" + checksum_hex(good) +
                             "\", as recorded in the header; the file is damaged: copy it again, or use an "
                             "earlier one";
  const SafetensorsFile file(scratch / "x");  // the header is whole
  float weights[2] = {};
  EXPECT_EQ(error_text<CheckpointError>([&] { file.read(*file.index().find("w"), weights); }), wanted);
  EXPECT_EQ(error_text<CheckpointError>([&] { file.check(); }), wanted);
  std::uint8_t byte = 0;
  EXPECT_NO_THROW(file.read(*file.index().find("n"), &byte));
}

TEST(SafetensorsChecksums, AreVerifiedForTheHeaderOnOpening) {
  const std::string bytes = serialize_safetensors(kChecked, {{"epoch", "3"}}, WithChecksums::yes);
  std::string damaged = bytes;
  damaged[bytes.find("\"3\"") + 1] = '8';
  EXPECT_NE(damage_in(damaged).find("x, header: its checksum is "), std::string::npos) << damage_in(damaged);
  const Scratch scratch;
  std::ofstream(scratch / "x") << damaged;
  EXPECT_EQ(error_text<CheckpointError>([&] { SafetensorsFile(scratch / "x"); }),
            (scratch / "x").string() + damage_in(damaged).substr(1));
}

// As written by a program that copies the metadata without knowing its meaning.
TEST(SafetensorsChecksums, AreRefusedIfIncomplete) {
  const auto file_with = [](const std::string& metadata) {
    std::string header = "{\"__metadata__\":{" + metadata + "}}";
    return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header;
  };
  for (const char* metadata :
       {R"("xxh3.tensors":"")", R"("k":"v","xxh3.tensors":"","xxh3.header":"0000000000000000")",
        R"("xxh3.header":"")"}) {
    const std::string text = damage_in(file_with(metadata));
    EXPECT_NE(text.find("x, header: its checksum"), std::string::npos) << metadata << ": " << text;
  }
  // The header's own is right, but one of the tensors' is missing.
  const std::string metadata = R"("xxh3.header":"0000000000000000","xxh3.tensors":"12")";
  std::string bytes = file_with(metadata);
  bytes.replace(bytes.find("0000000000000000"), 16, checksum_hex(header_in(bytes)));
  EXPECT_NE(damage_in(bytes).find("its checksums are incomplete"), std::string::npos) << damage_in(bytes);
}

TEST(SafetensorsChecksums, HaveReservedNames) {
  for (const char* key : {"xxh3.header", "xxh3.tensors"})
    for (const WithChecksums checksums : {WithChecksums::no, WithChecksums::yes}) {
      const std::string text = error_text<CheckpointError>([&] {
        serialize_safetensors(kChecked, {{key, "x"}}, checksums);
      });
      EXPECT_NE(text.find("which is reserved for checksums"), std::string::npos) << text;
    }
}

TEST(SafetensorsChecksums, AreWrittenWithoutCopyingTheValues) {
  struct Writes : UnsyncedCalls {
    ssize_t write(int descriptor, const void* bytes, std::size_t size) override {
      sources.push_back(bytes);
      return FileOperations::write(descriptor, bytes, size);
    }
    std::vector<const void*> sources;
  } writes;
  const Scratch scratch;
  {
    const ScopedFileOperations in_force(writes);
    write_safetensors(scratch / "x", kChecked, {}, WithChecksums::yes);
  }
  ASSERT_EQ(writes.sources.size(), 3u);
  EXPECT_EQ(writes.sources[1], kWeights);
  EXPECT_EQ(writes.sources[2], &kByte);
}

}  // namespace
}  // namespace kindling
