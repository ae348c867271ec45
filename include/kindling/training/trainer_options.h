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
#include "kindling/training/spike_options.h"

namespace kindling {

class Callback;
struct TrainerFields;

// The options of a Trainer. The first three are those of Dive into Deep Learning: Trainer({10, 1, 1.0})
// trains for ten epochs on one GPU and clips gradients at 1.
struct TrainerOptions {
  std::optional<std::int64_t> max_epochs{};  // this or max_steps must be set
  // GPUs of this machine to use; -1: all. If there are fewer, a warning gives the reason. Each process uses
  // one: the first, or with a process_group the one of its local rank.
  std::int64_t num_gpus = 0;
  double gradient_clip_val = 0;                  // largest 2-norm over all gradients; 0: no clipping
  std::string gradient_clip_algorithm = "norm";  // "value": gradient_clip_val limits each number instead

  std::optional<std::int64_t> max_steps{};  // optimizer steps
  std::string max_time{};  // "days:hours:minutes:seconds" over all resumes; checked between steps
  std::int64_t min_epochs = 0, min_steps = 0;  // an early stop waits for both
  // Batches per optimizer step; their gradients are weighted by their samples. The last step of an epoch may
  // have fewer.
  std::int64_t accumulate_grad_batches = 1;
  // A power of two above 1 splits the global batch into that many shards, each with separate random numbers
  // and batch statistics, and sums their gradients in a fixed order. Runs with 1, 2, 4 … ranks are then
  // bit-identical (docs/guides/data_parallel.md).
  std::int64_t gradient_shards = 1;
  // Batch norm uses the statistics of the batches of all ranks, in forward and backward; each layer then
  // waits for the other ranks twice. No effect for a single process.
  bool sync_batchnorm = false;
  // Each rank keeps the optimizer state of some of the parameters and updates them (ZeRO stage 1). Requires
  // Optimizer::is_per_parameter(); bit-identical to unsharded training. No effect for a single process.
  bool shard_optimizer_state = false;
  // Numeric precision of weights and computation ("true"), or of selected operators ("mixed"). "64-true" and
  // "bf16-true" convert the model and the floating-point tensors of batches. "16-mixed" scales gradients and
  // skips steps in which they overflow.
  std::string precision = "32-true";
  // With "bf16-true": the optimizer updates float32 copies of the weights, which are part of its state, and
  // the weights are the rounded copies. Small updates are not lost then (docs/guides/precision.md).
  bool master_weights = false;
  // "highest", "high" or "medium": precision of float32 matmuls (docs/guides/precision.md); absent:
  // LibTorch's setting.
  std::optional<std::string> float32_matmul_precision{};
  // "on": images and convolution weights use LibTorch's channels-last memory format, which changes last bits.
  // "auto": only where that is faster (on the CPU: 16 bits, 32 channels). view() on images fails then; use
  // reshape().
  std::string channels_last = "off";
  // "auto": captures and replays the steps of models whose has_static_graph() is true, with the same numbers
  // (docs/explain/step_capture.md); "on": of every model, whose steps must then be static; "off": of none;
  // "check": as "auto", and each replayed step also runs eagerly and is compared, which finds a model whose
  // steps are not static in the step where they differ.
  std::string step_graph = "auto";
  // "auto": replayed steps on the CPU compute some operators by native kernels, with bit-identical results;
  // "off": by LibTorch's operators only, which rules out a suspected kernel (docs/explain/step_capture.md).
  std::string step_kernels = "auto";
  bool require_gpus = false;       // fewer GPUs than num_gpus, or than processes, is a DeviceError
  std::int64_t num_processes = 1;  // ranks on this machine; the program `kindling` starts them
  std::optional<std::int64_t> limit_train_batches{};  // batches per epoch; absent: all
  std::optional<std::int64_t> limit_val_batches{};
  std::optional<std::int64_t> limit_test_batches{};
  std::optional<std::int64_t> limit_predict_batches{};
  bool fast_dev_run = false;  // one training and one validation batch, as a quick check of the whole program
  // Trains and validates on the first batches only (a number, or a fraction of all): a model must be able to
  // memorize them.
  std::optional<CountOrFraction> overfit_batches{};
  // Training batches between validations (a number, or a fraction of the epoch); the end of an epoch always
  // validates. A validation that is due within an optimizer step waits for its end. With gradient_shards a
  // number counts batches before they are split.
  CountOrFraction val_check_interval = 1.0;
  std::int64_t check_val_every_n_epoch = 1;
  std::int64_t num_sanity_val_steps = 2;      // validation batches before the first epoch, without a record
  std::int64_t log_every_n_steps = 0;         // a step record every n steps; 0: epoch records only
  std::optional<std::int64_t> num_threads{};  // of LibTorch's operators; absent: unchanged
  // The reaction to a step whose loss or gradients are not finite. "stop": it and all later steps leave the
  // parameters unchanged, and the fit ends as diverged once the host sees it; "skip": skips its update;
  // "ignore": does not check.
  std::string on_nonfinite = "stop";
  // Tests the loss of every step against those before it; absent: no test. A config has it as [on_spike].
  std::optional<SpikeOptions> on_spike{};
  // Logs the p-norm of every parameter's gradient, before clipping, as grad_norm/NAME; 0: none.
  double track_grad_norm = 0;
  bool detect_anomaly = false;  // throws an Error that names the operator whose gradient is NaN; slow
  // Computes the loss and the gradients of every n-th step twice, and compares the bits; a difference, such
  // as of a faulty machine, is an Error. Of a step with several batches, the first one is checked; the host
  // waits for it. 0: never.
  std::int64_t recheck_every_n_steps = 0;
  // "true": an operator of LibTorch without a deterministic implementation is an Error; "warn": it is logged
  // once. Affects the whole process while the trainer runs.
  std::string deterministic = "false";
  // Logs the fraction of each epoch's time spent per activity as time_share/PART, and writes a trace of the
  // operators of `profile_active` batches, after `profile_wait` and `profile_warmup`, to profile_dir.
  bool profile = false;
  std::int64_t profile_wait = 1, profile_warmup = 1, profile_active = 3;

  OptimizerFactory optimizer{};  // empty: the model's configure_optimizers(), else Adam with lr 1e-3
  Schedule schedule{};           // empty: a constant learning rate
  ScheduleInterval schedule_interval = ScheduleInterval::step;
  std::vector<std::shared_ptr<Callback>> callbacks{};
  std::vector<std::shared_ptr<Logger>> loggers{};
  std::shared_ptr<ProcessGroup> process_group{};  // the ranks that train together; nullptr: a single process
  std::filesystem::path nonfinite_dir{};          // where "stop" saves the batch; empty: nowhere
  std::filesystem::path profile_dir{};  // where trace.json and profile.txt are written; empty: nowhere

  using Fields = TrainerFields;  // the field list, in kindling/training/trainer_fields.h
};

}  // namespace kindling

#include "kindling/training/trainer_fields.h"  // IWYU pragma: keep
