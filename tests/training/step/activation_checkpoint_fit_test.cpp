// A run with activation checkpoints is bit-identical to one without.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/log.h"
#include "kindling/nn/activation_checkpoint.h"
#include "kindling/tensors/checkpoint_file.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/loop/resumed_fit.h"

namespace kindling {
namespace {

// A sequence of layers that may be nested in a Sequential, unlike a Sequential.
struct PlainSegmentImpl : torch::nn::SequentialImpl {
  at::Tensor forward(const at::Tensor& x) { return torch::nn::SequentialImpl::forward(x); }
};
TORCH_MODULE(PlainSegment);

// Busy has lazy layers, batch norm and dropout; here they are in two segments.
template <class Segment>
struct InSegments : Classifier {
  InSegments() {
    Segment first, second;
    first->push_back(torch::nn::Flatten());
    first->push_back(LazyLinear(8));
    first->push_back(torch::nn::BatchNorm1d(8));
    second->push_back(torch::nn::Dropout(0.5));
    second->push_back(LazyLinear(10));
    net->push_back(first);
    net->push_back(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)));  // of what the segment has given
    net->push_back(second);
    register_module("net", net);
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  torch::nn::Sequential net;
};
using PlainSegments = InSegments<PlainSegment>;
using CheckpointedSegments = InSegments<ActivationCheckpoint<torch::nn::Sequential>>;

class CheckpointedFit : public OnDevice {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 2,
            .num_gpus = num_gpus_wanted(),
            .gradient_clip_val = 1,
            .optimizer = rule_named("adam")};
  }
  template <class Model>
  StateDict end_of(const TrainerOptions& options, const FitOptions& fit = {}) const {
    at::manual_seed(2);
    NoisyImages data{58, 4, 4};
    Trainer trainer(options);
    trainer.fit(std::make_shared<Model>(), data, fit);
    return copy_to(trainer.state_dict(), cpu());
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(CheckpointedFit);

TEST_P(CheckpointedFit, IsBitIdentical) {
  for (const char* precision : {"32-true", "bf16-mixed", "16-mixed", "64-true"})
    for (const std::int64_t accumulated : {1, 3}) {
      TrainerOptions changed = options();
      changed.precision = precision;
      changed.accumulate_grad_batches = accumulated;
      expect_same_state(end_of<CheckpointedSegments>(changed), end_of<PlainSegments>(changed),
                        std::string(precision) + ", " + std::to_string(accumulated));
    }
}

// A run that was started without activation checkpoints may resume with them.
TEST_P(CheckpointedFit, ResumesARunWithoutCheckpointing) {
  const Scratch scratch(memory_folder());
  TrainerOptions half = options();
  half.max_epochs = 1;
  save_checkpoint(end_of<PlainSegments>(half), scratch / "half");
  expect_same_state(end_of<CheckpointedSegments>(options(), {.resume = scratch / "half"}),
                    end_of<PlainSegments>(options()), "resumed");
}

// The watch for waits has nothing to say, and a step that is not finite is found in the same layer.
TEST_P(CheckpointedFit, IsWatchedLikeAnyOtherFit) {
  struct Poisoned : NoisyImages {
    Poisoned() : NoisyImages(58, 4, 4) {}
    Batch on_after_batch_transfer(Batch batch) override {
      batch = NoisyImages::on_after_batch_transfer(std::move(batch));
      if (poisons) batch.tensors()[0] = batch[0] * std::nan("");
      return batch;
    }
    bool poisons = false;
  };
  const auto warnings_of = [&](auto model, bool poisons) {
    std::vector<std::string> warnings;
    configure_log({.level = LogLevel::warning});
    set_log_observer([&](LogLevel, const std::string& text) { warnings.push_back(text); });
    Poisoned data;
    data.poisons = poisons;
    Trainer(options()).fit(model, data);
    set_log_observer({});
    configure_log({});
    return warnings;
  };
  EXPECT_EQ(warnings_of(std::make_shared<CheckpointedSegments>(), false), std::vector<std::string>{});
  at::manual_seed(2);
  const auto expected = warnings_of(std::make_shared<PlainSegments>(), true);
  at::manual_seed(2);
  const auto actual = warnings_of(std::make_shared<CheckpointedSegments>(), true);
  EXPECT_EQ(actual, expected);
  ASSERT_FALSE(expected.empty());
  EXPECT_NE(expected.back().find("layer 'net.0.1'"), std::string::npos) << expected.back();
}

}  // namespace
}  // namespace kindling
