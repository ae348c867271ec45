#include "data/loading/pair_dataset.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cstddef>
#include <utility>

namespace kindling {

PairDataset::PairDataset(std::shared_ptr<const Dataset> inputs, std::shared_ptr<const Dataset> targets,
                         const RowPairs& pairs)
    : inputs_(std::move(inputs)),
      targets_(std::move(targets)),
      input_rows_(at::tensor(pairs.inputs, at::kLong)),
      target_rows_(at::tensor(pairs.targets, at::kLong)) {}

// The tensors of an earlier batch are the buffers of the new one.
void PairDataset::gather(const at::Tensor& indices, Batch& batch) const {
  std::vector<at::Tensor> former(batch.tensors().begin(), batch.tensors().end());
  batch.clear();
  Batch targets, inputs;
  if (!former.empty()) {
    targets = Batch({std::move(former.back())});
    former.pop_back();
    inputs = Batch(std::move(former));
  }
  inputs_->gather(input_rows_.index_select(0, indices), inputs);
  targets_->gather(target_rows_.index_select(0, indices), targets);
  std::vector<at::Tensor> all(inputs.tensors().begin(), inputs.tensors().end());
  all.insert(all.end(), targets.tensors().begin(), targets.tensors().end());
  batch = Batch(std::move(all));
}

std::int64_t PairDataset::bytes_per_sample() const {
  std::int64_t bytes = 0;
  if (size() == 0) return bytes;
  const Batch sample = slice(0, 1);
  for (const at::Tensor& tensor : sample.tensors()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace kindling
