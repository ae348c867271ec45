#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/batch.h"

// Models of C++ for Python: files that torch.export.load reads, written without Python.
namespace kindling {

// Runs a model: inputs → outputs.
using BatchFunction = std::function<Batch(const Batch&)>;

// A size of the inputs, beside the batch's, that may be another one whenever the program runs.
struct DynamicSize {
  // A dimension of one of the example's tensors, which are counted depth first.
  struct Place {
    std::size_t tensor = 0;
    std::int64_t dim = 1;  // negative: from the end
  };
  std::string name{};           // for messages and in ONNX: "sequence"
  std::vector<Place> places{};  // where it stands; all of them change together
  // The least and the largest one, such as the length of a table of positions. Both are tried. Without them
  // the program says from 1 on, without an end.
  std::optional<std::int64_t> min{}, max{};
  // Only multiples are taken: 4 where a network halves an image twice.
  std::int64_t multiple_of = 1;
};

struct ExportOptions {
  // Of the file, model.pt2, or model.onnx (opset 20, for onnxruntime and others); its folder exists.
  std::filesystem::path path{};
  // The program runs with any batch size; otherwise with the example's alone.
  bool dynamic_batch = true;
  // The forward of training mode, to be trained on in Python: dropout draws, statistics move. Otherwise that
  // of evaluation mode. A program has one of the two permanently.
  bool train = false;
  // More sizes that are dynamic: {{.name = "sequence", .places = {{0, 1}}, .max = 1024}}. With the batch's,
  // up to four.
  std::vector<DynamicSize> dynamic_sizes{};
};

// Writes the model's forward_inputs() as a program of ATen operators with the model's weights under their
// names. What it uses of the example becomes the program's inputs: a tensor that no operator touches, as
// labels, is none. In Python the parts of a list are arguments, a map is one argument, a dict.
//
// The forward runs a few times, on the CPU, with batches made of the example: along a dynamic size, what is
// there is repeated or left out. Tensors as long as the first one along dimension 0 have a sample in each
// row; others stay as they are, but for the sizes that are named. Before the file gets its name it is read
// back, run with sizes that have not been recorded and with the bounds, and compared with the model.
// Afterwards the model, its modes and LibTorch's random numbers are what they were, also when this throws.
//
// Throws Error that names the operator and the layer for a forward that is no program: the host reads values
// or a shape depends on them, a number is no sum of products of the dynamic sizes, operators are not
// PyTorch's own; ConfigError for sizes that the example does not have. What it cannot see is a branch on a
// size that is taken alike by all sizes tried (of the batch 3, 5, 7, 10, 11, 12). For ONNX operators without
// a form there are refused, too.
KINDLING_API void export_program(Module& model, const Batch& example, const ExportOptions& options);

// The same of any module, by a function that runs it: all tensors of the example are inputs, and the result
// may be one tensor (Batch::leaf), a list of several, which Python gets as a tuple, or a map, as a dict.
KINDLING_API void export_program(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                                 const ExportOptions& options);

// Converts a program that torch.export.save or export_program() has written to ONNX. Throws CheckpointError
// for a program in training mode or with an operator that ONNX does not have, which it names with its layer.
KINDLING_API void convert_to_onnx(const std::filesystem::path& pt2, const std::filesystem::path& onnx);

}  // namespace kindling
