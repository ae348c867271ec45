#include "kindling/programs/export_program.h"

#include <algorithm>

#include "formats/pt2_file.h"
#include "formats/pt2_writer.h"
#include "formats/torch_tree.h"
#include "graph/operator_recorder.h"
#include "kindling/base/error.h"
#include "kindling/tensors/lazy.h"
#include "programs/model_as_it_was.h"
#include "programs/program_check.h"
#include "programs/recorded_model.h"
#include "programs/write_onnx.h"

namespace kindling {
namespace {

bool is_onnx(const std::filesystem::path& path) { return path.extension() == ".onnx"; }

void require_exportable(const torch::nn::Module& model, const ExportOptions& options) {
  if (options.path.extension() != ".pt2" && !is_onnx(options.path))
    throw ConfigError({.place = "export to " + options.path.string(),
                       .found = "its ending is neither .pt2 nor .onnx",
                       .wanted = "a .pt2, which torch.export.load reads, or a .onnx"});
  if (options.train && is_onnx(options.path))
    throw ConfigError({.place = "export to " + options.path.string(),
                       .found = "models of ONNX have no training mode",
                       .wanted = "a .pt2, or train = false"});
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* lazy = dynamic_cast<const LazyLayer*>(item.value().get());
    if (lazy != nullptr && !lazy->is_materialized())
      throw Error({.place = "export to " + options.path.string(),
                   .found = "the lazy layer " + item.key() + " has no parameters yet",
                   .remedy = "model.apply_init(example)"});
  }
}

TensorType example_type(at::ScalarType type) {
  constexpr std::pair<at::ScalarType, TensorType> kTypes[] = {
      {at::kBool, TensorType::boolean},  {at::kByte, TensorType::uint8},
      {at::kChar, TensorType::int8},     {at::kShort, TensorType::int16},
      {at::kInt, TensorType::int32},     {at::kLong, TensorType::int64},
      {at::kHalf, TensorType::float16},  {at::kBFloat16, TensorType::bfloat16},
      {at::kFloat, TensorType::float32}, {at::kDouble, TensorType::float64},
  };
  for (const auto& [known, written] : kTypes)
    if (known == type) return written;
  throw Error({.place = "example of an export",
               .found = std::string("a tensor is ") + c10::toString(type),
               .wanted = "bool, integers or real numbers"});
}

// ((inputs…), {}), as Python's torch.save writes it.
std::string example_bytes(const RecordedModel& recorded) {
  std::vector<TensorToWrite> leaves;
  for (const std::size_t place : recorded.used) {
    const at::Tensor& tensor = recorded.example.tensors()[place];
    leaves.push_back({"", example_type(tensor.scalar_type()), tensor.sizes().vec(), tensor.const_data_ptr(),
                      tensor.nbytes()});
  }
  return torch_file_of(recorded.program.arguments, leaves);
}

// The file before it has its name: what is checked is what will be read.
Pt2File read_back(const Pt2Writer& writer, const std::filesystem::path& path) {
  std::string bytes;
  for (const std::string_view piece : writer.pieces()) bytes += piece;
  return Pt2File::of_bytes(std::move(bytes), path.string());
}

void export_forward(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                    const ExportOptions& options, bool drops_unused_inputs) {
  require_exportable(model, options);
  OperatorRecorder::refuse("it exports a model");
  const DynamicSizes sizes(example, options);
  const ModelAsItWas state(model, options.train);
  const RecordedModel recorded = recorded_model(model, forward, example, state, sizes, drops_unused_inputs);
  std::vector<std::string_view> storages;
  for (const at::Tensor& tensor : recorded.tensors)
    storages.emplace_back(static_cast<const char*>(tensor.storage().data()), tensor.storage().nbytes());
  const std::string examples = example_bytes(recorded);
  const Pt2Writer writer(
      {.program = recorded.program, .weights = recorded.weights, .storages = storages, .examples = examples});
  const Pt2File file = read_back(writer, options.path);
  require_same_as_model(file, {.model = model,
                               .forward = forward,
                               .example = example,
                               .state = state,
                               .recorded = recorded,
                               .sizes = sizes,
                               .train = options.train});
  is_onnx(options.path) ? write_onnx(file, options.path, sizes.names()) : writer.write(options.path);
}

}  // namespace

void export_program(Module& model, const Batch& example, const ExportOptions& options) {
  const auto forward = [&](const Batch& batch) { return Batch::leaf(model.forward_inputs(batch)); };
  export_forward(model, forward, example, options, /*drops_unused_inputs=*/true);
}

void export_program(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                    const ExportOptions& options) {
  export_forward(model, forward, example, options, /*drops_unused_inputs=*/false);
}

}  // namespace kindling
