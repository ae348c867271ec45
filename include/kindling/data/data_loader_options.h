#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace kindling {

class Sampler;

struct DataLoaderOptions {
  std::int64_t batch_size = 64;
  bool shuffle = false;
  bool drop_last = false;  // skip a last batch that is not full
  std::int64_t seed = 0;   // the order of epoch e (from 0) is randperm(n) of a generator seeded with seed + e
  // How the generator of an epoch's order is seeded: "sum" as above, like PyTorch's DistributedSampler, so
  // that seed s in epoch e + 1 has the order of seed s + 1 in epoch e; "mixed" with bits of Philox, which
  // differ.
  std::string order_seed = "sum";
  // Whether a fit on a GPU keeps all samples in the GPU's memory; the batches are the same. "auto": tensors
  // (TensorDataset) that take at most a quarter of the free memory; "on": always, or the fit fails.
  std::string resident = "auto";
  // Threads that gather batches ahead, in order: at most 2 · num_workers + 1 of them, besides those in use.
  // Absent: measured with the first batches, if the set is thread-safe and not in memory; otherwise 0. The
  // batches are the same for any number.
  std::optional<std::int64_t> num_workers{};
  // Random numbers per sample that each batch comes with: Batch::random_numbers().
  std::int64_t num_random_numbers = 0;
  // Which samples an epoch has, and their order; nullptr: all, as `shuffle` says.
  std::shared_ptr<const Sampler> sampler{};
};

}  // namespace kindling
