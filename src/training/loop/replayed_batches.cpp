#include "training/loop/replayed_batches.h"

#include <ATen/ops/full.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensors/saved_number.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

constexpr const char *kTensors = "tensor.", *kNumTensors = "num_tensors", *kIndices = "indices",
                     *kOutputs = "outputs", *kLosses = "losses", *kWeights = "weights", *kMean = "mean_loss",
                     *kNoOutputs = "no_outputs", *kNoLosses = "no_losses", *kNumBatches = "num_batches";

StateDict state_of(const ReplayedBatch& batch) {
  StateDict state;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) state.tensors.emplace_back(name, tensor.contiguous());
  };
  const auto tensors = batch.batch.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) add(kTensors + std::to_string(i), tensors[i]);
  add(kIndices, batch.indices);
  add(kOutputs, batch.outputs);
  add(kLosses, batch.losses);
  add(kWeights, batch.weights);
  add(kMean, at::full({1}, batch.mean_loss, at::kDouble));
  state.metadata = {{kNumTensors, std::to_string(tensors.size())},
                    {kNoOutputs, batch.no_outputs},
                    {kNoLosses, batch.no_losses}};
  return state;
}

ReplayedBatch batch_of(const StateDict& state, std::int64_t rank) {
  const auto tensor = [&](const std::string& name) {
    const at::Tensor* const found = state.find(name);
    return found == nullptr ? at::Tensor() : *found;
  };
  std::vector<at::Tensor> tensors;
  const auto count = number_of<std::int64_t>(state.metadata, kNumTensors, {.min = 0});
  for (std::int64_t i = 0; i < count; ++i) tensors.push_back(tensor(kTensors + std::to_string(i)));
  return {.rank = rank,
          .batch = Batch(std::move(tensors)),
          .indices = tensor(kIndices),
          .outputs = tensor(kOutputs),
          .no_outputs = state.metadata.at(kNoOutputs),
          .losses = tensor(kLosses),
          .weights = tensor(kWeights),
          .mean_loss = tensor(kMean).item<double>(),
          .no_losses = state.metadata.at(kNoLosses)};
}

}  // namespace

void gather_batches(ReplayedStep& step, ProcessGroup& group) {
  StateDict own;
  own.metadata[kNumBatches] = std::to_string(step.batches.size());
  for (std::size_t i = 0; i < step.batches.size(); ++i)
    put(own, std::to_string(i) + ".", state_of(step.batches[i]));
  const std::vector<std::string> all = group.all_gather(state_bytes(own));
  if (group.rank() != 0) return;
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const StateDict state = state_of_bytes(all[rank], "the batches of rank " + std::to_string(rank));
    const auto num_batches = number_of<std::int64_t>(state.metadata, kNumBatches, {.min = 0});
    for (std::int64_t i = 0; i < num_batches; ++i)
      step.batches.push_back(
          batch_of(part_of(state, std::to_string(i) + "."), static_cast<std::int64_t>(rank)));
  }
}

}  // namespace kindling
