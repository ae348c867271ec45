#include "bindings/trainer_handle.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "bindings/event_callback.h"
#include "kindling/interop/exported_backbone.h"
#include "kindling/interop/exported_module.h"

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

TrainerHandle::TrainerHandle(std::function<ConfiguredTraining()> make, std::shared_ptr<ProcessGroup> group)
    : events(std::make_shared<EventCallback>()), make_(std::move(make)) {
  const RandomStream stream(this, /*is_new=*/true);
  try {
    made_ = make_();
    take_model(made_.model);
    if (made_.options.num_threads) use_threads(static_cast<int>(*made_.options.num_threads));
    made_.options.process_group = std::move(group);
    made_.options.callbacks.push_back(events);
    events->set_owner(*this);
    make_trainer();
  } catch (...) {
    RandomStream::forget(*this);
    throw;
  }
  RandomStream::put_away(*this);
}

TrainerHandle::~TrainerHandle() { RandomStream::forget(*this); }

void TrainerHandle::take_model(std::shared_ptr<Module> model) {
  made_.model = std::move(model);
  arrays_ = {};
  if (const auto* const exported = dynamic_cast<const ExportedModule*>(made_.model.get()))
    arrays_ = {.num_inputs = exported->num_inputs(),
               .includes_targets = exported->is_loss_output(),
               .takes_integers = true};
  else if (dynamic_cast<const ExportedBackbone*>(made_.model.get()) != nullptr)
    arrays_ = {.num_inputs = std::nullopt, .takes_integers = true};
}

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

bool TrainerHandle::has_all_parameters() const {
  return made_.model->parameter_names().size() <= made_.model->parameters().size();
}

void TrainerHandle::prepare(const Batch& first) {
  if (is_prepared_) return;
  if (!has_all_parameters()) made_.model->apply_init(on_host(first));
  trainer_->prepare_model(made_.model);
  is_prepared_ = true;
  for (const auto& [name, value] : std::exchange(values_of_first_step_, {})) trainer_->log(name, value);
}

void TrainerHandle::forget_first_use() {
  if (made_.data || trainer_->progress().global_step > 0) return;
  RandomStream::forget(*this);
  const RandomStream stream(this, /*is_new=*/true);
  take_model(make_().model);
  is_prepared_ = false;
  float_type_.reset();
  make_trainer();
}

void TrainerHandle::log(const char* name, double value) {
  if (is_prepared_)
    trainer_->log(name, value);
  else
    values_of_first_step_.emplace_back(name, value);
}

void TrainerHandle::restart(const StateDict& state, const std::string& path) {
  std::optional<StateDict> former_run, former_weights;
  if (has_all_parameters()) former_weights = copy_to(state_dict(model()), cpu());
  try {
    if (is_prepared_) former_run = copy_to(trainer_->state_dict(), cpu());
  } catch (const Error&) {  // it has diverged, or is within an optimizer step
  }
  const auto start = [&](const StateDict& from) {
    if (has_group() && !has_all_parameters()) load_state_dict(model(), from, path, {.prefix = "model."});
    trainer_->prepare_model(made_.model);
    trainer_->load_state_dict(from);
  };
  try {
    start(state);
  } catch (...) {
    if (former_run) {
      start(*former_run);
    } else {
      is_prepared_ = false;
      make_trainer();
      forget_first_use();
      if (former_weights) load_state_dict(model(), *former_weights);
    }
    throw;
  }
  is_prepared_ = true;
  float_type_.reset();
  loss.reset();
  metrics.clear();
  values_of_first_step_.clear();
  resumed_from_ = path;
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
  if (options.resume.empty()) options.resume = resumed_from_;
  resumed_from_.clear();
  // Ranks need all parameters before they begin.
  if (has_group() && !has_all_parameters()) trainer_->layer_summary(made_.model, data);
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
    if (parameter.defined() && parameter.is_floating_point()) return parameter.scalar_type();
  return at::kFloat;
}

// A batch does not say where its inputs end.
void TrainerHandle::check_counts(std::size_t num_inputs, std::size_t num_targets, Stage stage,
                                 const char* place) const {
  if (!arrays_.num_inputs) return;
  const bool has_targets = stage == Stage::train && !arrays_.includes_targets;
  const std::size_t given = num_inputs + (has_targets ? 0 : num_targets);
  if (given == *arrays_.num_inputs && (!has_targets || num_targets == 1)) return;
  const auto text = [](std::size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  throw DataError({.place = place,
                   .found = text(num_inputs, "input") +
                            (stage == Stage::train ? " and " + text(num_targets, "target") : ""),
                   .wanted = text(*arrays_.num_inputs, "input") + (has_targets ? " and 1 target" : "")});
}

Batch TrainerHandle::batch_of(const kindling_array* inputs, std::size_t num_inputs,
                              const kindling_array* targets, std::size_t num_targets,
                              const kindling_array* mask, Stage stage, const char* place) {
  if (num_inputs == 0) refuse_use(place, "there are no inputs", "at least one array");
  check_counts(num_inputs, num_targets, stage, place);
  if (!float_type_) float_type_ = float_type();
  const bool converts_integers = !arrays_.takes_integers && !made_.data;
  std::vector<at::Tensor> tensors = tensors_of(
      inputs, num_inputs, {.floats = *float_type_, .converts_integers = converts_integers}, place, "inputs");
  for (at::Tensor& target :
       tensors_of(targets, num_targets, {.floats = *float_type_, .is_target = true}, place, "targets"))
    tensors.push_back(std::move(target));
  std::int64_t num_samples = common_samples(tensors, num_inputs, place);
  if (mask != nullptr) {
    select(tensors, *mask, num_samples, place);
    num_samples = tensors.front().size(0);
  }
  if (stage == Stage::train) resumed_from_.clear();
  if (num_samples == 0 && !has_group())
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
  if (const std::int64_t count =
          made_.data->num_random_numbers(stage == Stage::train ? Stage::train : Stage::val);
      count > 0)
    batch.set_random_numbers(at::rand({batch.num_samples(), count}).to(trainer_->device()));
  batch = made_.data->on_after_batch_transfer(std::move(batch), stage);
  if (!is_valid) batch.mark_padding();
  return batch;
}

RandomStream::RandomStream(TrainerHandle* owner, bool is_new) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  if (all.owner == owner && !is_new) return;
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard numbers(generator.mutex());
  if (all.owner != nullptr) all.owner->random_numbers_ = generator.get_state();
  if (owner->random_numbers_.defined()) generator.set_state(owner->random_numbers_);
  all.owner = owner;
}

void RandomStream::put_away(TrainerHandle& owner) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  if (all.owner != &owner) return;
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard numbers(generator.mutex());
  owner.random_numbers_ = generator.get_state();
  all.owner = nullptr;
}

void RandomStream::forget(const TrainerHandle& owner) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  if (all.owner == &owner) all.owner = nullptr;
}

RandomStream::Shared& RandomStream::shared() {
  static auto& shared = *new Shared;  // never destroyed
  return shared;
}

TrainerUse::TrainerUse(kindling_trainer handle, const char* place) : object_(trainers().get(handle, place)) {
  std::thread::id none{};
  const std::thread::id own = std::this_thread::get_id();
  if (object_->user_.compare_exchange_strong(none, own, std::memory_order_acquire)) {
    const RandomStream stream(object_.get());
    return;
  }
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
