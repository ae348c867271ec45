#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/training/spike_options.h"

namespace kindling {

// The loss of a step: a scalar on the device, or a number if there is none.
struct StepLoss {
  double number = 0;
  at::Tensor on_device{};
};

// Returns a loss on a device in a type in which sums over many samples are exact enough: float32, or float64
// as it is.
inline at::Tensor in_type_of_sums(const at::Tensor& loss) {
  return loss.scalar_type() == at::kDouble ? loss : loss.to(at::kFloat);
}

// Tests the losses of an optimizer's steps for spikes. A loss is a spike if it exceeds the median of the
// losses in the window by more than `factor` times their spread: twice their median distance from the median,
// at least a small fraction of the median. Medians are the lower ones of even numbers. Every finite loss
// enters the window after its test, also a spike, so that a new level of the loss is accepted after half a
// window.
//
// On the CPU the losses are kept sorted, and a test takes a fraction of a microsecond. On a device it is a
// series of operators without a wait, which may be captured: their tensors keep their addresses. Both compute
// in float32 and come to the same result.
class SpikeDetector {
 public:
  SpikeDetector(Device device, const SpikeOptions& options);

  // On the CPU: returns whether the loss is a spike, and adds it to the window.
  bool test(float loss);
  // On a device: the same for a scalar there, of any floating-point type. Writes 1 for a spike, else 0, to
  // `found`, a float32 scalar.
  void test(const at::Tensor& loss, const at::Tensor& found);
  // On a device, the tensor that test() changes.
  const at::Tensor& window() const noexcept { return window_; }
  // On a device, all tensors of its own that test() uses.
  std::array<at::Tensor, 3> tensors() const { return {window_, middles_, factors_}; }

  // Returns the losses of the latest steps, float32 [window], the latest last. Infinite ones are empty: there
  // were fewer steps, or a loss was not finite.
  at::Tensor losses() const;
  // Takes those of a saved run. Of a longer window only the latest count. Throws CheckpointError.
  void load(const at::Tensor& losses);

 private:
  bool is_spike(float loss) const;
  void add(float loss);
  float median_distance(float median) const;

  std::size_t size_, fewest_;  // no test of a loss with fewer ones in the window
  float factor_;
  // On the CPU: the window as a ring, and its finite losses in order.
  std::vector<float> ring_, sorted_;
  std::size_t next_ = 0;
  // On a device: the window, the latest loss last, and by the number of its finite losses the position of
  // their median and the factor (infinite for too few).
  at::Tensor window_, middles_, factors_;
};

}  // namespace kindling
