#include "programs/program_check.h"

#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "programs/loaded_weights.h"
#include "programs/program_runner.h"

namespace kindling {
namespace {

// Of the largest value. The same operators run, but memory may lie otherwise (reshape stands for view), and
// then products and sums are added up in another order; gradients are sums over the batch besides.
constexpr double kEpsilons = 8, kGradientEpsilons = 64;

// What a forward has left behind.
struct ForwardResults {
  std::vector<at::Tensor> outputs{}, buffers{}, gradients{};
};

// Of the sum of all outputs, each value of which has another weight: such as softmax's add up to a constant.
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
    const ForwardResults wanted = of_model();
    check_.state.put_back();
    set_random_state(cpu(), random);
    const ForwardResults found = of_program();
    compare("output", found.outputs, wanted.outputs, kEpsilons);
    compare("the new value of buffer", found.buffers, wanted.buffers, kEpsilons);
    compare("the gradient of parameter", found.gradients, wanted.gradients, kGradientEpsilons);
  }

 private:
  ForwardResults of_model() const {
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

  ForwardResults of_program() const {
    const LoadedWeights weights = load_weights_of(file_);
    const ProgramRunner runner(file_.program());
    const torch::nn::Module as_recorded;  // in training mode: what was recorded so works so
    const std::vector<const torch::nn::Module*> layers(runner.layers().size(), &as_recorded);
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
    if (found.size() != wanted.size()) refuse(what + "s are not as many");
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::string name = what + " " + std::to_string(i);
      if (found[i].defined() != wanted[i].defined())
        refuse(name + (found[i].defined() ? " is not the model's" : " is missing"));
      if (!wanted[i].defined()) continue;
      if (found[i].sizes() != wanted[i].sizes() || found[i].scalar_type() != wanted[i].scalar_type())
        refuse(name + " has another shape or dtype");
      const double difference = relative_difference(found[i].detach(), wanted[i].detach());
      if (!(difference <= epsilons)) refuse(name + " differs by " + number_text(difference) + " epsilons");
    }
  }

  // In epsilons of the dtype, of the largest value; of integers: 0, or infinity.
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
                 .wanted = "the same; nothing has been written",
                 .remedy = "look for branches on sizes, for tensors that the host writes to, and for "
                           "functions with a backward of their own"});
  }

  const Pt2File& file_;
  const ProgramCheck& check_;
  const DynamicSizes::Sizes& sizes_;
  Batch batch_;
};

}  // namespace

void require_same_as_model(const Pt2File& file, const ProgramCheck& check) {
  for (const DynamicSizes::Sizes& sizes : check.sizes.unrecorded())
    Comparison(file, check, sizes).require_same();
}

}  // namespace kindling
