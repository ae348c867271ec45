#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "formats/pt2/exported_program.h"
#include "kindling/formats/safetensors.h"

// Return pickle instructions (protocol 2) that push a value on the machine's stack.
namespace kindling {

std::string pickled_integer(std::int64_t number);
std::string pickled_real(double number);
std::string pickled_text(std::string_view text);
std::string pickled_name(std::string_view module_and_name);
std::string pickled_tuple(std::span<const std::int64_t> numbers);
// In row-major order, at the start of a separate storage: _rebuild_tensor_v2(storage, offset, sizes, strides,
// needs a gradient, hooks).
std::string pickled_tensor_of(const TensorToWrite& tensor, std::size_t storage);

// Returns the bytes of a file that Python's torch.load reads (weights_only=True) as `tree`, whose leaves are
// these tensors, in order. The tensors' names are ignored.
std::string torch_file_of(const ProgramTree& tree, std::span<const TensorToWrite> leaves);

}  // namespace kindling
