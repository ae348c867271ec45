#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/formats/safetensors.h"

// Reads state dicts from the pickles of torch.save. A pickle is a program for a stack machine that can name
// and call anything in Python. This machine supports only the instructions (protocol 2) and names that
// PyTorch's state dicts use, and calls nothing.
namespace kindling {

// A value, or the properties of a tensor. It refers to other values by index in a Pickle, so that nothing is
// copied and nothing recurses, however deep or circular a hostile pickle is.
struct PickleValue {
  enum class Kind { none, boolean, integer, real, text, list, tuple, dict, name, storage, tensor };
  using Place = std::uint32_t;

  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also for booleans; tensor: its offset; storage: its number of values
  double real = 0;
  std::string_view text{};     // storage: its key in the archive; name: "module name"
  std::vector<Place> items{};  // dict: alternating keys and values; tensor: storage, sizes, strides
};

// Hints for refused pickles.
struct PickleRemedies {
  std::string of_tensors{};  // Python loads it by default (weights_only=True)
  std::string of_complex{};  // the same, and it has complex128
  std::string of_objects{};  // it has objects of other classes, whose code Python would run
};

// The values of a pickle; `bytes` must outlive it. Throws CheckpointError with the byte position.
class Pickle {
 public:
  using Kind = PickleValue::Kind;
  using Place = PickleValue::Place;

  Pickle(std::string_view bytes, const std::string& place, const PickleRemedies& remedies);

  const PickleValue& result() const { return values_[result_]; }
  const PickleValue& operator[](Place place) const { return values_[place]; }

 private:
  friend class PickleMachine;

  std::vector<PickleValue> values_;
  Place result_ = 0;
};

// "a tensor"
std::string described(const PickleValue& value);

// The names in state dicts: module and name.
inline constexpr std::string_view kOrderedDict = "collections OrderedDict", kTorchSize = "torch Size",
                                  kRebuildTensor = "torch._utils _rebuild_tensor_v2",
                                  kRebuildParameter = "torch._utils _rebuild_parameter";

}  // namespace kindling
