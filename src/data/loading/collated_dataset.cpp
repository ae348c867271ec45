#include "kindling/data/collated_dataset.h"

#include <utility>

#include "kindling/base/error.h"

namespace kindling {

CollatedDataset::CollatedDataset(std::int64_t size, Sample sample, Collate collate)
    : size_(size), sample_(std::move(sample)), collate_(std::move(collate)) {
  if (size_ < 0 || !sample_ || !collate_)
    throw DataError(
        {.place = "CollatedDataset",
         .found = size_ < 0 ? "a size of " + std::to_string(size_) : "an empty function",
         .wanted = "a size, a function that returns a sample, and one that combines samples into a batch"});
}

void CollatedDataset::gather(const at::Tensor& indices, Batch& batch) const {
  std::vector<Batch> samples;
  for (std::int64_t i = 0; i < indices.numel(); ++i)
    samples.push_back(sample_(indices.const_data_ptr<std::int64_t>()[i]));
  batch = collate_(samples);
}

}  // namespace kindling
