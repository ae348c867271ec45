#include "training/trainer_impl.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/move.h"
#include "tensors/state_fit.h"
#include "training/make_info.h"
#include "training/make_step.h"
#include "training/memory_layout.h"
#include "training/resolved_options.h"
#include "training/start_together.h"

namespace kindling {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an error of a type of its own";
  }
}

void require_an_end(const TrainerOptions& options) {
  if (options.max_epochs || options.max_steps) return;
  throw ConfigError({.place = "Trainer::fit",
                     .found = "neither max_epochs nor max_steps is set",
                     .wanted = "at least one of them",
                     .remedy = "for example max_epochs = 10"});
}

// As another trainer takes them: shards are counted among the batches of a window once.
TrainerOptions as_asked(TrainerOptions options, const TrainerOptions& asked) {
  options.accumulate_grad_batches = asked.accumulate_grad_batches;
  return options;
}

FitStatus status_of(FitReason reason) {
  if (reason == FitReason::finished) return FitStatus::finished;
  return reason == FitReason::diverged ? FitStatus::diverged : FitStatus::stopped;
}

// For what must not hide an error that is already on its way.
template <class Call>
void or_log(const Call& call) noexcept {
  try {
    call();
  } catch (const std::exception& error) {
    log_error(std::string("after an error of the fit: ") + error.what());
  } catch (...) {
    log_error("after an error of the fit: another one");
  }
}

}  // namespace

Callback::~Callback() = default;

Trainer::Impl::Impl(Trainer& owner, TrainerOptions asked)
    : options(resolved(asked)),
      shown(as_asked(options, asked)),
      info(make_info(options)),
      stop(StopToken(), group()),
      state(info->device(), options),
      evaluation_log(info->device()),
      callbacks(owner, options.callbacks),
      report(state, options.loggers, options.log_every_n_steps, info->clock.get(), group()),
      divergence(state, *info, options) {
  info->progress = &state.progress;
  info->stop = &stop;
  stop.ask_for_saves([this] { return callbacks.wish_save(); });
  if (options.num_threads) at::set_num_threads(static_cast<int>(*options.num_threads));
}

Trainer::Impl::Work::Work(Impl& impl, const char* place)
    : impl_(impl),
      deterministic_(impl.info->deterministic_operators),
      products_(impl.info->float32_matmul_precision) {
  if (impl_.is_working_)
    throw Error({.place = place,
                 .found = "it is called from a callback or a step of the trainer's own training",
                 .wanted = "another trainer, or the call after the fit",
                 .remedy = "validate, test and predict may be called there"});
  impl_.is_working_ = true;
}

FitParts Trainer::Impl::parts() {
  return {.options = options,
          .info = info,
          .state = state,
          .step = *step_,
          .report = report,
          .divergence = divergence,
          .evaluation_log = evaluation_log,
          .callbacks = callbacks,
          .stop = stop,
          .group = group(),
          .train = train_ ? &*train_ : nullptr,
          .validation = validation_ ? &*validation_ : nullptr};
}

FitParts Trainer::Impl::prepared(const char* place, bool needs_data) {
  if (needs_data && !train_)
    throw Error({.place = place, .found = "there is no data", .remedy = "call prepare_data(data) first"});
  if (!step_)
    throw Error({.place = place, .found = "there is no model", .remedy = "call prepare_model(model) first"});
  return parts();
}

void Trainer::Impl::prepare_data(DataModule& new_data) {
  train_.emplace(source_of(new_data,
                           {"Trainer::prepare_data", "train_dataloader", &DataModule::train_dataloader},
                           options.limit_train_batches));
  share_training(*train_);
  if (options.overfit_batches) train_->take_only(options.overfit_batches->of(train_->num_batches()));
  require_interval(train_->num_batches());
  data = &new_data;
  validation_.reset();
  if (auto loader = new_data.val_dataloader())
    validation_.emplace(new_data, std::move(loader), *info, options.limit_val_batches);
  if (group() != nullptr && validation_) share(*validation_);
  if (validation_ && options.overfit_batches)
    validation_->take_only(options.overfit_batches->of(validation_->num_batches()));
  if (group() != nullptr) require_same_data(*group(), *train_, validation_ ? &*validation_ : nullptr);
  info->num_train_batches = train_->num_batches();
  train_->keep_samples_there();
  if (validation_) validation_->keep_samples_there();
}

void Trainer::Impl::give_shapes(Module& model, DataModule& from) {
  if (!layers_without_shape(model).empty()) layer_summary(model, from);
}

void Trainer::Impl::share(BatchSource& source) const { source.shard(group()->rank(), group()->size()); }

void Trainer::Impl::share_training(BatchSource& source) const {
  const std::int64_t size = group() != nullptr ? group()->size() : 1, own = options.gradient_shards / size;
  if (options.gradient_shards > 1)
    source.cut((group() != nullptr ? group()->rank() : 0) * own, own, options.gradient_shards);
  else if (group() != nullptr)
    share(source);
  if (source.num_batches() == 0)
    throw DataError({.place = "DataLoader",
                     .found = "drop_last leaves no batch of " +
                              std::to_string(source.loader().options().batch_size) + " for each of " +
                              std::to_string(size) + " processes among " +
                              std::to_string(source.loader().dataset().size()) + " samples",
                     .wanted = "a smaller batch_size"});
}

void Trainer::Impl::require_interval(std::int64_t num_batches) const {
  const std::int64_t interval = options.val_check_interval.of(num_batches);
  if (options.val_check_interval.is_share() || interval <= num_batches) return;
  throw ConfigError({.place = "Trainer",
                     .found = "val_check_interval = " + std::to_string(interval) + ", and an epoch has " +
                              std::to_string(num_batches) + " training batches",
                     .wanted = "at most as many",
                     .remedy = "check_val_every_n_epoch makes validations rarer"});
}

void Trainer::Impl::prepare_model(std::shared_ptr<Module> model) {
  attach(*model, info);
  give_precision(*model, info->precision);
  info->is_channels_last =
      wants_channels_last(options.channels_last, *model, info->precision, info->device());
  if (info->is_channels_last) give_channels_last(*model);
  if (group() != nullptr) start_together(*group(), *model, options);
  ProgressBoard& board = model->board();
  board.clear();
  if (options.max_epochs) board.options().xlim = {0, static_cast<double>(*options.max_epochs)};
  if (stop.stop_requested() && stop.reason() != FitReason::requested) stop.reset();  // of another training
  if (options.gradient_shards > 1) {
    require_shapes(*model);
    state.streams.start(info->device(), options.gradient_shards, group());
  }
  state.start(std::move(model));
  step_ = make_step(state, *info, options, callbacks);
  if (group() != nullptr) part_random_state(info->device(), group()->rank());
  info->log = &state.log;
  report.start();
  divergence.start();
}

FitResult Trainer::Impl::fit(std::shared_ptr<Module> model, DataModule& new_data,
                             const FitOptions& fit_options) {
  require_an_end(options);
  std::optional<StateDict> saved;  // read before anything is touched
  if (!fit_options.resume.empty()) saved = load_checkpoint(fit_options.resume);
  const FitScope scope{*this};
  if (group() != nullptr || options.gradient_shards > 1) give_shapes(*model, new_data);
  prepare_data(new_data);
  prepare_model(model);
  if (saved) state.announce(*saved);
  FitResult result;
  try {
    callbacks.call(&Callback::on_fit_start, *model);
    const std::int64_t sanity_steps = std::min(
        options.num_sanity_val_steps, options.limit_val_batches.value_or(options.num_sanity_val_steps));
    if (validation_ && sanity_steps > 0 && !stop.stop_requested()) {
      BatchSource batches(new_data, new_data.val_dataloader(), *info, sanity_steps);
      if (group() != nullptr) share(batches);
      sanity_check(parts(), batches);
    }
    if (saved) resume(parts(), *std::exchange(saved, std::nullopt));
    result.metrics = fit_loop(parts());
    result.reason = stop.reason();
    result.status = status_of(result.reason);
    result.progress = state.progress;
    result.diverged_step = divergence.step();
    end_fit(result);
  } catch (...) {
    tell_of_error(std::current_exception());
    throw;
  }
  return result;
}

void Trainer::Impl::end_fit(FitResult& result) {
  Trainer& trainer = callbacks.trainer();
  for (const auto& checkpoint : callbacks.checkpoints()) {
    checkpoint->on_fit_end(trainer, *state.model, result);
    if (result.best_checkpoint.empty()) result.best_checkpoint = checkpoint->best();
  }
  info->log = nullptr;  // what a model logs from here on belongs to no loop
  for (const auto& logger : options.loggers) logger->finish();
  for (const auto& callback : callbacks.others()) callback->on_fit_end(trainer, *state.model, result);
}

void Trainer::Impl::tell_of_error(std::exception_ptr error) noexcept {
  Trainer& trainer = callbacks.trainer();
  Module& model = *state.model;
  info->log = nullptr;
  if (group() != nullptr) group()->leave(text_of(error));
  if (callbacks.is_calling()) state.is_torn = true;
  or_log([&] { step_->end_epoch(); });
  for (const auto& callback : callbacks.others())
    or_log([&] {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& known) {
        callback->on_exception(trainer, model, known);
      } catch (...) {  // nothing that a callback could be told
      }
    });
  const FitResult result{.status = FitStatus::failed, .reason = FitReason::error, .progress = state.progress};
  for (const auto& checkpoint : callbacks.checkpoints())
    or_log([&] { checkpoint->on_fit_end(trainer, model, result); });
  for (const auto& logger : options.loggers) or_log([&] { logger->finish(); });
  for (const auto& callback : callbacks.others())
    or_log([&] { callback->on_fit_end(trainer, model, result); });
}

Trainer::Impl::FitScope::~FitScope() {
  impl.stop.reset();
  impl.info->log = nullptr;
  impl.info->num_train_batches = 0;
  impl.data = nullptr;
  impl.train_.reset();
  impl.validation_.reset();
}

BatchSource Trainer::Impl::source_of(DataModule& from, const LoaderOf& of,
                                     std::optional<std::int64_t> limit) const {
  from.prepare();
  auto loader = (from.*of.loader)();
  if (!loader)
    throw DataError({.place = of.place,
                     .found = std::string("the data has no ") + of.name + "()",
                     .wanted = "a loader",
                     .remedy = std::string("override ") + of.name + "() of the data module"});
  return {from, std::move(loader), *info, limit};
}

}  // namespace kindling
