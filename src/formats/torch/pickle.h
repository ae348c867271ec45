#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/formats/safetensors.h"

// What torch.save's pickles say of state dicts. A pickle is a program for a stack machine that can name and
// call anything of Python's; this machine has the instructions that PyTorch's state dicts are made with
// (protocol 2), knows what they name, and calls nothing.
namespace kindling {

// A value, or what is known of a tensor. Others are meant by their place in a Pickle, so that nothing is
// copied and nothing recurses, however deep or circular a hostile pickle is.
struct PickleValue {
  enum class Kind { none, boolean, integer, real, text, list, tuple, dict, name, storage, tensor };
  using Place = std::uint32_t;

  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also of a boolean; of a tensor: its offset; of a storage: its number of values
  double real = 0;
  std::string_view text{};     // of a storage: its key in the archive; of a name: "module name"
  std::vector<Place> items{};  // of a dict: keys and values by turns; of a tensor: storage, sizes, strides
};

// The values of a pickle; `bytes` must outlive it. Throws CheckpointError with the byte it was at. `remedy`
// is for what is no state dict.
class Pickle {
 public:
  using Kind = PickleValue::Kind;
  using Place = PickleValue::Place;

  Pickle(std::string_view bytes, const std::string& place, const std::string& remedy);

  const PickleValue& result() const { return values_[result_]; }
  const PickleValue& operator[](Place place) const { return values_[place]; }

 private:
  friend class PickleMachine;

  std::vector<PickleValue> values_;
  Place result_ = 0;
};

// "a tensor"
std::string described(const PickleValue& value);

// What state dicts name, module and name.
inline constexpr std::string_view kOrderedDict = "collections OrderedDict", kTorchSize = "torch Size",
                                  kRebuildTensor = "torch._utils _rebuild_tensor_v2",
                                  kRebuildParameter = "torch._utils _rebuild_parameter";

// The names of storages with the types of their values.
struct StorageName {
  std::string_view name;  // "torch FloatStorage"
  TensorType type;
};
inline constexpr StorageName kStorageNames[] = {
    {"torch BoolStorage", TensorType::boolean},  {"torch ByteStorage", TensorType::uint8},
    {"torch CharStorage", TensorType::int8},     {"torch ShortStorage", TensorType::int16},
    {"torch IntStorage", TensorType::int32},     {"torch LongStorage", TensorType::int64},
    {"torch HalfStorage", TensorType::float16},  {"torch BFloat16Storage", TensorType::bfloat16},
    {"torch FloatStorage", TensorType::float32}, {"torch DoubleStorage", TensorType::float64},
};

}  // namespace kindling
