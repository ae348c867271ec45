// A recurrent model and its data, as fixtures/make_recurrent.py has them.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn.h>

#include <memory>
#include <string>
#include <vector>

#include "kindling/data/collated_dataset.h"
#include "kindling/data/sequence_windows.h"
#include "kindling/nn/carried_state.h"
#include "kindling/nn/module.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/sequence.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"

namespace kindling {

inline at::Tensor recurrent_number(const std::string& name) {
  static const StateDict numbers =
      load_state_file(std::filesystem::path(KINDLING_TESTS) / "training/fixtures/recurrent.pt");
  return *numbers.find(name);
}

// [batch, time, 2] → [batch, time, 1], with a state that it carries on.
struct Predictor : Module {
  explicit Predictor(const std::string& initial = "initial.", CarriedStateOptions options = {})
      : state(register_module("state", CarriedState(options))) {
    for (const auto& item : named_parameters())
      write_values(item.value(), recurrent_number(initial + item.key()));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const auto [outputs, hidden] = gru->forward(x, state->hidden(x.size(0)));
    state->carry(hidden);
    return head->forward(outputs);
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) override {
    return at::mse_loss(outputs, targets);
  }
  torch::nn::GRU gru =
      register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(2, 8).num_layers(2).batch_first(true)));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 1));
  CarriedState state;
};

// 20 windows of 6 steps of 4 series; validation has other windows and batches.
struct WindowData : DataModule {
  explicit WindowData(bool validates = false) : validates(validates) {}
  std::shared_ptr<DataLoader> train_dataloader() override { return loader(4, 6); }
  std::shared_ptr<DataLoader> val_dataloader() override { return validates ? loader(2, 16) : nullptr; }
  static std::shared_ptr<DataLoader> loader(std::int64_t batch_size, std::int64_t num_steps) {
    return SequenceWindows::loader({recurrent_number("series"), recurrent_number("targets")},
                                   {.batch_size = batch_size, .num_steps = num_steps});
  }
  bool validates;
};

// The second part of the script: a sequence, as it is collated into {sequence, the signs to be predicted}.
struct SignData : DataModule {
  std::shared_ptr<DataLoader> train_dataloader() override {
    const auto sample = [](std::int64_t i) {
      const auto length = recurrent_number("lengths")[i].item<std::int64_t>();
      return Batch{recurrent_number("sequences")[i].narrow(0, 0, length)};
    };
    const auto collate = [](const std::vector<Batch>& samples) {
      std::vector<at::Tensor> sequences;
      for (const Batch& one : samples) sequences.push_back(one[0]);
      const Sequence padded = Sequence::padded(sequences);
      return Batch::list(
          {padded.to_batch(), Batch::leaf(padded.values.narrow(2, 0, 1).gt(0).to(at::kFloat))});
    };
    return std::make_shared<DataLoader>(std::make_shared<CollatedDataset>(8, sample, collate),
                                        DataLoaderOptions{.batch_size = 4});
  }
};

struct SignPredictor : Predictor {
  SignPredictor() : Predictor("initial_packed.") {}
  at::Tensor training_step(const Batch& batch) override {
    const Sequence steps = Sequence::of(batch.part(0));
    const auto [outputs, hidden] = gru->forward_with_packed_input(steps.packed());
    const at::Tensor predicted = head->forward(outputs.data()), wanted = steps.pack(batch.labels()).data();
    return at::mse_loss(predicted, wanted) + hidden[-1].square().mean();
  }
};

inline OptimizerFactory recurrent_rule() {
  return [](ParameterGroups parameters) {
    return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.1, .momentum = 0.9});
  };
}

}  // namespace kindling
