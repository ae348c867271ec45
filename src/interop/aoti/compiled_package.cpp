#include "kindling/interop/compiled_package.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "interop/run/exported_module_program.h"
#include "interop/run/program_inputs.h"
#include "interop/run/program_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/number_text.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/nn/evaluation_guard.h"
#include "tensors/shape_text.h"

namespace kindling {

// An AOTInductor package: code, and the constants that it uses in addition to its inputs. Independent of
// programs. Throws CheckpointError for errors of LibTorch.
class CompiledCode {
 public:
  explicit CompiledCode(const std::filesystem::path& path);

  const std::string& place() const noexcept { return place_; }  // for messages
  at::Device device() const noexcept { return device_; }

  // Returns the constants by the names of the weights in Python, without those that the code computes from
  // others. The tensors belong to the code and are valid until the next replace().
  std::map<std::string, at::Tensor> constants() const;

  // Replaces all constants() by copies of `values`, from any device, in one step. Shapes and dtypes must
  // match.
  void replace(const std::map<std::string, at::Tensor>& values);

  // The inputs must have the memory layout that the code was compiled for, which it does not check.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

 private:
  std::string place_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
  at::Device device_ = at::kCPU;
};

namespace {

// LibTorch throws errors of several types, some with many lines.
template <class Call>
auto named(const std::string& place, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw CheckpointError(
        {.place = place,
         .found = "LibTorch reports: " + one_line(text.substr(0, text.find('\n'))),
         .wanted = "a package of torch._inductor.aoti_compile_and_package, compiled for this type of machine",
         .remedy = "recompile it with the PyTorch version that matches this LibTorch"});
  }
}

}  // namespace

CompiledCode::CompiledCode(const std::filesystem::path& path) : place_(path.string()) {
  if (!std::filesystem::is_regular_file(path))
    throw CheckpointError({.place = place_, .found = "no such file"});
  named(place_, [&] {
    loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(path.string());
    device_ = at::Device(loader_->get_metadata()["AOTI_DEVICE_KEY"]);
  });
}

std::map<std::string, at::Tensor> CompiledCode::constants() const {
  return named(place_, [&] {
    const auto constants = loader_->get_runner()->extract_constants_map(/*use_inactive=*/false);
    return std::map<std::string, at::Tensor>(constants.begin(), constants.end());
  });
}

// There are two sets of constants, and the code uses the active one. An update fills the other one, so that
// running calls keep theirs; the two are swapped between calls. Constants that the code computes from others
// are computed again in the next call.
void CompiledCode::replace(const std::map<std::string, at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  named(place_, [&] {
    torch::inductor::AOTIModelContainerRunner& runner = *loader_->get_runner();
    const std::map<std::string, at::Tensor> now = constants();
    std::unordered_map<std::string, at::Tensor> by_inner_name;
    const auto names = runner.getConstantNamesToOriginalFQNs();
    for (const auto& [inner_name, name] : names) {
      const auto known = now.find(name);
      if (known == now.end()) continue;  // computed
      const at::Tensor& old = known->second;
      // The update copies the whole storage of a value and its strides, so it needs a tensor without anything
      // else in its storage, in the layout that the code was compiled for.
      by_inner_name[inner_name] =
          at::empty_strided(old.sizes(), old.strides(), old.options()).copy_(values.at(name));
    }
    runner.update_constant_buffer(by_inner_name, /*use_inactive=*/true, /*validate_full_updates=*/true);
    runner.swap_constant_buffer();
    // On a device, kernels of earlier calls may still read the old constants. And if some are computed, the
    // next update would read the freed ones.
    if (device_.is_cpu() && names.size() == now.size()) runner.free_inactive_constant_buffer();
  });
}

std::vector<at::Tensor> CompiledCode::run(const std::vector<at::Tensor>& inputs) {
  return named(place_, [&] { return loader_->run(inputs); });
}

namespace {

void add_names(const ProgramArgument& argument, std::set<std::string>& names) {
  if (const auto* tensor = std::get_if<TensorName>(&argument.value)) names.insert(tensor->name);
  if (const auto* list = std::get_if<ProgramList>(&argument.value))
    for (const ProgramArgument& item : list->items) add_names(item, names);
}

// Returns the values that an operator uses or that are outputs.
std::set<std::string> used_names(const ExportedProgram& program) {
  std::set<std::string> names;
  for (const ProgramNode& node : program.nodes)
    for (const ProgramNode::Input& input : node.inputs) add_names(input.argument, names);
  for (const ProgramOutput& output : program.outputs) add_names(output.argument, names);
  return names;
}

// True if outputs in evaluation mode can depend on the input. Batch norms count batches only for training.
bool can_matter(const ProgramInput& input, const std::set<std::string>& used) {
  return !input.target.ends_with("num_batches_tracked") &&
         used.contains(std::get<TensorName>(input.argument.value).name);
}

// Constants and non-persistent buffers always have the values of the file.
bool can_change(const ProgramInput& input) {
  return input.kind == ProgramInput::Kind::parameter ||
         (input.kind == ProgramInput::Kind::buffer && input.is_persistent);
}

// True for constants that were not in the exported program: Python added them while it compiled.
bool is_added_by_python(const std::string& name) {
  constexpr std::string_view kBeginnings[] = {"_tensor_constant", "lifted_tensor_", "constant"};
  return std::ranges::any_of(kBeginnings, [&](std::string_view beginning) {
    return name.starts_with(beginning) && name.size() > beginning.size() &&
           name.find_first_not_of("0123456789", beginning.size()) == std::string::npos;
  });
}

using Constants = std::map<std::string, at::Tensor>;

// Returns the input of each weight, in their order.
std::vector<const ProgramInput*> inputs_of_weights(const ExportedProgram& program) {
  std::vector<const ProgramInput*> inputs;
  for (const ProgramInput& input : program.inputs)
    if (input.kind != ProgramInput::Kind::user) inputs.push_back(&input);
  return inputs;
}

void require_same_types(const Constants& values, const Constants& constants, const std::string& place) {
  std::vector<std::string> misfits;
  for (const auto& [name, value] : values) {
    const at::Tensor& constant = constants.at(name);
    if (value.sizes() != constant.sizes() || value.scalar_type() != constant.scalar_type())
      misfits.push_back(name + " (" + type_text(value) + ", in the package " + type_text(constant) + ")");
  }
  if (!misfits.empty())
    throw CheckpointError(
        {.place = place,
         .found = "the weights of the model do not match those of the package: " + list_names(misfits),
         .wanted = "the same shapes and dtypes",
         .remedy = "compile the program that the model was loaded from"});
}

// Tied weights have one constant, under one of their names.
void require_constant_for_all(const ExportedProgram& program, std::span<const at::Tensor> weights,
                              const Constants& values, const std::string& place) {
  std::set<const void*> placed;
  for (const auto& [name, value] : values) placed.insert(value.unsafeGetTensorImpl());
  const std::set<std::string> used = used_names(program);
  const std::vector<const ProgramInput*> inputs = inputs_of_weights(program);
  std::vector<std::string> left;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (can_change(*inputs[i]) && can_matter(*inputs[i], used) &&
        !placed.contains(weights[i].unsafeGetTensorImpl()))
      left.push_back(inputs[i]->target);
  if (!left.empty())
    throw CheckpointError(
        {.place = place,
         .found = "the compiled code contains fixed values for " + list_names(left),
         .wanted = "a constant for every weight of the model",
         .remedy = "compile the program that the model was loaded from, with "
                   "inductor_configs={\"always_keep_tensor_constants\": True} and without freezing"});
}

// Returns the values of all constants of the compiled code by name, from the weights of a program, which are
// in the order of program.inputs without the user inputs. Throws CheckpointError unless each constant is a
// weight of the same shape and dtype, and each weight that the outputs depend on has a constant.
Constants values_for(const CompiledCode& code, const ExportedProgram& program,
                     std::span<const at::Tensor> weights) {
  const Constants constants = code.constants();
  const std::vector<const ProgramInput*> inputs = inputs_of_weights(program);
  Constants values;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (constants.contains(inputs[i]->target)) values[inputs[i]->target] = weights[i];
  std::vector<std::string> unknown;
  for (const auto& [name, constant] : constants)
    if (is_added_by_python(name))
      values.emplace(name, constant);
    else if (!values.contains(name))
      unknown.push_back(name);
  if (!unknown.empty())
    throw CheckpointError(
        {.place = code.place(),
         .found = "the compiled code uses " + list_names(unknown) + ", which the model does not have",
         .wanted = "a package compiled from the program of the model",
         .remedy = "compile the program that the model was loaded from, without freezing"});
  require_same_types(values, constants, code.place());
  require_constant_for_all(program, weights, values, code.place());
  return values;
}

// Relative to the largest value. Compiled code sums in another order, and the difference grows from layer to
// layer; a package of another program, or in training mode, differs by about the size of the values.
double tolerance_for(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16 ? 0.1 : 1e-3; }

// Returns the dimensions of an input by decreasing stride. The strides of dimensions of size 1 do not matter.
std::vector<std::int64_t> memory_order(const ProgramInputs::Input& input) {
  const ProgramTensor& tensor = input.tensor;
  std::vector<std::int64_t> order(tensor.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::int64_t d) {
    return tensor.strides[static_cast<std::size_t>(d)].number;
  });
  std::int64_t stride = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    const auto at = static_cast<std::size_t>(*d);
    if (tensor.sizes[at].number != 1 && tensor.strides[at].number != stride)
      throw CheckpointError({.place = "input " + json_string(input.name) + " of the exported program",
                             .found = "it was exported with a non-contiguous example",
                             .remedy = "export it with a contiguous example"});
    stride *= tensor.sizes[at].number;
  }
  return order;
}

at::Tensor in_memory_order(const at::Tensor& tensor, const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return tensor.permute(order).contiguous().permute(back);
}

// Returns an input of the example's shape. Integers are 0, which is a valid index.
at::Tensor synthetic_input(const ProgramTensor& like) {
  std::vector<std::int64_t> sizes;
  for (const ProgramSize& size : like.sizes) sizes.push_back(size.number);
  const at::ScalarType type = scalar_type_of(like.type);
  if (type == at::kBool) return at::ones(sizes, type);
  if (!at::isFloatingType(type)) return at::zeros(sizes, type);
  const std::int64_t count = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies());
  return at::arange(count, at::kDouble).sin().reshape(sizes).to(type);
}

double relative_difference(const at::Tensor& found, const at::Tensor& wanted) {
  if (found.sizes() != wanted.sizes() || found.scalar_type() != wanted.scalar_type())
    return std::numeric_limits<double>::infinity();
  const at::Tensor a = found.to(at::kCPU, at::kDouble), b = wanted.to(at::kCPU, at::kDouble);
  if (a.numel() == 0 || a.equal(b)) return 0;
  if (!a.isfinite().equal(b.isfinite())) return std::numeric_limits<double>::infinity();
  const auto largest = [](const at::Tensor& values) {
    return values.nan_to_num(0, 0, 0).abs().max().item<double>();
  };
  return largest(a - b) / std::max(largest(b), 1e-30);
}

}  // namespace

struct CompiledPackage::Impl {
  Impl(const std::filesystem::path& path, const ExportedModule& model);

  void compare_with(ExportedModule& model) const;
  std::vector<at::Tensor> run(std::span<const at::Tensor> inputs) const;

  std::unique_ptr<CompiledCode> code;
  ProgramInputs inputs;
  std::vector<std::vector<std::int64_t>> orders{};  // of the inputs' dimensions in memory
};

CompiledPackage::Impl::Impl(const std::filesystem::path& path, const ExportedModule& model)
    : code(std::make_unique<CompiledCode>(path)), inputs(model.program_->file.program()) {
  for (const ProgramInputs::Input& input : inputs.all()) orders.push_back(memory_order(input));
}

std::vector<at::Tensor> CompiledPackage::Impl::run(std::span<const at::Tensor> given) const {
  if (given.size() != orders.size())
    throw DataError({.place = "CompiledPackage",
                     .found = "got " + std::to_string(given.size()) + " tensors",
                     .wanted = std::to_string(orders.size()) + ", the number of inputs of the program"});
  inputs.check(given);
  std::vector<at::Tensor> laid_out;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const ProgramInputs::Input& input = inputs.all()[i];
    const at::ScalarType type = scalar_type_of(input.tensor.type);
    if (given[i].scalar_type() != type || given[i].device().type() != code->device().type())
      throw DataError({.place = "input " + json_string(input.name) + " of the compiled program",
                       .found = "it is " + type_text(given[i]) + " on " + given[i].device().str(),
                       .wanted = std::string(c10::toString(type)) + " on " + code->device().str()});
    laid_out.push_back(in_memory_order(given[i].detach(), orders[i]));
  }
  return code->run(laid_out);
}

void CompiledPackage::Impl::compare_with(ExportedModule& model) const {
  const EvaluationGuard evaluation(model);
  std::vector<at::Tensor> package_inputs, model_inputs;
  const auto& weights = model.program_->weights.tensors;
  for (const ProgramInputs::Input& input : inputs.all()) {
    const at::Tensor made = synthetic_input(input.tensor);
    package_inputs.push_back(made.to(code->device()));
    model_inputs.push_back(weights.empty() ? made : made.to(weights[0].device()));
  }
  const std::vector<at::Tensor> found = run(package_inputs), wanted = model.run(model_inputs);
  double largest = found.size() == wanted.size() ? 0 : std::numeric_limits<double>::infinity();
  double allowed = 0;
  for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    largest = std::max(largest, relative_difference(found[i], wanted[i]));
    allowed = std::max(allowed, tolerance_for(wanted[i].scalar_type()));
  }
  if (largest <= allowed) return;
  throw CheckpointError(
      {.place = code->place(),
       .found = "with the same weights, its outputs differ from those of the model by " +
                number_text(largest) + " of the largest value",
       .wanted = "the outputs of model.eval()",
       .remedy = "compile the program that the model was loaded from, exported after model.eval(); "
                 "set compare = false for a model that draws random numbers in evaluation mode"});
}

CompiledPackage::CompiledPackage(const std::filesystem::path& path, ExportedModule& model,
                                 CompiledPackageOptions options)
    : impl_(std::make_unique<Impl>(path, model)) {
  set_weights(model);
  if (options.compare) impl_->compare_with(model);
}

CompiledPackage::~CompiledPackage() = default;

void CompiledPackage::set_weights(const ExportedModule& model) {
  CompiledCode& code = *impl_->code;
  code.replace(values_for(code, model.program_->file.program(), model.program_->weights.tensors));
}

std::vector<at::Tensor> CompiledPackage::run(std::span<const at::Tensor> inputs) const {
  return impl_->run(inputs);
}

at::Tensor CompiledPackage::forward(const at::Tensor& input) const { return run({&input, 1})[0]; }

}  // namespace kindling
