#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>

#include "interop/run/exported_module_program.h"
#include "interop/run/program_inputs.h"
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

// Returns the inputs with other values in all rows from `valid` on.
std::vector<at::Tensor> with_other_rows(const std::vector<at::Tensor>& rows,
                                        std::span<const at::Tensor> inputs, std::int64_t valid) {
  std::vector<at::Tensor> others = rows;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (others[i].is_same(inputs[i])) continue;  // it has no samples
    others[i] = others[i].clone();
    const at::Tensor filled = others[i].narrow(0, valid, others[i].size(0) - valid);
    if (filled.is_floating_point())
      filled.mul_(-3);
    else
      filled.zero_();
  }
  return others;
}

bool are_equal(const at::Tensor& one, const at::Tensor& other) {
  return one.is_floating_point() ? at::allclose(one, other, 0, 0, /*equal_nan=*/true) : one.equal(other);
}

}  // namespace

std::optional<std::int64_t> ExportedModule::fixed_batch_size(bool train) const {
  const bool is_evaluation = program_->evaluation && !train;
  const ExportedProgram& program = is_evaluation ? program_->evaluation->program() : program_->file.program();
  for (const ProgramInput& input : program.inputs) {
    const auto* name = std::get_if<TensorName>(&input.argument.value);
    if (input.kind != ProgramInput::Kind::user || name == nullptr) continue;
    const std::vector<ProgramSize>& sizes = program.tensors.at(name->name).sizes;
    if (sizes.empty() || !sizes[0].expression.empty()) return std::nullopt;
    return sizes[0].number;
  }
  return std::nullopt;
}

std::size_t ExportedModule::num_inputs() const { return program_->runner.num_inputs(); }

std::optional<BatchSizes> ExportedModule::batch_sizes(bool train) const {
  const bool is_evaluation = program_->evaluation && !train;
  return batch_sizes_of(is_evaluation ? program_->evaluation->program() : program_->file.program());
}

std::vector<at::Tensor> ExportedModule::run_by_rows(std::span<const at::Tensor> inputs, std::int64_t fixed) {
  const std::int64_t samples = inputs[0].size(0);
  std::vector<std::vector<at::Tensor>> parts;
  for (std::int64_t begin = 0; begin < samples; begin += fixed) {
    const std::vector<at::Tensor> rows = rows_of_each(inputs, samples, begin, fixed);
    std::vector<at::Tensor> outputs = run_program(rows);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].dim() == 0 || outputs[i].size(0) != fixed)
        refuse_rows(fixed, samples, "its output " + std::to_string(i + 1) + " has no row per sample");
    const std::int64_t valid = std::min(fixed, samples - begin);
    for (at::Tensor& output : outputs) output = output.narrow(0, 0, valid);
    if (valid < fixed) check_filled(outputs, with_other_rows(rows, inputs, valid), samples);
    parts.resize(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) parts[i].push_back(outputs[i]);
  }
  std::vector<at::Tensor> outputs;
  for (const std::vector<at::Tensor>& part : parts)
    outputs.push_back(part.size() == 1 ? part[0] : at::cat(part));
  return outputs;
}

// Runs rows of which the last ones have other values: they must not change the outputs of the first ones.
void ExportedModule::check_filled(const std::vector<at::Tensor>& outputs,
                                  const std::vector<at::Tensor>& others, std::int64_t samples) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> changed = run_program(others);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!are_equal(outputs[i], changed[i].narrow(0, 0, outputs[i].size(0))))
      refuse_rows(changed[i].size(0), samples,
                  "a row of its output " + std::to_string(i + 1) +
                      " depends on the other rows or on random numbers, as with statistics of the batch");
}

}  // namespace kindling
