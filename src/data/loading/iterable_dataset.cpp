#include "kindling/data/iterable_dataset.h"

#include <ATen/ops/empty.h>

#include <exception>
#include <string>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

constexpr const char* kNext = "IterableDataset::next";

// Makes the batch fit samples such as this one, if it does not.
void make_room(Batch& batch, const std::vector<at::Tensor>& sample, std::int64_t count) {
  bool fits = batch.tensors().size() == sample.size();
  for (std::size_t i = 0; fits && i < sample.size(); ++i) {
    const at::Tensor& buffer = batch.tensors()[i];
    fits = buffer.dim() == sample[i].dim() + 1 && buffer.size(0) == count &&
           buffer.sizes().slice(1) == sample[i].sizes() && buffer.scalar_type() == sample[i].scalar_type();
  }
  if (fits) return;
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& tensor : sample) {
    std::vector<std::int64_t> shape{count};
    shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
    buffers.push_back(at::empty(shape, tensor.options().requires_grad(false)));
  }
  batch = Batch(std::move(buffers));
}

void put_sample(Batch& batch, std::int64_t row, const std::vector<at::Tensor>& sample, std::int64_t number) {
  const std::string name = "sample " + std::to_string(number);
  if (sample.size() != batch.tensors().size())
    throw DataError({.place = kNext,
                     .found = name + " has " + std::to_string(sample.size()) + " tensors",
                     .wanted = std::to_string(batch.tensors().size()) + ", like the samples before"});
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const at::Tensor target = batch.tensors()[i].select(0, row);
    if (sample[i].sizes() != target.sizes() || sample[i].scalar_type() != target.scalar_type())
      throw DataError({.place = kNext,
                       .found = "tensor " + std::to_string(i) + " of " + name + " is " + type_text(sample[i]),
                       .wanted = type_text(target) + ", like the samples before"});
    target.copy_(sample[i].detach());
  }
}

}  // namespace

void IterableDataset::skip(std::int64_t number, std::int64_t count) {
  for (const std::int64_t end = number + count; number < end; ++number) named_next(number);
}

std::vector<at::Tensor> IterableDataset::named_next(std::int64_t number) {
  const auto name = [&] { return "sample " + std::to_string(number); };
  try {
    try {
      std::vector<at::Tensor> sample = next(number);
      if (sample.empty())
        throw DataError({.place = kNext,
                         .found = "the samples have ended after " + std::to_string(number),
                         .wanted = "samples without an end",
                         .remedy = "begin again with the first one, or make the run shorter: max_steps · "
                                   "batch_size samples are used"});
      for (const at::Tensor& tensor : sample)
        if (!tensor.defined() || !tensor.is_cpu())
          throw DataError({.place = kNext,
                           .found = std::string("a tensor is ") +
                                    (tensor.defined() ? "on " + tensor.device().str() : "undefined"),
                           .wanted = "tensors on the CPU"});
      return sample;
    } catch (const DataError& error) {
      ErrorParts parts = error.parts();
      parts.place = name() + (parts.place.empty() ? "" : ": " + parts.place);
      throw DataError(std::move(parts));
    } catch (const std::exception&) {
      log_error("data: the exception is about " + name());  // whose type stays what it is
      throw;
    }
  } catch (...) {
    failure_ = std::current_exception();
    failed_at_ = number;
    throw;
  }
}

// After an exception, the position is unknown.
void IterableDataset::go_to(std::int64_t number) {
  if (failure_ && number > failed_at_) std::rethrow_exception(failure_);
  if (position_ < 0 || number < position_) {
    failure_ = nullptr;
    passed_.clear();
    position_ = -1;
    restart();
    position_ = 0;
  }
  const std::int64_t from = std::exchange(position_, -1);
  if (number > from) skip(from, number - from);
  position_ = number;
}

std::vector<at::Tensor> IterableDataset::read() {
  const std::int64_t number = std::exchange(position_, -1);
  std::vector<at::Tensor> sample = named_next(number);
  position_ = number + 1;
  return sample;
}

void IterableDataset::gather(const at::Tensor& indices, Batch& batch) const {
  auto& self = const_cast<IterableDataset&>(*this);  // loaders make one call at a time
  const std::int64_t* const numbers = indices.const_data_ptr<std::int64_t>();
  const std::int64_t count = indices.numel();
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t number = numbers[row];
    std::vector<at::Tensor> sample;
    if (auto passed = self.passed_.extract(number); !passed.empty()) {
      sample = std::move(passed.mapped());
    } else {
      if (row == 0) self.passed_.erase(self.passed_.begin(), self.passed_.lower_bound(number));
      if (row == 0 || number < position_ || position_ < 0) self.go_to(number);
      while (position_ < number) {
        const std::int64_t passed_number = position_;
        std::vector<at::Tensor> copies;
        for (const at::Tensor& tensor : self.read()) copies.push_back(tensor.clone());
        self.passed_[passed_number] = std::move(copies);
      }
      sample = self.read();
    }
    if (row == 0) make_room(batch, sample, count);
    put_sample(batch, row, sample, number);
  }
}

}  // namespace kindling
