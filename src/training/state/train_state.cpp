#include "training/state/train_state.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <typeinfo>

#include "checkpoint/saved_keys.h"
#include "device/random_state.h"
#include "kindling/base/log.h"
#include "kindling/data/input_transform.h"
#include "kindling/optim/adam.h"
#include "kindling/tensors/move.h"
#include "kindling/training/callback.h"
#include "nn/carried_states.h"
#include "nn/monitored_value.h"
#include "nn/named_optimizers.h"
#include "nn/precision.h"
#include "optim/sharded_state.h"
#include "tensors/saved_number.h"
#include "tensors/state_fit.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& found, const std::string& wanted) {
  throw CheckpointError({.place = place, .found = found, .wanted = wanted});
}

std::int64_t read_count(const std::string& text, const std::string& name) {
  return parse_saved_number<std::int64_t>(text, name, {.min = 0});
}

std::string read_text(const StateDict& state, const std::string& name) {
  const auto found = state.metadata.find(name);
  if (found == state.metadata.end()) refuse("'" + name + "'", "it is missing", "the saved state of a run");
  return found->second;
}

// --- The model: its own weights also while averages are applied, what is frozen, and which lazy layers have
// no shape yet.

// Returns the model's own values, also while an average is applied.
StateDict own_values(const Module& model, const std::vector<std::shared_ptr<Callback>>& callbacks) {
  StateDict values = state_dict(model);
  for (const auto& callback : callbacks)
    if (const WeightAveraging* averaging = callback->averaging()) averaging->put_own_values(values);
  return values;
}

// Layers that had no shape when the model was saved draw their weights later, so they lose what they have.
void forget_lazy_weights(Module& model, const StateDict& state) {
  for (const auto& [name, layer] : lazy_layers(model))
    if (state.metadata.contains(saved_keys::kLazy + in_layer(name, "weight"))) layer->dematerialize();
}

// Optimizers keep their state in the type of the parameters.
void require_same_precision(const Module& model, const StateDict& saved) {
  std::map<std::string, at::ScalarType> own;
  for (const auto& [name, tensor] : state_dict(model).tensors)
    if (tensor.defined() && (tensor.is_floating_point() || tensor.is_complex()))
      own.emplace(name, tensor.scalar_type());
  for (const auto& [name, tensor] : saved.tensors) {
    const auto wanted = own.find(name);
    if (wanted == own.end() || wanted->second == tensor.scalar_type()) continue;
    throw CheckpointError({.place = "the saved model",
                           .found = "'" + name + "' is " + c10::toString(tensor.scalar_type()) +
                                    ", the model's is " + c10::toString(wanted->second),
                           .wanted = "the precision of the saved run",
                           .remedy = "start a new run from its weights to change the precision"});
  }
}

void load_weights_of(Module& model, const StateDict& state) {
  const StateDict saved = part_of(state, saved_keys::kModel), lazy = part_of(state, saved_keys::kLazy);
  require_same_precision(model, saved);
  forget_lazy_weights(model, state);
  LoadReport report = load_state_dict(model, saved, "the saved model", {.strict = lazy.metadata.empty()});
  std::erase_if(report.missing, [&](const std::string& name) { return lazy.metadata.contains(name); });
  if (report.missing.size() + report.misfits.size() + report.unexpected.size() > 0)
    throw CheckpointError(
        {.place = "the saved model", .found = report.text(), .wanted = "the names and shapes of the model"});
}

void save_model(Module& model, const std::vector<std::shared_ptr<Callback>>& callbacks, StateDict& state) {
  put(state, saved_keys::kModel, own_values(model, callbacks));
  if (const auto transform = input_transform_of(model))
    state.metadata[kInputTransform] = transform->description();
  for (const auto& [name, layer] : layers_without_shape(model))
    state.metadata[saved_keys::kLazy + name] = "true";
  for (const auto& item : model.named_parameters())
    if (item.value().defined() && !item.value().requires_grad())
      state.metadata[saved_keys::kFrozen + item.key()] = "true";
  for (const auto& [weight, layer] : layers_without_shape(model))
    for (const std::string& name : layer->frozen)
      state.metadata[saved_keys::kFrozen + weight.substr(0, weight.rfind('.') + 1) + name] = "true";
  for (const std::string& name : model.frozen_layers())
    state.metadata[saved_keys::kFrozenLayer + name] = "true";
}

void load_model(Module& model, const StateDict& state) {
  adopt_saved_transform(model, state, "the saved model");
  load_weights_of(model, state);
  if (!model.frozen_layers().empty()) model.unfreeze(model);
  for (const auto& item : model.named_modules())
    if (state.metadata.contains(saved_keys::kFrozenLayer + item.key())) model.freeze(*item.value());
  for (const auto& item : model.named_parameters())
    if (item.value().defined())
      item.value().requires_grad_(!state.metadata.contains(saved_keys::kFrozen + item.key()));
  for (const auto& [layer_name, layer] : lazy_layers(model)) {
    layer->frozen.clear();
    for (const std::string& name : layer->parameter_names())
      if (state.metadata.contains(saved_keys::kFrozen + in_layer(layer_name, name)))
        layer->frozen.insert(name);
  }
}

// --- Callbacks ---

std::string callback_prefix(std::size_t number) {
  return saved_keys::kCallback + std::to_string(number) + ".";
}

// Savers keep no state in checkpoints: whether and how often a run is saved does not change it.
std::vector<std::shared_ptr<Callback>> without_savers(std::vector<std::shared_ptr<Callback>> callbacks) {
  std::erase_if(callbacks, [](const auto& callback) { return callback->saver() != nullptr; });
  return callbacks;
}

void save_callbacks(const std::vector<std::shared_ptr<Callback>>& all, StateDict& state) {
  const auto callbacks = without_savers(all);
  for (std::size_t i = 0; i < callbacks.size(); ++i) {
    StateDict own;
    callbacks[i]->save_state(own);
    if (own.tensors.empty() && own.metadata.empty()) continue;
    put(state, callback_prefix(i), own);
    state.metadata[saved_keys::kCallbackType + std::to_string(i)] = callbacks[i]->type_name();
    const WeightAveraging* averaging = callbacks[i]->averaging();
    if (averaging == nullptr || !averaging->evaluates()) continue;
    if (const std::string prefix = averaging->averages_prefix(); !prefix.empty())
      state.metadata[saved_keys::kAverages] = callback_prefix(i) + prefix;
  }
}

// Earlier versions stored the compiler's name of the class.
bool has_type(const Callback& callback, const std::string& saved) {
  return saved == callback.type_name() || saved == typeid(callback).name();
}

// Throws unless each saved state belongs to a callback of this type. The positions of these begin with
// `first`.
void require_callbacks(const std::vector<std::shared_ptr<Callback>>& all, std::size_t first,
                       const StateDict& state) {
  const auto callbacks = without_savers(all);
  for (const auto& [number, type] : part_of(state, saved_keys::kCallbackType).metadata) {
    const auto i = static_cast<std::size_t>(read_count(number, saved_keys::kCallbackType + number));
    if (i < first || (i - first < callbacks.size() && has_type(*callbacks[i - first], type))) continue;
    refuse("callback " + number, "the saved state is that of a " + c10::demangle(type.c_str()),
           "the same callbacks, in the same order, as in the saved run");
  }
}

void load_callbacks(const std::vector<std::shared_ptr<Callback>>& all, const StateDict& state) {
  require_callbacks(all, /*first=*/0, state);
  const auto callbacks = without_savers(all);
  for (const auto& [number, type] : part_of(state, saved_keys::kCallbackType).metadata) {
    const auto i = static_cast<std::size_t>(read_count(number, saved_keys::kCallbackType + number));
    callbacks[i]->load_state(part_of(state, callback_prefix(i)));
  }
}

// --- Progress ---

void save_progress(const Progress& progress, StateDict& state) {
  state.metadata[saved_keys::kEpoch] = std::to_string(progress.epoch);
  state.metadata[saved_keys::kBatch] = std::to_string(progress.batch);
  state.metadata[saved_keys::kGlobalStep] = std::to_string(progress.global_step);
  state.metadata[saved_keys::kPhase] = progress.phase == Phase::training ? "training" : "validation";
}

Progress load_progress(const StateDict& state) {
  const auto count = [&](const char* key) { return read_count(read_text(state, key), key); };
  const bool is_training = read_text(state, saved_keys::kPhase) == "training";
  return {.epoch = count(saved_keys::kEpoch),
          .batch = count(saved_keys::kBatch),
          .global_step = count(saved_keys::kGlobalStep),
          .phase = is_training ? Phase::training : Phase::validation};
}

// --- A new run ---

// Returns the options with the monitored value and its direction filled in.
PlateauScheduleOptions for_model(PlateauScheduleOptions options, const Module& model) {
  const Module::Monitor monitor = monitor_of(options.monitor, options.mode, model, "plateau schedule");
  options.monitor = monitor.name;
  options.mode = monitor.higher_is_better ? "max" : "min";
  return options;
}

// A factory that captured another model would train that model's parameters instead of this one's.
void require_some_of(const Module& model, const Optimizer& optimizer) {
  const auto own = model.parameters();
  const auto is_own = [&](const at::Tensor& parameter) {
    return std::ranges::any_of(own, [&](const at::Tensor& mine) { return mine.is_same(parameter); });
  };
  if (std::ranges::any_of(optimizer.parameters(), is_own)) return;
  throw ConfigError({.place = "optimizer",
                     .found = "none of its " + std::to_string(optimizer.parameters().size()) +
                              " parameters belongs to " + model.name(),
                     .wanted = "parameters of the model that is trained",
                     .remedy = "create it from the factory's argument, not from another model"});
}

std::unique_ptr<Optimizer> made_by(const OptimizerFactory& factory, const Module& model) {
  std::unique_ptr<Optimizer> made = factory(ParameterGroups(model));
  if (!made)
    throw ConfigError(
        {.place = "optimizer", .found = "the factory returned nullptr", .wanted = "an Optimizer"});
  require_some_of(model, *made);
  return made;
}

}  // namespace

std::string new_run_id() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", device(), device());
  return text;
}

void TrainState::start(std::shared_ptr<Module> new_model) {
  model = std::move(new_model);
  forget_carried_states(*model);
  optimizer.reset();
  optimizers.clear();
  ++optimizer_generation_;
  plateaus.reset();
  if (options_.schedule.plateau) plateaus.emplace(for_model(*options_.schedule.plateau, *model));
  progress = {};
  scaler.reset();
  spike_detectors_.clear();
  if (Precision::named(options_.precision).scales_gradients) scaler.emplace(log.device());
  time.start();
  is_early_stop_pending = has_custom_batches = false;
  passed = {};
  log = EpochLog(log.device());  // the columns are those of the previous model
  digest = {};
  run_id = new_run_id();
  is_open_ = false;
  random_before_validation.clear();
  has_warned_of_state_ = false;
}

Optimizer& TrainState::require_optimizer() {
  if (optimizer) return *optimizer;
  if (options_.optimizer)
    optimizer = made_by(options_.optimizer, *model);
  else if (!(optimizer = model->configure_optimizers()))
    optimizer = std::make_unique<Adam>(ParameterGroups(*model));
  optimizer->take_names(*model);
  if (options_.master_weights) optimizer->use_master_weights();
  ++optimizer_generation_;
  return *optimizer;
}

Optimizer& TrainState::require_optimizer(std::string_view name) {
  if (optimizers.empty()) {
    make_optimizers();
    ++optimizer_generation_;
  }
  return optimizer_named(optimizers, name);
}

void TrainState::make_optimizers() {
  optimizers = make_named_optimizers(*model);
  if (!options_.master_weights) return;
  for (const auto& [name, one] : optimizers) one->use_master_weights();
}

SpikeDetector& TrainState::spike_detector(std::string_view name) {
  const auto found = spike_detectors_.find(name);
  if (found != spike_detectors_.end()) return found->second;
  return spike_detectors_.try_emplace(std::string(name), log.device(), *options_.on_spike).first->second;
}

// A run without the losses starts with none: it was saved by a former version, or did not test them.
void TrainState::load_spike_detectors(const StateDict& state) {
  spike_detectors_.clear();
  if (!options_.on_spike) return;
  for (const auto& [key, losses] : part_of(state, saved_keys::kSpikes).tensors) {
    const std::size_t end = key.rfind('.');  // "losses", or "generator.losses"
    spike_detector(end == std::string::npos ? "" : key.substr(0, end)).load(losses);
  }
}

double TrainState::lr() const {
  if (optimizer) return optimizer->lr();
  return optimizers.empty() ? 0 : optimizers.begin()->second->lr();
}

ProcessGroup* TrainState::optimizer_shards() const {
  return options_.shard_optimizer_state ? options_.process_group.get() : nullptr;
}

void TrainState::save_optimizers(StateDict& state) {
  if (optimizer) save_optimizer(*optimizer, saved_keys::kOptimizer, state);
  for (const auto& [name, one] : optimizers)
    save_optimizer(*one, saved_keys::kOptimizers + name + ".", state);
}

void TrainState::save_optimizer(const Optimizer& one, const std::string& prefix, StateDict& state) {
  put(state, prefix, saved_state(one, optimizer_shards()));
  if (one.saves_all_state() || has_warned_of_state_ || progress.global_step == 0) return;
  has_warned_of_state_ = true;
  log_warning(
      "checkpoint: " + c10::demangle(typeid(one).name()) +
      " has registered no state with add_state(); state that it keeps elsewhere is not saved, and a resumed "
      "run starts without it; if it keeps none, override saves_all_state() to return true");
}

void TrainState::load_optimizers(const StateDict& state) {
  optimizer.reset();
  optimizers.clear();
  ++optimizer_generation_;
  const StateDict saved = part_of(state, saved_keys::kOptimizer),
                  saved_named = part_of(state, saved_keys::kOptimizers);
  const bool is_manual = model->updates_manually();
  if (is_manual && !saved.metadata.empty())
    throw CheckpointError({.place = "the saved optimizer",
                           .found = "it is unnamed",
                           .wanted = "the optimizers of " + model->name() + "::configure_named_optimizers()",
                           .remedy = "load only the weights"});
  std::set<std::string> names;
  for (const auto& [name, value] : saved_named.metadata) names.insert(name.substr(0, name.find('.')));
  if (!names.empty()) {
    if (is_manual) make_optimizers();
    if (list_of_names(optimizers) != list_of_names(names))
      throw CheckpointError({.place = "the saved optimizers",
                             .found = list_of_names(names),
                             .wanted = is_manual ? list_of_names(optimizers) : "one unnamed optimizer"});
    for (const auto& [name, one] : optimizers)
      load_saved_state(*one, part_of(saved_named, name + "."), optimizer_shards());
  }
  if (!saved.metadata.empty()) load_saved_state(require_optimizer(), saved, optimizer_shards());
}

void TrainState::require_between_steps() const {
  if (is_open_)
    throw InsideStep(
        {.place = "the run",
         .found = "step " + std::to_string(progress.global_step + 1) + " is running or has failed",
         .wanted = "a save between two steps",
         .remedy = "save after a step, or resume from the last checkpoint"});
}

void TrainState::save(StateDict& state) {
  require_between_steps();
  const auto put_part = [&](const char* prefix, const auto& part) {
    StateDict saved;
    part.save(saved);
    put(state, prefix, saved);
  };
  state.metadata[saved_keys::kRunId] = run_id;
  save_model(*model, options_.callbacks, state);
  put(state, saved_keys::kHiddenState, carried_state_dict(*model));
  save_optimizers(state);
  if (plateaus) put_part(saved_keys::kSchedule, *plateaus);
  if (scaler) put_part(saved_keys::kScaler, *scaler);
  for (const auto& [name, detector] : spike_detectors_)
    state.tensors.emplace_back(saved_keys::kSpikes + (name.empty() ? "" : name + ".") + "losses",
                               detector.losses());
  streams.save(state);
  log.save(state, saved_keys::kLog);
  digest.add_rows(log);
  digest.save(state);
  save_callbacks(options_.callbacks, state);
  save_progress(progress, state);
  passed.save(state);
  if (has_custom_batches) state.metadata[saved_keys::kCustomBatches] = "true";
  if (time.is_set())
    state.metadata[saved_keys::kSpentTime] = std::to_string(static_cast<std::int64_t>(1000 * time.spent_s()));
  const auto stops_again = [](const auto& callback) { return callback->stops_training(); };
  if (is_early_stop_pending && std::ranges::none_of(options_.callbacks, stops_again))
    state.metadata[saved_keys::kEarlyStopPending] = "true";
  const auto random =
      random_before_validation.empty() ? random_state(log.device()) : random_before_validation;
  for (std::size_t i = 0; i < random.size(); ++i)
    state.tensors.emplace_back(saved_keys::kRandom + std::to_string(i), random[i]);
}

void TrainState::adopt_run_id(const StateDict& state) {
  run_id = read_text(state, saved_keys::kRunId);
  is_open_ = true;
}

void require_loadable(const StateDict& saved, std::shared_ptr<Module> model, const TrainerOptions& options,
                      std::size_t num_other_callbacks) {
  const RandomStateGuard random_state(cpu());
  TrainState state(cpu(), options);
  give_precision(*model, Precision::named(options.precision));
  state.start(std::move(model));
  load_model(*state.model, saved);
  state.load_optimizers(saved);
  if (state.plateaus) state.plateaus->load(part_of(saved, saved_keys::kSchedule));
  if (state.scaler) state.scaler->load(part_of(saved, saved_keys::kScaler));
  if (options.gradient_shards > 1) {
    state.streams.start(cpu(), options.gradient_shards, /*group=*/nullptr);
    state.streams.load(saved);
  }
  require_callbacks(options.callbacks, num_other_callbacks, saved);
}

void TrainState::load(const StateDict& state) {
  adopt_run_id(state);
  StateTransaction transaction(*this);
  load_model(*model, state);
  if (!log.device().is_cpu()) move_to(*model, log.device());
  load_carried_state_dict(*model, part_of(state, saved_keys::kHiddenState), log.device());
  load_optimizers(state);
  if (plateaus) plateaus->load(part_of(state, saved_keys::kSchedule));
  if (scaler) scaler->load(part_of(state, saved_keys::kScaler));
  load_spike_detectors(state);
  streams.load(state);
  log.load(state, saved_keys::kLog, [this](const std::string& name) { return model->metric_of(name); });
  digest.load(state, log.num_rows());
  load_callbacks(options_.callbacks, state);
  progress = load_progress(state);
  passed = PassedBatches::load(state);
  has_custom_batches = state.metadata.contains(saved_keys::kCustomBatches);
  const auto spent = state.metadata.find(saved_keys::kSpentTime);
  time.start(spent == state.metadata.end()
                 ? 0
                 : 1e-3 * static_cast<double>(read_count(spent->second, saved_keys::kSpentTime)));
  is_early_stop_pending = state.metadata.contains(saved_keys::kEarlyStopPending);
  random_before_validation.clear();
  std::vector<at::Tensor> random;
  for (std::size_t i = 0; const at::Tensor* one = state.find(saved_keys::kRandom + std::to_string(i)); ++i)
    random.push_back(*one);
  set_random_state(log.device(), random);
  transaction.commit();
}

}  // namespace kindling
