#include "kindling/programs/compiled_package.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/number_text.h"
#include "kindling/nn/evaluation_guard.h"
#include "programs/compiled_code.h"
#include "programs/exported_module_program.h"
#include "programs/package_values.h"
#include "programs/program_types.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// Of the largest value. Compiled code adds up in another order, and layer by layer that grows; what was
// compiled from another program, or in training mode, is no nearer than the model's own values are large.
double tolerance_for(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16 ? 0.1 : 1e-3; }

// How an input lay in memory: its dimensions, that with the largest stride first. Sizes of 1 lie anyhow.
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
                             .found = "it was exported with gaps in memory",
                             .remedy = "export it with an example that is contiguous"});
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

// Of the example's shape. Numbers that are an index somewhere fit as 0.
at::Tensor made_up(const ProgramTensor& like) {
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
                     .found = std::to_string(given.size()) + " tensors are given",
                     .wanted = std::to_string(orders.size()) + ", as the program was exported"});
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
  std::vector<at::Tensor> here, there;
  const auto& weights = model.program_->weights.tensors;
  for (const ProgramInputs::Input& input : inputs.all()) {
    const at::Tensor made = made_up(input.tensor);
    here.push_back(made.to(code->device()));
    there.push_back(weights.empty() ? made : made.to(weights[0].device()));
  }
  const std::vector<at::Tensor> found = run(here), wanted = model.run(there);
  double largest = found.size() == wanted.size() ? 0 : std::numeric_limits<double>::infinity();
  double allowed = 0;
  for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    largest = std::max(largest, relative_difference(found[i], wanted[i]));
    allowed = std::max(allowed, tolerance_for(wanted[i].scalar_type()));
  }
  if (largest <= allowed) return;
  throw CheckpointError({.place = code->place(),
                         .found = "with the model's weights its outputs differ from the model's by " +
                                  number_text(largest) + " of the largest value",
                         .wanted = "the outputs of model.eval()",
                         .remedy =
                             "compile the model's own program, exported after model.eval(); for a model "
                             "that draws random numbers in evaluation mode, too, say compare = false"});
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
