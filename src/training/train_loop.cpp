#include <algorithm>

#include "kindling/base/error.h"
#include "training/trainer_impl.h"

namespace kindling {
namespace {

// Of each epoch: the watch costs too much for every step, and what waits does so from the first one.
constexpr std::int64_t kWatchedSteps = 2;

std::int64_t num_batches_of(const DataLoader& loader, const std::optional<std::int64_t>& limit) {
  return limit ? std::min(loader.num_batches(), *limit) : loader.num_batches();
}

// 0: the run has no known end.
std::int64_t steps_of_run(const TrainerOptions& options, std::int64_t batches_of_epoch) {
  const std::int64_t by_epochs = options.max_epochs ? *options.max_epochs * batches_of_epoch : 0;
  if (!options.max_steps) return by_epochs;
  return options.max_epochs ? std::min(by_epochs, *options.max_steps) : *options.max_steps;
}

// The same in the unit in which the schedule counts.
std::int64_t schedule_length(const TrainerOptions& options, std::int64_t batches_of_epoch) {
  const std::int64_t steps = steps_of_run(options, batches_of_epoch);
  if (options.schedule_interval == ScheduleInterval::step) return steps;
  return (steps + batches_of_epoch - 1) / batches_of_epoch;
}

void require_an_end(const TrainerOptions& options) {
  if (options.max_epochs || options.max_steps) return;
  throw ConfigError({.place = "Trainer::fit",
                     .found = "neither max_epochs nor max_steps is set",
                     .wanted = "at least one of them",
                     .remedy = "for example max_epochs = 10"});
}

void require_prepared(const char* place, bool has_data, bool has_model) {
  if (!has_data)
    throw Error({.place = place, .found = "there is no data", .remedy = "call prepare_data(data) first"});
  if (!has_model)
    throw Error({.place = place, .found = "there is no model", .remedy = "call prepare_model(model) first"});
}

void put(Record& record, const std::string& name, double value) {
  for (auto& [known, old] : record.values)
    if (known == name) {
      old = value;
      return;
    }
  record.values.emplace_back(name, value);
}

void put_counts(Record& record, const TransferCounts& counts) {
  put(record, "host_waits", static_cast<double>(counts.host_waits));
  put(record, "device_to_host_copies", static_cast<double>(counts.device_to_host_copies));
  put(record, "device_to_host_bytes", static_cast<double>(counts.device_to_host_bytes));
  put(record, "host_to_device_copies", static_cast<double>(counts.host_to_device_copies));
  put(record, "host_to_device_bytes", static_cast<double>(counts.host_to_device_bytes));
}

}  // namespace

FitResult Trainer::Impl::fit(std::shared_ptr<Module> model, DataModule& data) {
  require_an_end(options_);
  const FitEnd end{*this};
  prepare_data(data);
  prepare_model(model);
  for_each_callback([&](Callback& callback) { callback.on_fit_start(owner_, *model); });
  sanity_check();

  FitResult result;
  while (!is_done()) result.metrics = fit_epoch();
  result.status = stop_.stop_requested() ? FitStatus::stopped : FitStatus::finished;
  result.num_epochs = state_->epoch;
  result.global_step = state_->global_step;
  state_->log = nullptr;  // what a model logs from here on belongs to no loop
  for (const auto& logger : options_.loggers) logger->finish();
  for_each_callback([&](Callback& callback) { callback.on_fit_end(owner_, *model, result); });
  return result;
}

Trainer::Impl::FitEnd::~FitEnd() {
  impl.stop_.reset();
  impl.state_->log = nullptr;
  impl.data_ = nullptr;
  impl.train_loader_ = impl.val_loader_ = nullptr;
  impl.state_->num_train_batches = impl.schedule_length_ = 0;
}

void Trainer::Impl::prepare_data(DataModule& data) {
  data.prepare_data();
  auto loader = data.train_dataloader();
  if (!loader)
    throw DataError({.place = "Trainer::prepare_data", .found = "the data has no train_dataloader()"});
  data_ = &data;
  train_loader_ = std::move(loader);
  val_loader_ = data.val_dataloader();
  train_loader_->stage_for(device());
  state_->num_train_batches = num_batches_of(*train_loader_, options_.limit_train_batches);
  schedule_length_ = schedule_length(options_, state_->num_train_batches);
}

Metrics Trainer::Impl::fit_epoch() {
  require_prepared("Trainer::fit_epoch", data_ != nullptr, step_.has_value());
  Module& model = step_->model();
  begin_epoch();
  model.train();  // before the callbacks, which may freeze a layer
  for_each_callback([&](Callback& callback) { callback.on_train_epoch_start(owner_, model); });
  train_epoch();
  const Record record = close_epoch();
  for (const auto& logger : options_.loggers) logger->write(record);
  for_each_callback([&](Callback& callback) { callback.on_epoch_end(owner_, model, record); });
  ++state_->epoch;
  begin_epoch();  // what is logged from here on belongs to the next one
  return Metrics(record.values.begin(), record.values.end());
}

void Trainer::Impl::train_epoch() {
  Module& model = step_->model();
  train_loader_->start_epoch(state_->epoch);
  Batch batch;
  while (state_->batch_index < state_->num_train_batches && !must_stop() && fetch(batch)) {
    train_step(batch);
    for_each_callback([&](Callback& callback) { callback.on_train_batch_end(owner_, model); });
  }
}

void Trainer::Impl::train_step(const Batch& batch) {
  require_prepared("Trainer::train_step", /*has_data=*/true, step_.has_value());
  step_->set_schedule_point(schedule_index(state_->global_step), schedule_length_);
  const bool is_watched = state_->batch_index < kWatchedSteps;
  step_->run(batch, is_watched);
  ++state_->global_step;
  ++state_->batch_index;
  num_samples_ += batch.num_samples();
  reporter_.after_step();
}

bool Trainer::Impl::fetch(Batch& batch) {
  const auto start = Clock::now();
  const bool found = train_loader_->next(batch);
  if (found) batch = data_->on_after_batch_transfer(prepare_batch(std::move(batch)));
  data_wait_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
  return found;
}

bool Trainer::Impl::must_stop() const {
  return stop_.stop_requested() || (options_.max_steps && state_->global_step >= *options_.max_steps);
}

bool Trainer::Impl::is_done() const {
  return must_stop() || (options_.max_epochs && state_->epoch >= *options_.max_epochs);
}

void Trainer::Impl::begin_epoch() {
  state_->batch_index = 0;
  state_->log = &train_log_;
  train_log_.clear();
  steps_before_epoch_ = state_->global_step;
  counts_before_epoch_ = transfer_counts();
  data_wait_seconds_ = 0;
  num_samples_ = 0;
  epoch_start_ = Clock::now();
  reporter_.start_epoch(state_->epoch, steps_before_epoch_,
                        [this](std::int64_t step) { return step_->lr_at(schedule_index(step - 1)); });
}

// The one place where an epoch's numbers come to the host.
Trainer::Impl::Values Trainer::Impl::finish_epoch() {
  train_log_.move_to_host();
  reporter_.finish_epoch();
  if (step_) step_->model().draw_epoch(train_log_, /*train=*/true);
  Values means = train_log_.means();
  std::erase_if(means,
                [](const auto& mean) { return mean.first == "grad_norm"; });  // of steps, not of epochs
  return means;
}

Record Trainer::Impl::close_epoch() {
  Record record{.kind = Record::Kind::epoch,
                .global_step = state_->global_step,
                .epoch = state_->epoch + 1,
                .values = finish_epoch()};
  const double train_seconds = progress().epoch_seconds;
  if (val_loader_ && !stop_.stop_requested() && options_.limit_val_batches.value_or(1) > 0) {
    Module& model = step_->model();
    for (const auto& [name, value] :
         evaluate(model, *data_, *val_loader_, options_.limit_val_batches, &Module::validation_step))
      put(record, name, value);
    model.draw_epoch(evaluation_log_, /*train=*/false);
  }
  put(record, "lr", step_->lr());
  put(record, "epoch_time_s", progress().epoch_seconds);
  put(record, "samples_per_s", static_cast<double>(num_samples_) / train_seconds);
  put(record, "data_wait_share", data_wait_seconds_ / train_seconds);
  put_counts(record, transfer_counts() - counts_before_epoch_);
  return record;
}

void Trainer::Impl::sanity_check() {
  const std::int64_t steps = options_.limit_val_batches
                                 ? std::min(options_.num_sanity_val_steps, *options_.limit_val_batches)
                                 : options_.num_sanity_val_steps;
  if (val_loader_ && steps > 0)
    evaluate(step_->model(), *data_, *val_loader_, steps, &Module::validation_step);
}

// In the unit of schedule_interval.
std::int64_t Trainer::Impl::schedule_index(std::int64_t global_step) const {
  if (options_.schedule_interval == ScheduleInterval::step) return global_step;
  return state_->epoch;
}

}  // namespace kindling
