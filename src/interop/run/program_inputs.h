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

namespace kindling {

// The user's tensors that a program takes, and for which of them it was exported.
class ProgramInputs {
 public:
  struct Input {
    std::string name;  // of the value
    ProgramTensor tensor;
  };

  // Throws CheckpointError for a program that asks for numbers.
  explicit ProgramInputs(const ExportedProgram& program);

  const std::vector<Input>& all() const noexcept { return inputs_; }

  // Throws DataError for tensors that the program was not exported for; as many as all().
  void check(std::span<const at::Tensor> inputs) const;

 private:
  std::vector<Input> inputs_{};
  std::map<std::string, std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>> ranges_;
};

}  // namespace kindling
