#include <gtest/gtest.h>

#include <cstdlib>

#include "formats/zip/zip_archive.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/torch_file.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::string kSomeValues = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL";  // 48 bytes

std::vector<TensorToWrite> tensors_of_all_kinds() {
  std::vector<TensorToWrite> tensors;
  for (const TensorType type : {TensorType::uint8, TensorType::int8, TensorType::int16, TensorType::int32,
                                TensorType::int64, TensorType::float16, TensorType::bfloat16,
                                TensorType::float32, TensorType::float64, TensorType::complex64}) {
    const std::string name(name_of(type));
    tensors.push_back({name + ".matrix", type, {2, 3}, kSomeValues.data(), 6 * size_of(type)});
    tensors.push_back({name + ".scalar", type, {}, kSomeValues.data() + 8, size_of(type)});
    tensors.push_back({name + ".empty", type, {0, 3}, nullptr, 0});
  }
  static const bool kFlags[] = {true, false, true};
  tensors.push_back({"gr\u00fc\u00dfe/..", TensorType::boolean, {3}, kFlags, 3});
  tensors.push_back({"tied", TensorType::float32, {3, 2}, kSomeValues.data(), 24});
  return tensors;
}

std::string text_of_bytes(const TensorToWrite& tensor) {
  return {static_cast<const char*>(tensor.data), tensor.data == nullptr ? 0 : tensor.size_bytes};
}

void expect_holds_all(const TorchFile& file, const std::vector<TensorToWrite>& tensors) {
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TorchTensor& found = file.tensors()[i];
    EXPECT_EQ(found.name, tensors[i].name);
    EXPECT_EQ(found.type, tensors[i].type) << found.name;
    EXPECT_EQ(found.shape, tensors[i].shape) << found.name;
    std::string values(found.size_bytes(), '\0');
    file.read(found, values.data());
    EXPECT_EQ(values, text_of_bytes(tensors[i])) << found.name;
  }
}

TEST(TorchWriter, RoundTripsThroughTheReader) {
  const Scratch scratch;
  const std::vector<TensorToWrite> tensors = tensors_of_all_kinds();
  write_torch_file(scratch / "x.pt", tensors);
  const TorchFile file(scratch / "x.pt");
  expect_holds_all(file, tensors);
  EXPECT_EQ(file.find("tied")->storage, file.find("F32.matrix")->storage);
  EXPECT_NE(file.find("tied")->storage, file.find("I32.matrix")->storage);
  write_torch_file(scratch / "x.pt", {});
  EXPECT_NE(error_text<CheckpointError>([&] { TorchFile(scratch / "x.pt"); }).find("it contains no tensors"),
            std::string::npos);
}

// For memory-mapping the file, as torch.load(mmap=True) does.
TEST(TorchWriter, StartsEachStorageAtAMultipleOf64) {
  const Scratch scratch;
  write_torch_file(scratch / "x.pt", tensors_of_all_kinds());
  const std::string bytes = read_file(scratch / "x.pt", 100'000);
  const ZipArchive archive({bytes.size(),
                            [&](std::size_t offset, void* out, std::size_t size) {
                              std::copy_n(bytes.data() + offset, size, static_cast<char*>(out));
                            }},
                           "x.pt");
  EXPECT_GT(archive.entries().size(), 20u);
  for (const ZipEntry& entry : archive.entries()) EXPECT_EQ(entry.begin % 64, 0u) << entry.name;
}

TEST(TorchWriter, RefusesInvalidTensors) {
  const Scratch scratch;
  const auto refusal = [&](std::vector<TensorToWrite> tensors) {
    return error_text<CheckpointError>([&] { write_torch_file(scratch / "x.pt", tensors); });
  };
  const TensorToWrite good = {"w", TensorType::uint8, {2}, kSomeValues.data(), 2};
  EXPECT_EQ(refusal({good, good}), "tensor \"w\" to be written: the name is used twice");
  EXPECT_EQ(refusal({{"w", TensorType::int16, {2}, kSomeValues.data(), 2}}),
            "tensor \"w\" to be written: its size does not match its type and shape");
  EXPECT_EQ(refusal({{"w", TensorType::uint16, {1}, kSomeValues.data(), 2}}),
            "tensor \"w\" to be written: a .pt cannot have its type U16 here; write .safetensors instead");
  EXPECT_EQ(refusal({{"\xff", TensorType::uint8, {2}, kSomeValues.data(), 2}}),
            "tensor \"\xff\" to be written: its name is not valid UTF-8");
  EXPECT_FALSE(std::filesystem::exists(scratch / "x.pt"));
}

TEST(TorchWriter, WritesFilesThatPythonReadsByDefault) {
  const std::string python = python_with_torch();
  if (python.empty()) GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  const std::vector<TensorToWrite> tensors = tensors_of_all_kinds();
  write_torch_file(scratch / "x.pt", tensors);
  write_safetensors(scratch / "x.safetensors", tensors, {});
  const std::string command = python + " " KINDLING_FIXTURES "/../torch/check_torch_file.py " +
                              (scratch / "x.pt").string() + " " + (scratch / "x.safetensors").string() + " " +
                              (scratch / "again.pt").string() + " >" + (scratch / "log").string() + " 2>&1";
  const int code = std::system(command.c_str());
  const std::string log = read_file(scratch / "log", 100'000);
  ASSERT_EQ(code, 0) << log;
  EXPECT_NE(log.find("tied F32.matrix tied\n"), std::string::npos) << log;
  expect_holds_all(TorchFile(scratch / "again.pt"), tensors);
}

}  // namespace
}  // namespace kindling
