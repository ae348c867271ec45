#include "bindings/trainer_handle.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "bindings/event_callback.h"

namespace kindling::bindings {
namespace {

std::int64_t samples_of(const at::Tensor& tensor, const char* place, const std::string& argument) {
  if (tensor.dim() > 0) return tensor.size(0);
  throw DataError({.place = place,
                   .found = argument + " has rank 0",
                   .wanted = "an array whose first dimension counts the samples"});
}

// Throws DataError unless all tensors have the same number of samples, and returns it.
std::int64_t common_samples(const std::vector<at::Tensor>& tensors, std::size_t num_inputs,
                            const char* place) {
  const auto name = [&](std::size_t i) {
    return i < num_inputs ? "inputs[" + std::to_string(i) + "]"
                          : "targets[" + std::to_string(i - num_inputs) + "]";
  };
  const std::int64_t first = samples_of(tensors.front(), place, name(0));
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (samples_of(tensors[i], place, name(i)) != first)
      throw DataError({.place = place,
                       .found = name(0) + " is " + shape_of(tensors.front().sizes()) + ", and " + name(i) +
                                " is " + shape_of(tensors[i].sizes()),
                       .wanted = "the same number of samples in dimension 0 of both",
                       .remedy = "an array of Fortran arrives with its dimensions in reverse order"});
  return first;
}

// Keeps the samples whose element of the mask is true.
void select(std::vector<at::Tensor>& tensors, const kindling_array& mask, std::int64_t num_samples,
            const char* place) {
  const at::Tensor keep = view_of(mask, /*is_output=*/false, place, {"mask"});
  if (keep.scalar_type() != at::kBool || !keep.is_cpu() || keep.dim() != 1 || keep.size(0) != num_samples)
    throw DataError(
        {.place = place,
         .found = "the mask has dtype " + std::to_string(mask.dtype) + " and shape " + shape_of(keep.sizes()),
         .wanted = "KINDLING_BOOL " + shape_of({num_samples}) + " on the host"});
  const at::Tensor rows = keep.nonzero().flatten();
  for (at::Tensor& tensor : tensors) tensor = tensor.index_select(0, rows.to(tensor.device()));
}

// A sample that counts nothing, for a rank without samples: others wait for its gradients.
Batch padding_for(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> padding;
  for (const at::Tensor& tensor : tensors) {
    std::vector<std::int64_t> sizes = tensor.sizes().vec();
    sizes.front() = 1;
    padding.push_back(at::zeros(sizes, tensor.options()));
  }
  Batch batch(std::move(padding));
  batch.mark_padding();
  return batch;
}

// For lazy layers, which are made on the host in the type of a new model.
Batch on_host(const Batch& batch) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : batch.tensors())
    tensors.push_back(tensor.is_floating_point() ? tensor.to(at::kCPU, at::kFloat) : tensor.cpu());
  return Batch(std::move(tensors));
}

}  // namespace

TrainerHandle::TrainerHandle(ConfiguredTraining made, std::shared_ptr<ProcessGroup> group)
    : events(std::make_shared<EventCallback>()), made_(std::move(made)) {
  made_.options.process_group = std::move(group);
  made_.options.callbacks.push_back(events);
  events->set_owner(*this);
  random_numbers_ = at::globalContext().defaultGenerator(at::kCPU).get_state();
  make_trainer();
}

TrainerHandle::~TrainerHandle() = default;

void TrainerHandle::make_trainer() {
  trainer_.reset();
  trainer_.emplace(made_.options);
  const std::lock_guard lock(stop_mutex_);
  stop_ = trainer_->stop_token();
}

StopToken TrainerHandle::stop_token() const {
  const std::lock_guard lock(stop_mutex_);
  return stop_;
}

DataModule& TrainerHandle::data(const char* place) const {
  if (made_.data) return *made_.data;
  throw ConfigError({.place = place,
                     .found = "the config of this trainer has no [data]",
                     .wanted = "data.name and its keys",
                     .remedy = "for arrays of the program, call kindling_train_step()"});
}

// Lazy layers draw their weights in the first step, and a trainer that was made in between has seeded anew.
void TrainerHandle::restore_random_numbers() {
  if (!random_numbers_.defined()) return;
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(std::exchange(random_numbers_, at::Tensor()));
}

void TrainerHandle::prepare(const Batch* first) {
  if (is_prepared_) return;
  restore_random_numbers();
  if (has_group() && first != nullptr) made_.model->apply_init(on_host(*first));
  trainer_->prepare_model(made_.model);
  is_prepared_ = true;
  for (const auto& [name, value] : std::exchange(values_of_first_step_, {})) trainer_->log(name, value);
}

void TrainerHandle::log(const char* name, double value) {
  if (is_prepared_)
    trainer_->log(name, value);
  else
    values_of_first_step_.emplace_back(name, value);
}

void TrainerHandle::restart(const StateDict& state) {
  restore_random_numbers();
  if (has_group()) load_state_dict(model(), state, "the checkpoint", {.prefix = "model."});
  float_type_.reset();
  loss.reset();
  trainer_->prepare_model(made_.model);
  is_prepared_ = true;
  trainer_->load_state_dict(state);
}

void TrainerHandle::keep_loss() {
  try {
    loss = trainer_->loss_value();
  } catch (const Error&) {  // no step with a loss; the end of the epoch says so
  }
}

void TrainerHandle::save_into(const std::string& folder, const char* place) {
  if (is_prepared_)
    refuse_use(place, "the training has begun", "the call before the first step, fit or evaluation");
  ModelCheckpointOptions options = made_.checkpoint;
  options.dirpath = folder;
  if (checkpoint_) std::erase(made_.options.callbacks, std::shared_ptr<Callback>(checkpoint_));
  checkpoint_ = std::make_shared<ModelCheckpoint>(options);
  made_.options.callbacks.push_back(checkpoint_);
  make_trainer();
}

FitResult TrainerHandle::fit() {
  DataModule& data = this->data("kindling_fit");
  FitOptions options;
  if (checkpoint_) options.resume = checkpoint_->last();
  restore_random_numbers();
  is_prepared_ = true;
  loss.reset();
  FitResult result = trainer_->fit(made_.model, data, options);
  metrics = result.metrics;
  return result;
}

// The dtype of the model's parameters once the trainer has prepared it, which lazy ones have later.
at::ScalarType TrainerHandle::float_type() const {
  if (made_.options.precision == "64-true") return at::kDouble;
  for (const at::Tensor& parameter : made_.model->parameters())
    if (parameter.defined() && parameter.is_floating_point())
      return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::kFloat;
}

Batch TrainerHandle::batch_of(const kindling_array* inputs, std::size_t num_inputs,
                              const kindling_array* targets, std::size_t num_targets,
                              const kindling_array* mask, Stage stage, const char* place) {
  if (num_inputs == 0) refuse_use(place, "there are no inputs", "at least one array");
  if (!float_type_) float_type_ = float_type();
  std::vector<at::Tensor> tensors = tensors_of(inputs, num_inputs, {.floats = *float_type_}, place, "inputs");
  for (at::Tensor& target :
       tensors_of(targets, num_targets, {.floats = *float_type_, .is_target = true}, place, "targets"))
    tensors.push_back(std::move(target));
  std::int64_t num_samples = common_samples(tensors, num_inputs, place);
  if (mask != nullptr) {
    select(tensors, *mask, num_samples, place);
    num_samples = tensors.front().size(0);
  }
  if (num_samples == 0 && !(has_group() && stage == Stage::train))
    throw DataError({.place = place,
                     .found = mask == nullptr ? "the arrays have no samples" : "the mask selects no sample",
                     .wanted = "at least one; only ranks of a group may have none"});
  return num_samples == 0 ? padding_for(tensors) : Batch(std::move(tensors));
}

Batch TrainerHandle::prepared(Batch batch, Stage stage) {
  batch = trainer_->prepare_batch(std::move(batch), stage);
  // A trainer transforms batches of its own data only.
  if (!made_.data || trainer_->data() != nullptr) return batch;
  const bool is_valid = batch.is_valid();
  batch = made_.data->on_after_batch_transfer(std::move(batch), stage);
  if (!is_valid) batch.mark_padding();
  return batch;
}

TrainerUse::TrainerUse(kindling_trainer handle, const char* place) : object_(trainers().get(handle, place)) {
  std::thread::id none{};
  const std::thread::id own = std::this_thread::get_id();
  if (object_->user_.compare_exchange_strong(none, own, std::memory_order_acquire)) return;
  is_nested_ = none == own;
  if (!is_nested_)
    throw StatusError(KINDLING_BUSY, {.place = place,
                                      .found = "another thread is in a call with this trainer",
                                      .wanted = "one thread at a time",
                                      .remedy = "only kindling_request_stop() is for any thread"});
}

TrainerUse::~TrainerUse() {
  if (!is_nested_ && object_) object_->user_.store(std::thread::id{}, std::memory_order_release);
}

// Never destroyed: a program may end with handles in use.
HandleTable<kindling_trainer, TrainerHandle>& trainers() {
  static auto& table = *new HandleTable<kindling_trainer, TrainerHandle>(1, "trainer");
  return table;
}

HandleTable<kindling_group, std::shared_ptr<ProcessGroup>>& groups() {
  static auto& table = *new HandleTable<kindling_group, std::shared_ptr<ProcessGroup>>(2, "group");
  return table;
}

HandleTable<kindling_tensor, at::Tensor>& tensors() {
  static auto& table = *new HandleTable<kindling_tensor, at::Tensor>(3, "tensor");
  return table;
}

}  // namespace kindling::bindings
