// What `fit --check` and a fit refuse before there is a run directory, and what they warn about.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <new>
#include <random>

#include "cli/commands/program_run.h"
#include "cli/config/run_config.h"
#include "cli/run/same_run.h"
#include "kindling/cli/registry.h"
#include "kindling/data/sampler.h"
#include "kindling/metrics/accuracy.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::string kDigits = "[model]\nname = \"mlp\"\nhidden = [8]\n[data]\nname = \"digits\"\n";
const std::string kThreeEpochs = "[trainer]\nmax_epochs = 3\nnum_threads = 1\n";

TEST(Check, RefusesInputsThatTheModelIgnores) {
  const Scratch scratch;
  const auto check = [&](const std::string& model, const std::string& inputs) {
    write_text(scratch / "a.toml",
               "[model]\nname = \"" + model +
                   "\"\n[data]\nname = \"arrays\"\nfile = \"a.npz\"\nmore_inputs = " + inputs + "\n");
    return run_program({"fit", "-c", scratch / "a.toml", "--check"}).err;
  };
  Registry registry;
  register_builtin(registry);
  for (const std::string& name : registry.models.names()) {
    const bool takes_more = name == "exported" || name == "backbone";
    EXPECT_EQ(check(name, "[\"b\"]").find("takes one input") == std::string::npos, takes_more) << name;
  }
  EXPECT_EQ(check("mlp", "[]").find("takes one input"), std::string::npos);
}

// 24 samples of 4 numbers with labels 0, 1, 2, which the loader draws when it is made first.
class DrawnSamples : public DataModule {
 public:
  using DataModule::DataModule;
  std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_of(samples()); }
  std::shared_ptr<DataLoader> val_dataloader() override { return val_loader_of(samples()); }

 private:
  std::vector<at::Tensor> samples() {
    if (samples_.empty()) samples_ = {at::randn({24, 4}), at::randint(3, {24}, at::kLong)};
    return samples_;
  }
  std::vector<at::Tensor> samples_;
};

// The same without validation data.
class OnlyTraining : public DrawnSamples {
 public:
  using DrawnSamples::DrawnSamples;
  std::shared_ptr<DataLoader> val_dataloader() override { return nullptr; }
};

// Every batch takes noise from a generator that belongs to the data set.
class NoisyDataset : public Dataset {
 public:
  std::int64_t size() const override { return 24; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    const at::Tensor noise = at::full({indices.size(0), 4}, static_cast<double>(generator_() % 1000) / 1000);
    batch = Batch{noise + indices.unsqueeze(1), indices % 3};
  }

 private:
  mutable std::mt19937 generator_;
};

class NoisySamples : public DataModule {
 public:
  using DataModule::DataModule;
  std::shared_ptr<DataLoader> train_dataloader() override { return loader_; }

 private:
  std::shared_ptr<DataLoader> loader_ =
      std::make_shared<DataLoader>(std::make_shared<NoisyDataset>(), DataLoaderOptions{.batch_size = 5});
};

// Every batch of training gets noise from a generator that belongs to the data module.
class NoisyTransform : public DataModule {
 public:
  using DataModule::DataModule;
  std::shared_ptr<DataLoader> train_dataloader() override {
    return train_loader_of({at::arange(96.0F).view({24, 4}) / 96, at::arange(24) % 3});
  }
  Batch on_after_batch_transfer(Batch batch, Stage stage) override {
    if (stage != Stage::train) return batch;
    return Batch{batch[0] + static_cast<double>(generator_() % 1000) / 1000, batch[1]};
  }

 private:
  std::mt19937 generator_;
};

class DropoutModel : public Classifier {
 public:
  DropoutModel() {
    register_module("net", net_);
    net_->push_back(LazyLinear(8));
    net_->push_back(torch::nn::Dropout(0.5));
    net_->push_back(LazyLinear(3));
  }
  at::Tensor forward(const at::Tensor& x) override { return net_->forward(x); }

 private:
  torch::nn::Sequential net_;
};

// Accepts batches of 12 samples only, and needs gradients within its step.
class ParticularModel : public DropoutModel {
 public:
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = DropoutModel::training_step(Batch{batch[0].view({12, 4}), batch[1]});
    log("norm", torch::autograd::grad({loss}, {parameters().front()}, {}, /*retain_graph=*/true)[0].norm());
    return loss;
  }
};

class LogsTwice : public DropoutModel {
 public:
  LogsTwice() { add_metric("topk", std::make_shared<Accuracy>()); }
  at::Tensor training_step(const Batch& batch) override {
    log("size", 1);
    log("size", 2);
    return DropoutModel::training_step(batch);
  }
};

// 5 samples, of which an epoch draws 100.
class OftenDrawn : public DataModule {
 public:
  using DataModule::DataModule;
  std::shared_ptr<DataLoader> train_dataloader() override {
    const std::vector<at::Tensor> samples{at::arange(20.0F).view({5, 4}), at::arange(5) % 3};
    DataLoaderOptions loader = loader_options(/*train=*/true);
    loader.sampler =
        std::make_shared<WeightedSampler>(at::ones({5}, at::kDouble), /*seed=*/0, /*num_samples=*/100);
    return std::make_shared<DataLoader>(std::make_shared<TensorDataset>(samples), loader);
  }
};

// Batch norm needs two samples.
class NormalizedModel : public Classifier {
 public:
  at::Tensor forward(const at::Tensor& x) override { return net_(norm_(x)); }

 private:
  torch::nn::BatchNorm1d norm_ = register_module("norm", torch::nn::BatchNorm1d(4));
  torch::nn::Linear net_ = register_module("net", torch::nn::Linear(4, 3));
};

// As a program that was exported for one batch size.
class TakesTwelveSamples : public DropoutModel {
 public:
  at::Tensor forward(const at::Tensor& x) override {
    if (x.size(0) != 12)
      throw DataError({.place = "forward", .found = std::to_string(x.size(0)) + " samples"});
    return DropoutModel::forward(x);
  }
};

class LacksMemory : public DropoutModel {
 public:
  at::Tensor training_step(const Batch&) override { throw std::bad_alloc(); }
};

class FailsInItsStep : public DropoutModel {
 public:
  at::Tensor training_step(const Batch& batch) override { return at::mm(batch[0], batch[0]); }
};

class AddsValue : public Callback {
 public:
  void on_epoch_record(Trainer&, Module&, Record& record) override {
    record.values.emplace_back("val_added", 1);
  }
};

// The screen of the program shows the layers, for which it takes a batch.
class ShowsLayers : public Callback {
 public:
  void on_fit_start(Trainer& trainer, Module&) override {
    trainer.layer_summary(trainer.model(), *trainer.data());
  }
};

class FitCheckOfConfig : public testing::Test {
 protected:
  FitCheckOfConfig() {
    register_builtin(registry_);
    registry_.data<DrawnSamples>("drawn");
    registry_.data<OnlyTraining>("only_training");
    registry_.data<OftenDrawn>("often_drawn");
    registry_.data<NoisySamples>("noisy");
    registry_.data<NoisyTransform>("noisy_transform");
    registry_.model<DropoutModel>("dropout");
    registry_.model<ParticularModel>("particular");
    registry_.model<LogsTwice>("logs_twice");
    registry_.model<NormalizedModel>("normalized");
    registry_.model<TakesTwelveSamples>("takes_twelve");
    registry_.model<LacksMemory>("lacks_memory");
    registry_.model<FailsInItsStep>("fails");
    registry_.callback<AddsValue>("adds_value");
  }

  ProgramRun fit(const std::string& config, std::vector<std::string> words = {}) {
    write_text(scratch_ / "own.toml", config);
    words.insert(words.begin(),
                 {"fit", "-c", (scratch_ / "own.toml").string(), "--run.dir", (scratch_ / "runs").string()});
    return run_program(words, registry_);
  }
  // Returns the error of a config, which --check and a fit report alike, without the folder of its file.
  std::string refusal(int exit_code, const std::string& config) {
    const ProgramRun checked = fit(config, {"--check"}), run = fit(config);
    EXPECT_EQ(checked.exit_code, exit_code) << checked.err;
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_EQ(checked.err, run.err);
    EXPECT_EQ(checked.out + run.out, "");
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
    return without_folder(run.err);
  }
  void expect_accepted(const std::string& config) {
    const ProgramRun checked = fit(config, {"--check"});
    EXPECT_EQ(checked.exit_code, 0) << checked.err;
    EXPECT_EQ(checked.out, "own.toml + 1 override: no errors, nothing was run\n");
    EXPECT_EQ(checked.err, "");
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
    const ProgramRun run = fit(config);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    std::filesystem::remove_all(scratch_ / "runs");
  }
  std::string without_folder(std::string text) const {
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder))
      text.erase(at, folder.size());
    return text;
  }
  std::size_t num_found(const std::string& text, const std::string& part) const {
    std::size_t number = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++number;
    return number;
  }

  const Scratch scratch_;
  Registry registry_;
};

TEST_F(FitCheckOfConfig, AcceptsWhatTrains) {
  expect_accepted(kDigits + kThreeEpochs);
  expect_accepted("[model]\nname = \"particular\"\n[data]\nname = \"drawn\"\nbatch_size = 12\n" +
                  kThreeEpochs + "num_sanity_val_steps = 1\n");
  expect_accepted(
      "[model]\nname = \"dropout\"\nfreeze = [\"net.0.*\"]\n[data]\nname = \"drawn\"\nbatch_size = 8\n" +
      kThreeEpochs + "precision = \"bf16-mixed\"\n");
}

TEST_F(FitCheckOfConfig, ReportsAllFindingsWithSuggestions) {
  EXPECT_EQ(
      refusal(2,
              "[model]\nname = \"mlp\"\nhidden = [8]\nfreeze = [\"net.1.*\", \"net.99.*\"]\n"
              "[data]\nname = \"digits\"\ntrain = [0, 100000]\n"
              "[checkpoint]\nmonitor = \"val_los\"\n" +
                  kThreeEpochs),
      "own.toml:4:22: error: 'model.freeze[1]': 'net.99.*' matches no name; expected: one of "
      "net.1.weight, net.1.bias, net.3.weight, net.3.bias; did you mean 'net.1.*'?\n"
      "    4 | freeze = [\"net.1.*\", \"net.99.*\"]\n"
      "      |                      ^~~~~~~~~~\n"
      "own.toml:7:9: error: 'data.train': the range [0, 100000]; expected: [first, end] with 0 <= first < "
      "end <= 1438\n"
      "    7 | train = [0, 100000]\n"
      "      |         ^~~~~~~~~~~\n"
      "own.toml:9:11: error: 'checkpoint.monitor': the model logs no value 'val_los'\n"
      "    9 | monitor = \"val_los\"\n"
      "      |           ^~~~~~~~~ did you mean 'val_loss'?\n"
      "3 errors, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsErrorsBehindAWrongName) {
  EXPECT_EQ(refusal(2, kDigits + "[optimizer]\nname = \"adamm\"\nlr = -1\nbetas = [0.9, 2]\n" + kThreeEpochs),
            "own.toml:7:8: error: unknown name 'adamm' in 'optimizer.name'\n"
            "    7 | name = \"adamm\"\n"
            "      |        ^~~~~~~ did you mean 'adam'?\n"
            "own.toml:8:6: error: 'optimizer.lr': expected a number >= 0, found -1.0\n"
            "own.toml:9:15: error: 'optimizer.betas[1]': expected a number >= 0 and < 1, found 2.0\n"
            "3 errors, nothing was run\n");
  const std::string far = refusal(
      2, kDigits + "[optimizer]\nname = \"evolution\"\nlr = -1\nbetas = 7\nbetaz = 1\n" + kThreeEpochs);
  EXPECT_NE(far.find("'optimizer.lr': expected a number >= 0"), std::string::npos) << far;
  EXPECT_NE(far.find("unknown key 'optimizer.betaz'"), std::string::npos) << far;
  EXPECT_EQ(far.find("optimizer.betas"), std::string::npos) << "only some optimizers have them: " << far;
}

TEST_F(FitCheckOfConfig, ReportsMissingData) {
  EXPECT_EQ(
      refusal(3, "[model]\nname = \"lenet\"\n[data]\nname = \"mnist\"\nroot = \"none\"\n" + kThreeEpochs),
      "none/train-images-idx3-ubyte[.gz]: no such file; expected: train-images-idx3-ubyte, "
      "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each with or without "
      ".gz, in none; docs/reference/data_files.md says where to download them\n");
}

TEST_F(FitCheckOfConfig, ReportsDataAndWeightsTogether) {
  const std::string text = refusal(
      3,
      "[model]\nname = \"lenet\"\ninit_weights = \"no.safetensors\"\n[data]\nname = \"mnist\"\nroot = "
      "\"none\"\n" +
          kThreeEpochs);
  EXPECT_NE(text.find("none/train-images-idx3-ubyte[.gz]: no such file"), std::string::npos) << text;
  EXPECT_NE(text.find("\n'model.init_weights': no.safetensors: "), std::string::npos) << text;
  EXPECT_NE(text.find("\n2 errors, nothing was run\n"), std::string::npos) << text;
  const std::string weights =
      refusal(1,
              "[model]\nname = \"mlp\"\ninit_weights = \"no.safetensors\"\n[data]\nname = "
              "\"digits\"\n" +
                  kThreeEpochs);
  EXPECT_TRUE(weights.starts_with("'model.init_weights': no.safetensors: ")) << weights;
}

TEST_F(FitCheckOfConfig, ReportsLabelsBeyondTheClasses) {
  EXPECT_EQ(
      refusal(2, "[model]\nname = \"mlp\"\nnum_classes = 5\n[data]\nname = \"digits\"\n" + kThreeEpochs),
      "own.toml:3:15: error: 'model.num_classes': class 9 in the data (training sample 6, counted from "
      "0), but num_classes = 5; expected: labels from 0 to 4; set num_classes to 10, or correct the "
      "labels\n"
      "    3 | num_classes = 5\n"
      "      |               ^\n"
      "1 error, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsRegressionOnClasses) {
  EXPECT_EQ(
      refusal(3, "[model]\nname = \"linear_regression\"\n[data]\nname = \"digits\"\n" + kThreeEpochs),
      "LinearRegression::loss: the labels are Long [64]; expected: floating-point numbers of the outputs' "
      "shape, Float [64, 1, 8, 1]; convert the labels where they are made: labels.to(torch::kFloat), "
      "labels.unsqueeze(1); for class numbers choose a classifier, such as softmax_regression\n");
}

TEST_F(FitCheckOfConfig, ReportsAFailingStep) {
  std::string message =
      refusal(1, "[model]\nname = \"fails\"\n[data]\nname = \"drawn\"\nbatch_size = 12\n" + kThreeEpochs);
  if (const auto at = message.find("mm: mat1"); at != message.npos) message.erase(at, 4);  // LibTorch 2.15
  EXPECT_EQ(message,
            "model 'fails': its step fails for samples Float [4]: mat1 and mat2 shapes cannot be multiplied "
            "(12x4 and 12x4); `kindling help fails` lists its options\n");
  EXPECT_EQ(refusal(1, "[model]\nname = \"lenet\"\n[data]\nname = \"digits\"\n" + kThreeEpochs),
            "model 'lenet': the samples are Float [1, 8, 8], which is too small for its layers; expected: "
            "larger images; enlarge them with [[data.train_transforms]] and [[data.val_transforms]] name = "
            "\"resize\", or choose another model, such as small_cnn\n");
  EXPECT_EQ(refusal(1, "[model]\nname = \"resnet18\"\n[data]\nname = \"digits\"\n" + kThreeEpochs),
            "model 'resnet18': the samples are Float [1, 8, 8], with 1 channel; expected: images of 3 "
            "channels; set model.in_channels = 1\n");
}

TEST_F(FitCheckOfConfig, ReportsALastBatchThatTheModelCannotTake) {
  const auto config = [](const std::string& model, const std::string& data, const std::string& trainer = "") {
    return "[model]\nname = \"" + model + "\"\n[data]\nname = \"only_training\"\n" + data + kThreeEpochs +
           trainer;
  };
  const std::string one = refusal(1, config("normalized", "batch_size = 23\n"));
  EXPECT_NE(one.find("set drop_last = true if the last batch of an epoch has one"), std::string::npos) << one;
  EXPECT_NE(
      refusal(3, config("takes_twelve", "batch_size = 12\ntrain = [0, 20]\n")).find("forward: 8 samples"),
      std::string::npos);
  expect_accepted(config("normalized", "batch_size = 22\n"));
  expect_accepted(config("normalized", "batch_size = 23\ndrop_last = true\n"));
  expect_accepted(config("normalized", "batch_size = 23\n", "limit_train_batches = 1\n"));
  expect_accepted(config("takes_twelve", "batch_size = 12\n"));
  expect_accepted(config("takes_twelve", "batch_size = 12\ntrain = [0, 20]\n", "fast_dev_run = true\n"));
  expect_accepted("[model]\nname = \"dropout\"\n[data]\nname = \"often_drawn\"\nbatch_size = 64\n" +
                  kThreeEpochs);
  // No epoch is validated, and the sanity check takes one batch.
  expect_accepted(
      "[model]\nname = \"takes_twelve\"\n[data]\nname = \"drawn\"\nbatch_size = 12\nval = [0, 20]\n" +
      kThreeEpochs + "num_sanity_val_steps = 1\ncheck_val_every_n_epoch = 9\n");
}

TEST_F(FitCheckOfConfig, WarnsOfAModelThatLacksMemory) {
  const ProgramRun checked =
      fit("[model]\nname = \"lacks_memory\"\n[data]\nname = \"drawn\"\n" + kThreeEpochs, {"--check"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_NE(checked.err.find("warning: model: memory was exhausted when a batch was tried"),
            std::string::npos)
      << checked.err;
}

TEST_F(FitCheckOfConfig, ReportsAveragesThatDoNotFitTheRun) {
  EXPECT_EQ(
      refusal(2, kDigits + "[swa]\nswa_lrs = [0.1]\nswa_epoch_start = 9\n" + kThreeEpochs),
      "own.toml:6:2: error: StochasticWeightAveraging: swa_epoch_start is 9, after max_epochs = 3; expected: "
      "an epoch of the run\n"
      "    6 | [swa]\n"
      "      |  ^~~\n"
      "1 error, nothing was run\n");
  const std::string rates = refusal(2, kDigits + "[swa]\nswa_lrs = [0.1, 0.2]\n" + kThreeEpochs);
  EXPECT_NE(rates.find("there are 2 swa_lrs and 1 parameter groups"), std::string::npos) << rates;
}

TEST_F(FitCheckOfConfig, ReportsWrongGroupsTogetherWithOthers) {
  const std::string text =
      refusal(2, kDigits + "[optimizer]\nname = \"sgd\"\n[[optimizer.groups]]\nmatch = \"nett.*\"\n" +
                     "[checkpoint]\nmonitor = \"val_los\"\n" + kThreeEpochs);
  EXPECT_NE(text.find("'nett.*' matches no name"), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean 'val_loss'?"), std::string::npos) << text;
  EXPECT_NE(text.find("2 errors"), std::string::npos) << text;
}

TEST_F(FitCheckOfConfig, ReportsOptionsThatLeaveNoBatch) {
  EXPECT_EQ(
      refusal(2, "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\nbatch_size = 2000\ndrop_last = true\n" +
                     kThreeEpochs),
      "own.toml:5:14: error: 'data.batch_size': drop_last leaves no batch of 2000 among 1438 samples; "
      "expected: a smaller batch_size\n"
      "    5 | batch_size = 2000\n"
      "      |              ^~~~\n"
      "1 error, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsTheKeyOfAWrongDelimiter) {
  write_text(scratch_ / "t.csv", "x,y\n1,2\n2,3\n3,4\n4,5\n");
  EXPECT_EQ(
      refusal(2,
              "[model]\nname = \"mlp_regressor\"\n[data]\nname = \"csv\"\nfile = \"t.csv\"\ntarget = "
              "\"y\"\nval_fraction = 0.5\ndelimiter = \"x\"\n" +
                  kThreeEpochs),
      "own.toml:8:13: error: 'data.delimiter': \"x\"; expected: a comma, semicolon, tab, |, blank, or auto\n"
      "    8 | delimiter = \"x\"\n"
      "      |             ^~~\n"
      "1 error, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsAnUnknownMetricAtItsName) {
  EXPECT_EQ(
      refusal(2,
              "[model]\nname = \"mlp\"\nmetrics = [\"f1_macro\", \"acuracy\"]\n[data]\nname = \"digits\"\n" +
                  kThreeEpochs),
      "own.toml:3:24: error: unknown name 'acuracy' in 'model.metrics'\n"
      "    3 | metrics = [\"f1_macro\", \"acuracy\"]\n"
      "      |                        ^~~~~~~~~ did you mean 'accuracy'?\n"
      "1 error, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsARunDirectoryThatCannotBeCreated) {
  write_text(scratch_ / "file", "");
  const std::string directory = (scratch_ / "file/runs").string();
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--check"}, {}}) {
    std::vector<std::string> words = more;
    words.push_back("run.dir=" + directory);
    const ProgramRun run = fit(kDigits + kThreeEpochs, words);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.err, "command line: run.dir=" + directory +
                           ": error: 'run.dir': " + (scratch_ / "file").string() +
                           " is a file; expected: a directory that exists or can be created; choose another "
                           "one, for example run.dir=/tmp/runs\n1 error, nothing was run\n");
  }
}

TEST_F(FitCheckOfConfig, ReportsInitialWeightsOfAnotherKind) {
  write_text(scratch_ / "notes.txt", "these are not weights at all");
  const std::string text = refusal(
      1, "[model]\nname = \"mlp\"\ninit_weights = \"notes.txt\"\n[data]\nname = \"digits\"\n" + kThreeEpochs);
  EXPECT_TRUE(
      text.starts_with("'model.init_weights': notes.txt: not a safetensors or .pt file; expected: weights "
                       "saved by safetensors, "
                       "torch.save, or Kindling; "))
      << text;
}

TEST_F(FitCheckOfConfig, ReportsMonitoredValuesThatAreNotLogged) {
  const auto error_of = [&](const std::string& tables) {
    const std::string text = refusal(2, kDigits + kThreeEpochs + tables);
    const std::size_t start = text.find("error: ") + 7;
    return text.substr(start, text.find('\n', start) - start);
  };
  EXPECT_EQ(error_of("[early_stopping]\nmonitor = \"val_los\"\nmode = \"min\"\n"),
            "'early_stopping.monitor': the model logs no value 'val_los'");
  EXPECT_EQ(error_of("[schedule]\nname = \"plateau\"\nmonitor = \"val_los\"\nmode = \"min\"\n"),
            "'schedule.monitor': the model logs no value 'val_los'");
  EXPECT_EQ(error_of("[checkpoint]\nmonitor = \"train_loss\"\n"),
            "'checkpoint.monitor': monitor is 'train_loss', but mode is not set; expected: whether lower or "
            "higher values are better; set mode to \"min\" or \"max\"");
  const std::string far = refusal(2, kDigits + kThreeEpochs + "[checkpoint]\nmonitor = \"warmth\"\n");
  EXPECT_NE(far.find("^~~~~~~~ available: train_loss, train_acc, val_loss, val_acc\n"), std::string::npos)
      << far;
}

TEST_F(FitCheckOfConfig, AcceptsMonitoredValuesThatMayCome) {
  const std::string of_callback =
      "[checkpoint]\nmonitor = \"val_added\"\nmode = \"max\"\n[callbacks.adds_value]\n";
  expect_accepted(kDigits + kThreeEpochs + of_callback);
  const std::string without_validation =
      "[model]\nname = \"dropout\"\n[data]\nname = \"only_training\"\n" + kThreeEpochs;
  const ProgramRun checked =
      fit(without_validation + "[checkpoint]\nmonitor = \"val_loss\"\nmode = \"min\"\n", {"--check"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;  // the run warns that it has no best checkpoint
  const ProgramRun stopping =
      fit(without_validation + "[early_stopping]\nmonitor = \"val_loss\"\nmode = \"min\"\n", {"--check"});
  EXPECT_EQ(stopping.exit_code, 2) << stopping.err;
}

TEST_F(FitCheckOfConfig, WarnsOfMisspelledMonitorsIfACallbackMayAddThem) {
  const ProgramRun checked =
      fit(kDigits + kThreeEpochs +
              "[checkpoint]\nmonitor = \"val_los\"\nmode = \"min\"\n[callbacks.adds_value]\n",
          {"--check"});
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_EQ(
      checked.err,
      "warning: checkpoint.monitor: the model logs no value 'val_los', so a callback has to add it; did "
      "you mean 'val_loss'?\n");
}

TEST_F(FitCheckOfConfig, ReportsADurationAtItsKey) {
  EXPECT_EQ(refusal(2, kDigits + kThreeEpochs + "max_time = \"90\"\n"),
            "own.toml:9:12: error: 'trainer.max_time': '90'; expected: a duration above 0 as "
            "days:hours:minutes:seconds; for half a day: \"00:12:00:00\"\n"
            "    9 | max_time = \"90\"\n"
            "      |            ^~~~\n"
            "1 error, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsOptionsThatDoNotGoTogether) {
  const auto expect = [&](int exit_code, const std::string& tables, const std::string& part) {
    const std::string text = refusal(exit_code, kDigits + kThreeEpochs + tables);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(2, "val_check_interval = 100\n",
         "Trainer: val_check_interval = 100, but an epoch has 23 training batches");
  expect(2, "[optimizer]\nname = \"sgd\"\nlr = 0.1\nnesterov = true\n", "sgd: nesterov without momentum");
  expect(2,
         "[schedule]\nname = \"one_cycle\"\nmax_lr = 0.1\ncycle_momentum = true\n[optimizer]\nname = "
         "\"adagrad\"\n",
         "'schedule': it changes the momentum, but the optimizer has none");
  expect(1, "num_gpus = 99\nrequire_gpus = true\n", "Trainer: num_gpus = 99, but ");
}

TEST_F(FitCheckOfConfig, ReportsAModelWithoutTrainedParameters) {
  EXPECT_EQ(
      refusal(2, "[model]\nname = \"mlp\"\nfreeze = [\"*\"]\n[data]\nname = \"digits\"\n" + kThreeEpochs),
      "own.toml:3:10: error: 'model.freeze': the patterns match all parameters; expected: at least one "
      "parameter that is trained\n"
      "    3 | freeze = [\"*\"]\n"
      "      |          ^~~~~\n"
      "1 error, nothing was run\n");
}

// The check draws random numbers, reads data and creates lazy layers.
TEST_F(FitCheckOfConfig, LeavesTheRunBitIdentical) {
  for (const std::string name : {"drawn", "noisy", "noisy_transform"}) {
    const std::string config = "seed = 3\n[model]\nname = \"dropout\"\n[data]\nname = \"" + name +
                               "\"\nbatch_size = 5\n" + kThreeEpochs;
    const ProgramRun run = fit(config, {"name=" + name});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const RunConfig alone(ConfigDocument::load(scratch_ / "own.toml"), registry_, "own");
    const auto data = alone.make_data();
    const auto model = alone.make_model();
    TrainerOptions options = alone.trainer_options();
    options.callbacks.push_back(std::make_shared<ShowsLayers>());
    Trainer(options).fit(model, *data);
    expect_same_tensors(load_safetensors(scratch_ / ("runs/" + name + "/0001/weights.safetensors")),
                        state_dict(*model));
  }
}

TEST_F(FitCheckOfConfig, WarnsOnceAboutSilentMistakes) {
  const std::string config =
      kDigits + "batch_size = 100000\n[schedule]\nname = \"cosine\"\nwarmup_steps = 5000\n" + kThreeEpochs;
  const std::string warnings =
      "warning: data.batch_size: 100,000 is more than the 1,438 training samples, so every epoch has one "
      "batch "
      "and one step\n"
      "warning: schedule.warmup_steps: the run of 3 steps ends inside the warm-up of 5,000, so the schedule "
      "itself "
      "never starts; make the warm-up shorter\n";
  const ProgramRun checked = fit(config, {"--check"}), run = fit(config, {"--progress=none"});
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_EQ(checked.err, warnings);
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, warnings);
  const std::string log = text_of(scratch_ / "runs/own/0001/log.txt");
  EXPECT_EQ(num_found(log, "data.batch_size: 100,000"), 1U) << log;
  EXPECT_EQ(num_found(log, "schedule.warmup_steps: the run of 3 steps"), 1U) << log;
  const std::string by_epoch =
      fit(kDigits + "[schedule]\nname = \"cosine\"\ninterval = \"epoch\"\nwarmup_steps = 4\n" + kThreeEpochs,
          {"--check"})
          .err;
  EXPECT_NE(by_epoch.find("the run of 3 epochs ends inside the warm-up of 4,"), std::string::npos)
      << by_epoch;
  EXPECT_EQ(
      fit(kDigits + "[schedule]\nname = \"cosine\"\nwarmup_steps = 69\n" + kThreeEpochs, {"--check"}).err,
      "");
}

TEST_F(FitCheckOfConfig, WarnsAboutFreezingAndModesThatCannotBeMeant) {
  const std::string model = "[model]\nname = \"mlp\"\nfreeze = [\"net.1.*\"]\nfreeze_epochs = ";
  const std::string rest = "\n[data]\nname = \"digits\"\n" + kThreeEpochs;
  EXPECT_EQ(
      fit(model + "3" + rest, {"--check"}).err,
      "warning: model.freeze_epochs: the run of 3 epochs ends before the frozen parameters are trained, "
      "after 3 epochs\n");
  EXPECT_EQ(fit(model + "2" + rest, {"--check"}).err, "");
  const std::string stopping = kDigits + kThreeEpochs + "[early_stopping]\nmonitor = \"val_acc\"\nmode = ";
  EXPECT_EQ(
      fit(stopping + "\"min\"\n", {"--check"}).err,
      "warning: early_stopping.mode: it is \"min\", but the model says that higher values of 'val_acc' are "
      "better\n");
  EXPECT_EQ(fit(stopping + "\"max\"\n", {"--check"}).err, "");
  // Without a monitor, the model's own.
  for (const std::string table : {"checkpoint", "early_stopping"})
    EXPECT_EQ(fit(kDigits + kThreeEpochs + "[" + table + "]\nmode = \"min\"\n", {"--check"}).err,
              "warning: " + table +
                  ".mode: it is \"min\", but the model says that higher values of 'val_acc' are better\n");
}

TEST_F(FitCheckOfConfig, WarnsOfImagesNormalizedInOneStageOnly) {
  const auto table = [](const std::string& stage, const std::string& mean) {
    return "[[data." + stage + "_transforms]]\nname = \"normalize\"\nmean = [" + mean + "]\nstd = [0.5]\n";
  };
  const std::string warning =
      "warning: data.val_transforms: they normalize images otherwise than data.train_transforms, so "
      "validation "
      "and predictions see other values than the training\n";
  const std::string digits = kDigits + kThreeEpochs;
  EXPECT_EQ(fit(digits + table("train", "0.5"), {"--check"}).err, warning);
  EXPECT_EQ(fit(digits + table("val", "0.5"), {"--check"}).err, warning);
  EXPECT_EQ(fit(digits + table("train", "0.5") + table("val", "0.4"), {"--check"}).err, warning);
  EXPECT_EQ(fit(digits + table("train", "0.5") + table("val", "0.5"), {"--check"}).err, "");
}

TEST_F(FitCheckOfConfig, WarnsAboutClassesThatAreBalancedTwice) {
  const std::string model = "[model]\nname = \"mlp\"\nbalanced_class_weights = ";
  const std::string rest = "\n[data]\nname = \"digits\"\nsampler = \"balanced\"\n" + kThreeEpochs;
  EXPECT_EQ(fit(model + "true" + rest, {"--check"}).err,
            "warning: model.class_weights: data.sampler = \"balanced\" is set, too, so the classes "
            "are balanced twice; remove one of them\n");
  EXPECT_EQ(fit(model + "false" + rest, {"--check"}).err, "");
}

TEST_F(FitCheckOfConfig, ReportsMoreThreadsThanAProcessCanHave) {
  EXPECT_EQ(refusal(2, kDigits + "[trainer]\nmax_epochs = 3\nnum_threads = 100000\n"),
            "own.toml:8:15: error: 'trainer.num_threads': expected an integer from 1 to 1024, found 100000\n"
            "    8 | num_threads = 100000\n"
            "      |               ^~~~~~\n"
            "1 error, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsMoreWorkersAndProcessesThanAMachineCanHave) {
  EXPECT_EQ(refusal(2, kDigits + "num_workers = 100000\n" + kThreeEpochs + "num_processes = 100000\n"),
            "own.toml:6:15: error: 'data.num_workers': expected an integer >= 0 and <= 1024, found 100000\n"
            "own.toml:10:17: error: 'trainer.num_processes': expected an integer >= 1 and <= 1024, found "
            "100000\n"
            "2 errors, nothing was run\n");
}

TEST_F(FitCheckOfConfig, ReportsEveryOptionThatLbfgsDoesNotSupport) {
  const std::string lbfgs = kDigits + "[optimizer]\nname = \"lbfgs\"\n" + kThreeEpochs;
  const std::string cause =
      ": it is set, but the optimizer evaluates the loss of a batch several times; expected: the default "
      "value with such an optimizer (lbfgs)\n";
  EXPECT_EQ(refusal(2, lbfgs + "gradient_clip_val = 1.0\naccumulate_grad_batches = 2\nprecision = "
                               "\"16-mixed\"\n"),
            "own.toml:11:21: error: 'trainer.gradient_clip_val'" + cause +
                "   11 | gradient_clip_val = 1.0\n"
                "      |                     ^~~\n"
                "own.toml:12:27: error: 'trainer.accumulate_grad_batches'" +
                cause +
                "   12 | accumulate_grad_batches = 2\n"
                "      |                           ^\n"
                "own.toml:13:13: error: 'trainer.precision'" +
                cause +
                "   13 | precision = \"16-mixed\"\n"
                "      |             ^~~~~~~~~~\n"
                "3 errors, nothing was run\n");
  const std::string shards = refusal(2, lbfgs + "gradient_shards = 2\n");
  EXPECT_NE(shards.find("it evaluates the loss several times, which data-parallel training does not support"),
            std::string::npos)
      << shards;
}

// Adam is the optimizer of a run that names none.
TEST_F(FitCheckOfConfig, ReportsASchedulesErrorWithoutAnOptimizer) {
  const std::string text =
      refusal(2,
              "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\n[schedule]\nname = \"one_cycle\"\n"
              "total_steps = 2\n" +
                  kThreeEpochs);
  EXPECT_NE(text.find("total_steps is 2, but the run has"), std::string::npos) << text;
}

TEST_F(FitCheckOfConfig, ReportsShardsThatTheRanksCannotDivide) {
  const std::string text =
      refusal(2, "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\nbatch_size = 12\n" + kThreeEpochs +
                     "num_processes = 4\ngradient_shards = 2\n");
  EXPECT_NE(text.find("'trainer.gradient_shards': it is 2, for 4 ranks; expected: a multiple of the number"),
            std::string::npos)
      << text;
}

TEST_F(FitCheckOfConfig, ChecksAFastRunAsItWillBe) {
  const ProgramRun checked =
      fit(kDigits + "[swa]\nswa_lrs = [0.1]\n[trainer]\nmax_steps = 50\nfast_dev_run = true\n" +
              "val_check_interval = 1000\nnum_processes = 2\n",
          {"--check"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
}

TEST_F(FitCheckOfConfig, ReportsBatchesThatTheRanksCannotShare) {
  const std::string text =
      refusal(2, "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\nbatch_size = 500\ndrop_last = true\n" +
                     kThreeEpochs + "num_processes = 4\n");
  EXPECT_NE(
      text.find(
          "own.toml:5:14: error: 'data.batch_size': drop_last leaves no batch of 500 for each of 4 ranks"),
      std::string::npos)
      << text;
  const std::string interval = refusal(
      2, kDigits + "batch_size = 500\n" + kThreeEpochs + "num_processes = 2\nval_check_interval = 1000\n");
  EXPECT_NE(interval.find("val_check_interval = 1000, but an epoch has 2 training batches"),
            std::string::npos)
      << interval;
}

TEST_F(FitCheckOfConfig, ReportsDefaultMonitorsThatNeedAValidation) {
  const auto error_of = [&](const std::string& config) {
    const std::string text = refusal(2, config);
    const std::size_t start = text.find("error: ") + 7;
    return text.substr(start, text.find('\n', start) - start);
  };
  const std::string cause = "it is 'val_acc', as the model says, but the run has no validation to log it",
                    stopping = "[early_stopping]\npatience = 2\n",
                    plateau = "[schedule]\nname = \"plateau\"\n",
                    without_batches = kDigits + kThreeEpochs + "limit_val_batches = 0\n",
                    without_data =
                        "[model]\nname = \"dropout\"\n[data]\nname = \"only_training\"\n" + kThreeEpochs;
  EXPECT_EQ(error_of(without_batches + stopping), "'early_stopping.monitor': " + cause);
  EXPECT_EQ(error_of(without_batches + plateau), "'schedule.monitor': " + cause);
  EXPECT_EQ(error_of(without_data + stopping), "'early_stopping.monitor': " + cause);
  EXPECT_EQ(error_of(without_batches + stopping + "[batch_finder]\n"), "'early_stopping.monitor': " + cause);
  expect_accepted(without_batches + "[early_stopping]\nmonitor = \"train_loss\"\nmode = \"min\"\n");
  expect_accepted(without_batches + stopping + "strict = false\n");
  expect_accepted(without_batches + "[checkpoint]\nevery_n_epochs = 1\n");
}

TEST_F(FitCheckOfConfig, ReportsAMissingFileNameAtTheTable) {
  EXPECT_EQ(refusal(2, "[model]\nname = \"mlp\"\n[data]\nname = \"idx\"\n" + kThreeEpochs),
            "own.toml:3:2: error: data.images: no file is given; expected: an IDX file\n"
            "    3 | [data]\n"
            "      |  ^~~~\n"
            "1 error, nothing was run\n");
}

TEST_F(FitCheckOfConfig, WarnsAboutValuesThatReplaceOthers) {
  const std::string config =
      "[model]\nname = \"logs_twice\"\nmetrics = [\"topk\"]\n[metrics.topk]\nk = 1\n"
      "[data]\nname = \"drawn\"\nbatch_size = 8\n" +
      kThreeEpochs;
  const std::string warnings =
      "warning: model.metrics: 'topk' replaces the model's own metric of this name\n"
      "warning: 'size' is logged more than once in a step: each value replaces the one before\n";
  EXPECT_EQ(fit(config, {"--check"}).err, warnings);
  const ProgramRun run = fit(config, {"--progress=none"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, warnings);
}

TEST_F(FitCheckOfConfig, NamesNoBestEpochOfADivergedRun) {
  const ProgramRun run = fit(kDigits + "[optimizer]\nname = \"sgd\"\nlr = 1e30\n" + kThreeEpochs);
  EXPECT_EQ(run.exit_code, 4) << run.err;
  EXPECT_NE(run.out.find("nan"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("* best"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("best val acc"), std::string::npos) << run.out;
}

TEST_F(FitCheckOfConfig, AnswersForAResumedRunToo) {
  const std::string config = kDigits + kThreeEpochs;
  ASSERT_EQ(fit(config).exit_code, 0);
  const std::string folder = (scratch_ / "runs/own/0001").string();
  const ProgramRun finished = run_program({"fit", "--check", "--resume", folder}, registry_);
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_NE(finished.out.find("is finished"), std::string::npos) << finished.out;
  const ProgramRun longer =
      run_program({"fit", "--check", "--resume", folder, "trainer.max_epochs=4"}, registry_);
  EXPECT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_EQ(longer.out, "config.toml + 1 override: no errors, nothing was run\n");
  const ProgramRun other = run_program({"fit", "--check", "--resume", folder, "optimizer.lr=0.5"}, registry_);
  EXPECT_EQ(other.exit_code, 2) << other.err;
}

}  // namespace
}  // namespace kindling
