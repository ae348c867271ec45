// [optimizer]: every optimizer from a config, with its options.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::map<std::string, std::string> kOptimizerTables{
    {"sgd", "lr = 0.05\nmomentum = 0.8\nnesterov = true"},
    {"adam", "lr = 0.002\namsgrad = true"},
    {"adamw", "lr = 0.002\nbetas = [0.8, 0.99]"},
    {"rmsprop", "lr = 0.0005\nalpha = 0.9\ncentered = true\nmomentum = 0.5"},
    {"adagrad", "lr = 0.02\nlr_decay = 0.001\ninitial_accumulator_value = 0.1"},
    {"adadelta", "rho = 0.8\neps = 1e-4"},
    {"adamax", "lr = 0.003\nweight_decay = 0.01"},
    {"nadam", "lr = 0.003\nmomentum_decay = 0.01\ndecoupled_weight_decay = true"},
    {"radam", "lr = 0.003\nbetas = [0.8, 0.99]"},
    {"lion", "lr = 0.0005\nweight_decay = 0.1"},
    {"lamb", "lr = 0.01\neps = 1e-5"},
    {"muon", "lr = 0.02\nadamw_lr = 0.002\nadjust_lr_fn = \"match_rms_adamw\""},
    {"lbfgs", "lr = 0.5\nmax_iter = 5\nline_search_fn = \"strong_wolfe\""}};

class OptimizerTable : public testing::Test {
 protected:
  ProgramRun fit(const std::string& table, std::vector<std::string> words = {}) {
    write_text(scratch_ / "tiny.toml",
               "[model]\nname = \"mlp\"\nhidden = [8]\n[data]\nname = \"digits\"\nbatch_size = 250\n"
               "[trainer]\nmax_epochs = 2\n[optimizer]\n" +
                   table);
    words.insert(words.begin(),
                 {"fit", "-c", (scratch_ / "tiny.toml").string(), "--run.dir", (scratch_ / "runs").string()});
    return run_program(words);
  }
  const Scratch scratch_;
};

TEST_F(OptimizerTable, TrainsWithEveryRule) {
  int number = 0;
  for (const auto& [name, options] : kOptimizerTables) {
    const ProgramRun run = fit("name = \"" + name + "\"\n" + options);
    ASSERT_EQ(run.exit_code, 0) << name << ": " << run.err;
    char folder[16];
    std::snprintf(folder, sizeof(folder), "%04d", ++number);
    std::istringstream lines(text_of(scratch_ / "runs/tiny" / folder / "metrics.jsonl"));
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);)
      losses.push_back(nlohmann::json::parse(line)["train_loss"].get<double>());
    ASSERT_EQ(losses.size(), 2U) << name;
    EXPECT_LT(losses[1], losses[0]) << name;
  }
}

TEST_F(OptimizerTable, ListsEveryRule) {
  const std::string out = run_program({"list", "optimizers"}).out;
  for (const auto& [name, options] : kOptimizerTables)
    EXPECT_NE(("\n" + out).find("\n" + name + " "), std::string::npos) << name;
}

TEST_F(OptimizerTable, PrintsAllOptions) {
  for (const auto& [name, options] : kOptimizerTables) {
    const ProgramRun run = fit("name = \"" + name + "\"\n" + options, {"--print-config"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    for (std::istringstream lines(options); lines;) {
      std::string key;
      lines >> key;
      if (!key.empty()) {
        EXPECT_NE(run.out.find("\n" + key + " = "), std::string::npos) << name << " " << key;
      }
      lines.ignore(1000, '\n');
    }
  }
}

TEST_F(OptimizerTable, RefusesUnknownOptions) {
  EXPECT_NE(fit("name = \"rmsprop\"\nalhpa = 0.9", {"--check"}).err.find("alpha"), std::string::npos);
  EXPECT_NE(fit("name = \"nadam\"\nbetas = [0.9, 1.0]", {"--check"}).err.find("optimizer.betas"),
            std::string::npos);
  const ProgramRun muon = fit("name = \"muon\"");
  EXPECT_EQ(muon.exit_code, 2) << muon.err;
  EXPECT_NE(muon.err.find("set adamw_lr"), std::string::npos) << muon.err;
}

}  // namespace
}  // namespace kindling
