#pragma once

#include <ATen/core/stack.h>

#include "formats/pt2/exported_program.h"

namespace kindling {

// The matrix products of mixtures of experts: groups of rows, each with a matrix of its own.
bool is_grouped_product(const ProgramNode& node);

// Returns a call of transformers' operator as one of ATen's, with its names of arguments.
ProgramNode as_aten_grouped_product(ProgramNode node);

// Replaces the arguments of aten::_grouped_mm on the stack by its result: rows `[offs[i - 1], offs[i])` of
// the first tensor times matrix i of the second, and zeros after the last offset. LibTorch's operator refuses
// widths that are not multiples of 16 bytes, and leaves these rows undefined. Waits for the device, as the
// offsets are read. Throws c10::Error for other ranks, a bias or another dtype.
void run_grouped_product(torch::jit::Stack& stack);

}  // namespace kindling
