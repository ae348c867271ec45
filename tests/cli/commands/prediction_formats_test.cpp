// Predictions that are written in parts: .npy, HDF5 and NetCDF.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands/prediction_writer.h"
#include "cli/commands/program_run.h"
#include "data/loading/array_source.h"
#include "formats/hdf5/hdf5_array.h"
#include "formats/netcdf/netcdf_array.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/live_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> formats_in_parts() {
  std::vector<std::string> formats{".npy"};
  if (can_read_hdf5()) formats.insert(formats.end(), {".h5", ".hdf5"});
  if (can_read_netcdf()) formats.insert(formats.end(), {".nc", ".nc4"});
  return formats;
}

at::Tensor array_in(const fs::path& file, const std::string& name) {
  const auto arrays =
      read_arrays({{.file = file, .key = "file", .names = {name}, .decode = "xarray"}}, 1 << 20);
  return array_named(arrays.at(0), name, file, "inputs").values;
}

std::size_t num_files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

class PredictionFormats : public testing::Test {
 protected:
  // Trains on a fixture, and returns the directory of the run.
  std::string fit(const std::string& folder, const std::string& keys) {
    for (const auto& entry : fs::directory_iterator(fs::path(KINDLING_FIXTURES) / folder))
      fs::copy_file(entry.path(), scratch_ / entry.path().filename().string());
    write_text(scratch_ / "c.toml", "[data]\nname = \"arrays\"\n" + keys +
                                        "[trainer]\nmax_epochs = 1\nnum_threads = 1\nnum_gpus = 0\n");
    const ProgramRun run = run_program({"fit", "-c", scratch_ / "c.toml", "name=small", "--quiet",
                                        "--progress=none", "run.dir=" + scratch_.folder().string()});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return scratch_ / "small/0001";
  }
  ProgramRun predict(const std::string& run, const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"predict", run, "--out", scratch_ / out};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  bool python(const std::string& script) {
    write_text(scratch_ / "check.py", script);
    return std::system(
               ("cd '" + scratch_.folder().string() + "' && " KINDLING_VENV_PYTHON " check.py").c_str()) == 0;
  }
  static bool has_h5py() {
    return std::system((KINDLING_VENV_PYTHON " -c 'import h5py' >/dev/null 2>&1")) == 0;
  }

  Scratch scratch_;
};

TEST_F(PredictionFormats, HaveTheValuesOfNpz) {
  write_text(scratch_ / "c.toml",
             "[model]\nname = \"mlp\"\nhidden = [8]\n[data]\nname = \"digits\"\nbatch_size = 100\n");
  ASSERT_EQ(run_program({"fit", "-c", scratch_ / "c.toml", "name=small", "trainer.max_epochs=1", "--quiet",
                         "--progress=none", "run.dir=" + scratch_.folder().string()})
                .exit_code,
            0);
  for (const std::string what : {"outputs", "probabilities"}) {
    ASSERT_EQ(predict(scratch_ / "small/0001", "p.npz", {"--values", what}).exit_code, 0);
    const at::Tensor expected = array_in(scratch_ / "p.npz", what);
    ASSERT_EQ(expected.sizes(), (at::IntArrayRef{359, 10}));
    for (const std::string& format : formats_in_parts()) {
      const ProgramRun run = predict(scratch_ / "small/0001", "p" + format, {"--values", what});
      ASSERT_EQ(run.out,
                "predictions for 359 samples written to " + (scratch_ / ("p" + format)).string() + "\n")
          << run.err;
      EXPECT_TRUE(array_in(scratch_ / ("p" + format), what).equal(expected)) << format;
      if (format != ".npy") {
        EXPECT_TRUE(
            array_in(scratch_ / ("p" + format), "classes").equal(array_in(scratch_ / "p.npz", "class")))
            << format;
      }
    }
  }
  ASSERT_EQ(predict(scratch_ / "small/0001", "labels.npy", {"--values=labels"}).exit_code, 0);
  EXPECT_TRUE(array_in(scratch_ / "labels.npy", "").equal(array_in(scratch_ / "p.npz", "class")));
}

TEST_F(PredictionFormats, HaveAllClassesOfASample) {
  std::string table = "x,tags\n";
  for (int i = 0; i < 10; ++i) table += "-2,a|b\n-1,\n1,b\n2,a\n";
  write_text(scratch_ / "tags.csv", table);
  write_text(scratch_ / "c.toml",
             "[model]\nname = \"mlp\"\nhidden = [4]\nnum_classes = 2\nmulti_label = true\n[data]\n"
             "name = \"csv\"\nfile = \"tags.csv\"\nlabel = \"tags\"\nlabel_separator = \"|\"\n"
             "val_fraction = 0.5\n[trainer]\nmax_epochs = 1\nnum_threads = 1\nnum_gpus = 0\n");
  const ProgramRun fitted = run_program({"fit", "-c", scratch_ / "c.toml", "name=small", "--quiet",
                                         "--progress=none", "run.dir=" + scratch_.folder().string()});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  for (const std::string format : {".npz", ".h5", ".nc"}) {
    if ((format == ".h5" && !can_read_hdf5()) || (format == ".nc" && !can_read_netcdf())) continue;
    ASSERT_EQ(predict(scratch_ / "small/0001", "p" + format).exit_code, 0) << format;
    const at::Tensor classes = array_in(scratch_ / ("p" + format), "classes");
    EXPECT_EQ(classes.scalar_type(), at::kLong) << format;
    EXPECT_TRUE(classes.equal(array_in(scratch_ / ("p" + format), "outputs").gt(0).to(at::kLong))) << format;
  }
}

// The validation samples are rows of two files.
TEST_F(PredictionFormats, OfNetcdfKeepNamesAndCoordinates) {
  if (!can_read_netcdf()) GTEST_SKIP() << "built without NetCDF";
  const std::string run = fit("netcdf",
                              "file = \"grid_?.nc\"\ninputs = \"t2m\"\nlabels = \"mean\"\nval = [3, 8]\n"
                              "batch_size = 3\n[model]\nname = \"mlp_regressor\"\nhidden = [4]\n");
  ASSERT_EQ(predict(run, "p.npz").exit_code, 0);
  ASSERT_EQ(predict(run, "p.nc").exit_code, 0);
  const at::Tensor times = array_in(scratch_ / "p.nc", "time"), values = array_in(scratch_ / "p.nc", "mean");
  EXPECT_TRUE(values.equal(array_in(scratch_ / "p.npz", "outputs").squeeze(1)));
  EXPECT_TRUE(times.equal(at::tensor({3.5, 4.5, 5.5, 6.5, 7.5}, at::kDouble)));
  // The same rows of all predictions.
  ASSERT_EQ(run_program({"predict", run, scratch_ / "grid_2.nc", "--out", scratch_ / "new.nc"}).exit_code, 0);
  EXPECT_TRUE(array_in(scratch_ / "new.nc", "time").equal(at::tensor({6.5, 7.5, 8.5, 9.5}, at::kDouble)));
  const at::Tensor predicted = array_in(scratch_ / "new.nc", "mean");
  for (std::int64_t i = 0; i < 5; ++i)
    if (const double time = times[i].item<double>(); time > 6) {
      EXPECT_TRUE(at::allclose(values[i], predicted[std::int64_t(time - 6.5)])) << time;
    }
  if (!has_h5py()) GTEST_SKIP() << "no h5py in " KINDLING_VENV_PYTHON;
  EXPECT_TRUE(
      python("import h5py\n"
             "with h5py.File('p.nc') as f:\n"
             "    a = f['mean'].attrs\n"
             "    assert (a['units'], a['cell_methods']) == (b'K', b'area: mean'), dict(a)\n"
             "    assert f['mean'].dims[0].keys() == ['time'] and f.attrs['Conventions'] == b'CF-1.8'\n"
             "    t = f['time'].attrs\n"
             "    assert (t['units'], t['calendar'], t['bounds']) == (b'days since 2000-01-01', b'noleap', "
             "b'time_bnds')\n"
             "    assert f['mean'].dtype == 'f4'\n"));
}

TEST_F(PredictionFormats, OfHdf5KeepAttributesAndRows) {
  if (!can_read_hdf5()) GTEST_SKIP() << "built without HDF5";
  const std::string run = fit(
      "hdf5",
      "file = \"units.h5\"\ninputs = \"flow/x\"\nlabels = \"/flow/speed\"\n"
      "val = [7, 12]\nbatch_size = 2\n[model]\nname = \"mlp_regressor\"\nhidden = [4]\nnum_targets = 3\n");
  ASSERT_EQ(predict(run, "p.npz").exit_code, 0);
  ASSERT_EQ(predict(run, "p.h5").exit_code, 0);
  EXPECT_TRUE(array_in(scratch_ / "p.h5", "outputs").equal(array_in(scratch_ / "p.npz", "outputs")));
  EXPECT_TRUE(array_in(scratch_ / "p.h5", "row").equal(at::arange(7, 12)));
  const std::string once = text_of(scratch_ / "p.h5");
  ASSERT_EQ(predict(run, "p.h5").exit_code, 0);
  EXPECT_EQ(text_of(scratch_ / "p.h5"), once);
  if (!has_h5py()) GTEST_SKIP() << "no h5py in " KINDLING_VENV_PYTHON;
  EXPECT_TRUE(
      python("import h5py\n"
             "with h5py.File('p.h5') as f, h5py.File('units.h5') as s:\n"
             "    a, b = f['outputs'].attrs, s['flow/speed'].attrs\n"
             "    assert sorted(a) == ['axes', 'fixed', 'is_raw', 'units', 'version'], sorted(a)\n"
             "    assert a['units'] == 'm s-1' and a['is_raw'] == True and a['fixed'] == b['fixed']\n"
             "    assert list(a['axes']) == ['x', 'y', 'z'] and list(a['version']) == [0, 1, 2]\n"
             "    assert a['version'].dtype == 'i2' and not f['row'].attrs\n"));
}

TEST_F(PredictionFormats, AreNotWrittenOverTheData) {
  if (!can_read_hdf5()) GTEST_SKIP() << "built without HDF5";
  const std::string run =
      fit("hdf5",
          "file = \"unit?.h5\"\ninputs = \"flow/x\"\nlabels = \"flow/speed\"\nval_fraction = 0.5\n"
          "[model]\nname = \"mlp_regressor\"\nhidden = [4]\nnum_targets = 3\n");
  fs::create_symlink("units.h5", scratch_ / "link.h5");
  const std::string before = text_of(scratch_ / "units.h5");
  for (const std::string name : {"units.h5", "link.h5"}) {
    const ProgramRun refused = predict(run, name);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(
        refused.err.find("--out " + (scratch_ / name).string() +
                         ": it is a file of the data; expected: another file; nothing has been written"),
        std::string::npos)
        << refused.err;
  }
  const ProgramRun matching = predict(run, "unit9.h5");
  EXPECT_EQ(matching.exit_code, 2);
  EXPECT_NE(matching.err.find("it would become a file of the data, "), std::string::npos) << matching.err;
  EXPECT_FALSE(fs::exists(scratch_ / "unit9.h5"));
  EXPECT_EQ(predict(run, "unit9.npy").exit_code, 0);
  fs::copy_file(scratch_ / "units.h5", scratch_ / "new.h5");
  EXPECT_EQ(predict(run, "new.h5", {scratch_ / "new.h5"}).exit_code, 2);
  EXPECT_EQ(text_of(scratch_ / "units.h5"), before);
  EXPECT_EQ(text_of(scratch_ / "new.h5"), before);
}

class WrittenPredictions : public testing::Test {
 protected:
  PredictionWriter::Options options(const std::string& name, std::int64_t count) const {
    return {.file = scratch_ / name, .num_samples = count};
  }
  Scratch scratch_;
};

TEST_F(WrittenPredictions, LeaveNoFileUntilTheyAreComplete) {
  for (const std::string& format : formats_in_parts()) {
    const fs::path file = scratch_ / ("p" + format);
    write_file_atomically(file, "old");
    {
      PredictionWriter writer(options("p" + format, 4));
      writer.write({.name = "outputs", .values = at::ones({2, 3})}, at::arange(2));
      EXPECT_EQ(text_of(file), "old");
      EXPECT_EQ(error_text<DataError>([&] { writer.finish(); }),
                "predict: 2 samples were predicted; expected: 4");
    }
    EXPECT_EQ(text_of(file), "old");
    fs::remove(file);
    EXPECT_EQ(num_files_in(scratch_.folder()), 0U) << format;
  }
}

TEST_F(WrittenPredictions, HoldNoMoreThanABatch) {
  for (const std::string& format : formats_in_parts()) {
    constexpr std::int64_t kBatch = 100, kBatches = 50, kBytes = kBatch * 8 * 4;
    PredictionWriter writer(options("p" + format, kBatch * kBatches));
    const at::Tensor values = at::rand({kBatch, 8}), indices = at::arange(kBatch);
    LiveBytes bytes;
    for (std::int64_t i = 0; i < kBatches; ++i) {
      writer.write({.name = "outputs", .values = values}, indices + i * kBatch);
      EXPECT_EQ(bytes.now(), 0) << format;
    }
    EXPECT_LE(bytes.peak(), kBytes) << format;
    EXPECT_EQ(values.use_count(), 1U) << format;
    writer.finish();
    EXPECT_EQ(array_in(scratch_ / ("p" + format), format == ".npy" ? "" : "outputs").size(0),
              kBatch * kBatches);
  }
}

TEST_F(WrittenPredictions, HaveIdsAsNumbersOrTexts) {
  for (const std::string& format : formats_in_parts()) {
    if (format == ".npy") continue;
    PredictionWriter::Options numbers = options("p" + format, 2);
    numbers.ids = {.name = "id", .values = {"7", "-1", "3"}};
    PredictionWriter writer(numbers);
    writer.write({.name = "outputs", .values = at::ones({2})}, at::arange(2));
    writer.finish();
    EXPECT_TRUE(array_in(scratch_ / ("p" + format), "id").equal(at::tensor({7, -1}, at::kLong))) << format;
    numbers.ids.name = "classes";
    PredictionWriter classes(numbers);
    classes.write({.name = "outputs", .values = at::ones({2}), .classes = at::arange(2)}, at::arange(2));
    classes.finish();
    EXPECT_TRUE(array_in(scratch_ / ("p" + format), "classes").equal(at::arange(2))) << format;
    EXPECT_TRUE(array_in(scratch_ / ("p" + format), "id.classes").equal(at::tensor({7, -1}, at::kLong)));
    numbers.ids.name = "id";
    numbers.ids.values[1] = "x";
    PredictionWriter texts(numbers);
    texts.write({.name = "outputs", .values = at::ones({2})}, at::arange(2));
    texts.finish();
    EXPECT_NE(error_text<DataError>([&] { array_in(scratch_ / ("p" + format), "id"); }).find("texts"),
              std::string::npos);
  }
}

TEST_F(WrittenPredictions, HaveNoGroups) {
  for (const std::string& format : formats_in_parts()) {
    if (format == ".npy") continue;
    for (const std::string id : {"7", "x"}) {
      PredictionWriter::Options options = this->options("p" + format, 1);
      options.ids = {.name = "user/id", .values = {id}};
      PredictionWriter writer(options);
      Predictions batch{.name = "outputs", .values = at::ones({1})};
      batch.more = {{"a/b", at::full({1}, 2.0)}, {"user_id", at::full({1}, 3.0)}};
      writer.write(batch, at::arange(1));
      writer.finish();
      EXPECT_EQ(array_in(scratch_ / ("p" + format), "a_b").item<double>(), 2) << format;
      EXPECT_EQ(array_in(scratch_ / ("p" + format), "output.user_id").item<double>(), 3) << format;
      if (id == "7") {
        EXPECT_EQ(array_in(scratch_ / ("p" + format), "user_id").item<std::int64_t>(), 7) << format;
      } else {
        EXPECT_NE(
            error_text<DataError>([&] { array_in(scratch_ / ("p" + format), "user_id"); }).find("texts"),
            std::string::npos);
      }
    }
  }
}

// Other files can be predicted without those of the training.
TEST_F(WrittenPredictions, NeedNoFileOfTheTargets) {
  if (!can_read_hdf5()) GTEST_SKIP() << "built without HDF5";
  for (const std::string gone : {"gone.h5", "gone_*.h5"}) {
    write_file_atomically(scratch_ / "p.h5", "old");
    require_other_file(scratch_ / "p.h5", {scratch_ / gone});
    PredictionWriter::Options options = this->options("p.h5", 1);
    options.origin = {.file = scratch_ / gone, .array = "y"};
    options.estimates_targets = true;
    PredictionWriter writer(options);
    writer.write({.name = "outputs", .values = at::ones({1})}, at::arange(1));
    writer.finish();
    EXPECT_TRUE(array_in(scratch_ / "p.h5", "outputs").equal(at::ones({1}))) << gone;
  }
}

TEST_F(WrittenPredictions, RefuseWhatAFileCannotHold) {
  for (const std::string& format : formats_in_parts()) {
    PredictionWriter order(options("p" + format, 4));
    EXPECT_EQ(error_text<DataError>([&] {
                order.write({.name = "outputs", .values = at::ones({1})}, at::ones({1}, at::kLong));
              }),
              "predict: sample 1 after 0; expected: 4 samples in the order of the data");
    PredictionWriter shapes(options("p" + format, 4));
    shapes.write({.name = "outputs", .values = at::ones({1, 2})}, at::arange(1));
    EXPECT_EQ(
        error_text<DataError>([&] {
          shapes.write({.name = "outputs", .values = at::ones({1, 3})}, at::arange(1, 2));
        }),
        "predict: 'outputs' of a batch is Float [1, 3]; expected: the types and shapes of the first batch");
    if (format != ".npy") {
      PredictionWriter further(options("p" + format, 2));
      const auto write = [&](std::int64_t sample, std::int64_t size) {
        Predictions batch{.name = "outputs", .values = at::ones({1})};
        batch.more = {{"hidden", at::ones({1, size})}};
        further.write(batch, at::arange(sample, sample + 1));
      };
      write(0, 2);
      EXPECT_EQ(error_text<DataError>([&] { write(1, 3); }),
                "predict: 'hidden' of a batch is Float [1, 3]; expected: the types and shapes of the first "
                "batch; write .npz or .safetensors, which omit such an output");
    }
    PredictionWriter complex(options("p" + format, 1));
    const at::Tensor numbers = at::zeros({1}, at::kComplexFloat);
    const std::string text = error_text<ConfigError>(
        [&] { complex.write({.name = "outputs", .values = numbers}, at::arange(1)); });
    EXPECT_EQ(text, format == ".npy"
                        ? "(no error)"
                        : "--out " + (scratch_ / ("p" + format)).string() +
                              ": 'outputs' has the type ComplexFloat, which the file cannot hold; expected: "
                              "for example --out predictions.npz, or .safetensors");
  }
}

// float32 has all values of bfloat16 and float16.
TEST_F(WrittenPredictions, HaveTransposedHalfValuesAsFloat32) {
  for (const std::string& format : formats_in_parts())
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const at::Tensor values = at::rand({2, 3, 4}).to(type).transpose(1, 2);
      PredictionWriter writer(options("half" + format, 2));
      writer.write({.name = "outputs", .values = values}, at::arange(2));
      writer.finish();
      const at::Tensor written = array_in(scratch_ / ("half" + format), format == ".npy" ? "" : "outputs");
      if (format != ".npy" || type == at::kBFloat16) {
        EXPECT_EQ(written.scalar_type(), at::kFloat) << format;
      }
      EXPECT_TRUE(written.to(at::kFloat).equal(values.to(at::kFloat))) << format << " " << toString(type);
    }
}

}  // namespace
}  // namespace kindling
