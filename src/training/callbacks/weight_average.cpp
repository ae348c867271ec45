#include "kindling/training/weight_average.h"

#include "base/logging.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/training/averaged_weights.h"
#include "kindling/training/trainer.h"
#include "tensors/saved_number.h"
#include "training/callbacks/averaged_tensors.h"
#include "training/callbacks/current_run.h"

namespace kindling {
namespace {

constexpr const char* kNumAveraged = "num_averaged";
constexpr const char* kNumComputed = "num_computed";
constexpr const char* kLatestEpoch = "latest_epoch";

// Returns the first callback whose averaging the predicate accepts.
template <class Predicate>
const Callback* find_averaging(const Trainer& trainer, const Predicate& accepts) {
  for (const auto& callback : trainer.options().callbacks)
    if (const WeightAveraging* averaging = callback->averaging(); averaging != nullptr && accepts(*averaging))
      return callback.get();
  return nullptr;
}

}  // namespace

class WeightAverage::Impl {
 public:
  Impl(const char* name, bool evaluates, bool applies)
      : place(name), evaluate(evaluates), apply_at_end(applies) {}

  void clear() {
    tensors = {};
    loaded = {};
    num_averaged = num_computed = latest_step = 0;
    latest_epoch = -1;
  }

  // Lazy layers must have their parameters.
  void bind(const Module& model, Buffers buffers) {
    if (!tensors.empty()) return;
    const auto is_averaged = [](const at::Tensor& tensor) {
      return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
    };
    for (const auto& item : model.named_parameters())
      if (is_averaged(item.value())) tensors.add(item.key(), item.value());
    if (buffers == Buffers::recomputed) tensors.end_of_averaged();
    for (const auto& item : model.named_buffers())
      if (buffers == Buffers::recomputed ? item.value().defined()
                                         : buffers == Buffers::averaged && is_averaged(item.value()))
        tensors.add(item.key(), item.value());
    if (buffers != Buffers::recomputed) tensors.end_of_averaged();
    if (!loaded.tensors.empty()) tensors.load(std::exchange(loaded, {}));
  }

  void update(double weight) {
    if (tensors.empty()) return;
    if (num_averaged == 0)
      tensors.take();
    else
      tensors.lerp(weight);
    ++num_averaged;
  }

  const char* const place;
  const bool evaluate, apply_at_end;
  CurrentRun run;
  AveragedTensors tensors;
  StateDict loaded;  // a loaded state, until the model is known
  std::int64_t num_averaged = 0;
  std::int64_t num_computed = 0;  // num_averaged when the buffers were last recomputed
  std::int64_t latest_step = 0, latest_epoch = -1;
};

WeightAverage::WeightAverage(const char* place, bool evaluate, bool apply_at_end)
    : impl_(std::make_unique<Impl>(place, evaluate, apply_at_end)) {}
WeightAverage::~WeightAverage() = default;

std::int64_t WeightAverage::num_averaged() const noexcept { return impl_->num_averaged; }
bool WeightAverage::evaluates() const noexcept { return impl_->evaluate; }
bool WeightAverage::is_ready() const noexcept {
  return !impl_->tensors.empty() && impl_->num_averaged > 0 &&
         (!impl_->tensors.has_others() || impl_->num_computed == impl_->num_averaged);
}

StateDict WeightAverage::averages() const {
  if (impl_->tensors.empty()) return impl_->loaded;
  return impl_->num_averaged > 0 ? impl_->tensors.averages() : StateDict{};
}

void WeightAverage::begin(Trainer& trainer) {
  if (!impl_->run.changes(trainer)) return;
  impl_->clear();
  reset();
  require_alone(trainer);
}

// At most one average can be applied to the model at a time.
void WeightAverage::require_alone(const Trainer& trainer) const {
  const auto refuse_second = [&](const char* option, bool (WeightAveraging::*is_set)() const noexcept) {
    if (!(this->*is_set)()) return;
    const Callback* other =
        find_averaging(trainer, [&](const WeightAveraging& one) { return &one != this && (one.*is_set)(); });
    if (other == nullptr) return;
    throw ConfigError({.place = impl_->place,
                       .found = std::string(option) + " is also set for " + other->type_name(),
                       .wanted = "it to be set for at most one weight average",
                       .remedy = std::string(option) + " = false for one of them"});
  };
  refuse_second("evaluate", &WeightAveraging::evaluates);
  refuse_second("apply_at_end", &WeightAveraging::applies_at_end);
}

void WeightAverage::on_fit_start(Trainer& trainer, Module&) {
  impl_->run = {};
  begin(trainer);
}

void WeightAverage::on_resume(Trainer& trainer, Module& model) {
  if (!impl_->run.resumes(trainer)) {  // the saved run did not have this callback
    impl_->clear();
    reset();
  }
  require_alone(trainer);
  impl_->latest_step = trainer.progress().global_step;
  if (impl_->num_averaged > 0) impl_->bind(model, buffers(model));
}

void WeightAverage::after_step(Trainer& trainer, Module& model) {
  begin(trainer);
  impl_->tensors.forget_own_values();  // training continues from applied averages
  const std::int64_t step = trainer.progress().global_step;
  if (step <= impl_->latest_step) return;
  impl_->latest_step = step;
  if (!should_update_after_step(step - 1)) return;
  impl_->bind(model, buffers(model));
  impl_->update(weight(impl_->num_averaged));
}

void WeightAverage::after_epoch(Trainer& trainer, Module& model) {
  begin(trainer);
  const std::int64_t epoch = trainer.progress().epoch;
  if (epoch <= impl_->latest_epoch || !should_update_after_epoch(epoch)) return;
  impl_->latest_epoch = epoch;
  impl_->bind(model, buffers(model));
  impl_->update(weight(impl_->num_averaged));
}

void WeightAverage::on_fit_end(Trainer& trainer, Module&, const FitResult& result) {
  if (result.status != FitStatus::finished && result.status != FitStatus::stopped) return;
  if (impl_->num_averaged == 0 && result.status == FitStatus::finished)
    log_warning(std::string(impl_->place) + ": the fit ended before any weights were averaged");
  if (!impl_->apply_at_end || impl_->num_averaged == 0) return;
  apply(trainer);
}

bool WeightAverage::apply(Trainer& trainer) {
  AveragedTensors& tensors = impl_->tensors;
  if (impl_->num_averaged == 0 || tensors.is_in_place()) return false;
  if (const Callback* other = find_averaging(trainer, [](const auto& one) { return one.is_applied(); }))
    throw Error({.place = "AveragedWeights",
                 .found = "the average of " + other->type_name() + " is already applied",
                 .wanted = "at most one applied average"});
  tensors.put_in_place();
  if (is_ready()) return true;
  try {
    compute_buffers(trainer, *trainer.model());
  } catch (...) {
    tensors.give_back();
    throw;
  }
  tensors.take_others();
  impl_->num_computed = impl_->num_averaged;
  return true;
}

bool WeightAverage::applies_at_end() const noexcept { return impl_->apply_at_end; }
void WeightAverage::restore() { impl_->tensors.give_back(); }
bool WeightAverage::is_applied() const noexcept { return impl_->tensors.is_in_place(); }
std::string WeightAverage::averages_prefix() const { return is_ready() ? kPrefix : ""; }

void WeightAverage::put_own_values(StateDict& model_state) const {
  impl_->tensors.put_own_values(model_state);
}

std::string WeightAverage::type_name() const { return impl_->place; }

void WeightAverage::save_state(StateDict& state) const {
  for (auto& [name, tensor] : averages().tensors) state.tensors.emplace_back(kPrefix + name, tensor);
  state.metadata[kNumAveraged] = std::to_string(impl_->num_averaged);
  state.metadata[kNumComputed] = std::to_string(impl_->num_computed);
  state.metadata[kLatestEpoch] = std::to_string(impl_->latest_epoch);
}

void WeightAverage::load_state(const StateDict& state) {
  impl_->clear();
  impl_->num_averaged = number_of<std::int64_t>(state.metadata, kNumAveraged, {.min = 0});
  impl_->num_computed = number_of<std::int64_t>(state.metadata, kNumComputed, {.min = 0});
  impl_->latest_epoch = number_of<std::int64_t>(state.metadata, kLatestEpoch, {.min = -1});
  const std::string prefix = kPrefix;
  for (const auto& [name, tensor] : state.tensors)
    if (name.starts_with(prefix)) impl_->loaded.tensors.emplace_back(name.substr(prefix.size()), tensor);
  impl_->run.set_loaded();
}

AveragedWeights::~AveragedWeights() {
  if (averaging_ != nullptr)
    log_errors("the weights could not be restored after their average", [&] { averaging_->restore(); });
}

}  // namespace kindling
