#include "kindling/data/dataset.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include "kindling/base/error.h"
#include "kindling/data/sample_random.h"

namespace kindling {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kSmallRow = 256;          // below this, a row costs less than its prefetch
constexpr std::size_t kPrefetchedBytes = 4096;  // of a row: the processor prefetches the rest by itself
constexpr std::int64_t kRowsAhead = 2;
constexpr std::size_t kBytesPerThread = 1 << 18;  // at least

void ask_for(const char* row, std::size_t size) {
  for (std::size_t at = 0; at < std::min(size, kPrefetchedBytes); at += kCacheLine)
    __builtin_prefetch(row + at);
}

// Copies from.index_select(0, rows) into `to`, which has its shape; both are contiguous and in host memory.
// `rows`: int64 [n]. Rows of some hundred bytes are scattered in memory, so the next ones are prefetched
// while one is copied, which the operator does not do. Throws DataError for a row that does not exist.
void gather_rows(const at::Tensor& from, const at::Tensor& rows, const at::Tensor& to) {
  const auto size = from.size(0) == 0 ? 0 : from.nbytes() / static_cast<std::size_t>(from.size(0));
  if (size < kSmallRow || !rows.is_contiguous()) {
    at::Tensor out = to;
    at::index_select_out(out, from, /*dim=*/0, rows);
    return;
  }
  const auto* const source = static_cast<const char*>(from.const_data_ptr());
  auto* const target = static_cast<char*>(to.mutable_data_ptr());
  const std::int64_t* const numbers = rows.const_data_ptr<std::int64_t>();
  const std::int64_t count = rows.size(0);
  for (std::int64_t i = 0; i < count; ++i)
    if (numbers[i] < 0 || numbers[i] >= from.size(0))
      throw DataError({.place = "TensorDataset::gather",
                       .found = "there is no sample " + std::to_string(numbers[i]),
                       .wanted = "numbers below " + std::to_string(from.size(0))});
  const auto row = [&](std::int64_t i) { return source + static_cast<std::size_t>(numbers[i]) * size; };
  at::parallel_for(0, count, std::max<std::int64_t>(1, static_cast<std::int64_t>(kBytesPerThread / size)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       if (i + kRowsAhead < end) ask_for(row(i + kRowsAhead), size);
                       std::memcpy(target + static_cast<std::size_t>(i) * size, row(i), size);
                     }
                   });
}

}  // namespace

Dataset::~Dataset() = default;

Batch Dataset::slice(std::int64_t begin, std::int64_t end) const {
  Batch batch;
  const SampleStreams::Scope scope{SampleStreams()};
  gather(at::arange(begin, end, at::kLong), batch);
  return batch;
}

TensorDataset::TensorDataset(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  if (tensors_.empty())
    throw DataError({.place = "TensorDataset", .found = "no tensors", .wanted = "at least one"});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::string place = "TensorDataset, tensor " + std::to_string(i);
    if (tensors_[i].dim() == 0)
      throw DataError({.place = place, .found = "its rank is 0", .wanted = "the samples along dimension 0"});
    if (!tensors_[i].device().is_cpu())
      throw DataError(
          {.place = place, .found = "it is on " + tensors_[i].device().str(), .wanted = "host memory"});
    if (tensors_[i].size(0) != tensors_[0].size(0))
      throw DataError({.place = place,
                       .found = "it has " + std::to_string(tensors_[i].size(0)) + " samples",
                       .wanted = std::to_string(tensors_[0].size(0)) + " samples, like the first tensor"});
    tensors_[i] = tensors_[i].resolve_conj().resolve_neg().contiguous();  // rows are copied as bytes
  }
}

bool TensorDataset::is_thread_safe() const { return typeid(*this) == typeid(TensorDataset); }

std::int64_t TensorDataset::size() const { return tensors_[0].size(0); }

void TensorDataset::gather(const at::Tensor& indices, Batch& batch) const {
  if (batch.tensors().size() != tensors_.size()) {
    std::vector<at::Tensor> buffers;
    for (const auto& tensor : tensors_) buffers.push_back(at::empty({0}, tensor.options()));
    batch = Batch(std::move(buffers));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    at::Tensor& out = batch.tensors()[i];
    if (out.size(0) != indices.size(0)) {  // the operator would resize too, but with a warning
      auto shape = tensors_[i].sizes().vec();
      shape[0] = indices.size(0);
      out.resize_(shape);
    }
    gather_rows(tensors_[i], indices, out);
  }
}

Batch TensorDataset::slice(std::int64_t begin, std::int64_t end) const {
  std::vector<at::Tensor> views;
  for (const auto& tensor : tensors_) views.push_back(tensor.narrow(0, begin, end - begin));
  return Batch(std::move(views));
}

}  // namespace kindling
