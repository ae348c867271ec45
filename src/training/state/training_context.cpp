#include "training/state/training_context.h"

#include <atomic>
#include <bit>
#include <cstddef>

#include "device/libtorch_errors.h"
#include "device/operator_threads.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/nn/trainer_view.h"
#include "kindling/tensors/move.h"
#include "kindling/training/trainer_fields.h"

namespace kindling {
namespace {

// Reports a number of GPUs that is not the requested one.
void check_num_gpus(const TrainerOptions& options, const std::string& requested, std::int64_t found) {
  const std::int64_t wanted = options.num_gpus == -1 ? 1 : options.num_gpus;
  if (found >= wanted) return;
  const std::string reason = gpu_unavailable_reason();
  if (options.require_gpus)
    throw DeviceError(
        {.place = "Trainer",
         .found = requested + ", but " + std::to_string(found) + " can be used: " + reason,
         .wanted = "that many GPUs, because require_gpus is set",
         .remedy = "run `kindling devices`, or set require_gpus = false to train on the available devices"});
  log_warning(requested + ", but " + reason + "; continuing on " +
              (found == 0              ? "the CPU"
               : options.process_group ? "the available GPUs"
                                       : "the first GPU"));
}

// Returns the GPU of this rank among those of its machine.
Device gpu_of_rank(const TrainerOptions& options, const std::string& requested,
                   const std::vector<Device>& gpus) {
  const auto index = static_cast<std::size_t>(options.process_group->local_rank());
  const Device gpu = gpus[index % gpus.size()];
  if (index < gpus.size()) return gpu;
  const std::string found = requested + ": process number " + std::to_string(index + 1) +
                            " of this machine finds " + std::to_string(gpus.size()) +
                            (gpus.size() == 1 ? " GPU" : " GPUs");
  if (options.require_gpus)
    throw DeviceError(
        {.place = "Trainer",
         .found = found,
         .wanted = "one GPU per process, because require_gpus is set",
         .remedy = "raise num_gpus, which counts the GPUs of the whole machine, or start fewer processes"});
  log_warning(found + ": it shares " + gpu.str() + " with another process, which NCCL does not support");
  return gpu;
}

// In C++, num_gpus is 0 unless it is set, which is easy to forget on a machine with a GPU.
void report_unused_gpu(const TrainerOptions& options) {
  static std::atomic_flag is_reported;
  if (options.num_gpus != 0 || !has_gpu() || is_reported.test_and_set()) return;
  log_info("num_gpus = 0: training on the CPU, although this machine has a GPU; 1 uses it");
}

std::vector<Device> gpus_of(const TrainerOptions& options) {
  report_unused_gpu(options);
  std::vector<Device> gpus = first_gpus(options.num_gpus);
  const std::string requested = "num_gpus = " + std::to_string(options.num_gpus);
  if (gpus.size() > 1 && !options.process_group)
    log_warning(requested +
                ": this process trains on the first GPU only; to use the others, start "
                "one process per GPU and set process_group (`kindling fit` does this automatically)");
  check_num_gpus(options, requested, static_cast<std::int64_t>(gpus.size()));
  if (options.process_group && !gpus.empty()) return {gpu_of_rank(options, requested, gpus)};
  return gpus;
}

void require_processes(const TrainerOptions& options) {
  const std::int64_t num_ranks = options.process_group ? options.process_group->size() : 1;
  if (options.num_processes == 1 || options.num_processes == num_ranks) return;
  throw ConfigError(
      {.place = "Trainer",
       .found = "num_processes = " + std::to_string(options.num_processes) + ", but process_group has " +
                std::to_string(num_ranks) + " ranks",
       .wanted = "the same number",
       .remedy = "only the program kindling starts processes itself; start your own program with a launcher "
                 "and set process_group = ProcessGroup::from_environment()"});
}

void require_no_null(const char* place, const auto& pointers) {
  for (std::size_t i = 0; i < pointers.size(); ++i)
    if (!pointers[i])
      throw ConfigError({.place = place,
                         .found = "element " + std::to_string(i) + " (counted from 0) is a null pointer",
                         .wanted = "objects; create them with std::make_shared"});
}

}  // namespace

void require_shards_fit(const TrainerOptions& options, std::int64_t num_ranks) {
  if (options.gradient_shards == 1) return;
  const std::int64_t shards = options.gradient_shards;
  const auto refuse = [&](const std::string& found, const std::string& wanted) {
    throw ConfigError({.place = "trainer.gradient_shards", .found = found, .wanted = wanted});
  };
  if (!std::has_single_bit(static_cast<std::uint64_t>(shards)))
    refuse("it is " + std::to_string(shards), "a power of two");
  if (shards % num_ranks != 0)
    refuse("it is " + std::to_string(shards) + ", for " + std::to_string(num_ranks) + " ranks",
           "a multiple of the number of ranks");
  if (options.process_group && options.process_group->options().compression != "none")
    throw ConfigError({.place = "distributed.compression",
                       .found = "it is " + options.process_group->options().compression +
                                ", but gradient_shards needs uncompressed sums",
                       .wanted = "\"none\""});
  if (options.sync_batchnorm)
    throw ConfigError(
        {.place = "trainer.sync_batchnorm",
         .found = "it is set, but with gradient_shards each shard has separate batch statistics",
         .wanted = "only one of the two options"});
}

namespace {

void require_few_threads(const TrainerOptions& options) {
  if (options.num_threads.value_or(1) <= kMaxOperatorThreads) return;
  throw ConfigError({.place = "trainer.num_threads",
                     .found = std::to_string(*options.num_threads),
                     .wanted = "at most " + std::to_string(kMaxOperatorThreads) + ", one per core at best"});
}

void require_master_weights_fit(const TrainerOptions& options) {
  if (!options.master_weights || options.precision == "bf16-true") return;
  throw ConfigError({.place = "trainer.master_weights",
                     .found = "true with precision = \"" + options.precision + "\"",
                     .wanted = "precision = \"bf16-true\"",
                     .remedy = "leave it out: the weights of other precisions are not rounded to 16 bits"});
}

// Returns the effective options: with fast_dev_run applied, and without a group of a single process.
TrainerOptions resolved(TrainerOptions options) {
  require_matching_libtorch();
  validate(options, "TrainerOptions");
  if (options.on_spike) validate(*options.on_spike, "TrainerOptions::on_spike");
  require_no_null("TrainerOptions::callbacks", options.callbacks);
  require_no_null("TrainerOptions::loggers", options.loggers);
  if (options.process_group && options.process_group->size() == 1) options.process_group = nullptr;
  require_processes(options);
  require_shards_fit(options, options.process_group ? options.process_group->size() : 1);
  require_few_threads(options);
  require_master_weights_fit(options);
  return with_fast_dev_run(std::move(options));
}

}  // namespace

TrainerOptions with_fast_dev_run(TrainerOptions options) {
  if (!options.fast_dev_run) return options;
  options.max_epochs = 1;
  options.max_steps = 1;
  options.limit_train_batches = options.limit_val_batches = 1;
  options.limit_test_batches = options.limit_predict_batches = 1;
  options.num_sanity_val_steps = 0;
  options.val_check_interval = 1.0;
  options.check_val_every_n_epoch = 1;
  options.overfit_batches.reset();
  return options;
}

TrainingContext::TrainingContext(Trainer& owner, TrainerOptions resolved, std::vector<Device> gpus)
    : options(std::move(resolved)),
      placement{.gpus = std::move(gpus), .precision = Precision::named(options.precision)},
      state(placement.device(), options),
      callbacks(owner, options.callbacks),
      stop(StopToken(), group()),
      clock(options.profile),
      deterministic_operators(options.deterministic) {
  stop.watch({.save = [this] { return callbacks.save_requested(); },
              .early_stop = [this] { return state.is_early_stop_pending; }});
}

std::shared_ptr<TrainingContext> make_context(Trainer& owner, TrainerOptions options) {
  options = resolved(std::move(options));
  std::vector<Device> gpus = gpus_of(options);
  return std::make_shared<TrainingContext>(owner, std::move(options), std::move(gpus));
}

void attach(Module& model, const std::shared_ptr<TrainingContext>& context) {
  model.set_trainer(TrainerView(context));
  if (!context->placement.gpus.empty()) move_to(model, context->device());
}

std::vector<Device> TrainerView::gpus() const {
  const auto context = context_.lock();
  return context ? context->placement.gpus : std::vector<Device>{};
}

Device TrainerView::device() const {
  const auto context = context_.lock();
  return context ? context->device() : cpu();
}

std::optional<std::int64_t> TrainerView::max_epochs() const {
  const auto context = context_.lock();
  return context ? context->options.max_epochs : std::nullopt;
}

Progress TrainerView::progress() const {
  const auto context = context_.lock();
  return context ? context->state.progress : Progress{};
}

std::int64_t TrainerView::num_train_batches() const {
  const auto context = context_.lock();
  return context ? context->state.num_train_batches : 0;
}

bool TrainerView::checks_losses() const {
  const auto context = context_.lock();
  return context && context->options.on_nonfinite != "ignore";
}

EpochLog* TrainerView::log() const {
  const auto context = context_.lock();
  return context ? context->calls.log : nullptr;
}

ManualUpdates* TrainerView::updates() const {
  const auto context = context_.lock();
  return context ? context->calls.updates : nullptr;
}

}  // namespace kindling
