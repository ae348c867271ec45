#include "formats/hdf5/hdf5_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "formats/hdf5/hdf5_array.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/file_size_limit.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class Hdf5Writers : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_hdf5()) GTEST_SKIP() << "built without HDF5";
  }
  std::string values_of(const std::string& name, std::vector<std::int64_t> shape) const {
    const StoredArray array = stored_hdf5(file_, {name}).at(0);
    EXPECT_EQ(array.shape, shape) << name;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(array.shape.at(0)));
    std::iota(rows.begin(), rows.end(), 0);
    std::string bytes(array.size_bytes, '\0');
    array.rows->read(rows.data(), array.shape[0], bytes.data());
    return bytes;
  }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(scratch_.folder()), {}));
  }

  const Scratch scratch_;
  const std::filesystem::path file_ = scratch_ / "p.h5";
};

template <class Value>
std::string bytes_in(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

TEST_F(Hdf5Writers, AppendBatchesOfAnySize) {
  const std::vector<std::string> ids{"a", "\xc3\xa9", "", "d", "e"};
  const std::vector<ColumnToWrite> columns{
      {.name = "outputs", .row_shape = {2}},
      {.name = "classes", .type = TensorType::int64},
      {.name = "wide", .type = TensorType::float64, .row_shape = {3, 100'000}},  // rows of several chunks
      {.name = "empty", .row_shape = {0}}};
  std::vector<float> outputs(10);
  std::vector<std::int64_t> classes{3, -1, 4, 1, 5};
  std::vector<double> wide(1'500'000);
  std::iota(outputs.begin(), outputs.end(), 0.1F);
  std::iota(wide.begin(), wide.end(), 0.1);
  const auto writer = hdf5_writer(file_, columns, {.name = "id", .texts = ids}, {});
  std::size_t begin = 0;
  for (const std::size_t count : {2U, 0U, 1U, 2U}) {
    const std::vector<std::int64_t> rows(count);
    const std::vector<const void*> values{outputs.data() + 2 * begin, classes.data() + begin,
                                          wide.data() + 300'000 * begin, outputs.data()};
    writer->append(values, rows);
    begin += count;
  }
  EXPECT_FALSE(std::filesystem::exists(file_));
  writer->finish();
  EXPECT_EQ(values_of("outputs", {5, 2}), bytes_in(outputs));
  EXPECT_EQ(values_of("classes", {5}), bytes_in(classes));
  EXPECT_EQ(values_of("wide", {5, 3, 100'000}), bytes_in(wide));
  EXPECT_EQ(values_of("empty", {5, 0}), "");
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(Hdf5Writers, LeaveTheFileAloneWithoutFinishAndOnAFullDisk) {
  write_file_atomically(file_, "old");
  const std::vector<ColumnToWrite> columns{{.name = "outputs", .row_shape = {100'000}}};
  const std::vector<float> row(100'000);
  const void* const at = row.data();
  const std::vector<std::int64_t> rows(1);
  hdf5_writer(file_, columns, {}, {})->append({&at, 1}, rows);
  EXPECT_EQ(num_files(), 1U);
  {
    const FileSizeLimit limit(200'000);
    const std::string text = error_text<Error>([&] {
      const auto writer = hdf5_writer(file_, columns, {}, {});
      for (int i = 0; i < 10; ++i) writer->append({&at, 1}, rows);
      writer->finish();
    });
    EXPECT_TRUE(text.starts_with(file_.string() + ": writing 'outputs' fails (")) << text;
  }
  EXPECT_EQ(read_file(file_, 100), "old");
  EXPECT_EQ(num_files(), 1U);
}

}  // namespace
}  // namespace kindling
