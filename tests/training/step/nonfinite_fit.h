// Fits whose data holds one poisoned batch.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <limits>
#include <mutex>

#include "kindling/base/log.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/rmsprop.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {

inline constexpr std::int64_t kPoisonBatches = 20, kPoisonBatchSize = 2;

// The kinds of poison in a batch: a NaN among the inputs; a label that makes the loss infinite and leaves
// gradients finite; an infinite gradient with a finite loss.
enum class Poison { none, input, label, gradient };
inline constexpr Poison kPoisons[] = {Poison::input, Poison::label, Poison::gradient};

class PoisonNet : public Module {
 public:
  PoisonNet()
      : first(register_module("first", torch::nn::Linear(3, 4))),
        last(register_module("last", torch::nn::Linear(4, 1))) {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) parameter.fill_(parameter.dim() == 2 ? 1 : 0);
  }
  at::Tensor forward(const at::Tensor& x) override { return last(first(x)); }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor sum = first->weight.sum();
    const at::Tensor root = at::sqrt(sum - sum.detach() + batch[2].mean());  // of 1, or of 0
    return (forward(batch[0]) - batch[1]).abs().mean() + root;
  }

  torch::nn::Linear first, last;
};

// {inputs [n, 3], labels [n, 1], ones [n, 1]}; the batch of step k (from 1) poisoned; one skipped.
inline std::vector<at::Tensor> poisoned_tensors(Poison poison, std::int64_t k, std::int64_t without = 0) {
  const std::int64_t n = kPoisonBatches * kPoisonBatchSize;
  std::vector<at::Tensor> tensors{at::arange(3 * n, at::kFloat).view({n, 3}).mul(0.01),
                                  at::arange(n, at::kFloat).unsqueeze(1), at::ones({n, 1})};
  const std::int64_t row = (k - 1) * kPoisonBatchSize;
  if (poison == Poison::input) tensors[0][row][1] = std::numeric_limits<float>::quiet_NaN();
  if (poison == Poison::label) tensors[1][row] = std::numeric_limits<float>::infinity();
  if (poison == Poison::gradient) tensors[2].narrow(0, row, kPoisonBatchSize).zero_();
  if (without > 0)
    for (at::Tensor& tensor : tensors) {
      const std::int64_t begin = (without - 1) * kPoisonBatchSize, end = begin + kPoisonBatchSize;
      tensor = at::cat({tensor.narrow(0, 0, begin), tensor.narrow(0, end, n - end)});
    }
  return tensors;
}

inline TensorData poisoned_data(Poison poison, std::int64_t k, std::int64_t without = 0) {
  return {poisoned_tensors(poison, k, without), {}, {.batch_size = kPoisonBatchSize, .shuffle = false}};
}

// Keeps the optimizer's state at the end of the fit, and its records.
class StateKeeper : public Callback {
 public:
  void on_after_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override { optimizer_ = &optimizer; }
  void on_epoch_end(Trainer&, Module&, const Record& record) override { records.push_back(record); }
  void on_fit_end(Trainer&, Module&, const FitResult&) override {
    if (optimizer_ != nullptr) state = copy_to(optimizer_->state_dict(), cpu());
  }

  StateDict state;
  std::vector<Record> records;

 private:
  Optimizer* optimizer_ = nullptr;
};

struct PoisonRun {
  std::shared_ptr<PoisonNet> model = std::make_shared<PoisonNet>();
  std::shared_ptr<StateKeeper> keeper = std::make_shared<StateKeeper>();
  FitResult result{};
};

inline PoisonRun poison_run(TrainerOptions options, DataModule& data) {
  PoisonRun run;
  options.callbacks.push_back(run.keeper);
  if (!options.max_epochs && !options.max_steps) options.max_epochs = 1;
  run.result = Trainer(std::move(options)).fit(run.model, data);
  return run;
}

// The rules of the guard's tests.
inline std::vector<std::pair<std::string, OptimizerFactory>> guarded_rules() {
  return {{"sgd",
           [](ParameterGroups p) {
             return std::make_unique<Sgd>(std::move(p), SgdOptions{.lr = 1e-3, .momentum = 0.9});
           }},
          {"rmsprop",
           [](ParameterGroups p) {
             return std::make_unique<RmsProp>(std::move(p), RmsPropOptions{.lr = 1e-3, .momentum = 0.9});
           }},
          {"adam", [](ParameterGroups p) { return std::make_unique<Adam>(std::move(p)); }},
          {"adamw", [](ParameterGroups p) { return std::make_unique<AdamW>(std::move(p)); }}};
}

// State that has not begun may be there as zeros.
inline testing::AssertionResult same_training(const PoisonRun& actual, const PoisonRun& expected) {
  const auto parameters = actual.model->parameters(), others = expected.model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (const auto equal = same(parameters[i], others[i]); !equal) return equal;
  for (const auto& [name, tensor] : actual.keeper->state.tensors) {
    const at::Tensor* other = expected.keeper->state.find(name);
    if (const auto equal = same(tensor, other == nullptr ? at::zeros_like(tensor) : *other); !equal)
      return testing::AssertionFailure() << name << ": " << equal.message();
  }
  if (expected.keeper->state.tensors.size() > actual.keeper->state.tensors.size())
    return testing::AssertionFailure() << "there is less state";
  return testing::AssertionSuccess();
}

// The warnings in the app log while it exists.
class HeardWarnings {
 public:
  HeardWarnings() {
    configure_log({.level = LogLevel::warning});
    set_log_observer([this](LogLevel, const std::string& text) {
      const std::lock_guard lock(mutex_);
      texts.push_back(text);
    });
  }
  ~HeardWarnings() {
    set_log_observer({});
    configure_log({});
  }
  HeardWarnings(const HeardWarnings&) = delete;
  HeardWarnings& operator=(const HeardWarnings&) = delete;

  bool has(const std::string& part) const {
    for (const std::string& text : texts)
      if (text.find(part) != std::string::npos) return true;
    return false;
  }
  std::vector<std::string> texts;

 private:
  std::mutex mutex_;  // several threads may log
};

}  // namespace kindling
