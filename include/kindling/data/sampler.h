#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "kindling/base/export.h"

namespace kindling {

// Chooses the samples of an epoch and their order, as a pure function of the epoch: a resumed run and every
// rank ask again and get the same.
class KINDLING_API Sampler {
 public:
  virtual ~Sampler();
  // The number of samples in every epoch, at least 1.
  virtual std::int64_t size() const = 0;
  // Returns the indices of the samples: int64 [size()] on the CPU. A sample may come more than once.
  // Within an epoch, transforms then get other random numbers each time (Batch::random_numbers());
  // sample_random() in gather() is the same.
  virtual at::Tensor order(std::int64_t epoch) const = 0;
};

// Returns the order of a shuffled epoch: torch.randperm(size) of a generator seeded with seed + epoch, as
// PyTorch's DistributedSampler does. Epoch e + 1 of seed s therefore has the order of epoch e of seed s + 1.
KINDLING_API at::Tensor shuffled_order(std::int64_t size, std::int64_t seed, std::int64_t epoch);
// Returns torch.randperm(size) of a generator seeded with 32 bits that Philox makes of the seed and the
// epoch: orders of different seeds are unrelated.
KINDLING_API at::Tensor mixed_order(std::int64_t size, std::int64_t seed, std::int64_t epoch);

// Draws samples with replacement, each with a probability in proportion to its weight, like PyTorch's
// WeightedRandomSampler. Draw number i is a function of (seed, epoch, i).
class KINDLING_API WeightedSampler : public Sampler {
 public:
  // `weights`: [samples], of any real dtype, on the CPU. `num_samples`: of an epoch; 0: as many as there are
  // weights. Throws DataError for weights that are negative, not finite or all zero.
  WeightedSampler(const at::Tensor& weights, std::int64_t seed, std::int64_t num_samples = 0);

  std::int64_t size() const override { return num_samples_; }
  at::Tensor order(std::int64_t epoch) const override;

 private:
  at::Tensor sums_;  // cumulative weights, float64 [samples], the last is 1
  std::int64_t seed_, num_samples_;
};

// Return float64 [samples] and [classes] weights that make all classes count equally: samples / (classes with
// samples · samples of the class), as scikit-learn's "balanced"; a class without samples has the weight 0.
// `labels`: integers [samples] from 0 on, on the CPU. Throw DataError for others, and for labels that are not
// below `num_classes`; 0: the largest label + 1.
KINDLING_API at::Tensor balanced_class_weights(const at::Tensor& labels, std::int64_t num_classes = 0);
KINDLING_API at::Tensor balanced_sample_weights(const at::Tensor& labels);

}  // namespace kindling
