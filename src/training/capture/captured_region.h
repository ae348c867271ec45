#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/device/device_graph.h"
#include "metrics/marked_row.h"

namespace kindling {

// What work depends on beside the numbers in its tensors: where these lie and how, and numbers of the host's.
class CaptureKey {
 public:
  void clear() noexcept { words_.clear(); }
  void add(const at::Tensor& tensor);  // strided, or undefined
  void add(double number);
  friend bool operator==(const CaptureKey& one, const CaptureKey& other) = default;

 private:
  std::vector<std::uint64_t> words_;
};

// Work that a device is given in each step. What comes twice in a row with one key is recorded, and from then
// on it is started as a whole; what it marks in the log is marked again.
class CapturedRegion {
 public:
  // The log outlives it.
  CapturedRegion(Device device, EpochLog& log);

  // `work` does the same for the same key, and leaves nothing behind on the host but marks in the log.
  void run(const CaptureKey& key, const std::function<void()>& work);

 private:
  struct Recorded {
    CaptureKey key;
    MarkedRow row{};
    std::vector<at::Tensor> marked{};
    std::unique_ptr<DeviceGraph> graph;  // goes before the memory that it works on
  };
  bool record(const CaptureKey& key, const std::function<void()>& work);
  void start(const Recorded& recorded);

  Device device_;
  c10::Stream side_;  // where it is recorded
  EpochLog& log_;
  CaptureKey latest_;
  std::vector<Recorded> recorded_;
  std::string why_not_;  // nothing is recorded any more
};

}  // namespace kindling
