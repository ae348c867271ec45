#include "kindling/data/sequence_windows.h"

#include <algorithm>
#include <utility>

#include "kindling/base/error.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_windows(std::string found, std::string wanted, std::string remedy = "") {
  throw DataError({.place = "SequenceWindows",
                   .found = std::move(found),
                   .wanted = std::move(wanted),
                   .remedy = std::move(remedy)});
}

}  // namespace

SequenceWindows::SequenceWindows(std::vector<at::Tensor> sequences, SequenceWindowsOptions options)
    : sequences_(std::move(sequences)), options_(options) {
  if (options_.batch_size < 1 || options_.num_steps < 1)
    refuse_windows("a batch_size of " + std::to_string(options_.batch_size) + ", num_steps of " +
                       std::to_string(options_.num_steps),
                   "at least 1");
  if (sequences_.empty()) refuse_windows("no tensors", "at least one");
  const at::Tensor& first = sequences_.front();
  for (const at::Tensor& one : sequences_)
    if (one.dim() < 2 || one.sizes().slice(0, 2) != first.sizes().slice(0, 2) || one.numel() == 0 ||
        !one.is_cpu())
      refuse_windows("a tensor of the shape " + shape_text(one) + " on " + one.device().str(),
                     "tensors [sequences, time, ...] of the same two sizes, on the CPU");
  if (first.size(0) % options_.batch_size != 0)
    refuse_windows(
        std::to_string(first.size(0)) + " sequences in batches of " + std::to_string(options_.batch_size),
        "a batch_size that divides their number", "drop some of them");
}

at::Tensor SequenceWindows::rows_of(const at::Tensor& series, std::int64_t num_rows) {
  const std::int64_t time = num_rows < 1 || series.dim() == 0 ? 0 : series.size(0) / num_rows;
  if (time == 0)
    refuse_windows(std::to_string(num_rows) + " rows of a series of the shape " + shape_text(series),
                   "at least one step for each row");
  std::vector<std::int64_t> sizes = series.sizes().vec();
  sizes[0] = time;
  sizes.insert(sizes.begin(), num_rows);
  return series.narrow(0, 0, num_rows * time).reshape(sizes);
}

std::shared_ptr<DataLoader> SequenceWindows::loader(std::vector<at::Tensor> sequences,
                                                    SequenceWindowsOptions options) {
  return std::make_shared<DataLoader>(std::make_shared<SequenceWindows>(std::move(sequences), options),
                                      DataLoaderOptions{.batch_size = options.batch_size});
}

std::int64_t SequenceWindows::num_windows() const noexcept {
  return (sequences_.front().size(1) + options_.num_steps - 1) / options_.num_steps;
}

std::int64_t SequenceWindows::size() const { return sequences_.front().size(0) * num_windows(); }

// Sample number (group · windows + window) · batch_size + row.
void SequenceWindows::gather(const at::Tensor& indices, Batch& batch) const {
  const std::int64_t rows = options_.batch_size;
  const auto* index = indices.const_data_ptr<std::int64_t>();
  bool is_window = indices.numel() == rows && index[0] % rows == 0;
  for (std::int64_t i = 1; is_window && i < rows; ++i) is_window = index[i] == index[0] + i;
  if (!is_window)
    refuse_windows("samples that are not one window of neighbouring sequences",
                   "a loader without shuffling, with the batch size " + std::to_string(rows),
                   "use SequenceWindows::loader");
  const std::int64_t number = index[0] / rows, group = number / num_windows();
  const std::int64_t begin = number % num_windows() * options_.num_steps;
  std::vector<at::Tensor> window;
  for (const at::Tensor& one : sequences_) {
    const std::int64_t steps = std::min(options_.num_steps, one.size(1) - begin);
    window.push_back(
        one.narrow(0, group * rows, rows).narrow(1, begin, steps).clone(at::MemoryFormat::Contiguous));
  }
  batch = Batch(std::move(window));
}

}  // namespace kindling
