#include "kindling/training/trainer.h"

#include <ATen/Parallel.h>

#include "device/libtorch_version.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/optim/clip.h"
#include "kindling/tensors/move.h"
#include "training/libtorch_errors.h"
#include "training/trainer_impl.h"

namespace kindling {
namespace {

constexpr double kPreviewInterval_s = 1;

TrainerOptions resolved(TrainerOptions options) {
  require_matching_libtorch();
  validate(options, "TrainerOptions");
  if (options.fast_dev_run) {
    options.max_epochs = 1;
    options.max_steps = 1;
    options.limit_train_batches = options.limit_val_batches = 1;
    options.limit_test_batches = options.limit_predict_batches = 1;
    options.num_sanity_val_steps = 0;
  }
  return options;
}

std::shared_ptr<TrainerState> state_for(const TrainerOptions& options) {
  auto state = std::make_shared<TrainerState>();
  state->gpus = first_gpus(options.num_gpus);
  state->max_epochs = options.max_epochs;
  const auto found = static_cast<std::int64_t>(state->gpus.size());
  const std::int64_t wanted = options.num_gpus == -1 ? 1 : options.num_gpus;
  if (found >= wanted) return state;
  const std::string asked = "num_gpus = " + std::to_string(options.num_gpus);
  const std::string reason = why_no_more_gpus();
  if (options.require_gpus)
    throw DeviceError(
        {.place = "Trainer",
         .found = asked + ", but " + std::to_string(found) + " can be used: " + reason,
         .wanted = "as many cards, because require_gpus is set",
         .remedy = "run `kindling devices`, or leave require_gpus off to train on what there is"});
  const std::string where =
      found == 0 ? "the CPU" : std::to_string(found) + (found == 1 ? " card" : " cards");
  log_warning(asked + ", but " + reason + ": training goes on on " + where);
  return state;
}

std::shared_ptr<DataLoader> required(std::shared_ptr<DataLoader> loader, const char* place,
                                     const char* name) {
  if (!loader) throw DataError({.place = place, .found = std::string("the data has no ") + name + "()"});
  return loader;
}

}  // namespace

Callback::~Callback() = default;

Trainer::Impl::Impl(Trainer& owner, TrainerOptions options)
    : owner_(owner),
      options_(resolved(std::move(options))),
      state_(state_for(options_)),
      train_log_(device()),
      evaluation_log_(device()),
      reporter_(train_log_, options_.log_every_n_steps, options_.loggers) {
  if (options_.num_threads) at::set_num_threads(static_cast<int>(*options_.num_threads));
}

void Trainer::Impl::attach(Module& model) {
  model.set_trainer(TrainerView(state_));
  if (!gpus().empty()) move_to(model, device());
}

void Trainer::Impl::prepare_model(std::shared_ptr<Module> model) {
  attach(*model);
  state_->epoch = state_->global_step = 0;
  ProgressBoard& board = model->board();
  board.clear();
  if (options_.max_epochs) board.options().xlim = {0, static_cast<double>(*options_.max_epochs)};
  step_.emplace(std::move(model), options_, train_log_);
  begin_epoch();
}

Batch Trainer::Impl::prepare_batch(Batch batch) const {
  return gpus().empty() ? std::move(batch) : move_to(std::move(batch), device());
}

Metrics Trainer::Impl::finish_own_epoch() {
  const Values means = finish_epoch();
  ++state_->epoch;
  begin_epoch();
  return Metrics(means.begin(), means.end());
}

void Trainer::Impl::log(std::string_view name, const at::Tensor& value) {
  if (state_->log != nullptr) state_->log->mark(name, value);
}

TrainerProgress Trainer::Impl::progress() const {
  return {.epoch = state_->epoch,
          .batch_index = state_->batch_index,
          .num_train_batches = state_->num_train_batches,
          .global_step = state_->global_step,
          .epoch_seconds = std::chrono::duration<double>(Clock::now() - epoch_start_).count(),
          .data_wait_seconds = data_wait_seconds_};
}

Trainer::Impl::Values Trainer::Impl::preview() {
  const auto now = Clock::now();
  if (std::chrono::duration<double>(now - last_preview_).count() >= kPreviewInterval_s) {
    train_log_.start_preview();
    last_preview_ = now;
  }
  Values values;
  const std::int64_t rows = train_log_.rows_on_host();
  for (std::size_t column = 0; column < train_log_.names().size() && rows > 0; ++column)
    if (const auto value = train_log_.value(rows - 1, column))
      values.emplace_back(train_log_.names()[column], *value);
  return values;
}

Trainer::Trainer(TrainerOptions options)
    : impl_(with_libtorch_errors("Trainer",
                                 [&] { return std::make_unique<Impl>(*this, std::move(options)); })) {}
Trainer::~Trainer() = default;

FitResult Trainer::fit(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::fit", [&] { return impl_->fit(std::move(model), data); });
}

Metrics Trainer::validate(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::validate", [&] {
    data.prepare_data();
    const auto loader = required(data.val_dataloader(), "Trainer::validate", "val_dataloader");
    const auto means =
        impl_->evaluate(*model, data, *loader, options().limit_val_batches, &Module::validation_step);
    return Metrics(means.begin(), means.end());
  });
}

Metrics Trainer::test(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::test", [&] {
    data.prepare_data();
    const auto loader = required(data.test_dataloader(), "Trainer::test", "test_dataloader");
    const auto means =
        impl_->evaluate(*model, data, *loader, options().limit_test_batches, &Module::test_step);
    return Metrics(means.begin(), means.end());
  });
}

at::Tensor Trainer::predict(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::predict", [&] {
    data.prepare_data();
    const auto loader = required(data.predict_dataloader(), "Trainer::predict", "predict_dataloader");
    return impl_->predict(*model, data, *loader);
  });
}

void Trainer::prepare_data(DataModule& data) {
  with_libtorch_errors("Trainer::prepare_data", [&] { impl_->prepare_data(data); });
}

void Trainer::prepare_model(std::shared_ptr<Module> model) {
  with_libtorch_errors("Trainer::prepare_model", [&] { impl_->prepare_model(std::move(model)); });
}

Metrics Trainer::fit_epoch() {
  return with_libtorch_errors("Trainer::fit_epoch", [&] { return impl_->fit_epoch(); });
}

Batch Trainer::prepare_batch(Batch batch) const {
  return with_libtorch_errors("Trainer::prepare_batch",
                              [&] { return impl_->prepare_batch(std::move(batch)); });
}

void Trainer::train_step(const Batch& batch) {
  with_libtorch_errors("Trainer::train_step", [&] { impl_->train_step(batch); });
}

Metrics Trainer::finish_epoch() {
  return with_libtorch_errors("Trainer::finish_epoch", [&] { return impl_->finish_own_epoch(); });
}

at::Tensor Trainer::clip_gradients(double gradient_clip_val, Module& model) const {
  return with_libtorch_errors("Trainer::clip_gradients", [&] {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : trainable_parameters(model))
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    return clip_grad_norm(gradients, gradient_clip_val);
  });
}

void Trainer::log(std::string_view name, const at::Tensor& value) {
  with_libtorch_errors("Trainer::log", [&] { impl_->log(name, value); });
}

std::vector<std::pair<std::string, double>> Trainer::preview() {
  return with_libtorch_errors("Trainer::preview", [&] { return impl_->preview(); });
}

void Trainer::request_stop() noexcept { impl_->stop().request_stop(); }
StopToken Trainer::stop_token() const noexcept { return impl_->stop(); }
const std::vector<Device>& Trainer::gpus() const noexcept { return impl_->gpus(); }
Device Trainer::device() const noexcept { return impl_->device(); }
const TrainerOptions& Trainer::options() const noexcept { return impl_->options(); }
TrainerProgress Trainer::progress() const { return impl_->progress(); }
double Trainer::lr() const noexcept { return impl_->lr(); }

}  // namespace kindling
