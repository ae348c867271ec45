// `kindling bench step`: the steps of a config.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands/program_run.h"
#include "kindling/models/mlp.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using StepJson = nlohmann::json;

const std::vector<std::string> kFewSteps{"--steps", "6", "--warm-up", "5", "--repeats", "2"};

// Its steps read a number on the host.
class ReadsItsLoss : public Mlp {
 public:
  using Mlp::Mlp;
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = Mlp::training_step(batch);
    return loss.item<float>() > 1e9F ? 2 * loss : loss;
  }
};

// Does not declare a static graph.
class SaysNothing : public Mlp {
 public:
  using Mlp::Mlp;
  bool static_step() const override { return false; }
};

// Its loss is not finite.
class Diverges : public Mlp {
 public:
  using Mlp::Mlp;
  at::Tensor training_step(const Batch& batch) override { return Mlp::training_step(batch) / 0.0; }
};

class StepBenchCommand : public testing::Test {
 protected:
  StepBenchCommand() {
    register_builtin(registry_);
    registry_.model<ReadsItsLoss, MlpOptions>("reads_its_loss");
    registry_.model<SaysNothing, MlpOptions>("says_nothing");
    registry_.model<Diverges, MlpOptions>("diverges");
  }
  // In a separate directory, with batches of 200: 7 full ones of the digits and a shorter one.
  ProgramRun run(const std::string& model, std::vector<std::string> more = kFewSteps) {
    write_text(scratch_ / "digits.toml", "[model]\nname = \"" + model +
                                             "\"\n[data]\nname = \"digits\"\nbatch_size = 200\n[optimizer]\n"
                                             "name = \"adam\"\n[trainer]\nmax_epochs = 1\n");
    more.insert(more.begin(),
                {"bench", "step", "-c", (scratch_ / "digits.toml").string(), "run.dir=" + runs()});
    return run_program(std::move(more), registry_);
  }
  std::vector<StepJson> lines(const std::string& model, std::vector<std::string> more = {}) {
    more.insert(more.end(), kFewSteps.begin(), kFewSteps.end());
    more.push_back("--json");
    const ProgramRun made = run(model, std::move(more));
    EXPECT_EQ(made.exit_code, 0) << made.err;
    std::istringstream text(made.out);
    std::vector<StepJson> all;
    for (std::string line; std::getline(text, line);) all.push_back(StepJson::parse(line));
    EXPECT_EQ(all.size(), 3U);
    return all;
  }
  std::string runs() const { return (scratch_ / "runs").string(); }

  Registry registry_;
  Scratch scratch_;
};

TEST_F(StepBenchCommand, ReportsEagerAndReplayedSteps) {
  const auto all = lines("mlp");
  for (std::size_t i = 0; i < 2; ++i) {
    const StepJson& row = all[i];
    EXPECT_EQ(row["bench"], "step");
    EXPECT_EQ(row["kind"], "result");
    EXPECT_EQ(row["device"], "cpu");
    EXPECT_EQ(row["step_graph"], i == 0 ? "off" : "on");
    EXPECT_EQ(row["recorded"], i == 1);
    EXPECT_EQ(row["why_not_recorded"], i == 0 ? "step_graph is off" : "");
    EXPECT_EQ(row["repeats"], 2);
    for (const std::string time : {"", "cpu_"}) {
      EXPECT_GT(row[time + "min_s"], 0);
      EXPECT_LE(row[time + "min_s"], row[time + "median_s"]);
      EXPECT_LE(row[time + "median_s"], row[time + "max_s"]);
    }
    double shares = 0;
    for (const char* part : {"data", "forward_backward", "update", "log", "rest"}) {
      const double share = row[std::string(part) + "_share"];
      EXPECT_GT(share, 0) << part;
      shares += share;
    }
    EXPECT_NEAR(shares, 1, 1e-6);  // whole nanoseconds of some milliseconds
  }
  const StepJson& summary = all[2];
  EXPECT_EQ(summary["kind"], "summary");
  EXPECT_EQ(summary["steps"], 6);
  EXPECT_EQ(summary["warm_up_steps"], 5);
  EXPECT_EQ(summary["equal_to_the_bit"], true);
  EXPECT_EQ(summary["fit_records"], true);
  EXPECT_DOUBLE_EQ(summary["speed_up"], all[0]["median_s"].get<double>() / all[1]["median_s"].get<double>());
}

TEST_F(StepBenchCommand, ReportsWhyStepsAreNotCaptured) {
  const auto all = lines("reads_its_loss");
  EXPECT_EQ(all[1]["recorded"], false);
  EXPECT_NE(all[1]["why_not_recorded"].get<std::string>().find("the host reads"), std::string::npos)
      << all[1];
  EXPECT_EQ(all[2]["equal_to_the_bit"], true);
  EXPECT_EQ(all[2]["fit_records"], false);
  const ProgramRun table = run("reads_its_loss");
  EXPECT_NE(table.out.find("no: "), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("a fit runs eager steps"), std::string::npos) << table.out;
}

TEST_F(StepBenchCommand, ReportsTheSettingsOfAFit) {
  const auto silent = lines("says_nothing");
  EXPECT_EQ(silent[1]["recorded"], true);  // it is requested here
  EXPECT_EQ(silent[2]["fit_records"], false);
  EXPECT_EQ(lines("says_nothing", {"trainer.step_graph=on"})[2]["fit_records"], true);
  EXPECT_EQ(lines("mlp", {"trainer.step_graph=off"})[2]["fit_records"], false);
}

TEST_F(StepBenchCommand, PrintsATable) {
  const ProgramRun made = run("mlp");
  EXPECT_EQ(made.exit_code, 0) << made.err;
  for (const char* text :
       {"6 steps of digits.toml + 1 override", "eager", "step graph", "CPU time", "forward+backward",
        "clip+update", "no: step_graph is off", "has logged bit-identical values: train_loss "})
    EXPECT_NE(made.out.find(text), std::string::npos) << text << " is not in\n" << made.out;
}

TEST_F(StepBenchCommand, WritesOnlyTheChart) {
  const std::string picture = (scratch_ / "steps.svg").string();
  std::vector<std::string> words = kFewSteps;
  words.insert(words.end(), {"--svg", picture, "checkpoint.every_n_steps=1", "trainer.log_every_n_steps=1"});
  EXPECT_EQ(run("mlp", words).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(runs()));
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_ / ""))
    names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"digits.toml", "steps.svg"}));
  const std::string svg = text_of(picture);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_NE(svg.find("step graph"), std::string::npos);
}

TEST_F(StepBenchCommand, UsesTheRequestedThreadsAndRestoresTheirNumber) {
  const int before = at::get_num_threads();
  EXPECT_EQ(lines("mlp", {"--threads", std::to_string(before + 1)})[0]["threads"], before + 1);
  EXPECT_EQ(lines("mlp", {"trainer.num_threads=" + std::to_string(before + 2)})[0]["threads"], before + 2);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST_F(StepBenchCommand, RefusesWhatFitRefuses) {
  const auto refuses = [&](const std::vector<std::string>& more, const std::string& text, int exit_code) {
    const ProgramRun made = run("mlp", more);
    EXPECT_EQ(made.exit_code, exit_code);
    EXPECT_EQ(made.out, "");
    EXPECT_NE(made.err.find(text), std::string::npos) << made.err;
    std::vector<std::string> fit{"fit", "-c", (scratch_ / "digits.toml").string(), "run.dir=" + runs()};
    fit.insert(fit.end(), more.begin(), more.end());
    EXPECT_EQ(run_program(std::move(fit), registry_).err, made.err);
  };
  refuses({"data.batchsize=3"}, "did you mean 'data.batch_size'?", 2);
  refuses({"model.name=mpl"}, "unknown name 'mpl'", 2);
  refuses({"model.init_weights=/no/such/file.safetensors"}, "/no/such/file.safetensors", 1);
  EXPECT_EQ(run("mlp", {"--steps", "0"}).exit_code, 2);
  EXPECT_EQ(run_program({"bench", "step"}, registry_).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(runs()));
}

TEST_F(StepBenchCommand, ReportsADivergedTraining) {
  const ProgramRun made = run("diverges", {"--steps", "20", "--warm-up", "5"});
  EXPECT_EQ(made.exit_code, 1);
  EXPECT_NE(made.err.find("the run ended after"), std::string::npos) << made.err;
  EXPECT_NE(made.err.find("because it diverged"), std::string::npos) << made.err;
}

}  // namespace
}  // namespace kindling
