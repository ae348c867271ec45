#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/distributed/process_group.h"
#include "kindling/loggers/logger.h"
#include "kindling/optim/optimizer_factory.h"
#include "kindling/optim/schedule.h"

namespace kindling {

class Callback;

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
  // (docs/several_processes.md).
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
  // "highest", "high", "medium": how products round float32 (docs/steps_and_precision.md); absent: as set.
  std::optional<std::string> float32_matmul_precision{};
  // "on": images and the weights of convolutions lie in memory pixel by pixel; moves last bits. "auto": where
  // that is faster (on the CPU: 16 bits, 32 channels). view() on images fails then, reshape() works.
  std::string channels_last = "off";
  // "auto": steps of models whose static_step() says so are recorded and replayed, to the same numbers
  // (docs/step_graph.md); "on": those of every model, which must then be alike; "off": none.
  std::string step_graph = "auto";
  bool require_gpus = false;       // fewer cards than num_gpus, or than processes, is a DeviceError
  std::int64_t num_processes = 1;  // on this machine that train together; the program starts them
  std::optional<std::int64_t> limit_train_batches{};  // batches of an epoch; absent: all
  std::optional<std::int64_t> limit_val_batches{};
  std::optional<std::int64_t> limit_test_batches{};
  std::optional<std::int64_t> limit_predict_batches{};
  bool fast_dev_run = false;  // one training and one validation batch, to see that everything fits together
  // Trains on the first batches alone and validates on such a part: a model must learn them by heart.
  std::optional<Portion> overfit_batches{};
  // Training batches between two validations of an epoch, whose end always has one. One that is due inside of
  // an optimizer step waits for its end.
  Portion val_check_interval = 1.0;
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

  static constexpr auto fields = kindling::fields(
      kindling::field("max_epochs", &TrainerOptions::max_epochs,
                      {.doc = "passes over the training data", .min = 1}),
      kindling::field("num_gpus", &TrainerOptions::num_gpus,
                      {.doc = "cards to use; 0: the CPU, -1: all", .min = -1}),
      kindling::field("gradient_clip_val", &TrainerOptions::gradient_clip_val,
                      {.doc = "largest norm of all gradients together; 0: off", .min = 0}),
      kindling::field("max_steps", &TrainerOptions::max_steps, {.doc = "optimizer steps", .min = 1}),
      kindling::field("accumulate_grad_batches", &TrainerOptions::accumulate_grad_batches,
                      {.doc = "batches whose gradients make one optimizer step", .min = 1}),
      kindling::field(
          "gradient_shards", &TrainerOptions::gradient_shards,
          {.doc = "shards of a batch whose sum does not hang on the number of processes; 1: off", .min = 1}),
      kindling::field("sync_batchnorm", &TrainerOptions::sync_batchnorm,
                      {.doc = "batch norm by the samples of all processes"}),
      kindling::field("shard_optimizer_state", &TrainerOptions::shard_optimizer_state,
                      {.doc = "each process keeps the optimizer's state of its part of the parameters"}),
      kindling::field("max_time", &TrainerOptions::max_time,
                      {.doc = "longest time, as days:hours:minutes:seconds; empty: any"}),
      kindling::field("min_epochs", &TrainerOptions::min_epochs,
                      {.doc = "epochs that an early stop waits for", .min = 0}),
      kindling::field("min_steps", &TrainerOptions::min_steps,
                      {.doc = "optimizer steps that an early stop waits for", .min = 0}),
      kindling::field("overfit_batches", &TrainerOptions::overfit_batches,
                      {.doc = "share or number of batches to learn by heart, without shuffling"}),
      kindling::field("val_check_interval", &TrainerOptions::val_check_interval,
                      {.doc = "share or number of training batches between two validations"}),
      kindling::field("check_val_every_n_epoch", &TrainerOptions::check_val_every_n_epoch,
                      {.doc = "epochs between two validations", .min = 1}),
      kindling::field("precision", &TrainerOptions::precision,
                      {.doc = "types of the numbers that are kept and computed with",
                       .choices = "32-true|bf16-mixed|16-mixed|bf16-true|64-true"}),
      kindling::field("float32_matmul_precision", &TrainerOptions::float32_matmul_precision,
                      {.doc = "how float32 matrices are multiplied; absent: as the process does",
                       .choices = "highest|high|medium"}),
      kindling::field("channels_last", &TrainerOptions::channels_last,
                      {.doc = "images lie in memory pixel by pixel; auto: where that is faster",
                       .choices = "off|on|auto"}),
      kindling::field("step_graph", &TrainerOptions::step_graph,
                      {.doc = "record steps and replay them; auto: of models whose steps are alike",
                       .choices = "auto|on|off"}),
      kindling::field("require_gpus", &TrainerOptions::require_gpus,
                      {.doc = "fewer cards than num_gpus is an error"}),
      kindling::field("num_processes", &TrainerOptions::num_processes,
                      {.doc = "processes on this machine that train together", .min = 1}),
      kindling::field("limit_train_batches", &TrainerOptions::limit_train_batches,
                      {.doc = "training batches of an epoch", .min = 1}),
      kindling::field("limit_val_batches", &TrainerOptions::limit_val_batches,
                      {.doc = "validation batches", .min = 0}),
      kindling::field("limit_test_batches", &TrainerOptions::limit_test_batches,
                      {.doc = "test batches", .min = 1}),
      kindling::field("limit_predict_batches", &TrainerOptions::limit_predict_batches,
                      {.doc = "batches to predict", .min = 1}),
      kindling::field("fast_dev_run", &TrainerOptions::fast_dev_run,
                      {.doc = "one batch of each kind, to try everything once"}),
      kindling::field("num_sanity_val_steps", &TrainerOptions::num_sanity_val_steps,
                      {.doc = "validation batches before the first epoch", .min = 0}),
      kindling::field("log_every_n_steps", &TrainerOptions::log_every_n_steps,
                      {.doc = "a record every n steps; 0: epochs only", .min = 0}),
      kindling::field("num_threads", &TrainerOptions::num_threads,
                      {.doc = "threads of LibTorch's operators", .min = 1}),
      kindling::field("on_nonfinite", &TrainerOptions::on_nonfinite,
                      {.doc = "what a loss or a gradient that is NaN or infinite does to the fit",
                       .choices = "stop|skip|ignore"}),
      kindling::field("track_grad_norm", &TrainerOptions::track_grad_norm,
                      {.doc = "p of the norms of gradients that are logged; 0: none",
                       .min = 0,
                       .infinity_allowed = true}),
      kindling::field("detect_anomaly", &TrainerOptions::detect_anomaly,
                      {.doc = "name the operator whose gradient is NaN; slow"}),
      kindling::field("deterministic", &TrainerOptions::deterministic,
                      {.doc = "refuse operators whose numbers differ from run to run, or warn of them",
                       .choices = "false|true|warn"}),
      kindling::field("profile", &TrainerOptions::profile,
                      {.doc = "where time goes, and a trace of a few batches in the run's folder"}),
      kindling::field("profile_wait", &TrainerOptions::profile_wait,
                      {.doc = "batches before the profiler gets ready", .min = 0}),
      kindling::field("profile_warmup", &TrainerOptions::profile_warmup,
                      {.doc = "batches between that and the trace", .min = 0}),
      kindling::field("profile_active", &TrainerOptions::profile_active,
                      {.doc = "batches in the trace", .min = 1, .max = 1000}));
};

}  // namespace kindling
