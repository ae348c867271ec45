#include "kindling/data/transformed_data.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cstddef>
#include <utility>

#include "kindling/base/error.h"

namespace kindling {
namespace {

std::shared_ptr<DataModule> require_data(std::shared_ptr<DataModule> data) {
  if (!data)
    throw ConfigError({.place = "TransformedData",
                       .found = "the data module is a null pointer",
                       .wanted = "a data module"});
  return data;
}

[[noreturn]] void refuse_random_numbers(const at::Tensor& numbers, std::int64_t count) {
  const std::string found = numbers.defined() ? std::to_string(numbers.size(1)) : "no";
  throw DataError({.place = "TransformedData",
                   .found = "the batch has " + found + " random numbers per sample",
                   .wanted = "at least " + std::to_string(count),
                   .remedy = "take batches from the loaders of TransformedData"});
}

// Throws ConfigError for a transform that changes values of the inputs and not those of equal targets: the
// outputs of a model could not be its next inputs. Transforms that move pixels move those of both.
void require_same_change(const Transform* transform, const char* place, const DataLoader& rollouts) {
  if (transform == nullptr || rollouts.dataset().size() == 0) return;
  const at::Tensor state = rollouts.dataset().slice(0, 1).labels().to(at::kFloat);
  const at::Tensor uniforms = at::full({1, transform->num_random()}, 0.5, at::kFloat);
  const Batch changed = transform->apply(Batch({state.clone(), state.clone()}), uniforms);
  if (changed[0].equal(changed.labels())) return;
  throw ConfigError({.place = place,
                     .found = "they change the inputs and not the targets, and data.rollout_steps is set",
                     .wanted = "inputs that are states like the targets",
                     .remedy = "scale both with data.normalize_by"});
}

}  // namespace

TransformedData::TransformedData(std::shared_ptr<DataModule> data, StageTransforms transforms)
    : DataModule(require_data(data)->options()), data_(std::move(data)), transforms_(std::move(transforms)) {}

TransformedData::~TransformedData() = default;

const Transform* TransformedData::transform_of(Stage stage) const noexcept {
  return (stage == Stage::train ? transforms_.train : transforms_.val).get();
}

// The options of the inner loader have all that its module has chosen, such as a sampler.
std::shared_ptr<DataLoader> TransformedData::loader_for(Stage stage, std::shared_ptr<DataLoader> inner) {
  if (!inner || !adds_random_numbers(stage)) return inner;
  StageLoader& latest = loaders_[static_cast<std::size_t>(stage)];
  if (latest.inner == inner) return latest.loader;
  auto loader = new_loader(stage, inner);
  loader->set_next_epoch(latest.loader ? latest.loader->next_epoch() : inner->next_epoch());
  latest = {.inner = std::move(inner), .loader = std::move(loader)};
  return latest.loader;
}

bool TransformedData::adds_random_numbers(Stage stage) const noexcept {
  const Transform* transform = transform_of(stage);
  return transform != nullptr && transform->num_random() > 0;
}

std::shared_ptr<DataLoader> TransformedData::new_loader(Stage stage,
                                                        const std::shared_ptr<DataLoader>& inner) const {
  DataLoaderOptions options = inner->options();
  options.num_random_numbers += transform_of(stage)->num_random();
  return std::make_shared<DataLoader>(std::shared_ptr<const Dataset>(inner, &inner->dataset()),
                                      std::move(options));
}

void TransformedData::prepare_data() { data_->prepare(); }

std::shared_ptr<DataLoader> TransformedData::train_dataloader() {
  return loader_for(Stage::train, data_->train_dataloader());
}

std::shared_ptr<DataLoader> TransformedData::val_dataloader() {
  return loader_for(Stage::val, data_->val_dataloader());
}

std::vector<NamedLoader> TransformedData::more_val_dataloaders() {
  std::vector<NamedLoader> sets = data_->more_val_dataloaders();
  for (NamedLoader& set : sets)
    if (set.loader && adds_random_numbers(Stage::val)) set.loader = new_loader(Stage::val, set.loader);
  return sets;
}

std::shared_ptr<DataLoader> TransformedData::test_dataloader() {
  return loader_for(Stage::test, data_->test_dataloader());
}

std::shared_ptr<DataLoader> TransformedData::predict_dataloader() {
  return loader_for(Stage::predict, data_->predict_dataloader());
}

Batch TransformedData::on_after_batch_transfer(Batch batch, Stage stage) {
  const Transform* transform = transform_of(stage);
  if (transform == nullptr) return data_->on_after_batch_transfer(std::move(batch), stage);
  const std::int64_t count = transform->num_random();
  at::Tensor numbers = batch.random_numbers(), uniforms;
  if (count > 0) {  // the last ones; those before are of the other module
    if (!numbers.defined() || numbers.size(1) < count) refuse_random_numbers(numbers, count);
    const std::int64_t first = numbers.size(1) - count;
    uniforms = numbers.narrow(1, first, count);
    batch.set_random_numbers(first == 0 ? at::Tensor() : numbers.narrow(1, 0, first));
  }
  return transform->apply(data_->on_after_batch_transfer(std::move(batch), stage), uniforms);
}

Batch TransformedData::on_after_batch_transfer(Batch batch) {
  return on_after_batch_transfer(std::move(batch), Stage::predict);
}

at::Tensor TransformedData::unscale_targets(const at::Tensor& values) {
  return data_->unscale_targets(values);
}

Rollouts TransformedData::rollouts() {
  Rollouts rollouts = data_->rollouts();
  if (rollouts.loader) {
    require_same_change(transforms_.train.get(), "data.train_transforms", *rollouts.loader);
    require_same_change(transforms_.val.get(), "data.val_transforms", *rollouts.loader);
  }
  if (rollouts.loader && adds_random_numbers(Stage::val))
    rollouts.loader = new_loader(Stage::val, rollouts.loader);
  return rollouts;
}

std::int64_t TransformedData::num_random_numbers(Stage stage) const {
  const Transform* transform = transform_of(stage);
  return data_->num_random_numbers(stage) + (transform == nullptr ? 0 : transform->num_random());
}

std::shared_ptr<InputTransform> TransformedData::input_transform() { return data_->input_transform(); }

std::optional<at::ScalarType> TransformedData::program_input_type() { return data_->program_input_type(); }

void TransformedData::restore_input_transform(const std::string& description) {
  data_->restore_input_transform(description);
}

void TransformedData::predict_from(const std::filesystem::path& file) { data_->predict_from(file); }

std::vector<std::string> TransformedData::class_names() { return data_->class_names(); }

std::vector<std::string> TransformedData::skipped_samples() { return data_->skipped_samples(); }

SampleIds TransformedData::train_ids() { return data_->train_ids(); }

SampleIds TransformedData::val_ids() { return data_->val_ids(); }

SampleIds TransformedData::predict_ids() { return data_->predict_ids(); }

PredictionOrigin TransformedData::predict_origin() {
  auto* const source = dynamic_cast<PredictionOriginSource*>(data_.get());
  return source == nullptr ? PredictionOrigin{} : source->predict_origin();
}

}  // namespace kindling
