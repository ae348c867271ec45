#include "interop/run/evaluation_program.h"

#include <map>
#include <utility>

#include "interop/run/loaded_weights.h"
#include "interop/run/program_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

struct DeclaredWeight {
  std::size_t number;  // among the weights
  bool is_state;       // a parameter or persistent buffer
  std::string type;    // "Float [4, 3]"
};

std::string declared_type(const ExportedProgram& program, const ProgramInput& input) {
  const auto tensor = program.tensors.find(std::get<TensorName>(input.argument.value).name);
  if (tensor == program.tensors.end()) return "?";
  std::string sizes;
  for (const ProgramSize& size : tensor->second.sizes)
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size.number);
  return std::string(c10::toString(scalar_type_of(tensor->second.type))) + " [" + sizes + "]";
}

// Returns the parameters and buffers by name.
std::map<std::string, DeclaredWeight> declared_weights(const ExportedProgram& program) {
  std::map<std::string, DeclaredWeight> weights;
  std::size_t number = 0;
  for (const ProgramInput& input : program.inputs) {
    if (input.kind == ProgramInput::Kind::user) continue;
    if (input.kind != ProgramInput::Kind::constant)
      weights[input.target] = {.number = number,
                               .is_state = input.kind == ProgramInput::Kind::parameter || input.is_persistent,
                               .type = declared_type(program, input)};
    ++number;
  }
  return weights;
}

[[noreturn]] void refuse_evaluation(const std::string& found, const std::string& wanted) {
  throw CheckpointError(
      {.place = "the program for evaluation",
       .found = found,
       .wanted = wanted,
       .remedy = "export the same model twice: after model.train(), and after model.eval()"});
}

}  // namespace

EvaluationProgram::EvaluationProgram(const std::filesystem::path& path, const std::string& name,
                                     const Pt2File& training, std::size_t num_inputs,
                                     const std::string& training_file)
    : file_(path, name), runner_(file_.program()) {
  if (runner_.is_in_training_mode())
    refuse_evaluation("it was exported in training mode", "a program that was exported after model.eval()");
  if (runner_.num_inputs() != num_inputs)
    refuse_evaluation("it has " + std::to_string(runner_.num_inputs()) + " inputs",
                      std::to_string(num_inputs) + ", as " + training_file);
  share_weights(training.program(), training_file);
}

void EvaluationProgram::share_weights(const ExportedProgram& training, const std::string& training_file) {
  const auto weights = declared_weights(training), here = declared_weights(program());
  for (const auto& [name, weight] : weights)
    if (weight.is_state && !here.contains(name))
      refuse_evaluation("it has no parameter or buffer " + json_string(name),
                        "the parameters and buffers of " + training_file);
  std::vector<at::Tensor> loaded = load_weights_of(file_).tensors;
  shared_.resize(loaded.size());
  for (const auto& [name, weight] : here) {
    const auto same = weights.find(name);
    if (same != weights.end() && same->second.type == weight.type) {
      shared_[weight.number] = same->second.number;
      loaded[weight.number] = at::Tensor();
    } else if (weight.is_state) {
      refuse_evaluation("its " + json_string(name) + " is " + weight.type,
                        same == weights.end()
                            ? "the parameters and buffers of " + training_file + ", without it"
                            : same->second.type + ", as in " + training_file);
    }
  }
  // Copies free the storages, which hold all weights.
  for (at::Tensor& tensor : loaded) own_.push_back(tensor.defined() ? tensor.detach().clone() : at::Tensor());
}

std::vector<at::Tensor> EvaluationProgram::run(std::span<const at::Tensor> training_weights,
                                               std::span<const at::Tensor> inputs,
                                               const torch::nn::Module& model) {
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i < shared_.size(); ++i) {
    if (!shared_[i] && !inputs.empty() && own_[i].device() != inputs[0].device())
      own_[i] = own_[i].to(inputs[0].device());
    weights.push_back(shared_[i] ? training_weights[*shared_[i]] : own_[i]);
  }
  const std::vector<const torch::nn::Module*> layers(runner_.layers().size(), &model);
  return runner_.run(weights, inputs, layers);
}

}  // namespace kindling
