#pragma once

#include <filesystem>

#include "kindling/tensors/batch.h"

namespace kindling {

// Throws ConfigError unless the `python3` on the PATH can import onnxruntime.
void require_onnxruntime();

// Runs an ONNX model and the same program as a .pt2 on the first inputs of a batch, the former in Python's
// onnxruntime, and prints the largest difference. Files are written to the folder of `pt2`. Throws Error if
// it exceeds `tolerance` times the largest output, or if onnxruntime cannot run the model.
void compare_with_onnxruntime(const std::filesystem::path& onnx, const std::filesystem::path& pt2,
                              const Batch& batch, double tolerance);

}  // namespace kindling
