#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "kindling/interop/exported_module.h"

namespace kindling {

// The tensors that a program takes from the user, and the shapes and dtypes that it was exported for.
class ProgramInputs {
 public:
  struct Input {
    std::string name;  // of the value
    ProgramTensor tensor;
  };

  // Throws CheckpointError for a program with dynamic numbers as inputs.
  explicit ProgramInputs(const ExportedProgram& program);

  const std::vector<Input>& all() const noexcept { return inputs_; }

  // Throws DataError for tensors that the program was not exported for. Takes as many tensors as all().
  void check(std::span<const at::Tensor> inputs) const;

 private:
  std::vector<Input> inputs_{};
  std::map<std::string, std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>> ranges_;
  bool has_narrow_weights_ = false;
};

// Returns the sizes of the first dimension of the first input of the user; none if it is constant, or if it
// is neither a symbol nor a multiple of one.
std::optional<BatchSizes> batch_sizes_of(const ExportedProgram& program);

}  // namespace kindling
