#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kindling/metrics/epoch_log.h"
#include "kindling/optim/optimizer.h"
#include "training/state/grad_scaler.h"

namespace kindling {

// The columns of the log (Kind::internal) in which the guard marks steps: with "stop" the first non-finite
// one and all later ones, with "skip" each of them; steps skipped by a scaler are marked too.
inline constexpr const char* kDivergedColumn = "diverged";
inline constexpr const char* kSkippedColumn = "skipped";
// The scale of a scaler after each step.
inline constexpr const char* kLossScaleColumn = "loss scale";
// Steps without a label that counts. Means and metrics leave out only what has no weight.
inline constexpr const char* kEmptyColumn = "empty";

// Keeps a step with a non-finite loss or gradients from changing the parameters
// (TrainerOptions::on_nonfinite), without a wait: on the CPU the result of the check is on the host anyway,
// on a device it is a scalar there, which the optimizer respects.
class NonfiniteGuard {
 public:
  // `policy` is TrainerOptions::on_nonfinite: "stop", "skip" or "ignore".
  explicit NonfiniteGuard(std::string policy) : policy_(std::move(policy)) {}

  // Called between backward and update, with the losses of the step's batches. Checks `norm`, of all
  // gradients, instead of them; undefined: checks the gradients. With a scaler, the scaler checks the
  // gradients.
  void check(std::span<const at::Tensor> losses, Optimizer& optimizer, const at::Tensor& norm,
             const GradScaler* scaler = nullptr);
  // Says that no label of the step has counted: its update is skipped, which is no error.
  void set_empty(bool is_empty) noexcept { is_empty_ = is_empty; }
  // Runs the update unless check() has found something or the step is empty; passes the closure if the
  // optimizer needs one. Throws ConfigError for an optimizer on a device that cannot skip a single step.
  void step_if_finite(Optimizer& optimizer, const GradScaler* scaler,
                      const Optimizer::Closure& closure) const;
  // Marks the result in the current row; call it after each of several updates in a step.
  void mark(EpochLog& log, const GradScaler* scaler = nullptr) const {
    mark_diverged(log);
    if (is_empty_ && !may_skip(scaler)) return mark_empty(log);
    if (const auto found = skipped(scaler)) mark_skipped(log, *found);
  }
  void mark_diverged(EpochLog& log) const;
  // Whether only the latest update was skipped: a number, or a float32 scalar on the device that will change;
  // nothing if single updates are never skipped.
  struct Skipped {
    double number = 0;
    at::Tensor on_device{};  // takes precedence if defined
  };
  bool may_skip(const GradScaler* scaler) const { return scaler != nullptr || (is_on() && !is_sticky()); }
  std::optional<Skipped> skipped(const GradScaler* scaler) const;
  // For the whole step; reverts what a skipped step has added to metrics' sums.
  static void mark_skipped(EpochLog& log, const Skipped& found);

  // True if parameters keep the values from before a non-finite step.
  static bool protects(const Optimizer& optimizer);

 private:
  bool is_on() const { return policy_ != "ignore"; }
  at::Tensor either(const GradScaler& scaler) const;  // 1 if the scaler or this guard has found something
  bool is_sticky() const { return policy_ == "stop"; }
  void check_on_device(std::span<const at::Tensor> losses, std::span<const at::Tensor> values, Device device);

  static void mark_empty(EpochLog& log);

  const std::string policy_;
  bool is_empty_ = false;
  bool found_ = false;            // on the CPU
  at::Tensor found_inf_, one_{};  // float32 scalars on the device; undefined on the CPU
};

}  // namespace kindling
