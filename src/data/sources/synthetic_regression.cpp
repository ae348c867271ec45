#include "kindling/data/synthetic_regression.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "kindling/base/error.h"

namespace kindling {

SyntheticRegression::SyntheticRegression(SyntheticRegressionOptions options, DataOptions data_options)
    : DataModule(std::move(data_options)), options_(std::move(options)) {
  validate(options_, "synthetic_regression");
  if (options_.w.empty())
    throw DataError({.place = "synthetic_regression.w", .found = "no weights", .wanted = "at least one"});
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(options_.data_seed));
  const std::int64_t n = options_.num_train + options_.num_val;
  const at::Tensor w = at::tensor(options_.w, at::kFloat).unsqueeze(1);
  inputs_ = at::randn({n, w.size(0)}, generator);
  labels_ = at::matmul(inputs_, w) + options_.b + at::randn({n, 1}, generator) * options_.noise;
}

std::shared_ptr<DataLoader> SyntheticRegression::train_dataloader() {
  return train_loader_of(
      {inputs_.narrow(0, 0, options_.num_train), labels_.narrow(0, 0, options_.num_train)});
}

std::shared_ptr<DataLoader> SyntheticRegression::val_dataloader() {
  return val_loader_of({inputs_.narrow(0, options_.num_train, options_.num_val),
                        labels_.narrow(0, options_.num_train, options_.num_val)});
}

}  // namespace kindling
