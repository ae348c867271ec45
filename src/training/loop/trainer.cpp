#include "kindling/training/trainer.h"

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/optim/clip.h"
#include "training/loop/trainer_impl.h"

namespace kindling {
namespace {

constexpr LoaderSelector kValLoader{"Trainer::validate", "val_dataloader", &DataModule::val_dataloader,
                                    Stage::val};
constexpr LoaderSelector kPredictLoader{"Trainer::predict", "predict_dataloader",
                                        &DataModule::predict_dataloader, Stage::predict,
                                        ", and no test_dataloader() or val_dataloader(), its defaults"};

void require_model(const char* location, const std::shared_ptr<Module>& model) {
  if (!model)
    throw ConfigError({.place = location,
                       .found = "the model is a null pointer",
                       .wanted = "a model; make it with std::make_shared"});
}

// Runs a call that works on the trainer alone, with the model that is given or the one that is trained, and
// translates errors of LibTorch.
template <class Impl, class Call>
auto guarded(Impl& impl, const char* location, const Call& call, std::shared_ptr<Module> model = nullptr) {
  return with_libtorch_errors(location, [&] {
    const typename Impl::Work work(impl, location, std::move(model));
    return call();
  });
}

// The same for a call that may come from a callback of the trainer's own fit.
template <class Impl, class Call>
auto nested(Impl& impl, const char* location, const Call& call, std::shared_ptr<Module> model = nullptr) {
  return with_libtorch_errors(location, [&] {
    const typename Impl::Use use(impl, location, std::move(model));
    return call();
  });
}

}  // namespace

Trainer::Trainer(TrainerOptions options)
    : impl_(with_libtorch_errors("Trainer",
                                 [&] { return std::make_unique<Impl>(*this, std::move(options)); })) {}
Trainer::~Trainer() = default;

FitResult Trainer::fit(std::shared_ptr<Module> model, DataModule& data, const FitOptions& options) {
  constexpr const char* kHere = "Trainer::fit";
  require_model(kHere, model);
  return guarded(
      *impl_, kHere, [&] { return impl_->fit(model, data, options); }, model);
}

// --- Evaluation, which a callback of a fit may call, too ---

Metrics Trainer::validate(std::shared_ptr<Module> model, DataModule& data) {
  const auto call = [&] { return impl_->validate(*model, data, kValLoader); };
  require_model(kValLoader.location, model);
  return nested(*impl_, kValLoader.location, call, model);
}

void Trainer::validate(std::shared_ptr<Module> model, DataModule& data,
                       const std::function<void(const Prediction&)>& take) {
  const auto call = [&] {
    const bool is_limited = dynamic_cast<const UnlimitedData*>(&data) == nullptr;
    BatchSource source =
        impl_->source_for(*model, data, kValLoader, is_limited ? options().limit_val_batches : std::nullopt);
    if (is_limited && options().overfit_batches) source.limit_to(*options().overfit_batches);
    impl_->validate(*model, std::move(source), take);
  };
  require_model(kValLoader.location, model);
  nested(*impl_, kValLoader.location, call, model);
}

Metrics Trainer::test(std::shared_ptr<Module> model, DataModule& data) {
  constexpr LoaderSelector kLoader{"Trainer::test", "test_dataloader", &DataModule::test_dataloader,
                                   Stage::test, ", and no val_dataloader(), its default"};
  const auto call = [&] {
    return impl_->evaluate(*model, impl_->source_for(*model, data, kLoader, options().limit_test_batches),
                           &Module::test_step);
  };
  require_model(kLoader.location, model);
  return nested(*impl_, kLoader.location, call, model);
}

at::Tensor Trainer::predict(std::shared_ptr<Module> model, DataModule& data) {
  const auto call = [&] {
    return impl_->predict(*model,
                          impl_->source_for(*model, data, kPredictLoader, options().limit_predict_batches));
  };
  require_model(kPredictLoader.location, model);
  return nested(*impl_, kPredictLoader.location, call, model);
}

void Trainer::predict(std::shared_ptr<Module> model, DataModule& data,
                      const std::function<void(const Prediction&)>& take) {
  const auto call = [&] {
    impl_->predict(*model, impl_->source_for(*model, data, kPredictLoader, options().limit_predict_batches),
                   take);
  };
  require_model(kPredictLoader.location, model);
  nested(*impl_, kPredictLoader.location, call, model);
}

std::vector<LayerRow> Trainer::layer_summary(std::shared_ptr<Module> model, DataModule& data) {
  constexpr const char* kHere = "Trainer::layer_summary";
  require_model(kHere, model);
  return nested(
      *impl_, kHere, [&] { return impl_->layer_summary(*model, data); }, model);
}

// --- The pieces of a fit, for custom training loops ---

void Trainer::prepare_data(DataModule& data) {
  guarded(*impl_, "Trainer::prepare_data", [&] { impl_->prepare_data(data); });
}

void Trainer::prepare_model(std::shared_ptr<Module> model) {
  constexpr const char* kHere = "Trainer::prepare_model";
  require_model(kHere, model);
  if (rolls_back(options()))
    throw ConfigError({.place = kHere,
                       .found = "on_spike.action is \"rollback\"",
                       .wanted = "\"warn\" or \"skip\" in custom training loops",
                       .remedy = "only fit() can go back, because it repeats batches"});
  guarded(
      *impl_, kHere, [&] { impl_->prepare_model(model); }, model);
}

Metrics Trainer::fit_epoch() {
  constexpr const char* kHere = "Trainer::fit_epoch";
  return guarded(*impl_, kHere,
                 [&] { return impl_->prepared(kHere, /*needs_data=*/true).fit_epoch().value_or(Metrics{}); });
}

bool Trainer::is_done() const { return impl_->prepared("Trainer::is_done", /*needs_data=*/false).is_done(); }

StateDict Trainer::state_dict() {
  constexpr const char* kHere = "Trainer::state_dict";
  return nested(*impl_, kHere, [&] { return impl_->prepared(kHere, /*needs_data=*/false).save_point(); });
}

bool Trainer::will_go_back() {
  constexpr const char* kHere = "Trainer::will_go_back";
  return nested(*impl_, kHere, [&] { return impl_->prepared(kHere, /*needs_data=*/false).find_spike(); });
}

void Trainer::load_state_dict(const StateDict& state) {
  constexpr const char* kHere = "Trainer::load_state_dict";
  guarded(*impl_, kHere, [&] { impl_->prepared(kHere, /*needs_data=*/false).resume(state); });
}

TrainBatches::Iterator::Iterator(Trainer& trainer) : trainer_(&trainer) {
  constexpr const char* kHere = "Trainer::train_batches";
  Trainer::Impl& impl = *trainer_->impl_;
  guarded(impl, kHere, [&] { impl.prepared(kHere, /*needs_data=*/true).begin_epoch(); });
  ++*this;
}

TrainBatches::Iterator& TrainBatches::Iterator::operator++() {
  constexpr const char* kHere = "Trainer::train_batches";
  Trainer::Impl& impl = *trainer_->impl_;
  batch_.clear();  // returns the buffer before the next batch is requested
  guarded(impl, kHere, [&] { is_at_end_ = !impl.prepared(kHere, /*needs_data=*/true).next_batch(batch_); });
  return *this;
}

Batch Trainer::prepare_batch(Batch batch, Stage stage) const {
  return with_libtorch_errors("Trainer::prepare_batch", [&] {
    const ActivityScope scope(&impl_->context->clock, Activity::data);
    return prepared_batch(std::move(batch), impl_->data, stage, impl_->context->placement);
  });
}

// A batch that did not come through prepare_batch() may have another precision.
void Trainer::train_step(const Batch& batch) {
  constexpr const char* kHere = "Trainer::train_step";
  guarded(*impl_, kHere, [&] {
    FitLoop& loop = impl_->prepared(kHere, /*needs_data=*/false);
    const Placement& placement = impl_->context->placement;
    loop.train_batch(placement.converts_batches() ? placement.convert(batch) : batch);
  });
}

Metrics Trainer::finish_epoch() {
  constexpr const char* kHere = "Trainer::finish_epoch";
  return guarded(*impl_, kHere, [&] {
    FitLoop& loop = impl_->prepared(kHere, /*needs_data=*/false);
    const Progress& at = impl_->context->state.progress;
    if (at.batch == 0 && at.phase == Phase::training && !loop.is_done())
      throw Error({.place = kHere,
                   .found = "epoch " + std::to_string(at.epoch + 1) + " has no training step yet",
                   .wanted = "at least one train_step() since the previous finish_epoch()",
                   .remedy = "to measure the model without training it, call Trainer::validate()"});
    return loop.finish_epoch();
  });
}

at::Tensor Trainer::clip_gradients(double gradient_clip_val, Module& model) const {
  return with_libtorch_errors("Trainer::clip_gradients", [&] {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : std::vector<at::Tensor>(ParameterGroups(model)))
      if (parameter.grad().defined()) gradients.push_back(parameter.grad());
    if (options().gradient_clip_algorithm == "norm") return clip_grad_norm(gradients, gradient_clip_val);
    clip_grad_value(gradients, gradient_clip_val);
    return at::Tensor();
  });
}

// --- Numbers and stops ---

void Trainer::log(std::string_view name, const at::Tensor& value, ValueOptions options) {
  EpochLog* const log = impl_->context->calls.log;
  if (log != nullptr)
    with_libtorch_errors("Trainer::log", [&] { log->mark(log->column(name), value, options); });
}

void Trainer::log(std::string_view name, double value, ValueOptions options) {
  EpochLog* const log = impl_->context->calls.log;
  if (log != nullptr) log->mark(log->column(name), value, options);
}

NamedValues Trainer::preview() {
  return with_libtorch_errors("Trainer::preview", [&] { return impl_->loop.report().preview(); });
}

double Trainer::loss_value() {
  constexpr const char* kHere = "Trainer::loss_value";
  return nested(*impl_, kHere, [&] {
    if (const auto loss = impl_->loop.report().latest_loss()) return *loss;
    throw Error({.place = kHere,
                 .found = "this epoch has no training step with a loss yet",
                 .wanted = "a train_step() since the start or the latest finish_epoch()"});
  });
}

// The loop postpones an early stop until min_epochs and min_steps are reached.
void Trainer::request_stop(FitReason reason) noexcept {
  if (reason == FitReason::early_stop)
    impl_->context->state.is_early_stop_pending = true;
  else
    impl_->context->stop.request_stop(reason);
}
StopToken Trainer::stop_token() const noexcept { return impl_->context->stop.token(); }
const std::vector<Device>& Trainer::gpus() const noexcept { return impl_->context->placement.gpus; }
Device Trainer::device() const noexcept { return impl_->context->device(); }
const TrainerOptions& Trainer::options() const noexcept { return impl_->context->options; }
std::shared_ptr<Module> Trainer::model() const { return impl_->context->state.model; }
DataModule* Trainer::data() const { return impl_->data; }
const std::string& Trainer::run_id() const noexcept { return impl_->context->state.run_id; }
double Trainer::lr() const noexcept { return impl_->context->state.lr(); }

TrainerProgress Trainer::progress() const {
  const TrainingContext& context = *impl_->context;
  const EpochReport& report = impl_->loop.report();
  return {context.state.progress, context.state.num_train_batches, impl_->loop.accumulated_batches(),
          report.seconds(), report.data_wait_seconds()};
}

}  // namespace kindling
