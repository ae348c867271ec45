#include "interop/run/loaded_weights.h"

#include <ATen/ops/empty.h>

#include <map>
#include <tuple>

#include "interop/run/program_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

std::vector<std::int64_t> numbers_of(const std::vector<ProgramSize>& sizes) {
  std::vector<std::int64_t> numbers;
  for (const ProgramSize& size : sizes) numbers.push_back(size.number);
  return numbers;
}

at::Tensor tensor_in(const at::Tensor& storage, const ProgramTensor& tensor) {
  at::Tensor made = at::empty({0}, at::dtype(scalar_type_of(tensor.type)));
  made.set_(storage.storage(), tensor.offset.number, numbers_of(tensor.sizes), numbers_of(tensor.strides));
  return made;
}

const ProgramWeight& weight_named(const Pt2File& file, const ProgramInput& input) {
  // Non-persistent buffers are saved with the constants.
  for (const auto* weights : {&file.weights(), &file.constants()})
    for (const ProgramWeight& weight : *weights)
      if (weight.name == input.target) return weight;
  throw CheckpointError({.place = "the program's inputs",
                         .found = "the file has no values for " + json_string(input.target),
                         .remedy = "the file is damaged: copy it again, or export it again"});
}

void check_declaration(const ExportedProgram& program, const ProgramInput& input,
                       const ProgramTensor& found) {
  const auto declared = program.tensors.find(std::get<TensorName>(input.argument.value).name);
  if (declared == program.tensors.end() ||
      (declared->second.type == found.type && numbers_of(declared->second.sizes) == numbers_of(found.sizes)))
    return;
  throw CheckpointError({.place = "the values of " + json_string(input.target),
                         .found = "their shape or dtype differs from the one in the program",
                         .remedy = "the file is damaged: copy it again, or export it again"});
}

}  // namespace

LoadedWeights load_weights_of(const Pt2File& file) {
  LoadedWeights loaded;
  for (std::size_t i = 0; i < file.num_storages(); ++i) {
    loaded.storages.push_back(
        at::empty({static_cast<std::int64_t>(file.storage_bytes(i))}, at::dtype(at::kByte)));
    file.read_storage(i, loaded.storages.back().data_ptr());
  }
  using Place = std::tuple<std::size_t, ProgramType, std::int64_t, std::vector<std::int64_t>,
                           std::vector<std::int64_t>>;
  std::map<Place, at::Tensor> known;
  for (const ProgramInput& input : file.program().inputs) {
    if (input.kind == ProgramInput::Kind::user) continue;
    const ProgramWeight& weight = weight_named(file, input);
    const ProgramTensor& tensor = weight.tensor;
    check_declaration(file.program(), input, tensor);
    at::Tensor& made = known[{weight.storage, tensor.type, tensor.offset.number, numbers_of(tensor.sizes),
                              numbers_of(tensor.strides)}];
    if (!made.defined()) {
      made = tensor_in(loaded.storages[weight.storage], tensor);
      if (input.kind == ProgramInput::Kind::parameter) made.requires_grad_(tensor.requires_grad);
    }
    loaded.tensors.push_back(made);
  }
  return loaded;
}

}  // namespace kindling
