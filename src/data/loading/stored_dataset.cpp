#include "data/loading/stored_dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error_kind.h"
#include "data/loading/pair_dataset.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

constexpr std::size_t kConvertedBytes = std::size_t{1} << 20;  // at once: they stay in the processor's cache

std::vector<std::int64_t> sizes_of(const at::Tensor& like, std::int64_t num_rows) {
  std::vector<std::int64_t> sizes = like.sizes().vec();
  sizes[0] = num_rows;
  return sizes;
}

// Without the operator's warning for a tensor that has values.
void resize_rows(at::Tensor& tensor, std::int64_t num_rows) {
  if (tensor.size(0) != num_rows) tensor.resize_(sizes_of(tensor, num_rows));
}

bool are_consecutive(const std::vector<std::int64_t>& numbers) {
  return std::ranges::adjacent_find(numbers, [](std::int64_t a, std::int64_t b) { return b != a + 1; }) ==
         numbers.end();
}

}  // namespace

StoredRows::StoredRows(Options options) : options_(std::move(options)) {
  const at::Tensor& like = options_.like;
  row_bytes_ =
      static_cast<std::size_t>(like.numel() / std::max<std::int64_t>(like.size(0), 1)) * like.element_size();
  const at::Tensor raw = at::empty(sizes_of(like, 0), like.options());
  none_ = options_.convert ? options_.convert(raw) : raw;
  is_converted_ = !none_.is_same(raw);
}

void StoredRows::require_rows(const std::int64_t* numbers, std::int64_t count) const {
  const auto* const wrong =
      std::find_if(numbers, numbers + count, [this](std::int64_t row) { return row < 0 || row >= size(); });
  if (wrong == numbers + count) return;
  throw DataError({.place = options_.source->place(),
                   .found = "there is no sample " + std::to_string(*wrong),
                   .wanted = "numbers below " + std::to_string(size())});
}

void StoredRows::read(const at::Tensor& numbers, at::Tensor& out) const {
  const std::int64_t count = numbers.size(0);
  const at::Tensor ordered = numbers.contiguous();
  const std::int64_t* const number = ordered.const_data_ptr<std::int64_t>();
  require_rows(number, count);
  resize_rows(out, count);
  with_errors_as<DataError>([&] {
    if (!is_converted_)
      return options_.source->read(number, count, static_cast<char*>(out.mutable_data_ptr()));
    const auto at_once = static_cast<std::int64_t>(
        std::max<std::size_t>(1, kConvertedBytes / std::max<std::size_t>(row_bytes_, 1)));
    const at::Tensor raw =
        at::empty(sizes_of(options_.like, std::min(at_once, count)), options_.like.options());
    for (std::int64_t begin = 0; begin < count; begin += at_once) {
      const std::int64_t rows = std::min(at_once, count - begin);
      options_.source->read(number + begin, rows, static_cast<char*>(raw.mutable_data_ptr()));
      out.narrow(0, begin, rows).copy_(options_.convert(raw.narrow(0, 0, rows)));
    }
  });
}

at::Tensor StoredRows::read_all() const {
  at::Tensor all = none_.clone();
  read(at::arange(size(), at::kLong), all);
  return all;
}

std::int64_t num_rows_of(const StoredDataset::Column& column) {
  const auto* const tensor = std::get_if<at::Tensor>(&column);
  return tensor != nullptr ? tensor->size(0) : std::get<StoredRows>(column).size();
}

at::Tensor no_rows_of(const StoredDataset::Column& column) {
  const auto* const tensor = std::get_if<at::Tensor>(&column);
  return tensor != nullptr ? tensor->narrow(0, 0, 0) : std::get<StoredRows>(column).none();
}

at::Tensor all_rows_of(const StoredDataset::Column& column) {
  const auto* const tensor = std::get_if<at::Tensor>(&column);
  return tensor != nullptr ? *tensor : std::get<StoredRows>(column).read_all();
}

StoredDataset::StoredDataset(std::vector<Column> columns, const std::vector<std::int64_t>* chosen)
    : columns_(std::move(columns)),
      size_(chosen == nullptr ? num_rows_of(columns_.front()) : static_cast<std::int64_t>(chosen->size())) {
  if (chosen == nullptr || chosen->empty()) return;
  if (are_consecutive(*chosen))
    first_ = chosen->front();
  else
    rows_ = at::tensor(*chosen, at::kLong);
}

at::Tensor StoredDataset::rows_of(const at::Tensor& indices) const {
  return rows_.defined() ? rows_.index_select(0, indices) : indices.add(first_);
}

void StoredDataset::gather(const at::Tensor& indices, Batch& batch) const {
  if (batch.tensors().size() != columns_.size()) {
    std::vector<at::Tensor> buffers;
    for (const Column& column : columns_) buffers.push_back(no_rows_of(column).clone());
    batch = Batch(std::move(buffers));
  }
  const at::Tensor rows = rows_of(indices);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    at::Tensor& out = batch.tensors()[i];
    if (const auto* const stored = std::get_if<StoredRows>(&columns_[i])) {
      stored->read(rows, out);
      continue;
    }
    resize_rows(out, indices.size(0));
    at::index_select_out(out, std::get<at::Tensor>(columns_[i]), /*dim=*/0, rows);
  }
}

at::Tensor StoredDataset::labels() const {
  if (at::Tensor labels = labels_in_memory(); labels.defined()) return labels;
  return labels_in_file(0, size_);
}

at::Tensor StoredDataset::labels_in_file(std::int64_t first, std::int64_t end) const {
  const StoredRows& stored = std::get<StoredRows>(columns_.back());
  at::Tensor labels = stored.none().clone();
  stored.read(rows_of(at::arange(first, end, at::kLong)), labels);
  return labels;
}

at::Tensor StoredDataset::labels_in_memory() const {
  const auto* const tensor = std::get_if<at::Tensor>(&columns_.back());
  if (tensor == nullptr || columns_.size() < 2) return {};
  return rows_.defined() ? tensor->index_select(0, rows_) : tensor->narrow(0, first_, size_);
}

std::int64_t StoredDataset::bytes_per_sample() const {
  std::int64_t bytes = 0;
  for (const Column& column : columns_) {
    const at::Tensor none = no_rows_of(column);
    bytes += c10::multiply_integers(none.sizes().slice(1)) * static_cast<std::int64_t>(none.element_size());
  }
  return bytes;
}

std::int64_t samples_at_once(const Dataset& dataset) {
  constexpr std::int64_t kMostSamples = 256, kMostBytes = std::int64_t{1} << 24;
  std::int64_t bytes = 0;
  if (const auto* const stored = dynamic_cast<const StoredDataset*>(&dataset))
    bytes = stored->bytes_per_sample();
  if (const auto* const pairs = dynamic_cast<const PairDataset*>(&dataset)) bytes = pairs->bytes_per_sample();
  return std::clamp<std::int64_t>(kMostBytes / std::max<std::int64_t>(bytes, 1), 1, kMostSamples);
}

}  // namespace kindling
