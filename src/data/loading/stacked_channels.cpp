#include "data/loading/stacked_channels.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/joined.h"
#include "data/loading/tensor_rows.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// Rows that have one block after another of each source, `num_blocks` times.
class StackedRows final : public RowSource {
 public:
  StackedRows(std::vector<std::shared_ptr<const RowSource>> channels, std::size_t num_blocks,
              std::size_t block_bytes)
      : channels_(std::move(channels)), num_blocks_(num_blocks), block_bytes_(block_bytes) {}

  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override {
    const std::size_t blocks = static_cast<std::size_t>(count) * num_blocks_, step = channels_.size();
    std::string rows(blocks * block_bytes_, '\0');
    for (std::size_t channel = 0; channel < step; ++channel) {
      channels_[channel]->read(numbers, count, rows.data());
      for (std::size_t i = 0; i < blocks; ++i)
        std::memcpy(out + (i * step + channel) * block_bytes_, rows.data() + i * block_bytes_, block_bytes_);
    }
  }
  std::string place() const override { return channels_.front()->place(); }
  std::shared_ptr<const RowSource> divided(std::size_t parts) const override {
    if (num_blocks_ % parts != 0) return nullptr;
    std::vector<std::shared_ptr<const RowSource>> divided_channels;
    for (const auto& channel : channels_)
      if (!divided_channels.emplace_back(channel->divided(parts))) return nullptr;
    return std::make_shared<StackedRows>(std::move(divided_channels), num_blocks_ / parts, block_bytes_);
  }
  std::int64_t rows_per_chunk() const override { return channels_.front()->rows_per_chunk(); }

 private:
  std::vector<std::shared_ptr<const RowSource>> channels_;
  std::size_t num_blocks_, block_bytes_;
};

}  // namespace

SourceArray stacked_channels(const std::vector<SourceArray>& arrays, std::size_t num_row_dims) {
  SourceArray stacked = arrays.front();
  if (arrays.size() == 1) return stacked;
  const at::Tensor& first = stacked.values;
  const auto row_dims = static_cast<std::int64_t>(num_row_dims);
  if (first.dim() < row_dims || first.numel() == 0) stacked.refuse("samples with values, [samples, …]");
  bool is_in_memory = true;
  std::vector<at::Tensor> tensors;
  for (const SourceArray& array : arrays) {
    if (array.values.scalar_type() != first.scalar_type() || array.values.sizes() != first.sizes())
      array.refuse("the type and sizes of '" + stacked.name + "', " + type_text(first));
    array.require_files_like(arrays.front());
    is_in_memory = is_in_memory && !array.rows;
    tensors.push_back(array.values);
  }
  stacked.name = joined(arrays, ", ", [](const SourceArray& array) { return array.name; });
  if (is_in_memory) {
    stacked.values = at::stack(tensors, row_dims);
    return stacked;
  }
  std::vector<std::shared_ptr<const RowSource>> channels;
  for (const SourceArray& array : arrays)
    channels.push_back(array.rows ? array.rows : std::make_shared<TensorRows>(array.place(), array.values));
  std::size_t num_blocks = 1;  // in a row, the first dimension
  for (std::int64_t i = 1; i < row_dims; ++i) num_blocks *= static_cast<std::size_t>(first.size(i));
  const std::size_t row_bytes =
      static_cast<std::size_t>(first.numel() / first.size(0)) * first.element_size();
  stacked.rows = std::make_shared<StackedRows>(std::move(channels), num_blocks, row_bytes / num_blocks);
  std::vector<std::int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin() + row_dims, static_cast<std::int64_t>(arrays.size()));
  stacked.values = at::empty({1}, first.options()).expand(sizes);
  return stacked;
}

}  // namespace kindling
