#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kindling/metrics/epoch_log.h"
#include "kindling/optim/optimizer.h"
#include "training/state/grad_scaler.h"
#include "training/state/spike_detector.h"

namespace kindling {

// The columns of the log (Kind::internal) in which the guard marks steps: with "stop" the first non-finite
// one and all later ones, with "skip" each of them; steps skipped by a scaler are marked too.
inline constexpr const char* kDivergedColumn = "diverged";
inline constexpr const char* kSkippedColumn = "skipped";
// Steps whose loss is a spike (TrainerOptions::on_spike).
inline constexpr const char* kSpikeColumn = "spike";
// The scale of a scaler after each step.
inline constexpr const char* kLossScaleColumn = "loss scale";
// Steps without a label that counts. Means and metrics leave out only what has no weight.
inline constexpr const char* kEmptyColumn = "empty";

// Keeps a step with a non-finite loss or gradients from changing the parameters
// (TrainerOptions::on_nonfinite), without a wait: on the CPU the result of the check is on the host anyway,
// on a device it is a scalar there, which the optimizer respects. Skips the updates of loss spikes in the
// same way.
class NonfiniteGuard {
 public:
  // `policy` is TrainerOptions::on_nonfinite: "stop", "skip" or "ignore".
  explicit NonfiniteGuard(std::string policy, bool skips_spikes = false)
      : policy_(std::move(policy)), skips_spikes_(skips_spikes) {}

  // Called between backward and update, with the losses of the step's batches. Checks `norm`, of all
  // gradients, instead of them; undefined: checks the gradients. With a scaler, the scaler checks the
  // gradients.
  void check(std::span<const at::Tensor> losses, Optimizer& optimizer, const at::Tensor& norm,
             const GradScaler* scaler = nullptr);
  // Tests the loss of the step for a spike, before the update. Without a loss, as no label has counted, there
  // is none.
  void test_spike(SpikeDetector& detector, const std::optional<StepLoss>& loss);
  // Says that no label of the step has counted: its update is skipped, which is no error.
  void set_empty(bool is_empty) noexcept { is_empty_ = is_empty; }
  // Runs the update unless check() has found something, a spike is skipped, or the step is empty; passes the
  // closure if the optimizer needs one. Throws ConfigError for an optimizer on a device that cannot skip a
  // single step.
  void step_if_finite(Optimizer& optimizer, const GradScaler* scaler,
                      const Optimizer::Closure& closure) const;
  // Marks the result in the current row; call it after each of several updates in a step.
  void mark(EpochLog& log, const GradScaler* scaler = nullptr) const {
    mark_diverged(log);
    if (const auto found = spike()) mark_spike(log, *found);
    if (is_empty_ && !may_skip(scaler)) return mark_empty(log);
    if (const auto found = skipped(scaler)) mark_skipped(log, *found);
  }
  void mark_diverged(EpochLog& log) const;
  // A number, or a float32 scalar on the device that will change.
  struct Flag {
    double number = 0;
    at::Tensor on_device{};  // takes precedence if defined
  };
  bool may_skip(const GradScaler* scaler) const {
    return scaler != nullptr || skips_spikes_ || (is_on() && !is_sticky());
  }
  // Whether only the latest update was skipped; nothing if single updates are never skipped.
  std::optional<Flag> skipped(const GradScaler* scaler) const;
  // Whether the latest loss was a spike; nothing if the host knows that it was not.
  std::optional<Flag> spike() const;
  // Both are for the whole step. The first one reverts what a skipped step has added to metrics' sums.
  static void mark_skipped(EpochLog& log, const Flag& found);
  static void mark_spike(EpochLog& log, const Flag& found);

  // True if parameters keep the values from before a non-finite step.
  static bool protects(const Optimizer& optimizer);

 private:
  bool is_on() const { return policy_ != "ignore"; }
  // A scalar that is not 0 if one of those that are defined is not; undefined without any.
  static at::Tensor any_of(std::initializer_list<at::Tensor> flags);
  at::Tensor skipped_spike() const { return skips_spikes_ ? spike_ : at::Tensor(); }
  bool is_sticky() const { return policy_ == "stop"; }
  void check_on_device(std::span<const at::Tensor> losses, std::span<const at::Tensor> values, Device device);

  static void mark_empty(EpochLog& log);

  const std::string policy_;
  const bool skips_spikes_;
  bool is_empty_ = false;
  bool is_spike_ = false;         // on the CPU
  at::Tensor spike_;              // float32 scalar on the device; undefined on the CPU
  bool found_ = false;            // on the CPU
  at::Tensor found_inf_, one_{};  // float32 scalars on the device; undefined on the CPU
};

}  // namespace kindling
