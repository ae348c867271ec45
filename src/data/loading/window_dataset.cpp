#include "data/loading/window_dataset.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>

#include "data/loading/stored_dataset.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

constexpr std::int64_t kWindowBytesPerThread = 1 << 18;  // at least

// Gives `out` the shape [count, …] with the sizes `of_sample` after it.
void resize_for(std::int64_t count, std::vector<std::int64_t> of_sample, at::Tensor& out) {
  of_sample.insert(of_sample.begin(), count);
  if (out.sizes() != at::IntArrayRef(of_sample)) out.resize_(of_sample);
}

}  // namespace

WindowDataset::WindowDataset(const at::Tensor& rows, const std::vector<std::int64_t>& begins,
                             std::int64_t window, const at::Tensor& labels)
    : rows_(rows.contiguous()),
      begins_(at::tensor(begins, at::kLong)),
      labels_(labels.defined() ? labels.contiguous() : labels),
      window_(window) {
  const bool has_windows = std::ranges::all_of(
      begins, [&](std::int64_t begin) { return begin >= 0 && begin + window <= rows.size(0); });
  if (window < 1 || !has_windows || (labels.defined() && labels.size(0) != begins_.size(0)))
    throw DataError({.place = "WindowDataset",
                     .found = "a window outside of the rows, or another number of labels",
                     .wanted = "windows of at least one row, with a label each"});
}

void WindowDataset::gather(const at::Tensor& indices, Batch& batch) const {
  const std::size_t num_tensors = labels_.defined() ? 2 : 1;
  if (batch.tensors().size() != num_tensors) {
    std::vector<at::Tensor> buffers{at::empty({0}, rows_.options())};
    if (labels_.defined()) buffers.push_back(at::empty({0}, labels_.options()));
    batch = Batch(std::move(buffers));
  }
  const std::int64_t count = indices.size(0);
  std::vector<std::int64_t> shape = rows_.sizes().vec();
  shape[0] = window_;
  resize_for(count, shape, batch.tensors()[0]);
  const std::int64_t row_bytes =
      rows_.size(0) == 0 ? 0 : static_cast<std::int64_t>(rows_.nbytes()) / rows_.size(0);
  const std::int64_t bytes = row_bytes * window_;
  const at::Tensor begins = at::index_select(begins_, 0, indices);  // checks the indices
  const std::int64_t* const begin = begins.const_data_ptr<std::int64_t>();
  const auto* const from = static_cast<const char*>(rows_.const_data_ptr());
  auto* const to = static_cast<char*>(batch.tensors()[0].mutable_data_ptr());
  at::parallel_for(
      0, count, std::max<std::int64_t>(1, kWindowBytesPerThread / std::max<std::int64_t>(bytes, 1)),
      [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t i = first; i < end; ++i)
          std::memcpy(to + i * bytes, from + begin[i] * row_bytes, static_cast<std::size_t>(bytes));
      });
  if (!labels_.defined()) return;
  resize_for(count, labels_.sizes().slice(1).vec(), batch.tensors()[1]);
  at::index_select_out(batch.tensors()[1], labels_, 0, indices);
}

std::vector<at::Tensor> WindowDataset::tensors() const {
  std::vector<at::Tensor> tensors{rows_, begins_};
  if (labels_.defined()) tensors.push_back(labels_);
  return tensors;
}

std::vector<at::Tensor> tensors_in_memory(const Dataset& dataset) {
  if (const auto* tensors = dynamic_cast<const TensorDataset*>(&dataset)) return tensors->tensors();
  if (const auto* windows = dynamic_cast<const WindowDataset*>(&dataset)) return windows->tensors();
  return {};
}

at::Tensor labels_in_memory(const Dataset& dataset) {
  if (const auto* windows = dynamic_cast<const WindowDataset*>(&dataset)) return windows->labels();
  if (const auto* stored = dynamic_cast<const StoredDataset*>(&dataset)) return stored->labels_in_memory();
  const auto* const tensors = dynamic_cast<const TensorDataset*>(&dataset);
  return tensors == nullptr || tensors->tensors().size() < 2 ? at::Tensor() : tensors->tensors().back();
}

}  // namespace kindling
