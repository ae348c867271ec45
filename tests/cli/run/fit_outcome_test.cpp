// How a run ends, with custom models, data and callbacks.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/commands/program_run.h"
#include "kindling/cli/registry.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// The numbers 0…8 in batches of the config, for training and for validation.
class NineNumbers : public DataModule {
 public:
  using DataModule::DataModule;
  std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_of({numbers_, numbers_}); }
  std::shared_ptr<DataLoader> val_dataloader() override { return val_loader_of({numbers_, numbers_}); }

 private:
  at::Tensor numbers_ = at::arange(9, at::kFloat).unsqueeze(1);
};

// Samples that the data module draws in its constructor and in prepare().
class DrawnNumbers : public DataModule {
 public:
  explicit DrawnNumbers(const DataOptions& options) : DataModule(options), numbers_(at::rand({6, 1})) {}
  void prepare_data() override { numbers_ = at::cat({numbers_, at::rand({3, 1})}); }
  std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_of({numbers_, numbers_}); }
  std::shared_ptr<DataLoader> val_dataloader() override { return val_loader_of({numbers_, numbers_}); }

 private:
  at::Tensor numbers_;
};

// The samples that the latest model has received.
struct Seen {
  std::vector<float> train;
  int num_val_batches = 0;
} seen;

class SeeingModel : public Module {
 public:
  SeeingModel() : weight_(register_parameter("weight", at::zeros({1}))) { seen = {}; }
  at::Tensor forward(const at::Tensor& x) override { return x * weight_; }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
    return (y - labels).abs().mean();
  }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor values = batch[0].flatten();
    for (std::int64_t i = 0; i < values.numel(); ++i) seen.train.push_back(values.const_data_ptr<float>()[i]);
    return Module::training_step(batch);
  }
  void validation_step(const Batch& batch) override {
    ++seen.num_val_batches;
    Module::validation_step(batch);
  }

 private:
  at::Tensor weight_;
};

class InterruptedModel : public SeeingModel {
 public:
  void validation_step(const Batch& batch) override {
    SeeingModel::validation_step(batch);
    if (seen.num_val_batches == 2) std::raise(SIGINT);
  }
};

class DivergingModel : public SeeingModel {
 public:
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
    const bool is_late = trainer().global_step() > 0 && is_training();
    return SeeingModel::loss(y, labels) * (is_late ? std::numeric_limits<double>::quiet_NaN() : 1);
  }
};

class StopsEarly : public Callback {
 public:
  void on_epoch_end(Trainer& trainer, Module&, const Record&) override {
    trainer.request_stop(FitReason::early_stop);
  }
};

class FitOutcome : public testing::Test {
 protected:
  FitOutcome() {
    register_builtin(registry_);
    registry_.data<NineNumbers>("nine");
    registry_.data<DrawnNumbers>("drawn");
    registry_.model<SeeingModel>("seeing");
    registry_.model<InterruptedModel>("interrupted");
    registry_.model<DivergingModel>("diverging");
    registry_.callback<StopsEarly>("stops_early");
  }

  ProgramRun fit(const std::string& model, const std::string& top = "", const std::string& end = "") {
    write_text(scratch_ / "own.toml", top + "\n[model]\nname = \"" + model +
                                          "\"\n[data]\nname = \"nine\"\nbatch_size = 3\n[trainer]\n"
                                          "max_epochs = 3\nnum_sanity_val_steps = 0\n" +
                                          end);
    return run_program(
        {"fit", "-c", (scratch_ / "own.toml").string(), "--run.dir", (scratch_ / "runs").string()},
        registry_);
  }
  nlohmann::json summary() const {
    return nlohmann::json::parse(text_of(scratch_ / "runs/own/0001/run.json"));
  }

  const Scratch scratch_;
  Registry registry_;
};

TEST_F(FitOutcome, InterruptEndsAValidationAfterTheBatch) {
  const ProgramRun run = fit("interrupted");
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_EQ(seen.num_val_batches, 2);
  EXPECT_EQ(seen.train.size(), 9U);
  EXPECT_EQ(summary()["status"], "stopped");
  EXPECT_EQ(summary()["global_step"], 3);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "runs/own/0001/weights.safetensors"));
  EXPECT_EQ(text_of(scratch_ / "runs/own/0001/metrics.jsonl"), "") << "that epoch is not whole";
}

TEST_F(FitOutcome, EarlyStopIsNotAnError) {
  const ProgramRun run = fit("seeing", "", "[callbacks.stops_early]\n");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(summary()["status"], "stopped");
  EXPECT_EQ(summary()["reason"], "early_stop");
  EXPECT_EQ(summary()["global_step"], 3);
  EXPECT_NE(run.out.find("stopped early after "), std::string::npos) << run.out;
}

TEST_F(FitOutcome, WholeRunIsFinished) {
  EXPECT_EQ(fit("seeing").exit_code, 0);
  EXPECT_EQ(summary()["status"], "finished");
  EXPECT_EQ(summary()["global_step"], 9);
}

TEST_F(FitOutcome, NonFiniteLossHasItsExitCode) {
  const ProgramRun run = fit("diverging");
  EXPECT_EQ(run.exit_code, 4) << run.err;
  EXPECT_NE(run.err.find("not finite from step 2 on"), std::string::npos) << run.err;
  EXPECT_EQ(summary()["status"], "diverged");
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "runs/own/0001/nonfinite-step-00000002.safetensors"));
  EXPECT_EQ(summary()["global_step"], 3);
}

TEST_F(FitOutcome, RunSeedDeterminesTheOrderOfTheData) {
  ASSERT_EQ(fit("seeing", "seed = 5").exit_code, 0);
  std::vector<float> expected;
  for (const std::uint64_t epoch : {0, 1, 2}) {
    const at::Tensor order = at::randperm(9, at::make_generator<at::CPUGeneratorImpl>(5 + epoch), at::kLong);
    for (std::int64_t i = 0; i < 9; ++i)
      expected.push_back(static_cast<float>(order.const_data_ptr<std::int64_t>()[i]));
  }
  EXPECT_EQ(seen.train, expected);
  EXPECT_EQ(summary()["seed"], 5);
}

// Regardless of random numbers drawn before, and of whether the model or the data is created first.
TEST_F(FitOutcome, RunSeedDeterminesRandomData) {
  const std::string drawn =
      "[model]\nname = \"seeing\"\n[data]\nname = \"drawn\"\nbatch_size = 3\n[trainer]\nmax_epochs = 1\n";
  write_text(scratch_ / "drawn.toml", drawn);
  const auto run = [&](const std::string& name) {
    at::manual_seed(name.size());
    return run_program({"fit", "-c", (scratch_ / "drawn.toml").string(), "--run.dir",
                        (scratch_ / "runs").string(), "name=" + name},
                       registry_);
  };
  ASSERT_EQ(run("a").exit_code, 0);
  const std::vector<float> first = seen.train;
  const double val_loss =
      nlohmann::json::parse(text_of(scratch_ / "runs/a/0001/run.json"))["metrics"]["val_loss"];
  ASSERT_EQ(run("another").exit_code, 0);
  EXPECT_EQ(seen.train, first);
  const std::string folder = (scratch_ / "runs/a/0001").string();
  const ProgramRun validated =
      run_program({"validate", "-c", folder + "/config.toml", "--weights", folder}, registry_);
  ASSERT_EQ(validated.exit_code, 0) << validated.err;
  EXPECT_EQ(std::stod(validated.out.substr(validated.out.find("val_loss ") + 9)), val_loss);
}

}  // namespace
}  // namespace kindling
