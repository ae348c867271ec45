#include "kindling/data/data_module.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "data/loading/balanced_sampler.h"
#include "data/loading/sample_ranges.h"
#include "kindling/base/error.h"
#include "kindling/data/dataset.h"
#include "kindling/data/input_transform.h"

namespace kindling {
namespace {

std::vector<at::Tensor> within(const std::vector<at::Tensor>& tensors,
                               const std::optional<std::array<std::int64_t, 2>>& range, const char* place) {
  if (!range) return tensors;
  require_range(*range, tensors.front().size(0), place);
  const auto [first, end] = *range;
  std::vector<at::Tensor> parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.narrow(0, first, end - first));
  return parts;
}

// True for a loader of the same values: data modules may make the tensors in each call, or take parts of
// them.
bool has_tensors(const std::shared_ptr<DataLoader>& loader, const std::vector<at::Tensor>& tensors) {
  const auto* dataset = loader ? dynamic_cast<const TensorDataset*>(&loader->dataset()) : nullptr;
  return dataset != nullptr &&
         std::ranges::equal(dataset->tensors(), tensors, [](const at::Tensor& a, const at::Tensor& b) {
           return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && b.device().is_cpu() &&
                  ((a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides()) || a.equal(b));
         });
}

}  // namespace

DataModule::DataModule(DataOptions options) : options_(std::move(options)) { validate(options_, "data"); }

DataModule::~DataModule() = default;

void DataModule::prepare() {
  if (is_prepared_) return;
  prepare_data();
  is_prepared_ = true;
}

DataLoaderOptions DataModule::loader_options(bool train) const {
  const bool shuffles = options_.sampler ? *options_.sampler == "shuffled" : options_.shuffle;
  return {.batch_size = options_.batch_size,
          .shuffle = train && shuffles,
          .drop_last = train && options_.drop_last,
          .seed = options_.seed,
          .order_seed = options_.order_seed,
          .resident = options_.resident,
          .num_workers = options_.num_workers,
          .num_random_numbers = num_random_numbers(train ? Stage::train : Stage::val)};
}

std::optional<at::ScalarType> DataModule::program_input_type() {
  const auto transform = input_transform();
  return transform ? transform->program_input_type() : std::nullopt;
}

void DataModule::predict_from(const std::filesystem::path& file) {
  throw ConfigError({.place = file.string(),
                     .found = "the data set has no other files to predict",
                     .wanted = "a run on a table or arrays (data.name = \"csv\" or \"arrays\")",
                     .remedy = "omit the file to predict the test or validation samples"});
}

std::shared_ptr<DataLoader> DataModule::get_tensorloader(std::vector<at::Tensor> tensors, bool train) const {
  DataLoaderOptions loader_options = this->loader_options(train);
  if (train && options_.sampler == "balanced")
    loader_options.sampler =
        balanced_sampler(tensors.empty() ? at::Tensor() : tensors.back(), loader_options.seed);
  auto loader = std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::move(tensors)),
                                             std::move(loader_options));
  std::shared_ptr<DataLoader>& latest = latest_[train ? 1 : 0];
  if (latest) loader->set_next_epoch(latest->next_epoch());
  return latest = std::move(loader);
}

std::shared_ptr<DataLoader> DataModule::train_loader_of(const std::vector<at::Tensor>& train) {
  std::vector<at::Tensor> tensors = within(train, options_.train, "data.train");
  if (!has_tensors(train_loader_, tensors)) train_loader_ = get_tensorloader(std::move(tensors), true);
  return train_loader_;
}

std::shared_ptr<DataLoader> DataModule::val_loader_of(const std::vector<at::Tensor>& val) {
  if (val.empty()) return nullptr;
  std::vector<at::Tensor> tensors = within(val, options_.val, "data.val");
  if (!has_tensors(val_loader_, tensors)) val_loader_ = get_tensorloader(std::move(tensors), false);
  return val_loader_;
}

}  // namespace kindling
