// A fake accelerator for tests: a LibTorch back end with two devices, "fake:0" and "fake:1", in host memory.
//
// It computes with the CPU's kernels, bit-identically, but behaves like a device: mixed devices are refused
// with LibTorch's own text, every copy between host and device and every wait of the host is counted, an
// illegal host read of device memory can be made a crash, and asynchronous copies can be made late. Call
// install() first in the test program's main, before the first backward pass (LibTorch counts the devices
// there, once). From then on it is *the* accelerator of the process (at::accelerator), so give such tests a
// program of their own.
//
// Everything here is process-wide and may be called from any thread. Linux only. Not seen by the fake: waits
// inside the kernels of a real device. Assert copies, item reads and data-dependent operators rather than
// numbers of kernels.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace kindling::fake {

inline constexpr int kDeviceCount = 2;
inline constexpr const char* kDeviceName = "fake";

// Registers the back end (LibTorch's PrivateUse1) for good; later calls do nothing. Throws c10::Error when
// another PrivateUse1 back end is registered already.
void install();

// The device "fake:<index>"; usable before install() too.
inline c10::Device device(int index = 0) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
}

// What happened since the last reset_counts(), both devices together unless an array says otherwise.
struct Counts {
  // Copies by copy_, to, cpu, clone, contiguous. Bytes are those of the source elements
  // that were copied. Between devices counts copies inside one device as well. item() and operators' results
  // are not copies.
  int64_t host_to_device_copies = 0;
  int64_t host_to_device_bytes = 0;
  int64_t device_to_host_copies = 0;
  int64_t device_to_host_bytes = 0;
  int64_t device_to_device_copies = 0;
  int64_t device_to_device_bytes = 0;
  // Those of the above that the host waits for: without non_blocking, with host memory that is not pinned, or
  // with a change of dtype or of layout on the way.
  int64_t blocking_host_to_device_copies = 0;
  int64_t blocking_device_to_host_copies = 0;
  // Copies between host and device on another stream than the one that is there from the beginning, and how
  // often memory was said to be used by another stream than it was made for (record_stream).
  int64_t side_stream_copies = 0;
  int64_t recorded_streams = 0;
  // item(), is_nonzero() and whatever else reads one element (_local_scalar_dense).
  int64_t item_reads = 0;
  // Operators whose result the host must know at once: nonzero, masked_select, unique, bincount, equal,
  // repeat_interleave without output size, indexing by a mask.
  int64_t data_dependent_ops = 0;
  // Waits of the host: synchronize() of a stream, of an event, of a device. An event that blocks a stream is
  // none.
  int64_t stream_waits = 0;
  int64_t event_waits = 0;
  int64_t device_waits = 0;
  // Work that the host has started on a device: operators other than views, and copies; a graph replay counts
  // as one.
  int64_t launches = 0;
  int64_t graph_replays = 0;
  // Bytes asked for on each device and not given back: now, and the most since the last reset.
  std::array<int64_t, kDeviceCount> live_bytes{};
  std::array<int64_t, kDeviceCount> peak_bytes{};
  // Pinned host memory: allocations since the last reset, bytes now.
  int64_t pinned_allocations = 0;
  int64_t pinned_live_bytes = 0;

  // How often the host waited for a result of the device. Blocking copies *to* the device are apart: they
  // wait for the copy, not for a result.
  int64_t host_waits() const {
    return item_reads + data_dependent_ops + blocking_device_to_host_copies + stream_waits + event_waits +
           device_waits;
  }
};

Counts counts();

// Sets all to zero but live bytes; peaks start again from the live bytes.
void reset_counts();

// Calls of one operator on the fake since the last reset_counts(), all overloads together, e.g. "aten::mm".
int64_t operator_calls(std::string_view name);

// Protected memory: while on, device memory is out of reach (mprotect) unless a kernel or copy of the fake is
// running in some thread, so a raw host read of a device tensor's data_ptr() is a segmentation fault. Off at
// start.
void set_protected(bool on);

// Late copies: while on, a non_blocking copy between pinned host memory and a device is only queued on the
// current stream; bytes are read from the source and written to the target when
//   - the host waits: for the stream, for the device, for an event recorded after the copy, by an item read,
//     a data-dependent operator or a blocking copy to the host on that stream;
//   - a kernel or a copy on the same stream uses the device tensor's storage (streams keep their order);
//     another stream does not see the copy unless an event blocks it until then: a forgotten one gives stale
//     data;
//   - its pinned memory is given back;
//   - an event recorded after it is queried for the third time, or its stream is: the first two queries of
//     each recording say "not done", so that code which polls makes progress and code which does not check
//     is caught.
// So a staging buffer that is written again before its event was done gives wrong numbers. Turning it off
// carries out all copies still queued. Off at start.
void set_late_copies(bool on);

// Sets the free memory that the devices report; -1, the default: the actual value.
void set_free_bytes(int64_t bytes);

class FreeBytes {
 public:
  explicit FreeBytes(int64_t bytes) { set_free_bytes(bytes); }
  ~FreeBytes() { set_free_bytes(-1); }
  FreeBytes(const FreeBytes&) = delete;
  FreeBytes& operator=(const FreeBytes&) = delete;
};

// Graphs (with LibTorch 2.13, by at::accelerator::Graph): while a stream other than the default one is
// captured, its operators and copies are recorded and leave nothing: memory that is there stays as it is,
// results hold bytes that no one should read (as floats NaN), and no random number is drawn. A replay runs
// them in the same memory, that of the graph or of tensors which it does not keep alive, and draws new random
// numbers. Whatever makes the host wait, copies to or from the host, work on the default stream and events to
// or from other streams are refused and make the capture fail, also when the error is caught.

class ProtectMemory {
 public:
  ProtectMemory() { set_protected(true); }
  ~ProtectMemory() { set_protected(false); }
  ProtectMemory(const ProtectMemory&) = delete;
  ProtectMemory& operator=(const ProtectMemory&) = delete;
};

class LateCopies {
 public:
  LateCopies() { set_late_copies(true); }
  ~LateCopies() { set_late_copies(false); }
  LateCopies(const LateCopies&) = delete;
  LateCopies& operator=(const LateCopies&) = delete;
};

}  // namespace kindling::fake
