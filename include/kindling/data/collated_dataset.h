#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/dataset.h"

namespace kindling {

// Samples one by one, and a function that combines them into a batch, like Python's collate_fn. For samples
// of different shapes, which cannot be stacked: the function pads them (Sequence::padded) or packs them in
// its own format. Each tensor of the batch has the samples along dimension 0.
class KINDLING_API CollatedDataset : public Dataset {
 public:
  using Sample = std::function<Batch(std::int64_t index)>;
  using Collate = std::function<Batch(const std::vector<Batch>& samples)>;

  // Throws DataError for a negative size and for an empty function.
  CollatedDataset(std::int64_t size, Sample sample, Collate collate);

  std::int64_t size() const override { return size_; }
  void gather(const at::Tensor& indices, Batch& batch) const override;

 private:
  std::int64_t size_;
  Sample sample_;
  Collate collate_;
};

}  // namespace kindling
