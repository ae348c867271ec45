#include "data/loading/chunk_sampler.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <span>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/data/sample_random.h"

namespace kindling {
namespace {

class ChunkSampler final : public Sampler {
 public:
  // `positions`: int64 [samples], those of a chunk together; `begins`: where each chunk begins.
  ChunkSampler(at::Tensor positions, std::vector<std::int64_t> begins, ChunkOrder order)
      : positions_(std::move(positions)), begins_(std::move(begins)), order_(std::move(order)) {}

  std::int64_t size() const override { return positions_.size(0); }

  at::Tensor order(std::int64_t epoch) const override {
    constexpr std::int64_t kWithinChunks = 0x4D1F7A33;  // set apart from what samples draw with the same seed
    const auto num_chunks = static_cast<std::int64_t>(begins_.size());
    const at::Tensor chunks =
        (order_.order_seed == "mixed" ? mixed_order : shuffled_order)(num_chunks, order_.seed, epoch);
    const SampleStreams streams(order_.seed ^ kWithinChunks, epoch);
    at::Tensor samples = at::empty({size()}, at::kLong);
    auto* end = samples.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < num_chunks;) {
      auto* const begin = end;
      SampleRandom random = streams.of(i);
      for (std::int64_t mixed = 0; mixed < order_.num_mixed && i < num_chunks; ++mixed, ++i)
        end = copy_chunk(chunks.const_data_ptr<std::int64_t>()[i], end);
      for (std::int64_t n = end - begin; n > 1; --n) std::swap(begin[n - 1], begin[random.below(n)]);
    }
    return samples;
  }

 private:
  std::int64_t* copy_chunk(std::int64_t chunk, std::int64_t* out) const {
    const auto number = static_cast<std::size_t>(chunk);
    const std::int64_t end = number + 1 < begins_.size() ? begins_[number + 1] : positions_.size(0);
    const auto* const positions = positions_.const_data_ptr<std::int64_t>();
    return std::copy(positions + begins_[number], positions + end, out);
  }

  at::Tensor positions_;
  std::vector<std::int64_t> begins_;
  ChunkOrder order_;
};

}  // namespace

std::shared_ptr<const Sampler> chunk_sampler(const SourceArray& array,
                                             const std::vector<std::int64_t>* chosen,
                                             const ChunkOrder& order) {
  const std::vector<std::int64_t>& starts = array.chunk_starts;
  if (starts.empty())
    throw DataError({.place = array.place(),
                     .found = "its samples are not stored in chunks",
                     .wanted = "a chunked data set of an HDF5 file, or several files",
                     .remedy = "omit data.shuffle_chunks"});
  const std::int64_t count =
      chosen == nullptr ? array.values.size(0) : static_cast<std::int64_t>(chosen->size());
  const auto chunk_of = [&](std::int64_t position) {
    const std::int64_t sample = chosen == nullptr ? position : (*chosen)[static_cast<std::size_t>(position)];
    return std::ranges::upper_bound(starts, sample) - starts.begin() - 1;
  };
  at::Tensor positions = at::arange(count, at::kLong);
  const std::span all(positions.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(count));
  if (chosen != nullptr) std::ranges::stable_sort(all, {}, chunk_of);
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0, last = -1; i < count; ++i)
    if (const std::int64_t chunk = chunk_of(all[static_cast<std::size_t>(i)]); chunk != last) {
      begins.push_back(i);
      last = chunk;
    }
  return std::make_shared<ChunkSampler>(std::move(positions), std::move(begins), order);
}

}  // namespace kindling
