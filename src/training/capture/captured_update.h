#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/device/device_graph.h"
#include "metrics/marked_row.h"
#include "training/step/optimizer_update.h"

namespace kindling {

// What the work depends on in addition to the values in its tensors: their addresses and layouts, and host
// numbers.
class CaptureKey {
 public:
  void clear() noexcept { words_.clear(); }
  void add(const at::Tensor& tensor);  // must be strided or undefined
  void add(double number);
  friend bool operator==(const CaptureKey& one, const CaptureKey& other) = default;

 private:
  std::vector<std::uint64_t> words_;
};

// Work that a device runs in each step. Work that comes twice in a row with the same key is recorded and from
// then on launched as a whole; its marks in the log are repeated.
class CapturedRegion {
 public:
  // The log outlives it.
  CapturedRegion(Device device, EpochLog& log);

  // `work` must do the same for the same key, and have no effect on the host except marks in the log.
  void run(const CaptureKey& key, const std::function<void()>& work);

 private:
  struct Recorded {
    CaptureKey key;
    MarkedRow row{};
    std::vector<at::Tensor> marked{};
    std::unique_ptr<DeviceGraph> graph;  // destroyed before the memory that it works on
  };
  bool record(const CaptureKey& key, const std::function<void()>& work);
  void start(const Recorded& recorded);

  Device device_;
  c10::Stream side_;  // the stream on which work is recorded
  EpochLog& log_;
  CaptureKey latest_;
  std::vector<Recorded> recorded_;
  std::string why_not_;  // not empty: recording has failed and is turned off
};

// The trainer's part of a step on a device whose steps are captured: the measurements of the gradients, and
// the update. Each is a single graph launch if its tensors have the same addresses as when it was captured.
class CapturedUpdate : public UpdateCapture {
 public:
  // The log outlives it.
  CapturedUpdate(Device device, EpochLog& log)
      : device_(device), measured_(device, log), updated_(device, log) {}

  void measure(Optimizer& optimizer, std::span<const at::Tensor> losses,
               const std::function<void()>& work) override;
  // Captures LibTorch's fused rules only (Adam, AdamW, Sgd): the host code of others may change from step to
  // step.
  void step(Optimizer& optimizer, const std::function<void()>& work) override;

 private:
  Device device_;
  CapturedRegion measured_, updated_;
  CaptureKey key_;  // of the current work; a member so that its memory is reused
};

}  // namespace kindling
