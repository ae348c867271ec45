#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "support/mnist_files.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::vector<std::string> shipped_configs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs))
    if (entry.path().extension() == ".toml" && entry.path().stem() != "sweep")
      names.push_back(entry.path().stem().string());  // not the config of a run
  std::sort(names.begin(), names.end());
  return names;
}

class ShippedConfig : public testing::TestWithParam<std::string> {};

// Those with data of their own are checked as far as the files go.
TEST_P(ShippedConfig, HasNoErrors) {
  const ProgramRun run = run_program({"fit", "--check", "-c", (kConfigs / (GetParam() + ".toml")).string()});
  if (GetParam().find("mnist") != std::string::npos && run.exit_code == 3) {
    EXPECT_NE(run.err.find("train-images-idx3-ubyte[.gz]: no such file"), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
    return;
  }
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, GetParam() + ".toml: no errors, nothing was run\n");
}

TEST_P(ShippedConfig, LeavesTheChoiceOfTheDeviceToTheProgram) {
  const ProgramRun run =
      run_program({"fit", "--print-config", "-c", (kConfigs / (GetParam() + ".toml")).string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("\n# num_gpus = "), std::string::npos) << run.out;
}

// In a process of its own, because some warnings appear once per process.
TEST_P(ShippedConfig, FitsWithoutAWarning) {
  const bool is_mnist = GetParam().find("mnist") != std::string::npos;
  if (is_mnist && !has_mnist()) GTEST_SKIP() << missing_mnist();
  const Scratch scratch;
  const std::string folder = scratch.folder().string();
  std::vector<std::string> words{"fit", (kConfigs / (GetParam() + ".toml")).string(), "run.dir=" + folder};
  if (is_mnist) {
    link_mnist(scratch.folder());
    // 210 steps, more than the warm-up has
    words.insert(words.end(),
                 {"data.root=" + folder, "trainer.limit_train_batches=21", "trainer.limit_val_batches=2"});
  } else {
    words.push_back("trainer.max_epochs=2");
  }
  EXPECT_EQ(run_process(words, scratch / "output.txt"), 0);
  const std::string output = text_of(scratch / "output.txt");
  const std::string log = text_of(scratch / (GetParam() + "/0001/log.txt"));
  EXPECT_NE(output.find("done in "), std::string::npos) << output;
  EXPECT_NE(log.find("finished after epoch "), std::string::npos) << log;
  for (const char* word : {"warning:", "Warning:", "error:"}) {
    EXPECT_EQ(output.find(word), std::string::npos) << output;
    EXPECT_EQ(log.find(word), std::string::npos) << log;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShippedConfig, testing::ValuesIn(shipped_configs()),
                         [](const auto& info) { return info.param; });

class ConfigWithItsData : public testing::TestWithParam<const char*> {};

TEST_P(ConfigWithItsData, TrainsAFirstEpoch) {
  const Scratch scratch;
  const ProgramRun run = run_program({"fit", "-c", (kConfigs / (std::string(GetParam()) + ".toml")).string(),
                                      "--trainer.max_epochs", "1", "--run.dir", scratch.folder().string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err.find("warning"), std::string::npos) << run.err;
  const auto record =
      nlohmann::json::parse(text_of(scratch / (std::string(GetParam()) + "/0001/metrics.jsonl")));
  EXPECT_LT(record["val_loss"].get<double>(), record["train_loss"].get<double>());  // it has learned
}

INSTANTIATE_TEST_SUITE_P(All, ConfigWithItsData,
                         testing::Values("digits", "digits_mlp", "regression", "table"),
                         [](const auto& info) { return std::string(info.param); });

class DigitsConfig : public testing::TestWithParam<int> {};

TEST_P(DigitsConfig, ReachesItsAccuracy) {
  const Scratch scratch;
  const ProgramRun run =
      run_program({"fit", "-c", (kConfigs / "digits.toml").string(), "--seed", std::to_string(GetParam()),
                   "--run.dir", scratch.folder().string(), "--quiet"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto summary = nlohmann::json::parse(text_of(scratch / "digits/0001/run.json"));
  EXPECT_EQ(summary["seed"], GetParam());
  EXPECT_GE(summary["metrics"]["val_acc"].get<double>(), 0.97);  // what the README promises for every seed
}

INSTANTIATE_TEST_SUITE_P(Seeds, DigitsConfig, testing::Range(0, 5));

TEST(MnistConfig, NamesMissingFiles) {
  const Scratch scratch;
  const ProgramRun run = run_program({"fit", "-c", (kConfigs / "mnist_lenet.toml").string(), "--data.root",
                                      scratch.folder().string(), "--run.dir", (scratch / "runs").string()});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_NE(run.err.find((scratch / "train-images-idx3-ubyte[.gz]").string() + ": no such file"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("docs/reference/data_files.md says where"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(scratch / "runs"));  // refused before anything is made
}

TEST(MnistConfig, TrainsOnItsFourFiles) {
  if (!has_mnist()) GTEST_SKIP() << missing_mnist();
  const Scratch scratch;
  link_mnist(scratch.folder());
  const ProgramRun run = run_program({"fit", "-c", (kConfigs / "mnist_lenet.toml").string(), "--data.root",
                                      scratch.folder().string(), "--trainer.limit_train_batches", "3",
                                      "--trainer.limit_val_batches", "2", "--trainer.max_epochs", "1",
                                      "--run.dir", (scratch / "runs").string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(text_of(scratch / "runs/mnist_lenet/0001/metrics.jsonl").find("\"global_step\": 3"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
