#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <map>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/dataset.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Samples that come one after the other, without an end and without access by index, such as those of a
// generator, a simulation or a log that is read again and again. Like PyTorch's IterableDataset. A fit needs
// max_steps or limit_train_batches; its first sample is number 0, each rank uses its part of the samples and
// passes over the others, and a resumed run begins again and passes over those that it has used.
class KINDLING_API IterableDataset : public Dataset {
 public:
  std::int64_t size() const final { return kEndless; }
  void gather(const at::Tensor& indices, Batch& batch) const final;

 protected:
  // Goes to the first sample. Called before the first next(), and whenever earlier samples are needed again.
  virtual void restart() = 0;
  // Returns the sample with this number, which follows the latest one: tensors on the CPU without a batch
  // dimension, in each sample as many and with the same shapes and dtypes. They are copied before the next
  // call, so their memory may be reused. What it returns must depend on the number only: random numbers come
  // from sample_random(number). No tensors mean that the samples have ended, which is a DataError. An error
  // names the sample.
  virtual std::vector<at::Tensor> next(std::int64_t number) = 0;
  // Passes over `count` samples, the first of them with this number. By default it calls next() for each.
  virtual void skip(std::int64_t number, std::int64_t count);

 private:
  void go_to(std::int64_t number);
  std::vector<at::Tensor> read();
  std::vector<at::Tensor> named_next(std::int64_t number);

  std::int64_t position_ = -1;  // of next(); -1: restart() comes first
  // The latest exception of next() and its sample: later samples, which a worker may gather ahead, have the
  // same one instead of all samples being read again.
  std::exception_ptr failure_{};
  std::int64_t failed_at_ = 0;
  // Samples between those of the latest batches, which other shards of the batch ask for.
  std::map<std::int64_t, std::vector<at::Tensor>> passed_{};
};

}  // namespace kindling
