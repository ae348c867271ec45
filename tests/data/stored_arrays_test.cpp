// Arrays that are too large for memory: their rows are read from the file for each batch.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/array_source.h"
#include "data/loading/stored_dataset.h"
#include "kindling/base/error.h"
#include "kindling/data/array_data.h"
#include "kindling/tensors/state_dict.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "tensors/scalar_types.h"

namespace kindling {
namespace {

constexpr std::int64_t kLargeBytes = std::int64_t{5} << 30;  // more than ArrayData reads into memory

class StoredArrays : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes, std::int64_t file_bytes = 0) {
    const auto path = scratch_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    if (file_bytes > 0) std::filesystem::resize_file(path, static_cast<std::uintmax_t>(file_bytes));
    return path;
  }
  static std::string bytes_of(const at::Tensor& values) {
    return {static_cast<const char*>(values.const_data_ptr()), values.nbytes()};
  }
  // As numpy.save writes it: the values are the first rows, and zeros follow.
  std::string write_npy(const std::string& name, const std::string& type, const at::Tensor& first,
                        std::int64_t num_rows, bool is_column_major = false) {
    std::string shape = std::to_string(num_rows) + ",";
    std::int64_t row_bytes = first.element_size();
    for (const std::int64_t size : first.sizes().slice(1)) {
      shape += " " + std::to_string(size) + ",";
      row_bytes *= size;
    }
    std::string dict = "{'descr': '" + type + "', 'fortran_order': " + (is_column_major ? "True" : "False") +
                       ", 'shape': (" + shape + "), }";
    dict.append(118 - dict.size() - 1, ' ') += '\n';
    return write(name, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + bytes_of(first),
                 128 + num_rows * row_bytes);
  }
  // A large array with these samples first, and classes for all samples.
  ArrayDataOptions large(const at::Tensor& first, const std::string& type = "<f4") {
    const std::int64_t num_rows = kLargeBytes / (first.numel() / first.size(0) * first.element_size());
    return {.file = write_npy("x.npy", type, first, num_rows),
            .labels_file = write_npy("y.npy", "<i8", at::arange(num_rows).remainder(7), num_rows)};
  }
  static std::vector<at::Tensor> batches_of(DataModule& data, std::int64_t epoch, std::int64_t begin,
                                            std::int64_t end) {
    const std::shared_ptr<DataLoader> loader = data.train_dataloader();
    DataLoader::Cursor cursor(*loader);
    cursor.seek(epoch, begin);
    std::vector<at::Tensor> tensors;
    for (Batch batch; begin < end && cursor.next(batch); ++begin) {
      const Batch done = data.on_after_batch_transfer(batch);
      for (const at::Tensor& tensor : done.tensors()) tensors.push_back(tensor.clone());
    }
    return tensors;
  }
  std::string message(const std::function<void()>& call) const {
    std::string text = error_text<Error>(call);
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }

  Scratch scratch_;
};

at::Tensor values_of(at::ScalarType type, at::IntArrayRef shape) {
  const at::Tensor bytes = at::randint(0, 256, shape, at::kByte);
  if (type == at::kBool) return bytes.gt(100);
  if (at::isIntegralType(type, false))
    return (bytes.to(at::kLong) - (at::isSignedType(type) ? 128 : 0)).to(type);
  return at::randn(shape, at::kDouble).to(type);
}

// The rows of the file are those of a small file with the first samples, which is read into memory.
TEST_F(StoredArrays, HaveTheValuesOfArraysInMemoryInEveryType) {
  at::manual_seed(0);
  const std::pair<const char*, at::ScalarType> types[] = {
      {"|b1", at::kBool},   {"|u1", at::kByte}, {"|i1", at::kChar},   {"<i2", at::kShort},
      {"<i4", at::kInt},    {"<i8", at::kLong}, {"<u2", at::kUInt16}, {"<u4", at::kUInt32},
      {"<u8", at::kUInt64}, {"<f2", at::kHalf}, {"<f4", at::kFloat},  {"<f8", at::kDouble}};
  for (const auto& [name, type] : types) {
    const at::Tensor first = values_of(type, {6, 32, 1024});
    const ArrayDataOptions in_file = large(first, name);
    const ArrayDataOptions in_memory{.file = write_npy("few.npy", name, first, 6),
                                     .labels_file = write_npy("few_y.npy", "<i8", at::arange(6), 6)};
    for (const bool is_scaled : {false, true}) {
      const auto batches = [&](ArrayDataOptions options) {
        if (is_scaled) options.divisor = 3, options.normalize = {{0.5, 0.25}};
        ArrayData data(std::move(options), {.batch_size = 4, .shuffle = false, .train = {{0, 6}}});
        return batches_of(data, 0, 0, 2);
      };
      const std::vector<at::Tensor> found = batches(in_file), expected = batches(in_memory);
      ASSERT_EQ(found.size(), 4U) << name;
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same(found[i], expected[i])) << name << i;
    }
  }
}

TEST_F(StoredArrays, AreLoggedAndReadFromTheFile) {
  LogLines log(LogLevel::info);
  const ArrayDataOptions options = large(at::ones({2, 1024, 1024}));
  ArrayData data(options, {.batch_size = 2});
  EXPECT_EQ(data.train_dataloader()->num_samples(), 1280);
  EXPECT_FALSE(data.train_dataloader()->dataset().has_views());
  EXPECT_TRUE(data.train_dataloader()->dataset().is_thread_safe());
  ASSERT_EQ(log.texts.size(), 1U);
  EXPECT_EQ(log.texts[0], "data: " + options.file.string() +
                              ": its 5368709120 bytes stay in the file, from which batches are read");
}

// Under the address sanitizer, up to 256 MB of freed memory stay in quarantine.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kMostAnonymousBytes = 500'000'000;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr std::int64_t kMostAnonymousBytes = 500'000'000;
#else
constexpr std::int64_t kMostAnonymousBytes = 200'000'000;
#endif
#else
constexpr std::int64_t kMostAnonymousBytes = 200'000'000;
#endif

// The bytes of anonymous memory of this process.
std::int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key; status.ignore(1000, '\n'))
    if (std::int64_t kilobytes = 0; key == "RssAnon:" && status >> kilobytes) return kilobytes * 1024;
  return -1;
}

TEST_F(StoredArrays, NeedLittleMemory) {
  constexpr std::int64_t kRows = 1'000'000;  // of 100 kB each
  const at::Tensor first = at::arange(25'000, at::kFloat).unsqueeze(0);
  const std::string x = write_npy("x.npy", "<f4", first, kRows),
                    y = write_npy("y.npy", "<i8", at::ones({1}, at::kLong), kRows);
  const std::int64_t before = anonymous_bytes();
  ArrayData data({.file = x, .labels_file = y, .val_fraction = 0.2}, {.batch_size = 256});
  EXPECT_EQ(batches_of(data, 0, 0, 1).size(), 2U);
  EXPECT_LT(anonymous_bytes() - before, kMostAnonymousBytes);
  EXPECT_EQ(data.val_dataloader()->dataset().size(), 200'000);
}

TEST_F(StoredArrays, ComeInTheSameOrderWithAnyNumberOfWorkersAndAfterAResume) {
  at::manual_seed(0);
  const ArrayDataOptions options = large(at::randn({40, 256, 1024}));
  const auto batches = [&](std::int64_t workers, std::int64_t begin, std::int64_t end) {
    ArrayData data(options, {.batch_size = 4, .train = {{0, 40}}, .num_workers = workers});
    return batches_of(data, /*epoch=*/3, begin, end);
  };
  const std::vector<at::Tensor> expected = batches(0, 0, 10);
  ASSERT_EQ(expected.size(), 20U);
  for (std::int64_t workers = 0; workers <= 3; ++workers) {
    const std::vector<at::Tensor> first = batches(workers, 0, 3), rest = batches(workers, 3, 10);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(same(i < 6 ? first.at(i) : rest.at(i - 6), expected[i])) << workers << " " << i;
  }
}

TEST_F(StoredArrays, AreSplitByClassAndDrawnInBalance) {
  ArrayDataOptions options = large(at::randn({1, 1024, 1024}));
  options.val_fraction = 0.5;
  options.stratify = true;
  ArrayData data(options, {.batch_size = 64, .sampler = "balanced"});
  const at::Tensor labels = dynamic_cast<const StoredDataset&>(data.val_dataloader()->dataset()).labels();
  const at::Tensor counts = labels.bincount();  // 1280 samples, of 7 classes
  EXPECT_GE(counts.min().item<std::int64_t>(), 91);
  EXPECT_LE(counts.max().item<std::int64_t>(), 92);
  EXPECT_NE(data.train_dataloader()->options().sampler, nullptr);
}

TEST_F(StoredArrays, ThatBecomeShorterAreAnErrorOfTheBatch) {
  const ArrayDataOptions options = large(at::ones({1, 1024, 1024}));
  for (const std::int64_t workers : {0, 2}) {
    std::filesystem::resize_file(options.file, 128 + kLargeBytes);
    ArrayData data(options, {.batch_size = 1, .shuffle = false, .num_workers = workers});
    EXPECT_EQ(batches_of(data, 0, 0, 2).size(), 4U);
    std::filesystem::resize_file(options.file, 128 + 100 * (1 << 22) + 5);
    EXPECT_EQ(
        message([&] { batches_of(data, 0, 100, 101); }),
        "sample 100 of the data set, epoch 0: x.npy, byte 419430533: the file ends here; expected: 4194299 "
        "more bytes; the file was truncated: copy or save it again");
    EXPECT_EQ(batches_of(data, 0, 99, 100).size(), 2U);
  }
}

TEST_F(StoredArrays, NameASampleThatFloat32CannotHold) {
  at::Tensor first = at::ones({6, 1024, 512}, at::kDouble);
  first[4][3][2] = 1e300;
  ArrayData data(large(first, "<f8"), {.batch_size = 3, .shuffle = false});
  EXPECT_EQ(batches_of(data, 0, 0, 1).size(), 2U);
  EXPECT_EQ(message([&] { batches_of(data, 0, 1, 2); }),
            "sample 4 of the data set, epoch 0: x.npy: it is Double [1280, 1024, 512]; expected: values that "
            "float32 can hold, up to 3.4e38");
}

TEST_F(StoredArrays, StoredByColumnsNeedMemory) {
  const std::int64_t rows = std::int64_t{1} << 37;
  const std::string y = write_npy("y.npy", "<i8", at::ones({1}, at::kLong), 2),
                    x = write_npy("x.npy", "<f4", at::ones({1, 2}), rows, /*is_column_major=*/true);
  EXPECT_EQ(message([&] { ArrayData({.file = x, .labels_file = y}).prepare(); }),
            "x.npy: it is stored by columns (fortran_order) and has 1099511627776 bytes; expected: an array "
            "stored by rows, or one that fits into memory three times; save numpy.ascontiguousarray(array)");
}

// The other tensor would not fit into memory.
TEST_F(StoredArrays, MayBeNextToALargeTensorThatIsNotRead) {
  const std::string header =
      R"({"x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[2],)"
      R"("data_offsets":[8,10]},"z":{"dtype":"U8","shape":[1000000000000],"data_offsets":[10,1000000000010]}})";
  std::string start(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) start[i] = static_cast<char>(header.size() >> (8 * i));
  const std::string file = write("a.safetensors", start + header + bytes_of(at::ones({2, 1})),
                                 8 + static_cast<std::int64_t>(header.size()) + 1'000'000'000'010);
  ArrayData data({.file = file}, {.batch_size = 2});
  const std::vector<at::Tensor> batch = batches_of(data, 0, 0, 1);
  EXPECT_TRUE(same(batch[0], at::ones({2, 1})));
  EXPECT_TRUE(same(batch[1], at::zeros({2}, at::kLong)));
  EXPECT_TRUE(data.train_dataloader()->dataset().has_views());
}

// All arrays of a request, from memory and from the file.
using Read = std::vector<std::pair<std::string, at::Tensor>>;
Read read_with(const ArrayRequest& request, std::size_t max_bytes, bool are_in_file) {
  Read read;
  const auto files = read_arrays({request}, max_bytes);
  for (const SourceArray& array : files[0]) {
    EXPECT_EQ(array.rows != nullptr, are_in_file && array.values.defined()) << array.name;
    read.emplace_back(array.name, array.values.defined() ? array.all_samples() : at::Tensor());
  }
  return read;
}

TEST_F(StoredArrays, AreFoundInFilesOfEveryKind) {
  const auto seeds = std::filesystem::path(KINDLING_TESTS) / "fuzz/seeds/npy_fuzzer";
  Read all;
  for (const TensorTypeRow& row : kTensorTypes)
    if (row.type != TensorType::complex64 && !row.safetensors.starts_with("F8"))
      all.emplace_back(std::string(row.safetensors), values_of(scalar_type_of(row.type), {5, 3}));
  save_safetensors({.tensors = all, .metadata = {}}, scratch_ / "all.safetensors");
  ArrayRequest every{.file = scratch_ / "all.safetensors", .key = "file"};
  for (const auto& [name, tensor] : all) every.names.insert(name);
  for (const ArrayRequest& request :
       {every, ArrayRequest{.file = seeds / "two.npz", .key = "file", .names = {"x", "y"}},
        ArrayRequest{.file = seeds / "named.npz", .key = "file", .names = {"y"}},
        ArrayRequest{.file = seeds / "floats.npy", .key = "file"}}) {
    const Read in_memory = read_with(request, 1 << 20, false), in_file = read_with(request, 0, true);
    ASSERT_FALSE(in_memory.empty());
    for (const auto& [name, expected] : in_memory) {
      const auto found = std::ranges::find(in_file, name, &Read::value_type::first);
      ASSERT_NE(found, in_file.end()) << name;
      EXPECT_EQ(found->second.defined(), expected.defined()) << name;
      if (expected.defined()) {
        EXPECT_TRUE(same(found->second, expected)) << name;
      }
    }
  }
  for (const ArrayRequest& request :  // their rows are not consecutive in the file
       {ArrayRequest{.file = seeds / "packed.npz", .key = "file", .names = {"a", "b"}},
        ArrayRequest{.file = seeds / "columns.npy", .key = "file"}})
    read_with(request, 0, false);
}

TEST_F(StoredArrays, OfARawFileHaveTheTypeAndShapeOfTheConfig) {
  at::manual_seed(0);
  const std::pair<const char*, at::ScalarType> types[] = {
      {"uint8", at::kByte},   {"int8", at::kChar},         {"int16", at::kShort},   {"int32", at::kInt},
      {"int64", at::kLong},   {"uint16", at::kUInt16},     {"uint32", at::kUInt32}, {"uint64", at::kUInt64},
      {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}, {"float32", at::kFloat}, {"float64", at::kDouble}};
  for (const auto& [name, type] : types) {
    const at::Tensor values = values_of(type, {5, 2, 3});
    const ArrayRequest request{.file = write("x.bin", bytes_of(values)),
                               .key = "file",
                               .raw_samples = std::string(name) + " [2, 3]",
                               .raw_key = "inputs"};
    for (const bool are_in_file : {false, true})
      EXPECT_TRUE(same(read_with(request, are_in_file ? 0 : 1000, are_in_file)[0].second, values)) << name;
  }
  const std::string x = write("x.bin", bytes_of(at::arange(12, at::kFloat))),
                    y = write("y.raw", bytes_of(at::arange(4, at::kInt)));
  ArrayData data({.file = x, .labels_file = y, .inputs = "float32[3]", .labels = "int32"},
                 {.batch_size = 4, .shuffle = false});
  const std::vector<at::Tensor> all = batches_of(data, 0, 0, 1);
  EXPECT_TRUE(same(all[0], at::arange(12, at::kFloat).view({4, 3})));
  EXPECT_TRUE(same(all[1], at::arange(4)));
}

TEST_F(StoredArrays, OfARawFileNeedATypeAndAShape) {
  const std::string x = write("x.bin", std::string(24, '\0')), y = write("y.dat", std::string(8, '\0'));
  const auto refusal = [&](const std::string& inputs) {
    return message(
        [&] { ArrayData({.file = x, .labels_file = y, .inputs = inputs, .labels = "int64"}).prepare(); });
  };
  const std::string hint =
      "; a raw file needs the type and shape of a sample, such as \"float32[3, 64, 64]\"";
  EXPECT_EQ(refusal("x"),
            "data.inputs: the type 'x'; expected: one of uint8, int8, int16, int32, int64, uint16, uint32, "
            "uint64, float16, bfloat16, float32, float64" +
                hint);
  EXPECT_EQ(refusal("float32[2, 0]"), "data.inputs: the size '0'; expected: sizes of at least 1" + hint);
  EXPECT_EQ(refusal("float32[2"),
            "data.inputs: 'float32[2' does not end with ]; expected: a shape in brackets" + hint);
  EXPECT_EQ(refusal("float32[99999999999, 99999999999]"),
            "data.inputs: the shape has more values than any memory; expected: the shape of a sample" + hint);
  EXPECT_EQ(refusal("float32[4]"),
            "x.bin: it has 24 bytes; expected: a multiple of 16, which a sample float32[4] has; check "
            "data.inputs, or copy the file again");
  write("x.bin", "");
  EXPECT_EQ(refusal("float32[3]"),
            "x.bin: it is Float [0, 3]; expected: at least one sample, and values in it");
  EXPECT_EQ(message([&] { ArrayData({.file = x, .inputs = "float32"}).prepare(); }),
            "data.labels_file: it is not set, and a .bin file has one array; expected: a file of the labels");
}

}  // namespace
}  // namespace kindling
