#include "kindling/formats/npz.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr std::array<float, 6> kSixFloats{0.5f, -1.0f, 2.0f, 3.0f, 4.0f, 5.25f};

TensorToWrite six_floats(const std::string& name, std::vector<std::int64_t> shape) {
  return {.name = name,
          .type = TensorType::float32,
          .shape = std::move(shape),
          .data = kSixFloats.data(),
          .size_bytes = sizeof kSixFloats};
}

void expect_refused(const std::vector<TensorToWrite>& arrays, const std::string& text) {
  const Scratch scratch;
  try {
    write_npz(scratch / "a.npz", arrays);
    ADD_FAILURE() << "not refused: " << text;
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "a.npz"));
}

TEST(Npz, HasTheLayoutOfNumPy) {
  const Scratch scratch;
  write_npz(scratch / "a.npz", std::vector{six_floats("x", {2, 3})});
  const std::string bytes = read_file(scratch / "a.npz", 10000);
  EXPECT_EQ(bytes.substr(0, 4), "PK\x03\x04");
  const std::size_t npy = bytes.find("\x93NUMPY");
  ASSERT_NE(npy, std::string::npos);
  EXPECT_EQ(bytes.substr(npy + 6, 4), std::string("\x01\x00\x76\x00", 4));
  EXPECT_EQ(bytes.substr(npy + 10, 59), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  EXPECT_EQ(bytes[npy + 127], '\n');
  EXPECT_EQ(bytes.substr(npy + 128, 24),
            std::string(reinterpret_cast<const char*>(kSixFloats.data()), sizeof kSixFloats));
}

TEST(Npz, IsReadByNumPy) {
  const std::string python = KINDLING_VENV_PYTHON;
  if (std::system((python + " -c 'import numpy' >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "no numpy in " << python;
  const Scratch scratch;
  const std::array<std::int64_t, 2> numbers{7, -9007199254740993};
  const std::vector<std::string> ids{"n1", "", "Z\xc3\xbcrich, \xf0\x9f\x8f\xa0", "a\xff"};
  write_npz(scratch / "a.npz",
            std::vector<TensorToWrite>{six_floats("x", {1, 2, 3}),
                                       {.name = "n",
                                        .type = TensorType::int64,
                                        .shape = {2},
                                        .data = numbers.data(),
                                        .size_bytes = sizeof numbers},
                                       six_floats("with space", {6}),
                                       {.name = "empty", .shape = {0, 4}}},
            std::vector<TextsToWrite>{{.name = "id", .texts = ids}, {.name = "none"}});
  const std::string script =
      "import numpy as np, sys; f = np.load(sys.argv[1]); assert sorted(f.files) == ['empty', 'id', 'n', "
      "'none', "
      "'with space', 'x'], f.files; assert f['x'].dtype == np.float32 and f['x'].tolist() == [[[0.5, -1, 2], "
      "[3, 4, "
      "5.25]]]; assert f['n'].tolist() == [7, -9007199254740993]; assert f['empty'].shape == (0, 4); "
      "assert f['id'].tolist() == ['n1', '', 'Z\u00fcrich, \U0001F3E0', 'a\ufffd'], f['id']; assert "
      "f['none'].shape == (0,)";
  EXPECT_EQ(std::system((python + " -c \"" + script + "\" '" + (scratch / "a.npz").string() + "'").c_str()),
            0);
}

TEST(Npz, RefusesWhatNumPyCannotRead) {
  expect_refused({six_floats("x", {6}), six_floats("x", {6})}, "two arrays have this name");
  expect_refused({six_floats("a/b", {6})}, "'/'");
  expect_refused({six_floats("", {6})}, "the name is empty");
  expect_refused({six_floats("x", {5})}, "24 bytes; expected: 20 for the shape [5]");
  TensorToWrite half = six_floats("x", {12});
  half.type = TensorType::bfloat16;
  expect_refused({half}, "NumPy does not have the type BF16");
}

}  // namespace
}  // namespace kindling
