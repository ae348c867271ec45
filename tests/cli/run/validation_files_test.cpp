// The validation report that the program writes at the end of a fit.
#include "cli/run/validation_files.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/program_run.h"
#include "kindling/cli/registry.h"
#include "kindling/data/digits.h"
#include "kindling/formats/csv.h"
#include "kindling/formats/image.h"
#include "kindling/formats/npy.h"
#include "kindling/models/mlp.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
using TextRows = std::vector<std::vector<std::string>>;

TextRows csv_rows_of(const fs::path& file) {
  const std::string text = text_of(file);
  std::string_view rest = text;
  TextRows rows;
  while (!rest.empty()) rows.push_back(take_csv_line(rest));
  return rows;
}

class ValidationFiles : public testing::Test {
 protected:
  fs::path run() const { return scratch_ / "runs/job/0001"; }
  nlohmann::json summary() const { return nlohmann::json::parse(text_of(run() / "run.json")); }
  bool has_files() const {
    return fs::exists(run() / "confusion_matrix.csv") || fs::exists(run() / "worst_predictions.csv");
  }
  ProgramRun fit(const std::string& model_and_data, std::vector<std::string> more = {}) {
    write_text(scratch_ / "job.toml", model_and_data);
    std::vector<std::string> words{"fit",
                                   scratch_ / "job.toml",
                                   "--quiet",
                                   "--progress=none",
                                   "trainer.max_epochs=2",
                                   "trainer.num_gpus=0",
                                   "trainer.num_threads=1",
                                   "run.dir=" + (scratch_ / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words, registry_);
  }
  void SetUp() override { register_builtin(registry_); }

  const Scratch scratch_;
  Registry registry_;
};

const std::string kMlpOnDigits = "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\n";

// The diagonal is what `acc` counts, with the weights that `validate RUN` loads.
TEST_F(ValidationFiles, DescribeTheBestCheckpoint) {
  ASSERT_EQ(fit(kMlpOnDigits, {"optimizer.lr=0.05"}).exit_code, 0);
  const TextRows matrix = csv_rows_of(run() / "confusion_matrix.csv");
  ASSERT_EQ(matrix.size(), 11U);
  EXPECT_EQ(matrix[0], (std::vector<std::string>{"label", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}));
  int all = 0, right = 0;
  for (std::size_t i = 1; i < matrix.size(); ++i)
    for (std::size_t j = 1; j < matrix[i].size(); ++j) {
      all += std::stoi(matrix[i][j]);
      if (i == j) right += std::stoi(matrix[i][j]);
    }
  EXPECT_EQ(all, 359);
  const nlohmann::json report = summary()["validation_report"];
  EXPECT_EQ(report["weights"], "best");
  EXPECT_EQ(report["step"], summary()["checkpoint"]["best_step"]);
  EXPECT_EQ(report["samples"], 359);
  EXPECT_NEAR(right / 359., summary()["checkpoint"]["best_value"].get<double>(), 1e-12);
  double ece = 0;
  const TextRows bins = csv_rows_of(run() / "calibration.csv");
  ASSERT_EQ(bins.size(), 16U);
  for (std::size_t i = 1; i < bins.size(); ++i)
    if (bins[i][3] != "0")
      ece += std::stod(bins[i][3]) / 359 * std::abs(std::stod(bins[i][4]) - std::stod(bins[i][5]));
  EXPECT_NEAR(report["ece"].get<double>(), ece, 1e-12);
  const TextRows worst = csv_rows_of(run() / "worst_predictions.csv");
  ASSERT_EQ(worst.size(), 21U);
  EXPECT_EQ(worst[0],
            (std::vector<std::string>{"sample", "label", "predicted", "probability", "confidence", "loss"}));
  EXPECT_GE(std::stod(worst[1][5]), std::stod(worst[20][5]));
  const std::string page = text_of(run() / "report.html");
  EXPECT_NE(page.find("Confusion matrix of the validation samples"), std::string::npos);
  EXPECT_NE(page.find("Worst predictions of the validation samples"), std::string::npos);
  const NpyArray pictures = read_npy(run() / "worst_pictures.npy");
  EXPECT_EQ(pictures.shape, (std::vector<std::int64_t>{20, 8, 8, 1}));
  EXPECT_NE(pictures.bytes.find(static_cast<char>(240)), std::string::npos) << "16 of 16, brightened";
  if (can_read_png()) {
    EXPECT_NE(page.find("\"Image of sample " + worst[1][0] + ": label "), std::string::npos);
  }
}

// TextRows without a target are omitted, and so the rows after them have other numbers.
TEST_F(ValidationFiles, NameTheRowsOfATable) {
  std::string table = "size,price\n";
  std::vector<std::string> prices{""};
  for (int i = 1; i <= 60; ++i) {
    prices.push_back(i % 7 == 0 ? "" : std::to_string(i * i % 17) + ".1");
    table += std::to_string(i) + "," + prices.back() + "\n";
  }
  write_text(scratch_ / "t.csv", table);
  const ProgramRun run =
      fit("[data]\nname = \"csv\"\nfile = \"" + (scratch_ / "t.csv").string() +
          "\"\ntarget = \"price\"\nval_fraction = 0.3\n[model]\nname = \"mlp_regressor\"\n");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const TextRows worst = csv_rows_of(this->run() / "worst_predictions.csv");
  ASSERT_GT(worst.size(), 10U);
  EXPECT_EQ(worst[0], (std::vector<std::string>{"sample", "row", "target", "predicted", "loss"}));
  for (std::size_t i = 1; i < worst.size(); ++i)
    EXPECT_EQ(worst[i][2], prices.at(static_cast<std::size_t>(std::stoi(worst[i][1])))) << worst[i][1];
  // The mean of the squared residuals is the loss of the best epoch, in the unit of the file.
  const TextRows residuals = csv_rows_of(this->run() / "residuals.csv");
  EXPECT_EQ(residuals.at(0), (std::vector<std::string>{"sample", "row", "target", "predicted", "residual"}));
  double squares = 0;
  for (std::size_t i = 1; i < residuals.size(); ++i) {
    EXPECT_EQ(residuals[i][2], prices.at(static_cast<std::size_t>(std::stoi(residuals[i][1]))));
    squares += std::pow(std::stod(residuals[i][4]), 2);
  }
  const double loss = summary()["checkpoint"]["best_value"].get<double>();
  EXPECT_NEAR(squares / static_cast<double>(residuals.size() - 1), loss, 1e-5 * loss);  // of float32
  EXPECT_EQ(summary()["validation_report"]["samples"], residuals.size() - 1);
  EXPECT_FALSE(fs::exists(this->run() / "confusion_matrix.csv"));
}

TEST_F(ValidationFiles, AreMissingWithoutValidationSamples) {
  ASSERT_EQ(fit(kMlpOnDigits, {"trainer.limit_val_batches=0"}).exit_code, 0);
  EXPECT_FALSE(has_files());
  EXPECT_FALSE(summary().contains("validation_report"));
}

class InterruptsItself : public Callback {
 public:
  void on_epoch_end(Trainer&, Module&, const Record& record) override {
    if (record.epoch == 1) std::raise(SIGINT);
  }
};

TEST_F(ValidationFiles, AreThoseOfTheWeightsAtTheEndOfAResumedRun) {
  registry_.callback<InterruptsItself>("interrupts");
  ASSERT_EQ(fit(kMlpOnDigits + "[callbacks.interrupts]\n").exit_code, 130);
  EXPECT_FALSE(has_files());
  write_text(run() / "worst_predictions.csv", "of an earlier end\n");
  ASSERT_EQ(
      run_program({"fit", "--resume", run().string(), "--progress=none", "--quiet"}, registry_).exit_code, 0);
  EXPECT_EQ(csv_rows_of(run() / "worst_predictions.csv").size(), 21U);
}

TEST_F(ValidationFiles, DescribeTheLastWeightsWithoutACheckpoint) {
  Digits data;
  const auto model = std::make_shared<Mlp>();
  Trainer trainer({.max_epochs = 1, .num_gpus = 0});
  trainer.fit(model, data);
  const EndedRun ended{.model = model, .data = data, .global_step = 45};
  const auto evaluated = evaluate_ended_run(trainer, ended);
  ASSERT_TRUE(evaluated.has_value());
  EXPECT_EQ(evaluated->summary.weights, "last");
  EXPECT_EQ(evaluated->summary.step, 45);
  EXPECT_EQ(evaluated->summary.samples, 359);
  EXPECT_TRUE(evaluated->summary.ece.has_value());
  trainer.stop_token().request_stop();  // as a signal does
  EXPECT_TRUE(evaluate_ended_run(trainer, ended).value().is_interrupted);
}

// What its derived classes do in the pass of the report.
class AtItsEnd : public Mlp {
 public:
  void validation_step(const Batch& batch) override {
    is_validating_ = true;
    Mlp::validation_step(batch);
    is_validating_ = false;
  }
  at::Tensor forward(const at::Tensor& inputs) override {
    if (!is_training() && !is_validating_ && trainer().global_step() > 0) act();
    return Mlp::forward(inputs);
  }

 private:
  virtual void act() = 0;
  bool is_validating_ = false;
};

class OnlyInSteps : public AtItsEnd {
  void act() override { throw std::runtime_error("only in steps"); }
};
class InterruptedAtItsEnd : public AtItsEnd {
  void act() override {
    if (!std::exchange(has_acted_, true)) std::raise(SIGINT);
  }
  bool has_acted_ = false;
};

TEST_F(ValidationFiles, AreMadeByTheResumedRunAfterASignalInTheirPass) {
  registry_.model<InterruptedAtItsEnd>("interrupted");
  const ProgramRun stopped =
      fit("[model]\nname = \"interrupted\"\n[data]\nname = \"digits\"\nbatch_size = 16\n");
  EXPECT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_EQ(summary()["status"], "stopped");
  const auto steps = summary()["global_step"];
  EXPECT_FALSE(has_files());
  EXPECT_NE(text_of(run() / "log.txt").find("the validation report is not made, because a signal"),
            std::string::npos);
  Registry resumed;
  register_builtin(resumed);
  resumed.model<Mlp>("interrupted");
  EXPECT_EQ(run_program({"fit", "--resume", run().string(), "--progress=none", "--quiet"}, resumed).exit_code,
            0);
  EXPECT_EQ(summary()["status"], "finished");
  EXPECT_EQ(summary()["global_step"], steps);
  EXPECT_TRUE(has_files());
}

TEST_F(ValidationFiles, AreMissingAfterASignalInThePassOfARunThatStoppedEarly) {
  registry_.model<InterruptedAtItsEnd>("interrupted");
  const ProgramRun run =
      fit("[model]\nname = \"interrupted\"\n[data]\nname = \"digits\"\nbatch_size = 16\n"
          "[early_stopping]\nmonitor = \"val_loss\"\nmode = \"min\"\nmin_delta = 1000.0\npatience = 1\n",
          {"trainer.max_epochs=5"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(summary()["reason"], "early_stop");
  EXPECT_FALSE(has_files());
}

TEST_F(ValidationFiles, DoNotFailTheRun) {
  registry_.model<OnlyInSteps>("only_in_steps");
  const ProgramRun run = fit("[model]\nname = \"only_in_steps\"\n[data]\nname = \"digits\"\n");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(summary()["status"], "finished");
  EXPECT_FALSE(has_files());
  EXPECT_NE(text_of(this->run() / "log.txt").find("the validation report cannot be made: only in steps"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
