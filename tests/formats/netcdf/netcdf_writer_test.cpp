// The grids are those of tests/formats/fixtures/make_netcdf.py.
#include "formats/netcdf/netcdf_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "formats/netcdf/netcdf_array.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/file_size_limit.h"
#include "support/log_lines.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class NetcdfWriters : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_netcdf()) GTEST_SKIP() << "built without NetCDF";
  }
  static std::filesystem::path grid(const std::string& name) {
    return std::filesystem::path(KINDLING_FIXTURES) / "netcdf" / name;
  }
  // The targets are t2m[time, lat, lon].
  void write(const RowOrigin& origin, const std::vector<std::int64_t>& rows,
             const ColumnToWrite& column = {
                 .name = "outputs", .row_shape = {2, 3}, .estimates_targets = true}) {
    values_.resize(rows.size() * column.row_values());
    std::iota(values_.begin(), values_.end(), 0.25F);
    const auto writer =
        netcdf_writer(file_, {&column, 1}, {}, origin, static_cast<std::int64_t>(rows.size()));
    const std::size_t half = rows.size() / 2;
    for (const auto& [begin, count] :
         {std::pair{std::size_t{0}, half}, std::pair{half, rows.size() - half}}) {
      const void* const at = values_.data() + begin * column.row_values();
      writer->append({&at, 1}, std::span(rows).subspan(begin, count));
    }
    writer->finish();
  }
  template <class Value = double>
  std::vector<Value> read(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const StoredArray array = stored_netcdf(file_, {name}, "", NetcdfDecoding::xarray).at(0);
    EXPECT_EQ(array.shape, shape) << name;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(array.shape.at(0)));
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<Value> values(array.size_bytes / sizeof(Value));
    array.rows->read(rows.data(), array.shape[0], reinterpret_cast<char*>(values.data()));
    return values;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const StoredArray& array : stored_netcdf(file_, {"no such name"}, "", NetcdfDecoding::xarray))
      found.push_back(array.name);
    std::ranges::sort(found);
    return found;
  }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(scratch_.folder()), {}));
  }

  const Scratch scratch_;
  const std::filesystem::path file_ = scratch_ / "p.nc";
  std::vector<float> values_{};
};

TEST_F(NetcdfWriters, KeepNamesAndTheCoordinatesOfTheRows) {
  write({.files = {grid("grid_1.nc"), grid("grid_2.nc")}, .array = "t2m", .sample_dim = "time"},
        {1, 4, 5, 6, 9});
  // Without the packing of the targets.
  EXPECT_EQ(read<float>("t2m", {5, 2, 3}), values_);
  EXPECT_EQ(read("time", {5}), (std::vector<double>{1.5, 4.5, 5.5, 6.5, 9.5}));
  EXPECT_EQ(read("time_bnds", {5, 2}), (std::vector<double>{1, 2, 4, 5, 5, 6, 6, 7, 9, 10}));
  EXPECT_EQ(read<float>("lat", {2}), (std::vector<float>{10, 20}));
  EXPECT_EQ(read<float>("lon", {3}), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(read("area", {2, 3}), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(names(),
            (std::vector<std::string>{"area", "crs", "lat", "lon", "season", "t2m", "time", "time_bnds"}));
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(NetcdfWriters, TakeRowsInAnyOrder) {
  write({.files = {grid("grid_1.nc"), grid("grid_2.nc")}, .array = "/t2m"}, {9, 0, 6, 3, 3});
  EXPECT_EQ(read("time", {5}), (std::vector<double>{9.5, 0.5, 6.5, 3.5, 3.5}));
}

TEST_F(NetcdfWriters, TakeOutputsWithASizeOfOneForTheTargets) {
  write({.files = {grid("grid_1.nc")}, .array = "mean"}, {5, 0},
        {.name = "outputs", .row_shape = {1}, .estimates_targets = true});
  EXPECT_EQ(read<float>("mean", {2}), values_);
  EXPECT_EQ(names(), (std::vector<std::string>{"mean", "time", "time_bnds"}));
}

TEST_F(NetcdfWriters, TakeTheTimesOfAnotherFile) {
  write({.files = {grid("grid_1.nc")},
         .array = "mean",
         .sample_files = {grid("grid_2.nc")},
         .sample_array = "t2m"},
        {0, 3}, {.name = "outputs", .estimates_targets = true});
  EXPECT_EQ(read("time", {2}), (std::vector<double>{6.5, 9.5}));
}

TEST_F(NetcdfWriters, TakeTheGridOfThePredictedFile) {
  write({.files = {grid("grid_1.nc")},
         .array = "t2m",
         .sample_files = {grid("other_grid.nc")},
         .sample_array = "t2m"},
        {0, 3});
  EXPECT_EQ(read<float>("lat", {2}), (std::vector<float>{50, 60}));
  EXPECT_EQ(read("time", {2}), (std::vector<double>{10.5, 13.5}));
  write({.files = {grid("grid_1.nc")},
         .array = "t2m",
         .sample_files = {grid("other_grid.nc")},
         .sample_array = "t2m",
         .has_rows = false},
        {0, 3});
  EXPECT_EQ(read<float>("lat", {2}), (std::vector<float>{50, 60}));
  write({.files = {grid("grid_1.nc")}, .array = "t2m", .has_rows = false, .has_coordinates = false}, {0, 1});
  EXPECT_EQ(names(), (std::vector<std::string>{"t2m"}));
}

TEST_F(NetcdfWriters, OmitGridsThatDifferInTheFiles) {
  LogLines log;
  write({.files = {grid("grid_1.nc"), grid("other_grid.nc")}, .array = "t2m"}, {0, 7});
  EXPECT_EQ(names(), (std::vector<std::string>{"crs", "lon", "t2m", "time", "time_bnds"}));
  const std::vector<std::string> omitted{"lat", "area", "season"};
  ASSERT_EQ(log.texts.size(), omitted.size());
  for (std::size_t i = 0; i < omitted.size(); ++i)
    EXPECT_EQ(log.texts[i], "predict: the predictions have no coordinate '" + omitted[i] +
                                "', because it has another type, other units or other values in " +
                                grid("other_grid.nc").string());
}

// The scale of the areas is 1e-8, then 2e-8.
TEST_F(NetcdfWriters, OmitCoordinatesWithSlightlyDifferentScales) {
  const std::string scale = "\x3e\x45\x79\x8e\xe2\x30\x8c\x3a";
  std::string text = read_file(grid("other_grid.nc"), 100'000);
  write_file_atomically(scratch_ / "a.nc", text);
  const std::size_t at = text.find(scale);
  ASSERT_NE(at, std::string::npos);
  text[at + 1] = '\x55';  // twice as large
  write_file_atomically(scratch_ / "b.nc", text);
  write({.files = {scratch_ / "a.nc", scratch_ / "b.nc"}, .array = "t2m"}, {0, 7});
  EXPECT_EQ(names(), (std::vector<std::string>{"crs", "lat", "lon", "t2m", "time", "time_bnds"}));
}

// The second dimension of [lat, time, lon] is the samples'; no row of the file has the state.
TEST_F(NetcdfWriters, HaveNoTimesForSamplesThatAreNoRows) {
  write({.files = {grid("grid_1.nc")}, .array = "t2m", .has_rows = false}, {0, 1});
  EXPECT_EQ(names(), (std::vector<std::string>{"area", "crs", "lat", "lon", "t2m"}));
  write({.files = {grid("grid_1.nc")}, .array = "t2m", .num_row_dims = 2, .has_rows = false}, {0, 1},
        {.name = "outputs", .row_shape = {3}, .estimates_targets = true});
  EXPECT_EQ(names(), (std::vector<std::string>{"crs", "lon", "t2m"}));
}

// The latitudes are float32, and their _FillValue is float64.
TEST_F(NetcdfWriters, CopyCoordinatesOfClassicFiles) {
  write({.files = {grid("other_units.nc")}, .array = "t2m"}, {0, 3});
  EXPECT_EQ(read<float>("lat", {2}), (std::vector<float>{10, 20}));
  EXPECT_EQ(read("time", {2}), (std::vector<double>{0.5, 3.5}));
}

TEST_F(NetcdfWriters, WarnOfUnitsThatDifferAndOfOtherShapes) {
  LogLines log;
  write({.files = {grid("grid_1.nc"), grid("other_units.nc")}, .array = "mean"}, {0, 7},
        {.name = "outputs", .estimates_targets = true});
  EXPECT_EQ(names(), (std::vector<std::string>{"mean"}));
  ASSERT_EQ(log.texts.size(), 1U);
  EXPECT_EQ(log.texts[0],
            "predict: the predictions have no coordinate 'time', because it has another type, other units or "
            "other values in " +
                grid("other_units.nc").string());
  write({.files = {grid("grid_1.nc")}, .array = "mean"}, {0, 1},
        {.name = "outputs", .row_shape = {4}, .estimates_targets = true});
  EXPECT_EQ(names(), (std::vector<std::string>{"outputs", "time", "time_bnds"}));
  EXPECT_EQ(log.texts[1],
            "predict: the predictions have no name, units and grid of 'mean', because its samples have "
            "another shape");
}

// Such as scores of classes.
TEST_F(NetcdfWriters, KeepTimesWithoutEstimatesOfTheTargets) {
  LogLines log;
  write({.files = {grid("grid_1.nc")}, .array = "t2m"}, {2, 5}, {.name = "outputs", .row_shape = {4}});
  EXPECT_EQ(read("time", {2}), (std::vector<double>{2.5, 5.5}));
  EXPECT_EQ(names(), (std::vector<std::string>{"outputs", "season", "time", "time_bnds"}));
  EXPECT_TRUE(log.texts.empty());
}

TEST_F(NetcdfWriters, LeaveTheFileAloneWithoutFinishAndOnAFullDisk) {
  write_file_atomically(file_, "old");
  const ColumnToWrite column{.name = "outputs", .row_shape = {100'000}};
  const std::vector<float> row(100'000);
  const void* const at = row.data();
  const std::vector<std::int64_t> rows(1);
  netcdf_writer(file_, {&column, 1}, {}, {}, 10)->append({&at, 1}, rows);
  EXPECT_EQ(num_files(), 1U);
  {
    const FileSizeLimit limit(200'000);
    const std::string text = error_text<Error>([&] {
      const auto writer = netcdf_writer(file_, {&column, 1}, {}, {}, 10);
      for (int i = 0; i < 10; ++i) writer->append({&at, 1}, rows);
      writer->finish();
    });
    EXPECT_TRUE(text.starts_with(file_.string() + ": writing 'outputs' fails: ")) << text;
  }
  EXPECT_EQ(read_file(file_, 100), "old");
  EXPECT_EQ(num_files(), 1U);
}

}  // namespace
}  // namespace kindling
