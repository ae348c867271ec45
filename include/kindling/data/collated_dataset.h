#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/dataset.h"

namespace kindling {

// Samples one by one, and a function that makes a batch of them: what Python calls collate_fn. For samples of
// different shapes, which no stacking fits: the function pads them (Sequence::padded), or packs them as it
// likes. Each tensor of the batch has the samples along dimension 0.
class KINDLING_API CollatedDataset : public Dataset {
 public:
  using Sample = std::function<Batch(std::int64_t index)>;
  using Collate = std::function<Batch(const std::vector<Batch>& samples)>;

  // Throws DataError for a size below 0 or a function that is empty.
  CollatedDataset(std::int64_t size, Sample sample, Collate collate);

  std::int64_t size() const override { return size_; }
  void gather(const at::Tensor& indices, Batch& batch) const override;

 private:
  std::int64_t size_;
  Sample sample_;
  Collate collate_;
};

}  // namespace kindling
