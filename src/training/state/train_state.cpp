#include "training/train_state.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <random>
#include <typeinfo>

#include "checkpoint/checkpoint_file.h"
#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/optim/adam.h"
#include "kindling/tensors/move.h"
#include "kindling/training/callback.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/weight_average.h"
#include "nn/carried_states.h"
#include "training/monitored_value.h"
#include "training/named_optimizers.h"
#include "training/optimizer_states.h"
#include "training/precision.h"
#include "training/saved_model.h"
#include "training/state_parts.h"

namespace kindling {
namespace {

constexpr const char* kCarried = "carried.";  // hidden states
constexpr const char* kOptimizer = "optimizer.";
constexpr const char* kSchedule = "schedule.";
constexpr const char* kScaler = "scaler.";
constexpr const char* kLog = "log.";
constexpr const char* kRandom = "random.";
constexpr const char* kProgress = "progress.";
constexpr const char* kSpentTime = "spent_ms";
constexpr const char* kEarlyStopWaits = "early_stop_waits";
constexpr const char* kCallbackType = "callback_type.";

std::string callback_prefix(std::size_t number) { return "callback." + std::to_string(number) + "."; }

[[noreturn]] void refuse(const std::string& place, const std::string& found, const std::string& wanted) {
  throw CheckpointError({.place = place, .found = found, .wanted = wanted});
}

std::int64_t read_count(const std::string& text, const std::string& name) {
  std::int64_t count = -1;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, count).ptr != end || count < 0)
    refuse("'" + name + "'", "'" + text + "'", "a count");
  return count;
}

std::string read_text(const StateDict& state, const std::string& name) {
  const auto found = state.metadata.find(name);
  if (found == state.metadata.end()) refuse("'" + name + "'", "it is missing", "what a training has saved");
  return found->second;
}

std::string type_of(const Callback& callback) { return typeid(callback).name(); }

// Those that have a state of their own to keep; whether and how often a training is saved is none.
std::vector<std::shared_ptr<Callback>> with_state(std::vector<std::shared_ptr<Callback>> callbacks) {
  std::erase_if(callbacks, [](const auto& callback) {
    return dynamic_cast<const ModelCheckpoint*>(callback.get()) != nullptr;
  });
  return callbacks;
}

void save_callbacks(const std::vector<std::shared_ptr<Callback>>& all, StateDict& state) {
  const auto callbacks = with_state(all);
  for (std::size_t i = 0; i < callbacks.size(); ++i) {
    StateDict own;
    callbacks[i]->save_state(own);
    if (own.tensors.empty() && own.metadata.empty()) continue;
    put(state, callback_prefix(i), own);
    state.metadata[kCallbackType + std::to_string(i)] = type_of(*callbacks[i]);
    const auto* average = dynamic_cast<const WeightAverage*>(callbacks[i].get());
    if (average != nullptr && average->evaluates() && average->is_ready())
      state.metadata[kAveragesKey] = callback_prefix(i) + WeightAverage::kPrefix;
  }
}

void load_callbacks(const std::vector<std::shared_ptr<Callback>>& all, const StateDict& state) {
  const auto callbacks = with_state(all);
  for (const auto& [number, type] : part_of(state, kCallbackType).metadata) {
    const auto i = static_cast<std::size_t>(read_count(number, kCallbackType + number));
    if (i >= callbacks.size() || type != type_of(*callbacks[i]))
      refuse("callback " + number, "the saved state is that of a " + c10::demangle(type.c_str()),
             "the callbacks of the training that was saved, in their order");
    callbacks[i]->load_state(part_of(state, callback_prefix(i)));
  }
}

// Not of LibTorch's generators, which the training draws from.
std::string new_run_id() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", device(), device());
  return text;
}

// An EarlyStopping that ends the training knows so by itself when it goes on, by the options that it has
// then.
bool is_asked_again(const std::vector<std::shared_ptr<Callback>>& callbacks) {
  return std::ranges::any_of(callbacks, [](const auto& callback) {
    const auto* stopping = dynamic_cast<const EarlyStopping*>(callback.get());
    return stopping != nullptr && stopping->wants_stop();
  });
}

// With the value to look at and its direction.
PlateauScheduleOptions for_model(PlateauScheduleOptions options, const Module& model) {
  const Module::Monitor monitor = monitor_of(options.monitor, options.mode, model, "plateau schedule");
  options.monitor = monitor.name;
  options.mode = monitor.higher_is_better ? "max" : "min";
  return options;
}

// A factory that remembers another model would train that one's parameters, and nothing here.
void require_some_of(const Module& model, const Optimizer& optimizer) {
  const auto own = model.parameters();
  const auto is_own = [&](const at::Tensor& parameter) {
    return std::ranges::any_of(own, [&](const at::Tensor& mine) { return mine.is_same(parameter); });
  };
  if (std::ranges::any_of(optimizer.parameters(), is_own)) return;
  throw ConfigError({.place = "optimizer",
                     .found = "none of its " + std::to_string(optimizer.parameters().size()) +
                              " parameters is one of " + model.name() + "'s",
                     .wanted = "parameters of the model that is trained",
                     .remedy = "make it of what the factory is given, not of a model that it remembers"});
}

std::unique_ptr<Optimizer> made_by(const OptimizerFactory& factory, const Module& model) {
  std::unique_ptr<Optimizer> made = factory(ParameterGroups(model));
  if (!made)
    throw ConfigError({.place = "optimizer", .found = "the factory has made none", .wanted = "an Optimizer"});
  require_some_of(model, *made);
  return made;
}

}  // namespace

void TrainState::start(std::shared_ptr<Module> new_model) {
  model = std::move(new_model);
  forget_carried_states(*model);
  optimizer.reset();
  optimizers.clear();
  plateaus.reset();
  if (options_.schedule.plateau) plateaus.emplace(for_model(*options_.schedule.plateau, *model));
  progress = {};
  accumulated_batches = 0;
  scaler.reset();
  if (Precision::named(options_.precision).scales_gradients) scaler.emplace(log.device());
  time.start();
  early_stop_waits = false;
  log = EpochLog(log.device());  // what another model has logged has names of its own
  run_id = new_run_id();
  is_torn = false;
  random_before_validation.clear();
}

Optimizer& TrainState::require_optimizer() {
  if (optimizer) return *optimizer;
  if (options_.optimizer)
    optimizer = made_by(options_.optimizer, *model);
  else if (!(optimizer = model->configure_optimizers()))
    optimizer = std::make_unique<Adam>(ParameterGroups(*model));
  optimizer->take_names(*model);
  return *optimizer;
}

Optimizer& TrainState::require_optimizer(std::string_view name) {
  if (optimizers.empty()) optimizers = named_optimizers_of(dynamic_cast<ManualModule&>(*model));
  return optimizer_named(optimizers, name);
}

double TrainState::lr() const {
  if (optimizer) return optimizer->lr();
  return optimizers.empty() ? 0 : optimizers.begin()->second->lr();
}

void TrainState::save(StateDict& state) {
  if (is_torn || accumulated_batches > 0)
    throw InsideStep({.place = "the training",
                      .found = "something is at work behind step " + std::to_string(progress.global_step) +
                               ", or has thrown there",
                      .wanted = "a place between two steps",
                      .remedy = "save after a step, or go on from the last checkpoint"});
  state.metadata[kRunIdKey] = run_id;
  save_model(*model, options_.callbacks, state);
  put(state, kCarried, carried_state_dict(*model));
  if (optimizer) put(state, kOptimizer, saved_state(*optimizer, options_));
  save_optimizers(optimizers, state, options_);
  if (plateaus) {
    StateDict counter;
    plateaus->save(counter);
    put(state, kSchedule, counter);
  }
  if (scaler) {
    StateDict scale;
    scaler->save(scale);
    put(state, kScaler, scale);
  }
  streams.save(state);
  log.save(state, kLog);
  save_callbacks(options_.callbacks, state);
  state.metadata[std::string(kProgress) + "epoch"] = std::to_string(progress.epoch);
  state.metadata[std::string(kProgress) + "batch"] = std::to_string(progress.batch);
  state.metadata[std::string(kProgress) + "global_step"] = std::to_string(progress.global_step);
  state.metadata[std::string(kProgress) + "phase"] =
      progress.phase == Phase::training ? "training" : "validation";
  if (time.is_set())
    state.metadata[kSpentTime] = std::to_string(static_cast<std::int64_t>(1000 * time.spent_s()));
  if (early_stop_waits && !is_asked_again(options_.callbacks)) state.metadata[kEarlyStopWaits] = "true";
  const auto random =
      random_before_validation.empty() ? random_state(log.device()) : random_before_validation;
  for (std::size_t i = 0; i < random.size(); ++i)
    state.tensors.emplace_back(kRandom + std::to_string(i), random[i]);
}

void TrainState::announce(const StateDict& state) {
  run_id = read_text(state, kRunIdKey);
  accumulated_batches = 0;
  is_torn = true;
}

void TrainState::load(const StateDict& state) {
  announce(state);
  load_model(*model, state);
  if (!log.device().is_cpu()) move_to(*model, log.device());
  load_carried_state_dict(*model, part_of(state, kCarried), log.device());
  optimizer.reset();
  optimizers = load_optimizers(*model, state, options_);
  const StateDict of_optimizer = part_of(state, kOptimizer);
  if (!of_optimizer.metadata.empty()) load_saved_state(require_optimizer(), of_optimizer, options_);
  if (plateaus) plateaus->load(part_of(state, kSchedule));
  if (scaler) scaler->load(part_of(state, kScaler));
  streams.load(state);
  log.load(state, kLog, [this](const std::string& name) { return model->metric_of(name); });
  load_callbacks(options_.callbacks, state);
  const auto count = [&](const std::string& name) {
    return read_count(read_text(state, kProgress + name), kProgress + name);
  };
  const bool is_training = read_text(state, kProgress + std::string("phase")) == "training";
  progress = {.epoch = count("epoch"),
              .batch = count("batch"),
              .global_step = count("global_step"),
              .phase = is_training ? Phase::training : Phase::validation};
  const auto spent = state.metadata.find(kSpentTime);
  time.start(
      spent == state.metadata.end() ? 0 : 1e-3 * static_cast<double>(read_count(spent->second, kSpentTime)));
  early_stop_waits = state.metadata.contains(kEarlyStopWaits);
  random_before_validation.clear();
  std::vector<at::Tensor> random;
  for (std::size_t i = 0; const at::Tensor* one = state.find(kRandom + std::to_string(i)); ++i)
    random.push_back(*one);
  set_random_state(log.device(), random);
  is_torn = false;
}

}  // namespace kindling
