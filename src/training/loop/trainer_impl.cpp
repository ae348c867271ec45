#include "training/loop/trainer_impl.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <string>
#include <typeinfo>
#include <utility>

#include "data/loading/validation_sets.h"
#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/input_transform.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/move.h"
#include "metrics/global_means.h"
#include "tensors/state_fit.h"
#include "training/capture/capture.h"
#include "training/inspect/inspected_step.h"
#include "training/parallel/replicas.h"
#include "training/step/automatic_step.h"
#include "training/step/manual_step.h"
#include "training/step/optimizer_update.h"

namespace kindling {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

void require_an_end(const TrainerOptions& options) {
  if (options.max_epochs || options.max_steps) return;
  throw ConfigError({.place = "Trainer::fit",
                     .found = "neither max_epochs nor max_steps is set",
                     .wanted = "at least one of them",
                     .remedy = "for example max_epochs = 10"});
}

FitStatus status_of(FitReason reason) {
  if (reason == FitReason::finished) return FitStatus::finished;
  return reason == FitReason::diverged ? FitStatus::diverged : FitStatus::stopped;
}

// For what must not hide an error that is already being handled.
template <class Call>
void log_on_failure(const Call& call) noexcept {
  try {
    call();
  } catch (const std::exception& error) {
    log_error(std::string("another error after the fit failed: ") + error.what());
  } catch (...) {
    log_error("another error after the fit failed: an exception that is not a std::exception");
  }
}

bool has_equal_buffers(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto first = a.named_buffers(), second = b.named_buffers();
  return first.size() == second.size() && std::all_of(first.begin(), first.end(), [&](const auto& buffer) {
           const at::Tensor* other = second.find(buffer.key());
           return other != nullptr && other->scalar_type() == buffer.value().scalar_type() &&
                  other->cpu().equal(buffer.value().cpu());
         });
}

// Statistics of other samples would change the model's inputs silently.
void require_transform_of(const Module& model, DataModule& data, const char* location) {
  const auto trained = input_transform_of(model), given = data.input_transform();
  if (!trained || !given || trained == given) return;
  if (trained->description() == given->description() && has_equal_buffers(*trained, *given)) return;
  throw ConfigError({.place = location,
                     .found = "the inputs are transformed in another way than those that the model was "
                              "trained on",
                     .wanted = "the transform that was saved with the model",
                     .remedy = "call restore_input_transform() before prepare(), then set_input_transform(), "
                               "and load the weights"});
}

void register_transform(Module& model, DataModule& data) {
  const auto transform = data.input_transform();
  if (!transform && input_transform_of(model))
    throw ConfigError({.place = "Trainer",
                       .found = "the model has the input transform of other data, but these data have none",
                       .wanted = "a model without a transform",
                       .remedy = "construct a new model, and load the weights into it"});
  set_input_transform(model, transform);
}

}  // namespace

Callback::~Callback() = default;
std::string Callback::type_name() const { return typeid(*this).name(); }

Trainer::Impl::Impl(Trainer& owner, TrainerOptions options)
    : context(make_context(owner, std::move(options))), loop(context) {
  if (const auto& threads = context->options.num_threads) at::set_num_threads(static_cast<int>(*threads));
}

Trainer::Impl::Use::Use(Impl& impl, const char* location, std::shared_ptr<Module> model)
    : of_trainer_(
          impl.thread_owner_, location,
          [&](const std::string& other) {
            throw Error({.place = location,
                         .found = "the trainer is running " + other + " on another thread",
                         .wanted = "calls from one thread at a time",
                         .remedy = "make a Trainer for each thread; stop_token() stops a fit from another "
                                   "thread"});
          }),
      model_(model ? std::move(model) : impl.context->state.model) {
  if (model_) of_model_.emplace(*model_, location);
}

Trainer::Impl::Work::Work(Impl& impl, const char* location, std::shared_ptr<Module> model)
    : impl_(impl),
      use_(impl, location, std::move(model)),
      deterministic_(impl.context->deterministic_operators),
      products_(impl.context->options.float32_matmul_precision) {
  if (impl_.is_working_)
    throw Error({.place = location,
                 .found = "it was called from a callback or step of the same trainer",
                 .wanted = "a call on another trainer, or after the fit",
                 .remedy = "callbacks may call validate, test and predict"});
  impl_.is_working_ = true;
}

FitLoop& Trainer::Impl::prepared(const char* location, bool needs_data) {
  if (needs_data && !loop.has_data())
    throw Error(
        {.place = location, .found = "no data has been prepared", .remedy = "call prepare_data(data) first"});
  if (!loop.has_model())
    throw Error({.place = location,
                 .found = "no model has been prepared",
                 .remedy = "call prepare_model(model) first"});
  return loop;
}

// --- Data and model ---

void Trainer::Impl::prepare_data(DataModule& new_data) {
  const TrainerOptions& options = context->options;
  BatchSource train = source_of(
      new_data, {"Trainer::prepare_data", "train_dataloader", &DataModule::train_dataloader, Stage::train},
      options.limit_train_batches, batches_of_run(options));
  train.partition(options, group() != nullptr ? group()->rank() : 0,
                  group() != nullptr ? group()->size() : 1);
  std::vector<ValidationSource> validation = validation_of(new_data, options.limit_val_batches);
  if (options.overfit_batches)
    for (ValidationSource& set : validation) set.batches.limit_to(*options.overfit_batches);
  if (group() != nullptr) require_same_data(*group(), options, train, validation);
  train.cache_on_device();
  for (ValidationSource& set : validation) set.batches.cache_on_device();
  data = &new_data;
  loop.set_data(std::move(train), std::move(validation));
}

void Trainer::Impl::materialize(Module& model, DataModule& from) {
  if (!layers_without_shape(model).empty()) layer_summary(model, from);
}

void Trainer::Impl::shard(BatchSource& source) const { source.shard(group()->rank(), group()->size()); }

// Returns the step for the kind of model that the context has. Throws ConfigError for options that such a
// model cannot have.
std::unique_ptr<Step> Trainer::Impl::make_step(TrainingContext& context) {
  const StepContext of_steps(context);
  context.capture = capture_mode(of_steps);
  if (context.options.step_graph == "on" && !context.capture.is_captured())
    log_warning("step_graph: steps are not captured: " + context.capture.reason);
  const bool is_captured = context.capture.is_captured();
  auto update = std::make_unique<OptimizerUpdate>(of_steps, context.callbacks, context.stop,
                                                  is_captured ? capture_update(of_steps) : nullptr);
  std::unique_ptr<Step> step;
  if (context.state.model->updates_manually()) {
    step = std::make_unique<ManualStep>(of_steps, std::move(update));
  } else {
    auto gradients = is_captured ? capture_gradients(of_steps) : std::make_unique<BatchGradients>(of_steps);
    step = std::make_unique<AutomaticStep>(of_steps, std::move(gradients), std::move(update));
  }
  return inspected(std::move(step), context.state, context.options);
}

void Trainer::Impl::prepare_model(std::shared_ptr<Module> model) {
  const TrainerOptions& options = context->options;
  Placement& placement = context->placement;
  TrainState& state = context->state;
  StopConsensus& stop = context->stop;
  if (data != nullptr) register_transform(*model, *data);
  attach(*model, context);
  give_precision(*model, placement.precision);
  placement.is_channels_last =
      wants_channels_last(options.channels_last, *model, placement.precision, context->device());
  if (placement.is_channels_last) give_channels_last(*model);
  if (group() != nullptr) sync_initial_state(*group(), *model, options);
  ProgressBoard& board = model->board();
  board.clear();
  if (options.max_epochs) board.options().xlim = {0, static_cast<double>(*options.max_epochs)};
  if (stop.stop_requested() && stop.reason() != FitReason::requested) stop.reset();  // of an earlier run
  stop.set_early_stop_requested(false);
  if (options.gradient_shards > 1) {
    require_shapes(*model);
    state.streams.start(context->device(), options.gradient_shards, group());
  }
  state.start(std::move(model));
  std::unique_ptr<Step> step = make_step(*context);
  if (group() != nullptr) fork_rng(context->device(), group()->rank());
  loop.start(std::move(step));
}

BatchSource Trainer::Impl::source_of(DataModule& from, const LoaderSelector& selector,
                                     std::optional<std::int64_t> limit,
                                     std::optional<std::int64_t> enough) const {
  from.prepare();
  auto loader = (from.*selector.loader)();
  if (!loader)
    throw DataError({.place = selector.location,
                     .found = std::string("the data has no ") + selector.name + "()" + selector.defaults,
                     .wanted = "a loader",
                     .remedy = std::string("override ") + selector.name + "() of the data module"});
  limit = limit_of_epoch(*loader, selector.stage, limit, enough);
  return {from, std::move(loader), selector.stage, context->placement, limit};
}

BatchSource Trainer::Impl::source_for(const Module& model, DataModule& from, const LoaderSelector& selector,
                                      std::optional<std::int64_t> limit) const {
  BatchSource source = source_of(from, selector, limit);
  require_transform_of(model, from, selector.location);
  return source;
}

// The ranks have different samples of each set.
std::vector<ValidationSource> Trainer::Impl::validation_of(DataModule& from,
                                                           std::optional<std::int64_t> limit) const {
  std::vector<ValidationSource> sources;
  for (ValidationSet& set : validation_sets_of(from)) {
    sources.push_back({.suffix = std::move(set.suffix),
                       .batches = {from, std::move(set.loader), Stage::val, context->placement, limit}});
    if (group() != nullptr) shard(sources.back().batches);
  }
  return sources;
}

// --- A fit ---

FitResult Trainer::Impl::fit(std::shared_ptr<Module> model, DataModule& new_data,
                             const FitOptions& fit_options) {
  const TrainerOptions& options = context->options;
  require_an_end(options);
  std::optional<StateDict> saved;  // read before anything is touched
  if (!fit_options.resume.empty()) saved = load_checkpoint(fit_options.resume);
  const FitScope scope{*this};
  if (group() != nullptr || options.gradient_shards > 1) materialize(*model, new_data);
  prepare_data(new_data);
  prepare_model(model);
  if (saved) context->state.adopt_run_id(*saved);
  num_ended_ = {};
  FitResult result;
  try {
    context->callbacks.call(&Callback::on_fit_start, *model);
    run_sanity_check(new_data);
    if (saved) loop.resume(*std::exchange(saved, std::nullopt));
    result.metrics = rolls_back(options) ? run_with_rollbacks(fit_options.resume) : loop.run();
    result.reason = context->stop.reason();
    result.status = status_of(result.reason);
    result.progress = context->state.progress;
    result.diverged_step = loop.divergence().step();
    result.diverged_reason = loop.divergence().reason();
    end_fit(result);
  } catch (...) {
    report_error(std::current_exception());
    throw;
  }
  return result;
}

void Trainer::Impl::run_sanity_check(DataModule& of) {
  const TrainerOptions& options = context->options;
  const std::int64_t steps = std::min(options.num_sanity_val_steps,
                                      options.limit_val_batches.value_or(options.num_sanity_val_steps));
  if (!loop.has_validation() || steps == 0) return;
  loop.sanity_check(validation_of(of, steps));
}

void Trainer::Impl::end_fit(FitResult& result) {
  while (end_next_saver(result))
    if (result.best_checkpoint.empty())
      result.best_checkpoint = context->callbacks.savers()[num_ended_.savers - 1]->saver()->best();
  loop.close_log();
  while (finalize_next_logger(result)) continue;
  while (end_next_other(result)) continue;
}

bool Trainer::Impl::end_next_saver(const FitResult& result) {
  const Callbacks& callbacks = context->callbacks;
  if (num_ended_.savers == callbacks.savers().size()) return false;
  callbacks.savers()[num_ended_.savers++]->on_fit_end(callbacks.trainer(), *context->state.model, result);
  return true;
}

bool Trainer::Impl::finalize_next_logger(const FitResult& result) {
  if (num_ended_.loggers == context->options.loggers.size()) return false;
  const bool is_complete = result.reason == FitReason::early_stop;
  context->options.loggers[num_ended_.loggers++]->finalize(is_complete ? FitStatus::finished : result.status);
  return true;
}

bool Trainer::Impl::end_next_other(const FitResult& result) {
  const Callbacks& callbacks = context->callbacks;
  if (num_ended_.others == callbacks.others().size()) return false;
  callbacks.others()[num_ended_.others++]->on_fit_end(callbacks.trainer(), *context->state.model, result);
  return true;
}

void Trainer::Impl::report_error(std::exception_ptr error) noexcept {
  const Callbacks& callbacks = context->callbacks;
  TrainState& state = context->state;
  Trainer& trainer = callbacks.trainer();
  Module& model = *state.model;
  loop.close_log();
  if (group() != nullptr) group()->leave(text_of(error));
  if (callbacks.is_calling()) StateTransaction never_committed(state);
  log_on_failure([&] { loop.abandon_steps(); });
  for (const auto* group_of_callbacks : {&callbacks.savers(), &callbacks.others()})
    for (const auto& callback : *group_of_callbacks)
      log_on_failure([&] {
        try {
          std::rethrow_exception(error);
        } catch (const std::exception& known) {
          callback->on_exception(trainer, model, known);
        } catch (...) {  // not an exception that a callback could receive
        }
      });
  const FitResult result{.status = FitStatus::failed, .reason = FitReason::error, .progress = state.progress};
  const auto call_all = [&](const auto& call_next) {
    bool is_left = true;
    while (is_left) log_on_failure([&] { is_left = call_next(); });
  };
  call_all([&] { return end_next_saver(result); });
  call_all([&] { return finalize_next_logger(result); });
  call_all([&] { return end_next_other(result); });
}

Trainer::Impl::FitScope::~FitScope() {
  impl.context->stop.reset();
  impl.loop.close_log();
  impl.loop.drop_data();
  impl.data = nullptr;
}

// --- Evaluation ---

Metrics Trainer::Impl::validate(Module& model, DataModule& from, const LoaderSelector& selector) {
  const std::optional<std::int64_t> limit = context->options.limit_val_batches;
  Metrics values = evaluate(model, source_for(model, from, selector, limit), &Module::validation_step);
  for (ValidationSet& set : validation_sets_of(from)) {
    if (set.suffix.empty()) continue;
    BatchSource source(from, std::move(set.loader), Stage::val, context->placement, limit);
    for (const auto& [name, value] : evaluate(model, std::move(source), &Module::validation_step))
      values[name_in_set(name, set.suffix)] = value;
  }
  return values;
}

void Trainer::Impl::validate(Module& model, BatchSource source,
                             const std::function<void(const Prediction&)>& take) {
  const EvaluationScope scope(model, context, loop.evaluation_log());
  source.keep_order();
  source.seek(0);
  for (Batch batch; source.next(batch);) {
    at::Tensor outputs;
    {
      const AutocastScope autocast(context->placement.precision, context->device());
      outputs = model.forward_inputs(batch);
    }
    take({.outputs = Batch::leaf(outputs), .batch = batch, .indices = source.indices()});
    source.end_batch();
  }
}

Metrics Trainer::Impl::evaluate(Module& model, BatchSource source, EvaluationStep step) {
  EpochLog& log = loop.evaluation_log();
  const EvaluationScope scope(model, context, log);
  if (group() != nullptr) shard(source);
  evaluate_loop(model, step, source, log);
  const NamedValues means = global_means(log, group());
  return Metrics(means.begin(), means.end());
}

at::Tensor Trainer::Impl::predict(Module& model, BatchSource source) {
  const EvaluationScope scope(model, context, loop.evaluation_log());
  return predict_loop(model, source);
}

void Trainer::Impl::predict(Module& model, BatchSource source,
                            const std::function<void(const Prediction&)>& take) {
  const EvaluationScope scope(model, context, loop.evaluation_log());
  source.keep_order();
  source.seek(0);
  for (Batch batch; source.next(batch);) {
    Batch outputs;
    {
      const AutocastScope autocast(context->placement.precision, context->device());
      outputs = with_batch_in_errors(batch, [&] { return model.predict_outputs(batch); });
      // The first output estimates the targets.
      if (!outputs.empty()) outputs.tensors()[0] = source.data().unscale_targets(outputs.tensors()[0]);
      outputs = move_to(std::move(outputs), cpu());
    }
    take({.outputs = outputs, .batch = batch, .indices = source.indices()});
  }
}

std::vector<LayerRow> Trainer::Impl::layer_summary(Module& model, DataModule& of) {
  const EvaluationScope scope(model, context, loop.evaluation_log());
  Batch batch;
  {
    const RandomStateGuard random_state(context->device());
    BatchSource source = source_of(
        of, {"Trainer::layer_summary", "train_dataloader", &DataModule::train_dataloader, Stage::train}, 1);
    source.seek(0);
    source.next(batch);
  }
  return kindling::layer_summary(model, batch);
}

}  // namespace kindling
