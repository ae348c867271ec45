#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kindling/metrics/epoch_log.h"
#include "kindling/optim/optimizer.h"
#include "optim/grad_scaler.h"

namespace kindling {

// The columns of the log (Kind::internal) where the guard marks steps: with "stop" the first one that was not
// finite and all after it, with "skip" each one; a scaler's are skipped, too.
inline constexpr const char* kDivergedColumn = "diverged";
inline constexpr const char* kSkippedColumn = "skipped";

// Keeps a step whose loss or gradients are not finite from the parameters (TrainerOptions::on_nonfinite),
// without a wait: on the CPU the finding is the host's anyway, on a device it is a scalar there, which the
// optimizer heeds.
class NonfiniteGuard {
 public:
  // `policy` is TrainerOptions::on_nonfinite: "stop", "skip" or "ignore".
  explicit NonfiniteGuard(std::string policy) : policy_(std::move(policy)) {}

  // Between backward and update, with the losses of the step's batches. A `norm` of all gradients stands for
  // them; undefined: they are looked at. Where a scaler is at work, gradients are its matter.
  void check(std::span<const at::Tensor> losses, Optimizer& optimizer, const at::Tensor& norm,
            const GradScaler* scaler = nullptr);
  // The update, unless check() has found something; with the closure where the optimizer needs one. Throws
  // ConfigError for an optimizer on a device that cannot leave out a single step.
  void step_if_finite(Optimizer& optimizer, const GradScaler* scaler, const Optimizer::Closure& closure) const;
  // Puts what was found into the row that is being made; of several updates of a step after each of them.
  void mark(EpochLog& log, const GradScaler* scaler = nullptr) const {
    mark_diverged(log);
    if (const auto found = skipped(scaler)) mark_skipped(log, *found);
  }
  void mark_diverged(EpochLog& log) const;
  // Whether the latest update has been left out alone, a number or a float32 scalar on the device, which is
  // going to change; nothing where that is not done.
  struct Skipped {
    double number = 0;
    at::Tensor on_device{};  // counts instead where it is defined
  };
  bool may_skip(const GradScaler* scaler) const { return scaler != nullptr || (is_on() && !is_sticky()); }
  std::optional<Skipped> skipped(const GradScaler* scaler) const;
  // Of the whole step; metrics' sums lose what one that is left out has added.
  static void mark_skipped(EpochLog& log, const Skipped& found);

  // Whether parameters stay as they were before a step that is not finite.
  static bool protects(const Optimizer& optimizer);

 private:
  bool is_on() const { return policy_ != "ignore"; }
  at::Tensor either(const GradScaler& scaler) const;  // has found something, the scaler or this
  bool is_sticky() const { return policy_ == "stop"; }
  void check_on_device(std::span<const at::Tensor> losses, std::span<const at::Tensor> values, Device device);

  const std::string policy_;
  bool found_ = false;            // on the CPU
  at::Tensor found_inf_, one_{};  // float32 scalars on the device; undefined on the CPU
};

}  // namespace kindling
