#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/commands/program_run.h"
#include "cli/data/data_report.h"
#include "data/loading/stored_dataset.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/cli/registry.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "support/log_lines.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// Ten samples, of which the third and the eighth cannot be read.
struct TornSamples : Dataset {
  std::int64_t size() const override { return 10; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    for (std::int64_t i = 0; i < indices.numel(); ++i) {
      const std::int64_t index = indices[i].item<std::int64_t>();
      if (index == 2 || index == 7)
        throw DataError({.place = "sample-" + std::to_string(index) + ".bin", .found = "the file is torn"});
    }
    batch = Batch{indices.to(at::kFloat).unsqueeze(1), indices.remainder(2)};
  }
};

struct TornData : DataModule {
  explicit TornData(DataOptions options) : DataModule(std::move(options)) {}
  std::shared_ptr<DataLoader> train_dataloader() override { return loader; }
  std::shared_ptr<DataLoader> loader =
      std::make_shared<DataLoader>(std::make_shared<TornSamples>(), loader_options(/*train=*/true));
};

TEST(DataCheck, CountsSamplesValuesAndClasses) {
  const ProgramRun run = run_program({"data", "check", "digits"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "set     samples   batches   tensor   dtype   shape       min   max     mean   missing\n"
            "train      1438        23        0   uint8   [1, 8, 8]     0    16    4.895         0\n"
            "                                 1   uint8   []            0     9   4.4903         0\n"
            "val         359         6        0   uint8   [1, 8, 8]     0    16   4.8408         0\n"
            "                                 1   uint8   []            0     9    4.493         0\n"
            "\n"
            "class         train          val\n"
            "0        142 (9.9%)   36 (10.0%)\n"
            "1       146 (10.2%)   36 (10.0%)\n"
            "2        142 (9.9%)    35 (9.7%)\n"
            "3       146 (10.2%)   37 (10.3%)\n"
            "4       145 (10.1%)   36 (10.0%)\n"
            "5       146 (10.2%)   36 (10.0%)\n"
            "6       145 (10.1%)   36 (10.0%)\n"
            "7        143 (9.9%)   36 (10.0%)\n"
            "8        139 (9.7%)    35 (9.7%)\n"
            "9       144 (10.0%)   36 (10.0%)\n");
}

TEST(DataCheck, ReadsTheDataOfAConfigWithoutAModel) {
  const Scratch scratch;
  write_text(scratch / "table.csv", "size,kind,row\n1,a,r1\n2,a,r2\n,b,r3\n4,b,r4\n5,c,r5\n");
  write_text(scratch / "table.toml",
             "[data]\nname = \"csv\"\nfile = \"table.csv\"\nlabel = \"kind\"\nid = \"row\"\ntrain = [0, "
             "4]\nval = [4, 5]\n");
  const ProgramRun run = run_program({"data", "check", (scratch / "table.toml").string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "set     samples   batches   tensor   dtype     shape   min   max     mean   missing\n"
            "train         4         1        0   float64   [1]       1     4   2.3333         1\n"
            "                                 1   int64     []        0     1      0.5         0\n"
            "val           1         1        0   float64   [1]       5     5        5         0\n"
            "                                 1   int64     []        2     2        2         0\n"
            "\n"
            "set     column   kind     min   max     mean   missing\n"
            "train   size     number     1     4   2.3333         1\n"
            "val     size     number     5     5        5         0\n"
            "\n"
            "class       train          val\n"
            "a       2 (50.0%)            0\n"
            "b       2 (50.0%)            0\n"
            "c               0   1 (100.0%)\n"
            "note: class 'c' is in val, but not in train\n");
}

// A sample of 6 MB, so that not all of them are in memory at once.
TEST(DataCheck, ReadsArraysInTheirFilesInPartsAndWarns) {
  const Scratch scratch;
  const at::Tensor values = at::arange(7).view({7, 1, 1}).expand({7, 1500, 1000}).to(at::kFloat).contiguous();
  write_text(scratch / "x.bin", {static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
  const auto rows = std::make_shared<FileRows>(std::make_shared<const InputFile>(scratch / "x.bin"),
                                               /*begin=*/0, values.nbytes() / 7);
  const auto dataset = std::make_shared<StoredDataset>(std::vector<StoredDataset::Column>{
      StoredRows({.source = rows, .like = values}), at::arange(7).remainder(2)});
  const LogLines log;
  const SetReport report = report_of("train", DataLoader(dataset, {.batch_size = 4}), false);
  ASSERT_EQ(report.tensors.size(), 2U);
  EXPECT_EQ(report.tensors[0].shape, (std::vector<std::int64_t>{1500, 1000}));
  EXPECT_EQ(report.tensors[0].max, 6);
  EXPECT_EQ(report.tensors[0].mean, 3);
  EXPECT_EQ(report.classes, (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(log.texts,
            std::vector<std::string>{"train: all samples are read from their files, 42000056 bytes"});
}

TEST(DataCheck, ListsBrokenSamplesAndExitsWith3) {
  Registry registry;
  register_builtin(registry);
  registry.data<TornData>("torn", "samples of which two are torn");
  const ProgramRun run = run_program({"data", "check", "torn"}, registry);
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.out,
            "set     samples   batches   tensor   dtype     shape   min   max   mean   missing\n"
            "train        10         1        0   float32   [1]       0     9    4.5         0\n"
            "                                 1   int64     []        0     1    0.5         0\n"
            "\n"
            "class       train\n"
            "0       4 (50.0%)\n"
            "1       4 (50.0%)\n"
            "broken: train, sample 2: sample-2.bin: the file is torn\n"
            "broken: train, sample 7: sample-7.bin: the file is torn\n");
  const ProgramRun json = run_program({"data", "check", "torn", "--json"}, registry);
  EXPECT_EQ(json.exit_code, 3);
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["num_broken"], 2);
  EXPECT_EQ(report["broken"][1]["index"], 7);
  EXPECT_EQ(report["classes"], (std::vector<int>{4, 4}));
}

TEST(DataCheck, AnUnknownNameHasASuggestion) {
  const ProgramRun run = run_program({"data", "check", "digit"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(
      run.err,
      "command line: data.name=digit: error: unknown name 'digit' in 'data.name'; did you mean 'digits'?\n"
      "1 error, nothing was run\n");
}

TEST(DataCheck, TakesANameNextToAFolderOfThatName) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "digits");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.folder());
  const ProgramRun run = run_program({"data", "show", "digits", "--samples", "1"});
  std::filesystem::current_path(before);
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

struct NoTraining : DataModule {
  explicit NoTraining(DataOptions options) : DataModule(std::move(options)) {}
  std::shared_ptr<DataLoader> train_dataloader() override { return nullptr; }
};

TEST(DataShow, NamesDataWithoutTrainingSamples) {
  Registry registry;
  register_builtin(registry);
  registry.data<NoTraining>("none", "no training samples");
  const ProgramRun run = run_program({"data", "show", "none"}, registry);
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.err, "data: the data has no train_dataloader()\n");
}

TEST(DataShow, PrintsTheFirstSamples) {
  const ProgramRun run = run_program({"data", "show", "digits", "--samples", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "sample   tensor   values\n"
            "     0        0   0 0 5 13 9 1 0 0 … (64 values)\n"
            "              1   0\n"
            "     1        0   0 0 7 15 13 1 0 0 … (64 values)\n"
            "              1   3\n");
}

}  // namespace
}  // namespace kindling
