#include "programs/onnx_values.h"

#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

template <class Map>
auto& found_in(Map& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end())
    throw CheckpointError(
        {.place = "the program", .found = json_string(name) + " is used and nothing before has made it"});
  return found->second;
}

}  // namespace

std::string OnnxValues::tensor(const std::string& name) {
  Value& value = found_in(tensors_, name);
  if (!value.name.empty()) return value.name;
  std::string& known = known_[value.constant.unsafeGetTensorImpl()];
  if (known.empty()) known = graph_.constant(value.constant, value.wanted_name);
  return value.name = known;
}

std::string OnnxValues::number(const std::string& name) const { return found_in(numbers_, name); }

const at::Tensor* OnnxValues::constant(const std::string& name) const {
  const Value& value = found_in(tensors_, name);
  return value.constant.defined() ? &value.constant : nullptr;
}

const ProgramTensor& OnnxValues::about(const std::string& name) const {
  const auto found = program_.tensors.find(name);
  if (found == program_.tensors.end())
    throw CheckpointError(
        {.place = "the program", .found = "nothing is said about the tensor " + json_string(name)});
  return found->second;
}

}  // namespace kindling
