#include "kindling/formats/npy.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/npz.h"
#include "support/scratch.h"
#include "support/torch_bytes.h"

namespace kindling {
namespace {

// Files that NumPy has written.
std::filesystem::path written_by_numpy(const std::string& name) {
  return std::filesystem::path(KINDLING_FIXTURES) / "../../fuzz/seeds/npy_fuzzer" / name;
}

template <class Value>
std::vector<Value> values_of(const NpyArray& array) {
  std::vector<Value> values(array.bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  return values;
}

using Shape = std::vector<std::int64_t>;

TEST(Npy, ReadsFilesOfNumpy) {
  const NpyArray floats = read_npy(written_by_numpy("floats.npy"));
  EXPECT_EQ(floats.type, TensorType::float32);
  EXPECT_EQ(floats.shape, (Shape{2, 3}));
  EXPECT_FALSE(floats.is_column_major);
  EXPECT_EQ(values_of<float>(floats), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  const NpyArray columns = read_npy(written_by_numpy("columns.npy"));
  EXPECT_EQ(columns.type, TensorType::int64);
  EXPECT_TRUE(columns.is_column_major);
  EXPECT_EQ(values_of<std::int64_t>(columns), (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
  const NpyArray scalar = read_npy(written_by_numpy("scalar.npy"));
  EXPECT_EQ(scalar.shape, Shape{});
  EXPECT_EQ(values_of<double>(scalar), std::vector<double>{3});
}

TEST(Npy, ReadsArchivesOfNumpy) {
  const std::vector<NpyArray> two = read_npz(written_by_numpy("two.npz"));
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].name, "x");
  EXPECT_EQ(two[0].type, TensorType::uint8);
  EXPECT_EQ(two[0].shape, (Shape{2, 2}));
  EXPECT_EQ(two[1].name, "y");
  EXPECT_EQ(values_of<std::int32_t>(two[1]), (std::vector<std::int32_t>{1, 1}));
  const std::vector<NpyArray> packed = read_npz(written_by_numpy("packed.npz"));
  ASSERT_EQ(packed.size(), 2U);
  EXPECT_EQ(values_of<double>(packed[0]).back(), 19);
  EXPECT_EQ(packed[1].type, TensorType::boolean);
}

// A version 1 file with this dict.
std::string npy(const std::string& dict, std::size_t num_bytes) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dict.size() & 0xff);
  file += static_cast<char>(dict.size() >> 8);
  return file + dict + std::string(num_bytes, '\1');
}

std::string npy_refusal(const std::string& bytes) {
  return error_text<DataError>([&] { parse_npy(bytes, "a.npy"); });
}

// Masks and one-hot labels are compressed more than 100 to 1; deflate's own limit is 1,032.
TEST(Npy, ReadsArchivesAsCompressedAsDeflateCan) {
  const std::string masks = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (4000000,), }", 4'000'000);
  std::vector<torch_bytes::ZipPart> parts = {{.name = "x.npy", .bytes = masks}};
  const std::string bytes = torch_bytes::deflated_zip_of(parts);
  ASSERT_GT(masks.size(), 900 * bytes.size());
  const std::vector<NpyArray> arrays = parse_npz(bytes, "a.npz");
  ASSERT_EQ(arrays.size(), 1u);
  EXPECT_EQ(arrays[0].bytes, std::string(4'000'000, '\1'));
  parts[0].directory_size = 1100 * bytes.size();
  EXPECT_NE(error_text<DataError>([&] {
              parse_npz(torch_bytes::deflated_zip_of(parts), "a.npz");
            }).find("a.npz, entry \"x.npy\": it has " + std::to_string(1100 * bytes.size()) + " bytes, and "),
            std::string::npos);
}

TEST(Npy, ReadsHeadersOfOtherWriters) {
  const std::string dict = "{\"shape\":(3,),\"fortran_order\":False,\"descr\":\"<i2\"}";
  EXPECT_EQ(parse_npy(npy(dict, 6), "").shape, Shape{3});
  std::string second("\x93NUMPY\x02\x00", 8);  // four bytes of length
  second += static_cast<char>(dict.size());
  second += std::string(3, '\0') + dict + std::string(6, '\0');
  EXPECT_EQ(parse_npy(second, "").shape, Shape{3});
  EXPECT_EQ(parse_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9), }", 0), "").shape,
            (Shape{0, 9}));
  // NumPy of Python 2: lib/format.py, _filter_header, names these longs.
  const NpyArray of_python2 =
      parse_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L), }", 48), "");
  EXPECT_EQ(of_python2.shape, (Shape{3, 4}));
  EXPECT_EQ(parse_npy(npy("{u'descr': u'<f4', u'fortran_order': True, u'shape': (2L,), }", 8), "").shape,
            Shape{2});
}

TEST(Npy, RefusesDamagedFiles) {
  const auto with = [](const std::string& descr, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }";
  };
  EXPECT_EQ(npy_refusal("text"),
            "a.npy: the file does not begin as a .npy file; expected: a file of numpy.save");
  EXPECT_EQ(
      npy_refusal(npy(with("'<f4'", "(3,)"), 11)),
      "a.npy: the header promises 12 bytes of values, and 11 follow; expected: a complete file with one "
      "array");
  for (const char* shape :
       {"(4611686018427387904, 4611686018427387904)", "(0, 4611686018427387904, 4611686018427387904)"})
    EXPECT_NE(npy_refusal(npy(with("'<f4'", shape), 0)).find("any memory"), std::string::npos) << shape;
  for (const std::string& dict :
       {std::string("{"), with("'<f4'", "(3"), with("'<f4'", "(-3,)"), with("'<f4'", "3"),
        with("'<f4'", "(3,)") + "x", std::string("{'descr': '<f4', 'shape': (3,), }"),
        std::string("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }")})
    EXPECT_NE(npy_refusal(npy(dict, 12)).find("the header is damaged at its character"), std::string::npos)
        << dict;
  std::string long_header = npy(with("'<f4'", "(3,)"), 12);
  long_header[8] = long_header[9] = '\xff';
  EXPECT_NE(npy_refusal(long_header).find("a header of 65535 bytes in a file of"), std::string::npos);
  std::string version = npy(with("'<f4'", "(3,)"), 12);
  version[6] = 9;
  EXPECT_NE(npy_refusal(version).find("version 9 of the .npy format"), std::string::npos);
}

TEST(Npy, RefusesTypesThatAreNotNumbers) {
  const auto of_type = [](const std::string& descr) {
    return npy_refusal(npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,), }", 8));
  };
  EXPECT_EQ(of_type("'>f8'"),
            "a.npy: the type >f8 is big-endian; expected: little-endian values; save array.astype('<f8')");
  EXPECT_NE(of_type("'|O'").find("the array contains Python objects; expected: numbers"), std::string::npos);
  for (const std::string type : {"'<U2'", "'<M8[ns]'", "[('a', '<f4'), ('b', '<f4')]", "'<f16'", "''"})
    EXPECT_NE(of_type(type).find("is not supported"), std::string::npos) << of_type(type);
}

TEST(Npy, NamesTheArrayOfAnArchive) {
  const Scratch scratch;
  const std::array<double, 2> values{1, 2};
  const TensorToWrite array{.name = "x",
                            .type = TensorType::float64,
                            .shape = {2},
                            .data = values.data(),
                            .size_bytes = sizeof(values)};
  write_npz(scratch / "a.npz", std::span(&array, 1));
  EXPECT_EQ(values_of<double>(read_npz(scratch / "a.npz").at(0)), (std::vector<double>{1, 2}));
  std::string bytes = read_file(scratch / "a.npz", 1 << 20);
  bytes.resize(bytes.size() - 3);
  EXPECT_THROW(parse_npz(bytes, "cut"), DataError);
  EXPECT_THROW(read_npz(scratch / "missing.npz"), DataError);
  EXPECT_THROW(read_npy(scratch / "missing.npy"), DataError);
}

}  // namespace
}  // namespace kindling
