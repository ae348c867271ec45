#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

#include "interop/run/exported_module_program.h"
#include "kindling/base/error.h"

// Evaluation of programs that were exported for one batch size, with batches of other sizes.
namespace kindling {
namespace {

constexpr const char* kPlace = "a program that was exported for one batch size";

[[noreturn]] void refuse_rows(std::int64_t fixed, std::int64_t given, const std::string& found) {
  const std::string wanted = "batches of " + std::to_string(fixed) + " samples";
  throw DataError({.place = kPlace,
                   .found = "the batch has " + std::to_string(given) + " samples, and " + found,
                   .wanted = wanted,
                   .remedy = "set batch_size = " + std::to_string(fixed) +
                             " and use multiples of it, or export the model with a dynamic batch size "
                             "(dynamic_shapes)"});
}

// Rows `begin` to `begin + count` of the tensors that have `samples` rows; after the last one again from the
// first.
std::vector<at::Tensor> rows_of_each(std::span<const at::Tensor> inputs, std::int64_t samples,
                                     std::int64_t begin, std::int64_t count) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& input : inputs) {
    const bool has_samples = input.dim() > 0 && input.size(0) == samples;
    if (!has_samples) {
      rows.push_back(input);
    } else if (begin + count <= samples) {
      rows.push_back(input.narrow(0, begin, count));
    } else {
      const at::Tensor places = at::arange(begin, begin + count, at::dtype(at::kLong).device(input.device()));
      rows.push_back(input.index_select(0, places.remainder(samples)));
    }
  }
  return rows;
}

bool are_close(const at::Tensor& one, const at::Tensor& other) {
  if (!one.is_floating_point()) return one.equal(other);
  const double largest = one.abs().nan_to_num(0, 0, 0).amax().item<double>();
  return at::allclose(one, other, 0, 1e-4 * largest, /*equal_nan=*/true);
}

}  // namespace

std::optional<std::int64_t> ExportedModule::fixed_batch_size() const {
  const ExportedProgram& program =
      uses_evaluation_program() ? program_->evaluation->program() : program_->file.program();
  for (const ProgramInput& input : program.inputs) {
    const auto* name = std::get_if<TensorName>(&input.argument.value);
    if (input.kind != ProgramInput::Kind::user || name == nullptr) continue;
    const std::vector<ProgramSize>& sizes = program.tensors.at(name->name).sizes;
    if (sizes.empty() || !sizes[0].expression.empty()) return std::nullopt;
    return sizes[0].number;
  }
  return std::nullopt;
}

std::vector<at::Tensor> ExportedModule::run_by_rows(std::span<const at::Tensor> inputs, std::int64_t fixed) {
  const std::int64_t samples = inputs[0].size(0);
  if (!program_->has_checked_rows) check_rows(inputs, fixed);
  program_->has_checked_rows = true;
  std::vector<std::vector<at::Tensor>> parts;
  for (std::int64_t begin = 0; begin < samples; begin += fixed) {
    std::vector<at::Tensor> outputs = run_program(rows_of_each(inputs, samples, begin, fixed));
    parts.resize(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i)
      parts[i].push_back(outputs[i].narrow(0, 0, std::min(fixed, samples - begin)));
  }
  std::vector<at::Tensor> outputs;
  for (const std::vector<at::Tensor>& part : parts)
    outputs.push_back(part.size() == 1 ? part[0] : at::cat(part));
  return outputs;
}

// Runs the rows a second time, one place further in front and with another last row: what they give must not
// depend on their place, nor on the other rows.
void ExportedModule::check_rows(std::span<const at::Tensor> inputs, std::int64_t fixed) {
  const at::NoGradGuard no_grad;
  const std::int64_t samples = inputs[0].size(0);
  const std::vector<at::Tensor> rows = rows_of_each(inputs, samples, 0, fixed);
  std::vector<at::Tensor> others = rows_of_each(inputs, samples, 1, fixed);
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (others[i].is_same(inputs[i])) continue;
    others[i] = others[i].clone();
    others[i][fixed - 1].zero_();
  }
  const std::vector<at::Tensor> outputs = run_program(rows), changed = run_program(others);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dim() == 0 || outputs[i].size(0) != fixed)
      refuse_rows(fixed, samples, "its output " + std::to_string(i + 1) + " has no row per sample");
    if (fixed > 1 && !are_close(outputs[i].narrow(0, 1, fixed - 1), changed[i].narrow(0, 0, fixed - 1)))
      refuse_rows(fixed, samples,
                  "a row of its output " + std::to_string(i + 1) +
                      " depends on the other rows or on random numbers, as with statistics of the batch");
  }
}

}  // namespace kindling
