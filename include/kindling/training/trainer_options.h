#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/count_or_fraction.h"
#include "kindling/distributed/process_group.h"
#include "kindling/loggers/logger.h"
#include "kindling/optim/optimizer_factory.h"
#include "kindling/optim/schedule.h"

namespace kindling {

class Callback;
struct TrainerFields;

// How a Trainer works. The first three are the textbook's: Trainer({10, 1, 1.0}) is ten epochs on one card
// with clipping at 1.
struct TrainerOptions {
  std::optional<std::int64_t> max_epochs{};  // this or max_steps must be set
  // Cards of this machine to use, -1 for all; fewer are said aloud (app log) with the reason. Each process
  // works on one: alone on the first, with a process_group on that of its local rank.
  std::int64_t num_gpus = 0;
  double gradient_clip_val = 0;  // largest 2-norm of all gradients together; 0: no clipping

  std::optional<std::int64_t> max_steps{};  // optimizer steps
  std::string max_time{};  // "days:hours:minutes:seconds", stops included; looked at between steps
  std::int64_t min_epochs = 0, min_steps = 0;  // an early stop waits for both of them
  // Batches whose gradients make one optimizer step, by their samples; the last ones may be fewer.
  std::int64_t accumulate_grad_batches = 1;
  // A power of two above 1: the batch of all processes together is cut into so many shards, each with random
  // numbers and batch statistics of its own, whose gradients are added up in an order of their own. A
  // training then comes to the same weights, bit for bit, with 1, 2, 4 … processes
  // (docs/guides/data_parallel.md).
  std::int64_t gradient_shards = 1;
  // Batch norm layers take their statistics from the batches of all processes, in forward and backward; each
  // layer then waits for the others twice. Of a process alone: nothing.
  bool sync_batchnorm = false;
  // Each process keeps the optimizer's state of a part of the parameters and makes their update; the rule
  // must be one that is_per_parameter(). The same numbers; of a process alone: nothing.
  bool shard_optimizer_state = false;
  // Types that a training keeps its numbers in ("true") or computes in where it gains by it ("mixed"). With
  // "64-true" and "bf16-true" the trainer gives the model and the floating-point tensors of batches this
  // type. "16-mixed" scales gradients and leaves out the steps in which they overflow.
  std::string precision = "32-true";
  // "highest", "high", "medium": how products round float32 (docs/guides/steps_and_precision.md); absent: as set.
  std::optional<std::string> float32_matmul_precision{};
  // "on": images and the weights of convolutions lie in memory pixel by pixel; moves last bits. "auto": where
  // that is faster (on the CPU: 16 bits, 32 channels). view() on images fails then, reshape() works.
  std::string channels_last = "off";
  // "auto": steps of models whose has_static_graph() says so are recorded and replayed, to the same numbers
  // (docs/explain/step_capture.md); "on": those of every model, which must then be alike; "off": none.
  std::string step_graph = "auto";
  // "auto": replayed steps on the CPU compute some operators by kernels of Kindling's own, with bit-identical
  // results; "off": they call LibTorch's operators only, which rules out a suspected kernel
  // (docs/explain/step_capture.md).
  std::string step_kernels = "auto";
  bool require_gpus = false;       // fewer GPUs than num_gpus, or than processes, is a DeviceError
  std::int64_t num_processes = 1;  // on this machine that train together; the program starts them
  std::optional<std::int64_t> limit_train_batches{};  // batches of an epoch; absent: all
  std::optional<std::int64_t> limit_val_batches{};
  std::optional<std::int64_t> limit_test_batches{};
  std::optional<std::int64_t> limit_predict_batches{};
  bool fast_dev_run = false;  // one training and one validation batch, to see that everything fits together
  // Trains on the first batches alone and validates on such a part: a model must learn them by heart.
  std::optional<CountOrFraction> overfit_batches{};
  // Training batches between two validations of an epoch, whose end always has one. One that is due inside of
  // an optimizer step waits for its end.
  CountOrFraction val_check_interval = 1.0;
  std::int64_t check_val_every_n_epoch = 1;
  std::int64_t num_sanity_val_steps = 2;  // validation batches before the first epoch; they leave no record
  std::int64_t log_every_n_steps = 0;     // a step record every n steps; 0: epoch records only
  std::optional<std::int64_t> num_threads{};  // of LibTorch's operators in the process; absent: left alone
  // A step whose loss or gradients are not finite. "stop": it and all later ones leave the parameters alone,
  // and the fit ends as diverged once the host sees it; "skip": it is left out; "ignore": nobody looks.
  std::string on_nonfinite = "stop";
  // The p-norm of every parameter's gradient, before it is clipped, in columns grad_norm/NAME; 0: none.
  double track_grad_norm = 0;
  bool detect_anomaly = false;  // an operator whose gradient is NaN is an Error that names it; slow
  // "true": an operator of LibTorch that cannot give the same numbers in every run is an Error; "warn": it is
  // told of, once. Holds for the whole process while the trainer is at work.
  std::string deterministic = "false";
  // Where the time of epochs goes, in columns time_share/PART, and, in profile_dir, a trace of the operators
  // of a few batches: `profile_active` ones after `profile_wait` and `profile_warmup`.
  bool profile = false;
  std::int64_t profile_wait = 1, profile_warmup = 1, profile_active = 3;

  OptimizerFactory optimizer{};  // empty: the model's configure_optimizers(), else Adam with lr 1e-3
  Schedule schedule{};           // empty: a constant learning rate
  ScheduleInterval schedule_interval = ScheduleInterval::step;
  std::vector<std::shared_ptr<Callback>> callbacks{};
  std::vector<std::shared_ptr<Logger>> loggers{};
  std::shared_ptr<ProcessGroup> process_group{};  // those that train together; nullptr: this process alone
  std::filesystem::path nonfinite_dir{};          // where "stop" saves the batch of that step; empty: nowhere
  std::filesystem::path profile_dir{};  // where trace.json and profile.txt go; empty: there are none

  using Fields = TrainerFields;  // the field list, in kindling/training/trainer_fields.h
};

}  // namespace kindling

#include "kindling/training/trainer_fields.h"  // IWYU pragma: keep
