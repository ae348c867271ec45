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

// Where the elements of a tensor lie, and what they are: all that a tensor over other memory needs to stand
// for it.
struct TensorLayout {
  std::size_t storage;  // its number in the recording
  std::int64_t offset;  // in bytes; in memory of an input, from the input's first element
  std::vector<std::int64_t> sizes, strides;
  at::ScalarType dtype;
  bool is_wrapped_number;  // which has no say in the type of a result
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// An argument or a result of an operator: tensors by the numbers of their places, everything else as it is.
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

// Memory that tensors of a recording lie in, by its name alone: a recording holds nothing that would have
// been freed, and sees what others have let go of.
struct RecordedStorage {
  c10::weak_intrusive_ptr<c10::StorageImpl> name;
  std::size_t num_bytes = 0;
  bool is_external = false;  // it has been there before
  bool is_known = false;     // by know()
  bool is_blank = false;     // no operator has written to it yet
  bool is_constant = false;  // made by the host, always with the same numbers
  bool has_owner = false;    // external memory that somebody held when the work was done or had been left
  c10::intrusive_ptr<c10::StorageImpl> found{};  // a copy of what was in external memory that is not known
  std::int64_t input = -1;                       // number of the input whose memory it is
  std::int64_t input_offset = 0;                 // of that, in bytes
};

// The operators that a piece of work has called, below autograd, in their order. Its tensors are on one
// device; that of a card may take numbers of the host's, whose memory alone the host looks into.
class Recording {
 public:
  Recording() = default;
  explicit Recording(Device device) : device_(device) {}
  Device device() const noexcept { return device_; }

  std::vector<OperatorCall> calls;
  std::vector<TensorLayout> places;
  std::vector<RecordedStorage> storages;
  std::string refusal;  // why it cannot be replayed; empty: nothing speaks against it
  std::size_t num_forward_calls = 0;
  std::vector<std::int64_t> outputs;  // numbers of the places of its results

  // What the work reads anew each time. Before all else.
  void add_inputs(std::span<const at::Tensor> inputs);
  // Memory whose contents may differ from run to run.
  void know(const at::Tensor& tensor);
  // The number of a tensor's place; memory that is met for the first time is external unless `is_new`.
  // Notes a refusal for what is no plain tensor on the device.
  std::int64_t place_of(const at::Tensor& tensor, bool is_new);
  std::optional<std::size_t> storage_of(const at::Tensor& tensor) const;
  void refuse(std::string reason);
  // Of blank memory that an operator reads: the host has written there, and this is taken for a constant.
  void keep_constant(std::size_t storage, const at::Tensor& tensor);
  // What the work has left as results; undefined ones stand for nothing.
  void add_outputs(std::span<const at::Tensor> results);

  // Once the work is done, and once it has been left: notes whether somebody holds external memory.
  void look_for_owners();
  // Once the work has been left: whether something that it made lives on beside its outputs. Looks for
  // owners.
  bool keeps_more_than_outputs();

 private:
  std::size_t add_storage(const at::Tensor& tensor, bool is_new);

  std::string why_not_plain(const at::Tensor& tensor, bool is_new) const;

  Device device_ = cpu();
  std::unordered_map<const c10::StorageImpl*, std::size_t> number_of_;
  std::unordered_multimap<std::size_t, std::int64_t> places_in_;  // by storage
  std::unordered_map<const c10::StorageImpl*, bool> known_;
};

// In what two recordings of the same work differ; empty: in nothing. What the host has made anew for each,
// with the same numbers, becomes a constant of the later one.
std::string difference(const Recording& earlier, Recording& later);

}  // namespace kindling
