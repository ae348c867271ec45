#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "interop/export/size_polynomial.h"

namespace kindling {

// A call of an operator: a node with all arguments, in the order of the schema of the operator.
struct RecordedCall {
  c10::OperatorHandle op;
  ProgramNode node;
  std::vector<const void*> writes{};  // storages that it modifies
  std::string last_layer{};           // the layer whose weights were used last, up to this call
};

// The operators that a forward pass called for one batch, above autograd. Values are named by numbers, which
// are the same in each recording of the same forward pass.
struct ForwardRecording {
  std::vector<RecordedCall> calls{};
  std::map<std::string, ProgramTensor> tensors{};  // by the values' names, as everything here
  std::map<std::string, const void*> storages{};   // of weights, too
  std::vector<std::pair<std::string, at::Tensor>>
      constants{};  // tensors filled by the host, in order of discovery
  std::vector<std::string> weights{}, inputs{}, outputs{};
  std::map<std::string, SizePolynomial> numbers{};  // computed by the program from the dynamic sizes
};

// Calls visit(name) for the values in an argument; `visit` may change them.
template <class Argument, class Visit>
void for_each_value(Argument& argument, const Visit& visit) {
  if (auto* tensor = std::get_if<TensorName>(&argument.value)) visit(tensor->name);
  if (auto* number = std::get_if<NumberName>(&argument.value)) visit(number->name);
  if (auto* list = std::get_if<ProgramList>(&argument.value))
    for (auto& item : list->items) for_each_value(item, visit);
}

}  // namespace kindling
