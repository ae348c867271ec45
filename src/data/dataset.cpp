#include "kindling/data/dataset.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "data/gather_rows.h"
#include "kindling/base/error.h"

namespace kindling {

Dataset::~Dataset() = default;

Batch Dataset::slice(std::int64_t begin, std::int64_t end) const {
  Batch batch;
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
                       .wanted = std::to_string(tensors_[0].size(0)) + " as the first tensor has"});
    tensors_[i] = tensors_[i].contiguous();
  }
}

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
