#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cli/config/command_line.h"
#include "kindling/loggers/best_so_far.h"
#include "kindling/loggers/epoch_table.h"
#include "kindling/loggers/progress_line.h"
#include "kindling/nn/layer_summary.h"
#include "kindling/training/callback.h"
#include "kindling/training/fit_result.h"
#include "loggers/run_metrics.h"

namespace kindling {

std::string grouped_number(std::int64_t number);  // "1,438"

// Returns false for a run that was interrupted, which prints how to resume, that diverged or that failed.
bool is_complete(const FitResult& result);

// The contents of the lines above the table apart from device and layers.
struct Heading {
  std::string configs{};  // "digits.toml + 1 override"
  std::string run{};      // the run's folder
  std::int64_t seed = 0;
  std::string resume{};               // where the run resumes; empty: not printed
  std::vector<std::string> chosen{};  // keys that the data decided, as "model.name = \"mlp\""
  bool has_masks = false;             // predictions are masks
  std::string program = "kindling";   // in the suggested commands
};

// Estimates when a fit reaches max_epochs or max_steps from its speed since start(), validations included.
class RunTimeLeft {
 public:
  // What ends the fit; 0: unknown.
  struct Limits {
    std::int64_t max_epochs = 0, max_steps = 0;
    std::int64_t num_batches = 0;  // per epoch
  };

  bool is_started() const noexcept { return start_.has_value(); }
  // Where this process begins to train, at a time in seconds.
  void start(const Progress& at, double now_s) { start_ = Start{at, now_s}; }

  // Returns seconds; -1 if unknown.
  double estimate(const Progress& at, const Limits& limits, double now_s) const {
    constexpr double kUnknown = std::numeric_limits<double>::infinity();
    double left = kUnknown;
    const auto limit = [&](std::int64_t begun, std::int64_t done, std::int64_t total) {
      if (total <= 0 || done <= begun) return;
      const double each = (now_s - start_->now_s) / static_cast<double>(done - begun);
      left = std::min(left, each * static_cast<double>(std::max<std::int64_t>(total - done, 0)));
    };
    if (!start_) return -1;
    const auto batches = [&](const Progress& when) { return when.epoch * limits.num_batches + when.batch; };
    limit(batches(start_->at), batches(at), limits.max_epochs * limits.num_batches);
    limit(start_->at.global_step, at.global_step, limits.max_steps);
    return left == kUnknown ? -1 : left;
  }

 private:
  struct Start {
    Progress at;
    double now_s;
  };
  std::optional<Start> start_;
};

// Prints the heading, epoch table and last line of a fit on stdout, and its progress line on stderr. Never
// reads a tensor. Knows the whole run, even if an earlier process started it.
class Screen : public Callback {
 public:
  Screen(const Request& request, Heading heading, EpochTableOptions monitored);

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_train_epoch_start(Trainer& trainer, Module& model) override;
  void on_train_batch_end(Trainer& trainer, Module& model) override;
  void on_validation_start(Trainer& trainer, Module& model) override;
  void on_validation_batch_end(Trainer& trainer, Module& model, std::int64_t batch,
                               std::int64_t num_batches) override;
  void on_validation_record(Trainer& trainer, Module& model, const Record& record) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;
  void save_state(StateDict& state) const override;
  void load_state(const StateDict& state) override;
  std::string type_name() const override { return "Screen"; }

  // Draws the losses of the run if stdout is a terminal.
  void show_curves(const RunMetrics& metrics) const;
  // Prints the last lines: why the run stopped early, how it ended with `best_saved` if not empty, and the
  // next commands. Call it once everything is saved.
  void show_end(const FitResult& result, const std::string& best_saved) const;

  // The best epoch by the monitored value.
  const std::optional<double>& best_value() const noexcept { return best_.value(); }
  std::int64_t best_epoch() const noexcept { return best_epoch_; }
  const std::string& monitored() const noexcept { return monitored_; }
  // Of the last epoch.
  const Metrics& metrics() const noexcept { return metrics_; }
  // Of the model, once the fit has started.
  const std::vector<LayerRow>& layers() const noexcept { return layers_; }

 private:
  void observe(const Record& record);
  ProgressState progress_state(const Trainer& trainer);
  void show_next_commands(const FitResult& result) const;

  Heading heading_;
  bool quiet_, has_color_;
  std::string monitored_;
  EpochTable table_;
  ProgressLine progress_;
  BestSoFar best_;
  std::int64_t best_epoch_ = 0;
  Metrics metrics_;
  std::vector<LayerRow> layers_;
  std::string stop_reason_;  // of an early stop
  RunTimeLeft time_left_;
  double start_s_ = 0, validation_start_s_ = 0, memory_read_s_ = 0;  // steady times
  std::int64_t memory_bytes_ = 0;
  double rated_s_ = 0, num_samples_ = 0;  // of the epochs of this process, for the mean throughput
};

}  // namespace kindling
