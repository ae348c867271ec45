#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/batch.h"

// Exports C++ models for Python: writes files that torch.export.load reads, without Python.
namespace kindling {

class DataModule;

// Runs a model: inputs → outputs.
using BatchFunction = std::function<Batch(const Batch&)>;

// A size of the inputs, in addition to the batch size, that may differ between runs of the program.
struct DynamicSize {
  // A dimension of one of the example's tensors, which are counted depth first.
  struct Place {
    std::size_t tensor = 0;
    std::int64_t dim = 1;  // negative: from the end
  };
  std::string name{};           // for messages and in ONNX: "sequence"
  std::vector<Place> places{};  // the dimensions with this size; they change together
  // The smallest and the largest size, such as the length of a table of positions. The export tries both,
  // except for a dimension 0 of more than 128. If absent, the program accepts any size from 1 on.
  std::optional<std::int64_t> min{}, max{};
  // Only multiples of this are allowed: 4 if a network halves an image twice.
  std::int64_t multiple_of = 1;
};

// What an exported classifier returns: the outputs of its forward [batch, classes, …], their softmax over the
// classes, or the class with the largest output, int64 [batch, …].
enum class ExportedValues { outputs, probabilities, labels };

struct ExportOptions {
  // The file to write: model.pt2, or model.onnx (opset 20, for onnxruntime and others). Its directory must
  // exist.
  std::filesystem::path path{};
  // Allows any batch size; otherwise only that of the example.
  bool dynamic_batch = true;
  // Exports the forward of training mode, for further training in Python: dropout is active and running
  // statistics are updated. Otherwise exports that of evaluation mode. A program cannot switch between the
  // two.
  bool train = false;
  // Exports the model with its input transform (input_transform.h) first: the example is a batch as a loader
  // returns it, and the program takes such raw inputs, in the dtype InputTransform::program_input_type(): it
  // refuses float32 if that is float64. Without effect for a model without a transform.
  bool input_transform = false;
  // For export_program() of a Module, in evaluation mode; all but `outputs` require a Classifier.
  ExportedValues values = ExportedValues::outputs;
  // Texts to store in the file by name: `extra_files` of torch.export.load, metadata of an ONNX model. UTF-8.
  std::map<std::string, std::string> metadata{};
  // Further dynamic sizes: {{.name = "sequence", .places = {{0, 1}}, .max = 1024}}. At most four, with the
  // batch size.
  std::vector<DynamicSize> dynamic_sizes{};
};

// Writes the model's forward_inputs() as a program of ATen operators, with the model's weights under their
// names. The tensors of the example that the forward uses become the program's inputs; a tensor that no
// operator uses, such as labels, does not. In Python the elements of a list are separate arguments, and a map
// is one argument, a dict.
//
// Runs the forward a few times on the CPU, with batches derived from the example: along a dynamic size,
// existing values are repeated or omitted. Tensors whose dimension 0 is as long as that of the first tensor
// have a sample in each row; others stay unchanged except for the named sizes. Before the file gets its final
// name it is read back, run with sizes that were not captured and with the bounds, and compared with the
// model. Afterwards the model, its modes and LibTorch's random state are restored, even if this throws.
//
// Throws Error, which names the operator and the layer, for a forward that cannot be exported: the host reads
// values, or a shape depends on them; a number is not a sum of products of the dynamic sizes; operators are
// not PyTorch's own. Throws ConfigError for sizes that the example does not have. It cannot detect a branch
// on a size that all sizes tried take alike (3, 5, 7, 10, 11 and 12 for the batch size). For ONNX, operators
// without an ONNX form are refused too.
KINDLING_API void export_program(Module& model, const Batch& example, const ExportOptions& options);

// Exports the model with what `data` does to a batch for prediction first (on_after_batch_transfer(), such as
// the scaling of pixels and validation transforms), so that the program takes batches as a loader returns
// them: uint8 images [batch, channels, height, width]; the first input has the dtype
// DataModule::program_input_type(). The example is the first batch of predict_dataloader(), or else of
// train_dataloader(). The names of a classifier's classes become the
// metadata "class_names", a JSON list, unless it is set. The data must name the classes as it did for the
// training: of directories that have changed since, the names are wrong.
// Throws ConfigError for data that pass their batches on unchanged or whose transforms are random, and for
// another number of names than of outputs.
KINDLING_API void export_program(Module& model, DataModule& data, const ExportOptions& options);

// Exports any module by a function that runs it: all tensors of the example are inputs. The result may be one
// tensor (Batch::leaf), a list, which Python gets as a tuple, or a map, which Python gets as a dict.
KINDLING_API void export_program(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                                 const ExportOptions& options);

// Converts a program written by torch.export.save or export_program() to ONNX. Throws CheckpointError for a
// program in training mode or with an operator that ONNX lacks, which it names with its layer.
KINDLING_API void convert_to_onnx(const std::filesystem::path& pt2, const std::filesystem::path& onnx);

}  // namespace kindling
