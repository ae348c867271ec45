// Fits whose data has batches with a much larger loss.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kindling/tensors/checkpoint_file.h"
#include "support/scratch.h"
#include "training/step/nonfinite_fit.h"

namespace kindling {

inline constexpr std::int64_t kSpikeBatches = 30, kSpikeBatchSize = 4;

class SpikyNet : public Module {
 public:
  SpikyNet() : line(register_module("line", torch::nn::Linear(3, 1))) {
    const at::NoGradGuard no_grad;
    line->weight.fill_(0.9);
    line->bias.zero_();
  }
  at::Tensor forward(const at::Tensor& x) override { return line(x); }
  at::Tensor training_step(const Batch& batch) override {
    return (forward(batch[0]) - batch[1]).abs().mean();
  }
  bool has_static_graph() const override { return true; }

  torch::nn::Linear line;
};

// Which batches of an epoch, from 1 on, are special.
struct SpecialBatches {
  std::set<std::int64_t> spikes{};  // the label of their first sample is large
  std::set<std::int64_t> nans{};
  std::set<std::int64_t> without{};  // the data lack them
};

inline TensorData spiky_data(const SpecialBatches& special, std::int64_t batch_size = kSpikeBatchSize) {
  const std::int64_t n = kSpikeBatches * kSpikeBatchSize;
  const at::Tensor x =
      at::arange(3 * n, at::kLong).mul(7919).remainder(101).to(at::kFloat).div(101).view({n, 3});
  at::Tensor y = x.sum(1, /*keepdim=*/true);
  y = y + at::arange(n, at::kLong).mul(104729).remainder(97).to(at::kFloat).div(97).unsqueeze(1);
  for (const std::int64_t k : special.spikes) y[(k - 1) * kSpikeBatchSize] = 1000;
  for (const std::int64_t k : special.nans) y[(k - 1) * kSpikeBatchSize] = std::nan("");
  std::vector<at::Tensor> rows;
  for (std::int64_t k = 1; k <= kSpikeBatches; ++k)
    if (!special.without.contains(k))
      rows.push_back(at::arange((k - 1) * kSpikeBatchSize, k * kSpikeBatchSize));
  const at::Tensor kept = at::cat(rows);
  return {
      {x.index_select(0, kept), y.index_select(0, kept)}, {}, {.batch_size = batch_size, .shuffle = false}};
}

struct SpikeRun {
  std::shared_ptr<SpikyNet> model = std::make_shared<SpikyNet>();
  std::shared_ptr<StateKeeper> keeper = std::make_shared<StateKeeper>();
  FitResult result{};
  StateDict end{};  // the run's state
};

inline SpikeRun spike_run(TrainerOptions options, const SpecialBatches& special,
                          const StateDict* resumed = nullptr) {
  at::manual_seed(5);  // runs are compared with their random state
  SpikeRun run;
  TensorData data = spiky_data(special);
  options.callbacks.push_back(run.keeper);
  if (!options.max_epochs) options.max_epochs = 1;
  Trainer trainer(std::move(options));
  if (resumed == nullptr) {
    run.result = trainer.fit(run.model, data);
  } else {
    const Scratch scratch;
    save_checkpoint(*resumed, scratch / "saved.ckpt");
    run.result = trainer.fit(run.model, data, {.resume = scratch / "saved.ckpt"});
  }
  if (run.result.status != FitStatus::diverged) run.end = copy_to(trainer.state_dict(), cpu());
  return run;
}

inline testing::AssertionResult same_weights(const SpikeRun& actual, const SpikeRun& expected) {
  const auto parameters = actual.model->parameters(), others = expected.model->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (const auto equal = same(parameters[i], others[i]); !equal) return equal;
  for (const auto& [name, tensor] : actual.keeper->state.tensors) {
    const at::Tensor* const other = expected.keeper->state.find(name);
    if (other == nullptr) return testing::AssertionFailure() << name << " is missing";
    if (const auto equal = same(tensor, *other); !equal)
      return testing::AssertionFailure() << name << ": " << equal.message();
  }
  return testing::AssertionSuccess();
}

}  // namespace kindling
