#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/arrays/row_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/npy.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr std::array<std::int64_t, 5> kFiveRows{0, 1, 2, 3, 4};

TEST(NpyWriter, WritesTheHeaderFirstAndThenRows) {
  const Scratch scratch;
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto writer = npy_writer(scratch / "p.npy", {.name = "outputs", .row_shape = {1, 2}}, 5);
  const void* at = values.data();
  writer->append({&at, 1}, std::span(kFiveRows).first(2));
  EXPECT_FALSE(std::filesystem::exists(scratch / "p.npy"));
  at = values.data() + 4;
  writer->append({&at, 1}, std::span(kFiveRows).last(3));
  writer->finish();
  const NpyArray array = read_npy(scratch / "p.npy");
  EXPECT_EQ(array.type, TensorType::float32);
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{5, 1, 2}));
  EXPECT_EQ(array.bytes, std::string(reinterpret_cast<const char*>(values.data()), 40));
}

TEST(NpyWriter, LeavesTheFileAloneUntilItIsComplete) {
  const Scratch scratch;
  write_file_atomically(scratch / "p.npy", "old");
  {
    const auto writer = npy_writer(scratch / "p.npy", {.name = "outputs"}, 5);
    const float value = 1;
    const void* const at = &value;
    writer->append({&at, 1}, std::span(kFiveRows).first(1));
  }
  EXPECT_EQ(read_file(scratch / "p.npy", 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.folder()), {}), 1);
  EXPECT_EQ(error_text<DataError>(
                [&] { npy_writer(scratch / "p.npy", {.name = "x", .type = TensorType::bfloat16}, 5); }),
            (scratch / "p.npy").string() +
                ": NumPy does not have the type BF16; expected: such as float32 or int64");
}

}  // namespace
}  // namespace kindling
