// Samples from the HDF5 files of h5py that tests/formats/fixtures/make_hdf5.py writes.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/loading/array_source.h"
#include "data/loading/chunk_sampler.h"
#include "data/loading/file_pattern.h"
#include "data/loading/stored_dataset.h"
#include "formats/hdf5/hdf5_array.h"
#include "kindling/base/error.h"
#include "kindling/data/array_data.h"
#include "kindling/data/data_loader.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class Hdf5Arrays : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_hdf5()) GTEST_SKIP() << "built without HDF5";
    for (const char* name : {"part_a.h5", "part_b.h5", "part_other_type.h5"})
      fs::copy_file(fs::path(KINDLING_FIXTURES) / "hdf5" / name, scratch_ / name);
  }
  // `max_bytes`: 0: the rows stay in the files.
  std::vector<SourceArray> arrays_of(const std::string& file, std::size_t max_bytes) const {
    return read_arrays({{.file = scratch_ / file, .key = "file", .names = {"run/x", "run/y"}}}, max_bytes)
        .at(0);
  }
  static at::Tensor expected_inputs(std::int64_t begin, std::int64_t end) {
    return at::arange(begin, end, at::kFloat).unsqueeze(1) + at::tensor({0.F, 0.5F});
  }
  std::string message(const ArrayDataOptions& options, const DataOptions& shared = {}) const {
    std::string text = error_text<Error>([&] { ArrayData(options, shared).prepare(); });
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  ArrayDataOptions options(const std::string& file) const {
    return {.file = scratch_ / file, .inputs = "run/x", .labels = "/run/y"};
  }

  Scratch scratch_;
};

TEST_F(Hdf5Arrays, AreTheSameInMemoryAndInTheFile) {
  for (const std::string file : {"part_a.h5", "part_?.h5"}) {
    const std::int64_t count = file == "part_a.h5" ? 10 : 16;
    for (const std::size_t max_bytes : {std::size_t{0}, std::size_t{1} << 20}) {
      const auto arrays = arrays_of(file, max_bytes);
      const SourceArray& x = array_named(arrays, "run/x", file, "inputs");
      EXPECT_EQ(x.rows == nullptr, max_bytes > 0) << file;
      EXPECT_TRUE(at::equal(x.all_samples(), expected_inputs(0, count))) << file;
      EXPECT_TRUE(at::equal(array_named(arrays, "run/y", file, "labels").all_samples(),
                            at::arange(count).remainder(3)))
          << file;
      // Chunks of 4 samples, which begin again in the second file.
      EXPECT_EQ(x.chunk_starts, count == 10 ? (std::vector<std::int64_t>{0, 4, 8})
                                            : (std::vector<std::int64_t>{0, 4, 8, 10, 14}));
    }
  }
}

TEST_F(Hdf5Arrays, TrainFromSeveralFilesByPattern) {
  fs::create_directories(scratch_ / "runs/1");
  fs::create_directories(scratch_ / "runs/2");
  fs::rename(scratch_ / "part_a.h5", scratch_ / "runs/1/out.h5");
  fs::rename(scratch_ / "part_b.h5", scratch_ / "runs/2/out.h5");
  ArrayData data(options("runs/*/out.h5"), {.batch_size = 16, .shuffle = false});
  data.prepare();
  for (const Batch& batch : *data.train_dataloader()) {
    EXPECT_TRUE(at::equal(batch.tensors()[0], expected_inputs(0, 16)));
    EXPECT_TRUE(at::equal(batch.tensors()[1], at::arange(16).remainder(3)));
  }
  EXPECT_EQ(files_of(scratch_ / "runs/?/*.h5"),
            (std::vector<fs::path>{scratch_ / "runs/1/out.h5", scratch_ / "runs/2/out.h5"}));
}

TEST_F(Hdf5Arrays, RefuseWhatDoesNotFitTogether) {
  EXPECT_EQ(message(options("part_*.h5")),
            "part_other_type.h5, array 'run/x': it is Double [4, 2]; expected: samples like those of "
            "part_a.h5, Float [10, 2]");
  EXPECT_EQ(message(options("none_*.h5")),
            "none_*.h5: no file has such a name; expected: a pattern of files, in which * matches any "
            "characters; relative paths are relative to the config file's directory");
  ArrayDataOptions wrong = options("part_a.h5");
  wrong.inputs = "run/z";
  EXPECT_EQ(message(wrong),
            "data.inputs: part_a.h5 has no array 'run/z'; expected: one of /run/y, run/x; did you mean "
            "'run/x'?");
  wrong.inputs = "run";
  EXPECT_EQ(message(wrong),
            "part_a.h5, array 'run': it is a group; expected: a data set; it has run/x, run/y");
}

// Orders of chunks of 4: those of the files are [0, 4), [4, 8), [8, 10), [10, 14), [14, 16).
TEST_F(Hdf5Arrays, ShuffleChunksAndTheSamplesWithin) {
  const auto arrays = arrays_of("part_?.h5", 0);
  const SourceArray& x = array_named(arrays, "run/x", "part_?.h5", "inputs");
  const auto sampler = chunk_sampler(x, nullptr, {.num_mixed = 1, .seed = 3});
  const auto chunk_of = [](std::int64_t i) { return i < 10 ? i / 4 : i < 14 ? 3 : 4; };
  std::vector<at::Tensor> orders;
  for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
    const at::Tensor order = sampler->order(epoch);
    EXPECT_TRUE(at::equal(std::get<0>(order.sort()), at::arange(16)));
    std::int64_t num_changes = 0;
    for (std::int64_t i = 1; i < 16; ++i)
      if (chunk_of(order[i].item<std::int64_t>()) != chunk_of(order[i - 1].item<std::int64_t>()))
        ++num_changes;
    EXPECT_EQ(num_changes, 4);  // each chunk comes once
    EXPECT_TRUE(at::equal(order, chunk_sampler(x, nullptr, {.num_mixed = 1, .seed = 3})->order(epoch)));
    for (const at::Tensor& other : orders) EXPECT_FALSE(at::equal(order, other));
    orders.push_back(order);
  }
  // All chunks together are a whole shuffle; of a part of the samples, positions in it are chosen.
  const std::vector<std::int64_t> chosen{1, 2, 9, 15};
  const at::Tensor part = chunk_sampler(x, &chosen, {.num_mixed = 9, .seed = 3})->order(0);
  EXPECT_TRUE(at::equal(std::get<0>(part.sort()), at::arange(4)));
}

TEST_F(Hdf5Arrays, ContinueInMidEpochWithAnyNumberOfWorkers) {
  const auto arrays = arrays_of("part_?.h5", 0);
  const SourceArray& x = array_named(arrays, "run/x", "part_?.h5", "inputs");
  const auto dataset = std::make_shared<StoredDataset>(
      std::vector<StoredDataset::Column>{StoredRows({.source = x.rows, .like = x.values}), at::arange(16)});
  for (const bool by_chunks : {false, true}) {
    DataLoaderOptions loader{.batch_size = 3, .shuffle = true, .seed = 5};
    if (by_chunks) loader.sampler = chunk_sampler(x, nullptr, {.num_mixed = 2, .seed = 5});
    const auto batches_from = [&](std::int64_t begin, std::int64_t workers) {
      loader.num_workers = workers;
      DataLoader data(dataset, loader);
      DataLoader::Cursor cursor(data);
      cursor.seek(/*epoch=*/2, begin);
      std::vector<at::Tensor> rows;
      for (Batch batch; cursor.next(batch);) {
        const at::Tensor number = batch.tensors()[1].to(at::kFloat);
        EXPECT_TRUE(at::equal(batch.tensors()[0], number.unsqueeze(1) + at::tensor({0.F, 0.5F})));
        rows.push_back(number.clone());
      }
      return at::cat(rows);
    };
    const at::Tensor whole = batches_from(0, 0);
    EXPECT_EQ(whole.size(0), 16);
    for (std::int64_t workers = 0; workers <= 3; ++workers) {
      EXPECT_TRUE(at::equal(batches_from(0, workers), whole)) << workers;
      EXPECT_TRUE(at::equal(batches_from(2, workers), whole.slice(0, 6))) << workers;
    }
  }
}

TEST_F(Hdf5Arrays, ShuffleChunksOfArraysInMemoryAndRefuseOthers) {
  ArrayDataOptions chunks = options("part_a.h5");
  chunks.shuffle_chunks = 1;
  ArrayData data(chunks, {.batch_size = 10});
  data.prepare();
  for (const Batch& batch : *data.train_dataloader())
    EXPECT_FALSE(at::equal(batch.tensors()[0], expected_inputs(0, 10)));
  EXPECT_EQ(
      message(chunks, {.shuffle = false}),
      "data.shuffle_chunks: it is set, and weights, sampler or shuffle = false, too; expected: one order "
      "of the samples");
  chunks.inputs = "run/y";
  EXPECT_EQ(
      message(chunks),
      "part_a.h5, array 'run/y': its samples are not stored in chunks; expected: a chunked data set of an "
      "HDF5 file, or several files; omit data.shuffle_chunks");
}

}  // namespace
}  // namespace kindling
