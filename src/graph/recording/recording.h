#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kindling/device/device.h"

namespace kindling {

// The storage, layout and type of a tensor: everything that another tensor needs to replace it.
struct TensorLayout {
  std::size_t storage;  // the storage's number in the recording
  std::int64_t offset;  // in bytes; in memory of an input, from the input's first element
  std::vector<std::int64_t> sizes, strides;
  at::ScalarType dtype;
  bool is_wrapped_number;          // does not affect the type of a result
  bool is_conjugate, is_negative;  // lazy views: operators conjugate or negate what they read
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// An argument or a result of an operator. Tensors are represented by the indices of their layouts in
// Recording::places, all other values by themselves.
struct OperatorValue {
  enum class Kind { constant, tensor, tensor_list, optional_tensor_list };
  static constexpr std::int64_t kUndefined = -1;
  Kind kind = Kind::constant;
  c10::IValue constant{};
  std::vector<std::int64_t> places{};
};

struct OperatorCall {
  c10::OperatorHandle op;
  std::vector<OperatorValue> arguments, results;
};

// Memory of a recording's tensors. It is held weakly: a recording does not keep memory alive, and sees when
// all owners have released it.
struct RecordedStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> name;
  std::size_t num_bytes = 0;
  bool is_external = false;  // it existed before the work
  bool is_known = false;     // marked by know()
  bool is_blank = false;     // no operator has written to it yet
  bool is_constant = false;  // made by the host, always with the same numbers
  bool has_owner = false;    // external memory that had an owner when the work was done, or afterwards
  c10::intrusive_ptr<c10::StorageImpl> found{};  // a copy of external memory that is not known
  std::int64_t input = -1;                       // number of the input whose memory it is
  std::int64_t input_offset = 0;                 // offset in that input, in bytes
};

// The operators that a piece of work has called, below autograd, in order. Its tensors are on one device; a
// GPU's operators may also take numbers on the host, the only memory whose contents are compared.
class Recording {
 public:
  Recording() = default;
  explicit Recording(Device device) : device_(device) {}
  Device device() const noexcept { return device_; }

  std::vector<OperatorCall> calls;
  std::vector<TensorLayout> places;
  std::vector<RecordedStorage> storages;
  std::string refusal;  // why it cannot be replayed; empty: it can
  std::size_t num_forward_calls = 0;
  std::vector<std::int64_t> outputs;  // indices of its results in `places`

  // Adds the tensors whose values differ in each run. Call it first.
  void add_inputs(std::span<const at::Tensor> inputs);
  // Marks memory whose contents may differ from run to run.
  void know(const at::Tensor& tensor);
  // Returns the index of a tensor's layout in `places`. Memory seen for the first time is external unless
  // `is_new`. Notes a refusal for anything but a plain tensor on the device.
  std::int64_t place_of(const at::Tensor& tensor, bool is_new);
  std::optional<std::size_t> storage_of(const at::Tensor& tensor) const;
  void refuse(std::string reason);
  // For blank memory that an operator reads: the host has written to it, so it is taken for a constant.
  void keep_constant(std::size_t storage, const at::Tensor& tensor);
  // Adds the results of the work; undefined ones are placeholders.
  void add_outputs(std::span<const at::Tensor> results);

  // Call it when the work is done, and again when its function has returned: notes whether external memory
  // has an owner.
  void look_for_owners();
  // Call it when the work's function has returned. True if something that it created, except its outputs, is
  // still alive. Updates the owners.
  bool keeps_more_than_outputs();

 private:
  std::size_t add_storage(const at::Tensor& tensor, bool is_new);

  std::string why_not_plain(const at::Tensor& tensor, bool is_new) const;

  Device device_ = cpu();
  std::unordered_map<const c10::StorageImpl*, std::size_t> number_of_;
  std::unordered_multimap<std::size_t, std::int64_t> places_in_;  // by storage
  std::unordered_map<const c10::StorageImpl*, bool> known_;
};

// Returns how two recordings of the same work differ; empty if they do not. Memory that the host has filled
// again for each with the same numbers becomes a constant of the later one.
std::string difference(const Recording& earlier, Recording& later);

}  // namespace kindling
