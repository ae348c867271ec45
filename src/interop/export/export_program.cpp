#include "kindling/interop/export_program.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <limits>

#include "device/random_state.h"
#include "formats/pt2/pt2_file.h"
#include "formats/pt2/pt2_writer.h"
#include "formats/torch/pickle_text.h"
#include "graph/recording/operator_recorder.h"
#include "interop/export/export_forward.h"
#include "interop/export/recorded_model.h"
#include "interop/onnx/write_onnx.h"
#include "interop/run/loaded_weights.h"
#include "interop/run/program_runner.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/lazy.h"
#include "nn/checkpoint_scopes.h"
#include "nn/scoped_model_state.h"
#include "tensors/scalar_types.h"

namespace kindling {
namespace {

struct ProgramCheck {
  torch::nn::Module& model;
  const BatchFunction& forward;
  const Batch& example;
  const ScopedModelState& state;
  const RecordedModel& recorded;
  const DynamicSizes& sizes;
  bool train = false;
};

// Relative to the largest value. The same operators run, but memory layouts may differ (reshape replaces
// view), and then sums are computed in another order; gradients are in addition sums over the batch.
constexpr double kEpsilons = 8, kGradientEpsilons = 64;

// The results of a forward pass.
struct ForwardResults {
  std::vector<at::Tensor> outputs{}, buffers{}, gradients{};
};

// Returns gradients of a weighted sum of all outputs. Different weights are needed because some outputs, such
// as those of softmax, sum to a constant.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> roots, seeds, learning;
  for (const at::Tensor& output : outputs)
    if (output.requires_grad()) {
      roots.push_back(output);
      seeds.push_back(
          at::arange(output.numel(), at::kFloat).cos().to(output.scalar_type()).reshape(output.sizes()));
    }
  std::ranges::copy_if(parameters, std::back_inserter(learning), &at::Tensor::requires_grad);
  if (roots.empty() || learning.empty()) return std::vector<at::Tensor>(learning.size());
  return torch::autograd::grad(roots, learning, seeds, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

class Comparison {
 public:
  Comparison(const Pt2File& file, const ProgramCheck& check, const DynamicSizes::Sizes& sizes)
      : file_(file),
        check_(check),
        sizes_(sizes),
        batch_(check.sizes.resized(check.example, sizes, /*first=*/3)) {}

  void require_same() {
    const std::vector<at::Tensor> random = random_state(cpu());
    const ForwardResults wanted = run_model();
    check_.state.restore_values();
    set_random_state(cpu(), random);
    const ForwardResults found = run_program();
    compare("output", found.outputs, wanted.outputs, kEpsilons);
    compare("new buffer value", found.buffers, wanted.buffers, kEpsilons);
    compare("parameter gradient", found.gradients, wanted.gradients, kGradientEpsilons);
  }

 private:
  ForwardResults run_model() const {
    ForwardResults results;
    Batch outputs;
    try {
      outputs = check_.forward(check_.sizes.resized(batch_, sizes_, 0));
    } catch (const c10::Error& error) {
      check_.sizes.refuse_forward(sizes_, error.what_without_backtrace());
    }
    results.outputs.assign(outputs.tensors().begin(), outputs.tensors().end());
    if (check_.train) results.gradients = gradients_of(results.outputs, check_.model.parameters());
    for (const at::Tensor& buffer : check_.model.buffers()) results.buffers.push_back(buffer.clone());
    return results;
  }

  ForwardResults run_program() const {
    const LoadedWeights weights = load_weights_of(file_);
    const ProgramRunner runner(file_.program());
    const torch::nn::Module in_training_mode;  // in training mode: layers recorded in training mode run in it
    const std::vector<const torch::nn::Module*> layers(runner.layers().size(), &in_training_mode);
    std::vector<at::Tensor> inputs;
    for (const std::size_t place : check_.recorded.used) inputs.push_back(batch_.tensors()[place]);
    ForwardResults results;
    try {
      results.outputs = runner.run(weights.tensors, inputs, layers);
    } catch (const c10::Error& error) {
      refuse(std::string("the program fails: ") + error.what_without_backtrace());
    }
    std::vector<at::Tensor> parameters;
    const std::vector<ProgramInput>& all = file_.program().inputs;
    for (std::size_t i = 0; i < weights.tensors.size(); ++i) {
      if (all[i].kind == ProgramInput::Kind::parameter) parameters.push_back(weights.tensors[i]);
      if (all[i].kind == ProgramInput::Kind::buffer) results.buffers.push_back(weights.tensors[i]);
    }
    if (check_.train) results.gradients = gradients_of(results.outputs, parameters);
    return results;
  }

  void compare(const std::string& what, const std::vector<at::Tensor>& found,
               const std::vector<at::Tensor>& wanted, double epsilons) const {
    if (found.size() != wanted.size()) refuse("the number of " + what + "s differs");
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::string name = what + " " + std::to_string(i);
      if (found[i].defined() != wanted[i].defined())
        refuse(name + (found[i].defined() ? " does not exist in the model" : " is missing"));
      if (!wanted[i].defined()) continue;
      if (found[i].sizes() != wanted[i].sizes() || found[i].scalar_type() != wanted[i].scalar_type())
        refuse(name + " has a different shape or dtype");
      const double difference = relative_difference(found[i].detach(), wanted[i].detach());
      if (!(difference <= epsilons)) refuse(name + " differs by " + number_text(difference) + " epsilons");
    }
  }

  // Returns the difference relative to the largest value, in epsilons of the dtype; 0 or infinity for
  // integers.
  static double relative_difference(const at::Tensor& found, const at::Tensor& wanted) {
    if (found.equal(wanted)) return 0;
    if (!wanted.is_floating_point()) return std::numeric_limits<double>::infinity();
    const at::Tensor a = found.to(at::kDouble), b = wanted.to(at::kDouble);
    if (!a.isfinite().equal(b.isfinite())) return std::numeric_limits<double>::infinity();
    const auto largest = [](const at::Tensor& values) {
      return values.nan_to_num(0, 0, 0).abs().max().item<double>();
    };
    const at::ScalarType type = wanted.scalar_type();
    const double epsilon = type == at::kBFloat16 ? 0x1p-7
                           : type == at::kHalf   ? 0x1p-10
                           : type == at::kDouble ? 0x1p-52
                                                 : 0x1p-23;
    return largest(a - b) / std::max(largest(b), 1.0) / epsilon;
  }

  [[noreturn]] void refuse(const std::string& found) const {
    throw Error({.place = "export of a model",
                 .found = "the program and the model differ with " + check_.sizes.text(sizes_) + ": " + found,
                 .wanted = "the same results; nothing has been written",
                 .remedy =
                     "look for branches on sizes, tensors that the host writes to, and functions with a "
                     "custom backward"});
  }

  const Pt2File& file_;
  const ProgramCheck& check_;
  const DynamicSizes::Sizes& sizes_;
  Batch batch_;
};

// Runs the program of a file and the model with sizes that have not been recorded, and compares outputs and
// buffers, in training mode also gradients. Throws Error if they differ.
void require_same_as_model(const Pt2File& file, const ProgramCheck& check) {
  for (const DynamicSizes::Sizes& sizes : check.sizes.unrecorded())
    Comparison(file, check, sizes).require_same();
}

bool is_onnx(const std::filesystem::path& path) { return path.extension() == ".onnx"; }

void require_exportable(const torch::nn::Module& model, const ExportOptions& options) {
  if (options.path.extension() != ".pt2" && !is_onnx(options.path))
    throw ConfigError({.place = "export to " + options.path.string(),
                       .found = "unsupported extension",
                       .wanted = ".pt2, for torch.export.load, or .onnx"});
  if (options.train && is_onnx(options.path))
    throw ConfigError({.place = "export to " + options.path.string(),
                       .found = "ONNX models have no training mode",
                       .wanted = ".pt2, or train = false"});
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* lazy = dynamic_cast<const LazyLayer*>(item.value().get());
    if (lazy != nullptr && !lazy->is_materialized())
      throw Error({.place = "export to " + options.path.string(),
                   .found = "the lazy layer " + item.key() + " has no parameters yet",
                   .remedy = "call model.apply_init(example) first"});
  }
}

TensorType example_type(at::ScalarType type) {
  const std::optional<TensorType> written = tensor_type_of(type);
  if (written && *written != TensorType::complex64 && row_of(*written).program > 0) return *written;
  throw Error({.place = "example of an export",
               .found = std::string("a tensor has dtype ") + c10::toString(type),
               .wanted = "a bool, integer or real floating-point dtype"});
}

// Returns ((inputs…), {}) as Python's torch.save writes it.
std::string example_bytes(const RecordedModel& recorded) {
  std::vector<TensorToWrite> leaves;
  for (const std::size_t place : recorded.used) {
    const at::Tensor& tensor = recorded.example.tensors()[place];
    leaves.push_back({"", example_type(tensor.scalar_type()), tensor.sizes().vec(), tensor.const_data_ptr(),
                      tensor.nbytes()});
  }
  return torch_file_of(recorded.program.arguments, leaves);
}

// Reads the file from memory before it is written: the check sees what readers will see.
Pt2File read_back(const Pt2Writer& writer, const std::filesystem::path& path) {
  std::string bytes;
  for (const std::string_view piece : writer.pieces()) bytes += piece;
  return Pt2File::of_bytes(std::move(bytes), path.string());
}

}  // namespace

void export_forward(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                    const ExportOptions& options, bool drops_unused_inputs) {
  require_exportable(model, options);
  OperatorRecorder::refuse("it exports a model");
  const DynamicSizes sizes(example, options);
  const RandomStateGuard random(cpu());
  const ScopedModelState state(model, ScopedModelState::Extent::values);
  const WithoutCheckpoints plainly;
  const at::AutoGradMode gradients(options.train);
  model.train(options.train);
  const RecordedModel recorded = recorded_model(model, forward, example, state, sizes, drops_unused_inputs);
  std::vector<std::string_view> storages;
  for (const at::Tensor& tensor : recorded.tensors)
    storages.emplace_back(static_cast<const char*>(tensor.storage().data()), tensor.storage().nbytes());
  const std::string examples = example_bytes(recorded);
  const Pt2Writer writer({.program = recorded.program,
                          .weights = recorded.weights,
                          .storages = storages,
                          .examples = examples,
                          .metadata = options.metadata});
  const Pt2File file = read_back(writer, options.path);
  require_same_as_model(file, {.model = model,
                               .forward = forward,
                               .example = example,
                               .state = state,
                               .recorded = recorded,
                               .sizes = sizes,
                               .train = options.train});
  is_onnx(options.path) ? write_onnx(file, options.path, sizes.names()) : writer.write(options.path);
}

void export_program(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                    const ExportOptions& options) {
  if (options.values != ExportedValues::outputs)
    throw ConfigError({.place = "export to " + options.path.string(),
                       .found = "`values` is set for a function that runs the model",
                       .wanted = "a function that returns these values itself"});
  export_forward(model, forward, example, options, /*drops_unused_inputs=*/false);
}

}  // namespace kindling
