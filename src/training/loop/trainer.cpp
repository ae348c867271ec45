#include "kindling/training/trainer.h"

#include "kindling/base/error.h"
#include "kindling/optim/clip.h"
#include "training/libtorch_errors.h"
#include "training/trainer_impl.h"

namespace kindling {
namespace {

constexpr LoaderOf kPredictLoader{"Trainer::predict", "predict_dataloader", &DataModule::predict_dataloader};

Module& there(const char* place, const std::shared_ptr<Module>& model) {
  if (!model)
    throw ConfigError({.place = place,
                       .found = "the model is a null pointer",
                       .wanted = "a model; make it with std::make_shared"});
  return *model;
}

}  // namespace

Trainer::Trainer(TrainerOptions options)
    : impl_(with_libtorch_errors("Trainer",
                                 [&] { return std::make_unique<Impl>(*this, std::move(options)); })) {}
Trainer::~Trainer() = default;

FitResult Trainer::fit(std::shared_ptr<Module> model, DataModule& data, const FitOptions& options) {
  return with_libtorch_errors("Trainer::fit", [&] {
    there("Trainer::fit", model);
    const Impl::Work work(*impl_, "Trainer::fit");
    return impl_->fit(std::move(model), data, options);
  });
}

Metrics Trainer::validate(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::validate", [&] {
    return impl_->evaluate(
        there("Trainer::validate", model),
        impl_->source_of(data, {"Trainer::validate", "val_dataloader", &DataModule::val_dataloader},
                         options().limit_val_batches),
        &Module::validation_step);
  });
}

Metrics Trainer::test(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::test", [&] {
    return impl_->evaluate(
        there("Trainer::test", model),
        impl_->source_of(data, {"Trainer::test", "test_dataloader", &DataModule::test_dataloader},
                         options().limit_test_batches),
        &Module::test_step);
  });
}

at::Tensor Trainer::predict(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::predict", [&] {
    return impl_->predict(there("Trainer::predict", model),
                          impl_->source_of(data, kPredictLoader, options().limit_predict_batches));
  });
}

void Trainer::predict(std::shared_ptr<Module> model, DataModule& data,
                      const std::function<void(const Prediction&)>& take) {
  with_libtorch_errors("Trainer::predict", [&] {
    impl_->predict(there("Trainer::predict", model),
                   impl_->source_of(data, kPredictLoader, options().limit_predict_batches), take);
  });
}

std::vector<LayerRow> Trainer::layer_summary(std::shared_ptr<Module> model, DataModule& data) {
  return with_libtorch_errors("Trainer::layer_summary", [&] {
    return impl_->layer_summary(there("Trainer::layer_summary", model), data);
  });
}

void Trainer::prepare_data(DataModule& data) {
  with_libtorch_errors("Trainer::prepare_data", [&] {
    const Impl::Work work(*impl_, "Trainer::prepare_data");
    impl_->prepare_data(data);
  });
}

void Trainer::prepare_model(std::shared_ptr<Module> model) {
  with_libtorch_errors("Trainer::prepare_model", [&] {
    there("Trainer::prepare_model", model);
    const Impl::Work work(*impl_, "Trainer::prepare_model");
    impl_->prepare_model(std::move(model));
  });
}

Metrics Trainer::fit_epoch() {
  return with_libtorch_errors("Trainer::fit_epoch", [&] {
    const Impl::Work work(*impl_, "Trainer::fit_epoch");

    return kindling::fit_epoch(impl_->prepared("Trainer::fit_epoch", /*needs_data=*/true))
        .value_or(Metrics{});
  });
}

bool Trainer::is_done() const {
  return kindling::is_done(impl_->prepared("Trainer::is_done", /*needs_data=*/false));
}

StateDict Trainer::state_dict() {
  return with_libtorch_errors("Trainer::state_dict", [&] {
    return kindling::save_point(impl_->prepared("Trainer::state_dict", /*needs_data=*/false));
  });
}

void Trainer::load_state_dict(const StateDict& state) {
  with_libtorch_errors("Trainer::load_state_dict", [&] {
    const Impl::Work work(*impl_, "Trainer::load_state_dict");
    kindling::resume(impl_->prepared("Trainer::load_state_dict", /*needs_data=*/false), state);
  });
}

TrainBatches::Iterator::Iterator(Trainer& trainer) : trainer_(&trainer) {
  with_libtorch_errors("Trainer::train_batches", [&] {
    const Trainer::Impl::Work work(*trainer_->impl_, "Trainer::train_batches");
    begin_epoch(trainer_->impl_->prepared("Trainer::train_batches", /*needs_data=*/true));
  });
  ++*this;
}

TrainBatches::Iterator& TrainBatches::Iterator::operator++() {
  batch_.clear();  // gives the buffer back before the next one is asked for
  with_libtorch_errors("Trainer::train_batches", [&] {
    const Trainer::Impl::Work work(*trainer_->impl_, "Trainer::train_batches");
    is_at_end_ =
        !next_batch(trainer_->impl_->prepared("Trainer::train_batches", /*needs_data=*/true), batch_);
  });
  return *this;
}

Batch Trainer::prepare_batch(Batch batch) const {
  return with_libtorch_errors("Trainer::prepare_batch", [&] {
    const ActivityScope scope(impl_->info->clock.get(), Activity::data);
    return prepared_batch(std::move(batch), impl_->data, *impl_->info);
  });
}

void Trainer::train_step(const Batch& batch) {
  with_libtorch_errors("Trainer::train_step", [&] {
    const Impl::Work work(*impl_, "Trainer::train_step");

    train_batch(impl_->prepared("Trainer::train_step", /*needs_data=*/false), batch);
  });
}

Metrics Trainer::finish_epoch() {
  return with_libtorch_errors("Trainer::finish_epoch", [&] {
    const Impl::Work work(*impl_, "Trainer::finish_epoch");

    return kindling::finish_epoch(impl_->prepared("Trainer::finish_epoch", /*needs_data=*/false));
  });
}

at::Tensor Trainer::clip_gradients(double gradient_clip_val, Module& model) const {
  return with_libtorch_errors("Trainer::clip_gradients", [&] {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : std::vector<at::Tensor>(ParameterGroups(model)))
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    return clip_grad_norm(gradients, gradient_clip_val);
  });
}

void Trainer::log(std::string_view name, const at::Tensor& value, ValueOptions options) {
  EpochLog* const to = impl_->info->log;
  if (to != nullptr)
    with_libtorch_errors("Trainer::log", [&] { to->mark(to->column(name), value, options); });
}

void Trainer::log(std::string_view name, double value, ValueOptions options) {
  EpochLog* const to = impl_->info->log;
  if (to != nullptr) to->mark(to->column(name), value, options);
}

NamedValues Trainer::preview() {
  return with_libtorch_errors("Trainer::preview", [&] { return impl_->report.preview(); });
}

// The loops see to it that an early stop is not too early.
void Trainer::request_stop(FitReason reason) noexcept {
  if (reason == FitReason::early_stop)
    impl_->state.early_stop_waits = true;
  else
    impl_->stop.request_stop(reason);
}
StopToken Trainer::stop_token() const noexcept { return impl_->stop.token(); }
const std::vector<Device>& Trainer::gpus() const noexcept { return impl_->info->gpus; }
Device Trainer::device() const noexcept { return impl_->info->device(); }
const TrainerOptions& Trainer::options() const noexcept { return impl_->shown; }
std::shared_ptr<Module> Trainer::model() const { return impl_->state.model; }
DataModule* Trainer::data() const { return impl_->data; }
const std::string& Trainer::run_id() const noexcept { return impl_->state.run_id; }
double Trainer::lr() const noexcept { return impl_->state.lr(); }

TrainerProgress Trainer::progress() const {
  return {impl_->state.progress, impl_->info->num_train_batches, impl_->state.accumulated_batches,
          impl_->report.seconds(), impl_->report.data_wait_seconds()};
}

}  // namespace kindling
