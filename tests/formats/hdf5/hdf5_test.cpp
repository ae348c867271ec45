// The files are those of h5py, written by tests/formats/fixtures/make_hdf5.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "formats/hdf5/chunked_rows.h"
#include "formats/hdf5/hdf5_array.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "support/scratch.h"

// HDF5 1.10.8 loses 64 bytes when it refuses a data set of a newer version.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace kindling {
namespace {

using Shape = std::vector<std::int64_t>;

std::filesystem::path hdf5_file(const std::string& name) {
  return std::filesystem::path(KINDLING_FIXTURES) / "hdf5" / name;
}

StoredArray hdf5_array(const std::string& file, const std::string& name) {
  return stored_hdf5(hdf5_file(file), {name}).at(0);
}

// Rows in an order that leaves and enters chunks again.
std::string rows_of(const StoredArray& array, const std::vector<std::int64_t>& rows) {
  std::string bytes(rows.size() * array.size_bytes / static_cast<std::size_t>(array.shape.at(0)), '\0');
  array.rows->read(rows.data(), static_cast<std::int64_t>(rows.size()), bytes.data());
  return bytes;
}

std::string every_row_of(const StoredArray& array) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(array.shape.at(0)));
  std::iota(rows.begin(), rows.end(), 0);
  return rows_of(array, rows);
}

// The bytes of the values in the files.
std::string pattern(std::size_t count, bool is_boolean = false) {
  std::string bytes(count, '\0');
  for (std::size_t j = 0; j < count; ++j) {
    const std::size_t byte = (37 * j + 11) % 256;
    bytes[j] = static_cast<char>(is_boolean ? byte % 2 : byte);
  }
  return bytes;
}

template <class Value>
std::string bytes_of_values(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

class Hdf5 : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_hdf5()) GTEST_SKIP() << "built without HDF5";
  }
  static std::string refusal(const std::string& file, const std::string& name) {
    return refusal_of(hdf5_file(file), name);
  }
  static std::string refusal_of(const std::filesystem::path& path, const std::string& name) {
    try {
      stored_hdf5(path, {name});
    } catch (const DataError& error) {
      const std::string text = error.what(), folder = path.parent_path().string() + "/";
      return text.starts_with(folder) ? text.substr(folder.size()) : text;
    }
    return "";
  }
};

TEST_F(Hdf5, ReadsEveryTypeAsH5pyHasWrittenIt) {
  using enum TensorType;
  struct Case {
    std::string name;
    TensorType type;
    bool is_pair = false;
  };
  std::vector<Case> cases{{"i1", int8},
                          {"u1", uint8},
                          {"bool", boolean},
                          {"enum", int16},
                          {"c8", float32, true},
                          {"big_c16", float64, true},
                          {"real_imag", float32, true}};
  for (const auto& [name, type] : std::vector<std::pair<std::string, TensorType>>{{"i2", int16},
                                                                                  {"u2", uint16},
                                                                                  {"i4", int32},
                                                                                  {"u4", uint32},
                                                                                  {"i8", int64},
                                                                                  {"u8", uint64},
                                                                                  {"f2", float16},
                                                                                  {"f4", float32},
                                                                                  {"f8", float64}}) {
    cases.push_back({name, type});
    cases.push_back({"big_" + name, type});
  }
  for (const Case& each : cases) {
    const StoredArray array = hdf5_array("types.h5", "/types/" + each.name);
    EXPECT_EQ(array.type, each.type) << each.name;
    EXPECT_EQ(array.shape, each.is_pair ? (Shape{7, 5, 2}) : (Shape{7, 5})) << each.name;
    EXPECT_EQ(array.size_bytes, 35 * row_of(each.type).bytes * (each.is_pair ? 2 : 1)) << each.name;
    EXPECT_EQ(every_row_of(array), pattern(array.size_bytes, each.name == "bool")) << each.name;
  }
}

TEST_F(Hdf5, ReadsEveryLayoutAndFilterInAnyOrderOfRows) {
  for (const std::string name :
       {"chunks_2", "chunks_5", "gzip_2", "gzip_5", "shuffle_2", "shuffle_5", "fletcher32_2", "fletcher32_5",
        "all_2", "all_5", "complex", "cube", "line", "library", "virtual", "link"}) {
    const StoredArray array = hdf5_array("types.h5", "layouts/" + name);
    const std::string all = pattern(array.size_bytes);
    EXPECT_EQ(every_row_of(array), all) << name;
    const std::size_t row_bytes = array.size_bytes / static_cast<std::size_t>(array.shape[0]);
    const std::vector<std::int64_t> rows{6, 0, 5, 1, 1, 2, 3, 0};
    std::string expected;
    for (const std::int64_t row : rows)
      expected += all.substr(static_cast<std::size_t>(row) * row_bytes, row_bytes);
    EXPECT_EQ(rows_of(array, rows), expected) << name;
  }
}

// [7, 5, …] as rows [35, …], whose order leaves and enters chunks again.
TEST_F(Hdf5, ReadsPartsOfRows) {
  for (const std::string name : {"cube", "gzip_2", "gzip_5", "types"}) {
    const StoredArray array = hdf5_array("types.h5", name == "types" ? "types/f4" : "layouts/" + name);
    const auto parts = array.rows->divided(5);
    ASSERT_NE(parts, nullptr) << name;
    const std::string all = pattern(array.size_bytes);
    const std::size_t part_bytes = array.size_bytes / 35;
    for (const std::int64_t step : {1, 3, 11, 34}) {
      std::string bytes(array.size_bytes, '\0'), expected;
      std::vector<std::int64_t> rows;
      for (std::int64_t i = 0; i < 35; ++i) {
        rows.push_back(i * step % 35);
        expected += all.substr(static_cast<std::size_t>(rows.back()) * part_bytes, part_bytes);
      }
      parts->read(rows.data(), 35, bytes.data());
      EXPECT_EQ(bytes, expected) << name << ", step " << step;
    }
  }
  EXPECT_EQ(hdf5_array("types.h5", "layouts/cube").rows->divided(3), nullptr);  // not a dimension
  EXPECT_EQ(hdf5_array("types.h5", "layouts/line").rows->divided(5), nullptr);
}

TEST_F(Hdf5, SaysHowManyRowsAreDecodedTogether) {
  EXPECT_EQ(hdf5_array("types.h5", "types/f4").rows->rows_per_chunk(), 1);
  EXPECT_EQ(hdf5_array("types.h5", "layouts/gzip_2").rows->rows_per_chunk(), 3);
  EXPECT_EQ(hdf5_array("types.h5", "layouts/library").rows->rows_per_chunk(), 3);
}

TEST_F(Hdf5, FillsWhatWasNeverWritten) {
  std::vector<std::int32_t> filled(35, 7);
  for (const std::size_t row : {4, 5})
    for (std::size_t column = 0; column < 4; ++column) filled[row * 5 + column] = 1;
  EXPECT_EQ(every_row_of(hdf5_array("other.h5", "filled")), bytes_of_values(filled));
  EXPECT_EQ(every_row_of(hdf5_array("other.h5", "never")), bytes_of_values(std::vector<float>(35, 2.5F)));
}

TEST_F(Hdf5, ReadsAScalar) {
  const StoredArray array = hdf5_array("other.h5", "scalar");
  EXPECT_EQ(array.shape, Shape());
  double value = 0;
  const std::int64_t row = 0;
  array.rows->read(&row, 1, reinterpret_cast<char*>(&value));
  EXPECT_EQ(value, 1.5);
}

TEST_F(Hdf5, ListsAllDataSetsIfOneIsMissing) {
  std::vector<std::string> names;
  for (const StoredArray& array : stored_hdf5(hdf5_file("other.h5"), {"fields/u", "fields/w", ""})) {
    names.push_back(array.name);
    EXPECT_EQ(array.is_requested, array.name == "fields/u");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"fields/u", "dangling", "fields/v", "filled", "long", "lzf",
                                             "never", "nothing", "opaque", "scalar", "table", "text"}));
}

TEST_F(Hdf5, RefusesWhatIsNotAnArrayOfNumbers) {
  const std::string numbers =
      "; expected: booleans, integers or floating-point numbers of at most 8 bytes, or complex numbers";
  EXPECT_EQ(refusal("other.h5", "fields"),
            "other.h5, array 'fields': it is a group; expected: a data set; it has fields/u, fields/v");
  EXPECT_EQ(refusal("other.h5", "text"), "other.h5, array 'text': its values are texts" + numbers);
  EXPECT_EQ(refusal("other.h5", "table"),
            "other.h5, array 'table': its values are structures of 'time', 'count'" + numbers);
  EXPECT_EQ(refusal("other.h5", "long"),
            "other.h5, array 'long': its values are floating-point numbers of 16 bytes" + numbers);
  EXPECT_EQ(refusal("other.h5", "opaque"),
            "other.h5, array 'opaque': its values are opaque values of 2 bytes" + numbers);
  EXPECT_EQ(refusal("other.h5", "nothing"),
            "other.h5, array 'nothing': it has no values; expected: numbers [samples, …]");
  EXPECT_EQ(
      refusal("other.h5", "lzf"),
      "other.h5, array 'lzf': its filter 32000 (lzf) is not installed; expected: gzip, shuffle, "
      "fletcher32 or an installed plugin; set HDF5_PLUGIN_PATH to the folder of the filter's plugin, or "
      "write the data set with compression=\"gzip\"");
  expect_part(refusal("other.h5", "dangling"), "other.h5, array 'dangling': it cannot be opened (");
}

// HDF5 1.10 reads one of the two data sets; HDF5 2 reads both.
TEST_F(Hdf5, NamesTheWayOutOfAFormatThatIsTooNew) {
  EXPECT_EQ(every_row_of(hdf5_array("newer.h5", "plain")), pattern(35 * 4));
  const std::string text = refusal("newer.h5", "gzip");
  if (text.empty()) GTEST_SKIP() << "this HDF5 reads the file";
  expect_part(text, "newer.h5, array 'gzip': it cannot be opened (bad version number for layout message)");
  expect_part(text, "libver=(\"earliest\", \"v110\")");
}

TEST_F(Hdf5, RefusesFilesThatAreNotWholeOrNotClosed) {
  const Scratch scratch;
  const auto copy_of = [&](const std::string& name, std::uintmax_t size) {
    std::filesystem::copy_file(hdf5_file("types.h5"), scratch / name);
    std::filesystem::resize_file(scratch / name, size);
    return refusal_of(scratch / name, "types/f4");
  };
  expect_part(copy_of("cut.h5", 20000), "cut.h5: it has been cut off (truncated file");
  EXPECT_EQ(copy_of("empty.h5", 0),
            "empty.h5: it does not begin as an HDF5 file; expected: a file that HDF5 or h5py has written");
  expect_part(refusal("unclosed.h5", "x"),
              "unclosed.h5: another process is writing it, or was killed while it did (");
  expect_part(refusal("unclosed.h5", "x"), "run h5clear -s ");
  EXPECT_THROW(stored_hdf5(scratch / "none.h5", {"x"}), Error);
}

TEST_F(Hdf5, ReportsADamagedChunk) {
  const Scratch scratch;
  std::ifstream input(hdf5_file("types.h5"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(input), {}};
  // The first chunk of fletcher32_5: the big-endian values of 15 values, of which one bit changes.
  std::string chunk = pattern(60);
  for (std::size_t i = 0; i < chunk.size(); i += 4) std::reverse(&chunk[i], &chunk[i] + 4);
  std::size_t num_found = 0;
  for (std::size_t at = bytes.find(chunk); at != std::string::npos;
       at = bytes.find(chunk, at + 1), ++num_found)
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  ASSERT_GT(num_found, 0U);
  std::ofstream(scratch / "bad.h5", std::ios::binary) << bytes;
  const StoredArray array = stored_hdf5(scratch / "bad.h5", {"layouts/fletcher32_5"}).at(0);
  try {
    every_row_of(array);
    FAIL();
  } catch (const DataError& error) {
    expect_part(error.what(), "bad.h5, array 'layouts/fletcher32_5': a chunk does not have its checksum");
  }
}

TEST(ChunkCache, DecodesEachChunkOnceAndForgetsTheOldest) {
  ChunkCache cache(30);
  int num_decoded = 0;
  const auto get = [&](std::int64_t number) {
    return cache.get({0, number}, 10, [&] { return ++num_decoded, ChunkBytes(10); });
  };
  for (const std::int64_t number : {0, 1, 0, 2, 0}) get(number);
  EXPECT_EQ(num_decoded, 3);
  get(3);  // in place of 1
  EXPECT_EQ(num_decoded, 4);
  for (const std::int64_t number : {0, 2, 3}) get(number);
  EXPECT_EQ(num_decoded, 4);
  get(1);
  EXPECT_EQ(num_decoded, 5);
  EXPECT_THROW(cache.get({1, 0}, 100, []() -> ChunkBytes { throw DataError({.found = "damage"}); }),
               DataError);
  EXPECT_EQ(cache.get({1, 0}, 100, [] { return ChunkBytes(100); })->size, 100U);
}

TEST(ChunkCache, LetsOneOfSeveralThreadsDecode) {
  ChunkCache cache(1 << 20);
  std::atomic<int> num_decoded = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (std::int64_t number = 0; number < 200; ++number)
        cache.get({0, number}, 10, [&] { return ++num_decoded, ChunkBytes(10); });
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_decoded, 200);
}

}  // namespace
}  // namespace kindling
