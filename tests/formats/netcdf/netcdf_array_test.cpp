#include "formats/netcdf/netcdf_array.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/gzip.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(KINDLING_FIXTURES) / "netcdf";

struct ExpectedValues {
  std::string type{}, bytes{};  // of NumPy, little-endian
  std::string mask{};           // 1: missing, but not as NaN
};

// By "netcdf4/NAME" and "xarray/NAME", as make_netcdf.py writes them.
std::map<std::string, ExpectedValues> values_in_python(const std::string& name) {
  const std::string compressed = read_file(kFolder / name, 1 << 20);
  GzipReader reader(compressed, name);
  std::string text(1 << 20, '\0');
  text.resize(reader.read(text.data(), text.size()));
  std::istringstream lines(text);
  std::map<std::string, ExpectedValues> values;
  for (std::string key, type, hex, mask; lines >> key >> type >> hex >> mask;) {
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    values[key] = {type, bytes, mask};
  }
  return values;
}

std::string read_rows(const StoredArray& array, std::vector<std::int64_t> numbers = {}) {
  if (numbers.empty()) {
    numbers.resize(static_cast<std::size_t>(array.shape[0]));
    std::iota(numbers.begin(), numbers.end(), 0);
  }
  std::string bytes(array.size_bytes / static_cast<std::size_t>(array.shape[0]) * numbers.size(), '\0');
  array.rows->read(numbers.data(), static_cast<std::int64_t>(numbers.size()), bytes.data());
  return bytes;
}

StoredArray described(const fs::path& file, const std::string& name, const std::string& sample_dim = "",
                      NetcdfDecoding decoding = NetcdfDecoding::netcdf4) {
  return stored_netcdf(file, {name}, sample_dim, decoding).at(0);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const DataError& error) {
    std::string text = error.what();
    const std::string folder = kFolder.string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  return "";
}

// The value `i` of bytes of a type. A long double has all of them exactly.
long double value_at(const std::string& type, const std::string& bytes, std::size_t i) {
  const auto as = [&](auto value) {
    std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
    return static_cast<long double>(value);
  };
  switch (type[0] * 10 + type[1] - '0') {
    case 'i' * 10 + 1:
      return as(std::int8_t{});
    case 'u' * 10 + 1:
      return as(std::uint8_t{});
    case 'i' * 10 + 2:
      return as(std::int16_t{});
    case 'u' * 10 + 2:
      return as(std::uint16_t{});
    case 'i' * 10 + 4:
      return as(std::int32_t{});
    case 'u' * 10 + 4:
      return as(std::uint32_t{});
    case 'i' * 10 + 8:
      return as(std::int64_t{});
    case 'u' * 10 + 8:
      return as(std::uint64_t{});
    case 'f' * 10 + 4:
      return as(float{});
    default:
      return as(double{});
  }
}

// Integers that may be missing are rounded to floating-point numbers.
bool are_same(const ExpectedValues& expected, const std::string& type, const std::string& found) {
  for (std::size_t i = 0; i < expected.mask.size(); ++i) {
    const long double value = value_at(type, found, i);
    long double wanted = value_at(expected.type, expected.bytes, i);
    if (type != expected.type)
      wanted = type == "f4" ? static_cast<float>(wanted) : static_cast<double>(wanted);
    const bool is_missing = expected.mask[i] == '1' || std::isnan(wanted);
    if (is_missing ? !std::isnan(value) : value != wanted) return false;
  }
  return true;
}

class NetcdfArrays : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_netcdf()) GTEST_SKIP() << "built without NetCDF";
  }

  const Scratch scratch_;
};

// Every type and packing, also in a compressed file with chunks.
TEST_F(NetcdfArrays, AreThoseOfNetcdf4AndXarray) {
  for (const auto& [file, count] : {std::pair{"packed", 752}, std::pair{"netcdf4", 8}}) {
    int num_compared = 0;
    for (const auto& [key, expected] : values_in_python(std::string(file) + ".txt.gz")) {
      const std::string name = key.substr(key.find('/') + 1);
      const auto decoding = key.starts_with("xarray") ? NetcdfDecoding::xarray : NetcdfDecoding::netcdf4;
      const StoredArray array = described(kFolder / (std::string(file) + ".nc"), name, "n", decoding);
      ASSERT_EQ(array.shape, std::vector<std::int64_t>{8}) << key;
      const std::string type(row_of(array.type).numpy);
      if (expected.type[0] == 'f' || decoding == NetcdfDecoding::xarray) {
        EXPECT_EQ(type, expected.type) << key;
      }
      std::string found;
      const std::string error = refusal([&] { found = read_rows(array); });
      const bool has_missing = expected.mask.find('1') != std::string::npos;
      // Python has a mask for integers that no attribute declares as missing.
      EXPECT_EQ(!error.empty(), has_missing && type[0] != 'f') << key << error;
      if (error.empty()) {
        EXPECT_TRUE(are_same(expected, type, found)) << key;
      } else {
        EXPECT_NE(error.find("which NetCDF fills unwritten parts with"), std::string::npos) << key << error;
      }
      ++num_compared;
    }
    EXPECT_EQ(num_compared, count);
  }
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST_F(NetcdfArrays, AreReadByTheirSamples) {
  for (const char* file : {"fields.nc", "classic.nc"}) {
    const StoredArray by_time = described(kFolder / file, "field");
    EXPECT_EQ(by_time.shape, (std::vector<std::int64_t>{5, 2, 3}));
    EXPECT_EQ(by_time.size_bytes, 120U);
    EXPECT_EQ(floats_of(read_rows(by_time, {3, 4, 1})),
              (std::vector<float>{300, 301, 302, 310, 311, 312, 400, 401, 402, 410, 411, 412, 100, 101, 102,
                                  110, 111, 112}));
    const StoredArray by_lon = described(kFolder / file, "/field", "lon");
    EXPECT_EQ(by_lon.shape, (std::vector<std::int64_t>{3, 5, 2}));
    EXPECT_EQ(floats_of(read_rows(by_lon, {2})),
              (std::vector<float>{2, 12, 102, 112, 202, 212, 302, 312, 402, 412}));
  }
  const StoredArray in_group = described(kFolder / "fields.nc", "forecast/surface/wind", "time");
  EXPECT_EQ(in_group.type, TensorType::int16);
  const std::string bytes = read_rows(in_group, {4});
  std::int16_t last = 0;
  std::memcpy(&last, bytes.data() + 4, sizeof(last));
  EXPECT_EQ(last, 24);
}

TEST_F(NetcdfArrays, NameWhatIsThere) {
  std::vector<std::string> names;
  for (const StoredArray& array :
       stored_netcdf(kFolder / "fields.nc", {"wnd"}, "", NetcdfDecoding::netcdf4)) {
    EXPECT_FALSE(array.is_requested);
    names.push_back(array.name);
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"code", "constant", "field", "forecast/surface/wind", "height",
                                             "kind", "scaled"}));
  const auto error_of = [](const std::string& name, const std::string& dim = "") {
    return refusal([&] { described(kFolder / "fields.nc", name, dim); });
  };
  EXPECT_EQ(
      error_of("height", "time"),
      "fields.nc, variable 'height': it has no dimension 'time' (data.sample_dim); expected: one of its "
      "dimensions, lat, lon");
  EXPECT_EQ(error_of("code"), "fields.nc, variable 'code': its values are texts; expected: numbers");
  EXPECT_EQ(
      error_of("kind"),
      "fields.nc, variable 'kind': its values are of a type of their own (compound, enum, opaque or vlen); "
      "expected: numbers");
  EXPECT_EQ(error_of("constant"),
            "fields.nc, variable 'constant': it is a single value; expected: a dimension of samples");
  EXPECT_EQ(error_of("scaled"),
            "fields.nc, variable 'scaled', attribute 'scale_factor': the text '0.1'; expected: one number");
}

TEST_F(NetcdfArrays, RefuseDamagedFiles) {
  write_text(scratch_ / "text.nc", "no NetCDF");
  EXPECT_NE(refusal([&] { described(scratch_ / "text.nc", "x"); }).find("NetCDF: Unknown file format"),
            std::string::npos);
  // The library reads zeros beyond the end.
  for (const char* name : {"fields.nc", "classic.nc"}) {
    fs::copy_file(kFolder / name, scratch_ / name);
    const StoredArray array = described(scratch_ / name, "field");
    fs::resize_file(scratch_ / name, fs::file_size(scratch_ / name) - 8);
    EXPECT_NE(refusal([&] { read_rows(array); }).find("it has become shorter, from "), std::string::npos)
        << name;
  }
  const std::string cut = refusal([&] { described(scratch_ / "classic.nc", "field"); });
  EXPECT_NE(
      cut.find(
          "it has been cut off: it has 416 bytes; expected: 421 bytes by its header; copy the file again"),
      std::string::npos)
      << cut;
  fs::resize_file(scratch_ / "fields.nc", 2000);
  EXPECT_NE(refusal([&] { described(scratch_ / "fields.nc", "field"); }).find("NetCDF: HDF error"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
