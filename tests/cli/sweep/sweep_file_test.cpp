#include "cli/sweep/sweep_file.h"

#include <gtest/gtest.h>

#include "cli/commands/program_run.h"
#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class SweepFiles : public testing::Test {
 protected:
  SweepFile load(const std::string& text) {
    write_text(scratch_ / "base.toml", "seed = 0\n");
    write_text(scratch_ / "lr.toml", text);
    return load_sweep_file(scratch_ / "lr.toml");
  }
  std::string error(const std::string& text) {
    return error_text<ConfigError>([&] { load(text); });
  }
  const Scratch scratch_;
};

TEST_F(SweepFiles, ReadListsCountsAndRanges) {
  const SweepFile file = load(R"([sweep]
config = ["base.toml"]
method = "random"
num_runs = 5
jobs = 3
[parameters]
seed = "0..2"
"model.hidden" = [[64], [64, 32]]
optimizer.name = ["adam", "sgd"]
optimizer.lr = {min = 1e-4, max = 1e-1, log = true}
data.batch_size = {min = 16, max = 64, num = 3}
)");
  EXPECT_EQ(file.jobs, 3);
  EXPECT_EQ(file.dir, "sweeps");
  const SweepDefinition& definition = file.definition;
  EXPECT_EQ(definition.name, "lr");
  EXPECT_EQ(definition.num_runs, 5);
  ASSERT_EQ(definition.configs.size(), 1u);
  EXPECT_EQ(definition.configs[0].path, scratch_ / "base.toml");
  EXPECT_EQ(definition.configs[0].text, "seed = 0\n");
  ASSERT_EQ(definition.parameters.size(), 5u);  // in alphabetical order
  EXPECT_EQ(definition.parameters[0].key, "data.batch_size");
  EXPECT_TRUE(definition.parameters[0].range->is_integer);
  EXPECT_EQ(definition.parameters[0].range->num, 3);
  EXPECT_EQ(definition.parameters[1].key, "model.hidden");
  EXPECT_EQ(definition.parameters[1].values, (std::vector<std::string>{"[64]", "[64, 32]"}));
  EXPECT_EQ(definition.parameters[2].key, "optimizer.lr");
  EXPECT_TRUE(definition.parameters[2].range->is_log);
  EXPECT_FALSE(definition.parameters[2].range->is_integer);
  EXPECT_EQ(definition.parameters[3].values, (std::vector<std::string>{"\"adam\"", "\"sgd\""}));
  EXPECT_EQ(definition.parameters[4].values, (std::vector<std::string>{"0", "1", "2"}));
}

TEST_F(SweepFiles, NameEveryError) {
  EXPECT_NE(error("[parameters]\nseed = [0]\n").find("'sweep.config' is missing"), std::string::npos);
  EXPECT_NE(error("[sweep]\nconfig = [\"base.toml\"]\n").find("[parameters] is missing"), std::string::npos);
  EXPECT_NE(
      error("[sweep]\nconfig = [\"base.toml\"]\nmetod = 1\n[parameters]\nseed = [0]\n").find("'method'"),
      std::string::npos);
  EXPECT_NE(error("[sweep]\nconfig = [\"base.toml\"]\nmonitor = \"a\"\n[parameters]\nseed = [0]\n")
                .find("'sweep.mode' is missing"),
            std::string::npos);
  const std::string text = error(
      "[sweep]\nconfig = [\"base.toml\"]\n[parameters]\nseed = 3\nlr = {min = 0, max = 1, step = 2}\na = "
      "[]\n");
  EXPECT_NE(text.find("lr.toml:4:8"), std::string::npos) << text;
  EXPECT_NE(text.find("'seed': expected a list, \"0..4\" or a table with min and max"), std::string::npos)
      << text;
  EXPECT_NE(text.find("'lr.step': expected min, max"), std::string::npos) << text;
  EXPECT_NE(text.find("'a': the list is empty"), std::string::npos) << text;
}

TEST(SweepWord, SplitsValuesAtCommasOutsideOfBrackets) {
  const auto values = [](const std::string& word) { return parse_sweep_word(word).values; };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(parse_sweep_word("optimizer.lr=1e-4,3e-4").key, "optimizer.lr");
  EXPECT_EQ(values("optimizer.lr=1e-4,3e-4"), (Texts{"1e-4", "3e-4"}));
  EXPECT_EQ(values("model.hidden=[64],[64,32]"), (Texts{"[64]", "[64,32]"}));
  EXPECT_EQ(values("a=\"x,y\",z"), (Texts{"\"x,y\"", "z"}));
  EXPECT_EQ(values("seed=0..4"), (Texts{"0", "1", "2", "3", "4"}));
  EXPECT_EQ(values("seed=-1..1,7"), (Texts{"-1", "0", "1", "7"}));
  EXPECT_EQ(values("data.root=../a"), (Texts{"../a"}));
}

TEST(SweepWord, RefusesOthers) {
  for (const char* word : {"seed", "seed=", "=1", "seed=1,,2", "seed=4..0", "seed=0..9999999",
                           "seed=-9223372036854775808..9223372036854775807"})
    EXPECT_THROW(parse_sweep_word(word), ConfigError) << word;
  EXPECT_EQ(error_text<ConfigError>([] { parse_sweep_word("seed=4..0"); }),
            "--sweep seed: '4..0'; expected: FIRST..LAST with FIRST <= LAST and at most 10000 numbers");
}

}  // namespace
}  // namespace kindling
