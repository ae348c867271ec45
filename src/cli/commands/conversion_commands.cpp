#include <ATen/core/Tensor.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/temporary_folder.h"
#include "cli/commands/commands.h"
#include "cli/commands/onnx_check.h"
#include "cli/run/process_settings.h"
#include "cli/run/resume_plan.h"
#include "cli/run/start_files.h"
#include "cli/run/weights.h"
#include "data/loading/first_batch.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"
#include "kindling/data/input_transform.h"
#include "kindling/formats/torch_file.h"
#include "kindling/interop/export_program.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/python_optimizer.h"
#include "kindling/tensors/checkpoint_file.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

void save_by_ending(StateDict state, const std::filesystem::path& out) {
  if (out.extension() == ".pt") return save_torch(state, out);
  const std::string transform = state.metadata[kInputTransform];
  state.metadata = {{"format", "pt"}};  // as Python libraries mark their files
  if (!transform.empty()) state.metadata[kInputTransform] = transform;
  save_safetensors(state, out);
}

void check_ending(const std::filesystem::path& out) {
  if (out.extension() != ".pt" && out.extension() != ".safetensors")
    throw ConfigError(
        {.place = out.string(),
         .found = "unsupported extension '" + out.extension().string() + "'",
         .wanted = ".safetensors or .pt for weights; export also accepts .pt2 or .onnx for the model"});
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text.empty() ? "one value" : text;
}

// Prints the written tensors, one per line.
void print_written(const StateDict& read, const StateDict& written, const std::filesystem::path& out) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < written.tensors.size(); ++i) {
    const auto& [name, tensor] = written.tensors[i];
    const std::string& before = read.tensors[i].first;
    rows.push_back({one_line(name), c10::toString(tensor.scalar_type()), shape_of(tensor),
                    before == name ? "" : "was " + one_line(before)});
  }
  std::cout << table_text({{.title = "tensor"}, {.title = "type"}, {.title = "shape"}, {.title = ""}}, rows)
            << written.tensors.size() << " tensors written to " << out.string() << "\n";
}

int convert(const ConversionRequest& request, const StateDict& read) {
  const LoadOptions options{.map = name_map_of(request.map, "--map")};
  std::vector<std::string> names;
  for (const auto& [name, tensor] : read.tensors) names.push_back(name);
  check_name_map(options.map, names, "--map");
  const StateDict written = renamed(read, options, request.in.string());
  save_by_ending(written, request.out);
  print_written(read, written, request.out);
  return 0;
}

// A checkpoint of a run, and the config of the run.
struct SavedRun {
  fs::path file;
  std::unique_ptr<RunConfig> config;
};

std::unique_ptr<RunConfig> config_of(const WeightsSource& source, const Registry& registry) {
  const fs::path run = source.run.empty() ? run_of(source.file) : source.run;
  return std::make_unique<RunConfig>(ConfigDocument::load(run / "config.toml"), registry,
                                     run.filename().string());
}

// Throws CheckpointError for a run without checkpoints.
SavedRun saved_run_at(const fs::path& path, const Registry& registry) {
  WeightsSource source = find_weights(path.string());
  std::unique_ptr<RunConfig> config = config_of(source, registry);
  if (!source.run.empty() && !is_checkpoint(source.file)) {
    const fs::path folder = checkpoints_of(source.run);
    const auto newest = fs::is_directory(folder) ? newest_valid_checkpoint(folder) : std::nullopt;
    if (!newest)
      throw CheckpointError({.place = source.run.string(),
                             .found = "there is no intact checkpoint",
                             .wanted = "a checkpoint, which contains the optimizer state"});
    source.file = newest->path;
    source.reason = "the last checkpoint";
  }
  print_source(source);
  return {.file = source.file, .config = std::move(config)};
}

// Restores the optimizer of the saved run.
std::unique_ptr<Optimizer> optimizer_of(const SavedRun& training, Module& model) {
  if (dynamic_cast<const ManualModule*>(&model) != nullptr)
    throw ConfigError({.place = "--optimizer",
                       .found = model.name() + " has several optimizers",
                       .wanted = "a model with one optimizer"});
  load_weights_from(model, training.file);
  const OptimizerFactory make = training.config->trainer_options().optimizer;
  std::unique_ptr<Optimizer> optimizer = make ? make(ParameterGroups(model)) : model.configure_optimizers();
  if (!optimizer) optimizer = std::make_unique<Adam>(ParameterGroups(model));
  optimizer->take_names(model);
  if (training.config->trainer_options().master_weights) optimizer->use_master_weights();
  constexpr std::string_view kPart = "optimizer.";
  StateDict state = renamed(load_checkpoint(training.file), {.prefix = std::string(kPart)});
  std::map<std::string, std::string> texts;
  for (const auto& [name, text] : state.metadata)
    if (name.starts_with(kPart)) texts[name.substr(kPart.size())] = text;
  state.metadata = std::move(texts);
  optimizer->load_state_dict(state);
  return optimizer;
}

// Returns the first batch in the order of the data: as the model receives it, or raw if the model is to be
// exported with the transform of its inputs.
Batch first_batch(DataModule& data, bool is_raw) {
  Batch batch = first_raw_batch(data);
  return is_raw ? batch : data.on_after_batch_transfer(std::move(batch), Stage::predict);
}

// Throws ConfigError for a program that would take raw states and return scaled ones.
void require_one_unit(const ConversionRequest& request, const Module& model, DataModule& data,
                      const Batch& batch) {
  if (request.with_transforms || input_transform_of(model) == nullptr) return;
  const at::Tensor targets = batch.labels().to(at::kFloat);
  if (data.unscale_targets(targets).is_same(targets)) return;
  throw ConfigError(
      {.place = "export to " + request.out.string(),
       .found = "the data scale inputs and targets, and the program would scale the inputs only",
       .wanted = "a program that returns its outputs in the unit of the data",
       .remedy = "use --with-transforms"});
}

ExportedValues exported_values(const std::string& word) {
  if (word == "labels") return ExportedValues::labels;
  return word == "probabilities" ? ExportedValues::probabilities : ExportedValues::outputs;
}

// Exports the same model as a .pt2, for the comparison.
template <class Export>
void verify(const ConversionRequest& request, ExportOptions options, const Batch& batch,
            const Export& export_to) {
  const TemporaryFolder folder;
  options.path = folder / "model.pt2";
  export_to(options);
  compare_with_onnxruntime(request.out, options.path, batch, request.tolerance);
}

int export_model(const CommandContext& context) {
  const ConversionRequest& request = context.request.conversion;
  if (request.verify) require_onnxruntime();
  if (!request.map.empty())
    throw ConfigError({.place = request.out.string(),
                       .found = "--map renames weights, but an exported program keeps the names of the model",
                       .wanted = "no --map"});
  const WeightsSource weights = find_weights(request.in.string());
  const std::unique_ptr<RunConfig> loaded = config_of(weights, context.registry);
  const RunConfig& config = *loaded;
  apply(config.process);
  const auto model = config.make_model();
  print_source(weights);
  const auto data = make_data_for(config, weights.file, *model);
  load_weights_from(*model, weights.file);
  ExportOptions options{.path = request.out,
                        .train = request.train,
                        .input_transform = true,
                        .values = exported_values(request.values)};
  for (const std::string& word : request.dynamic) options.dynamic_sizes.push_back(dynamic_size_of(word));
  const bool has_names = request.with_transforms && dynamic_cast<const Classifier*>(model.get()) != nullptr;
  if (const auto names = trained_class_names(weights, *data); has_names && names != data->class_names())
    options.metadata["class_names"] = nlohmann::json(names).dump();
  Batch batch = first_batch(*data, request.with_transforms || input_transform_of(*model) != nullptr);
  require_one_unit(request, *model, *data, batch);
  const auto export_to = [&](const ExportOptions& to) {
    request.with_transforms ? export_program(*model, *data, to) : export_program(*model, batch, to);
  };
  export_to(options);
  std::cout << "the forward pass of " << model->name() << " with " << state_dict(*model).tensors.size()
            << " tensors written to " << request.out.string()
            << (request.out.extension() == ".onnx" ? "\n" : ", for torch.export.load\n");
  const bool has_raw_inputs = request.with_transforms || input_transform_of(*model) != nullptr;
  if (const auto type = data->program_input_type(); has_raw_inputs && type)
    batch.tensors()[0] = batch.tensors()[0].to(*type);
  if (request.verify) verify(request, options, batch, export_to);
  if (has_raw_inputs && data->program_input_type() == at::kDouble)
    std::cout << "its inputs are float64, because float32 would round them too coarsely\n";
  return 0;
}

// Returns an option of the request that applies to programs only; empty: there is none.
std::string program_option_of(const ConversionRequest& request) {
  if (request.train) return "--train";
  if (!request.dynamic.empty()) return "--dynamic";
  if (request.with_transforms) return "--with-transforms";
  if (request.verify) return "--verify";
  return request.values == "outputs" ? "" : "--values";
}

// Converts a program exported earlier, by Python or Kindling, to ONNX.
int convert_program(const ConversionRequest& request) {
  if (!program_option_of(request).empty() || !request.map.empty())
    throw ConfigError(
        {.place = request.out.string(),
         .found = "an exported program is converted unchanged",
         .wanted = "none of --train, --dynamic, --with-transforms, --values, --verify and --map"});
  convert_to_onnx(request.in, request.out);
  std::cout << request.in.string() << " written to " << request.out.string() << "\n";
  return 0;
}

int export_optimizer(const CommandContext& context) {
  const ConversionRequest& request = context.request.conversion;
  if (request.out.extension() != ".pt" || !request.map.empty())
    throw ConfigError({.place = request.out.string(),
                       .found = "the optimizer state is written to a .pt file, without names",
                       .wanted = "OUT.pt, and no --map"});
  const SavedRun training = saved_run_at(request.in, context.registry);
  const auto model = training.config->make_model();
  const auto optimizer = optimizer_of(training, *model);
  save_python_optimizer(*optimizer, request.out);
  std::cout << "the optimizer state for " << optimizer->parameters().size() << " parameters of "
            << training.file.string() << " written to " << request.out.string() << "\n";
  return 0;
}

StateDict imported_from(const ConversionRequest& request) {
  if (!fs::exists(request.in))
    throw CheckpointError({.place = request.in.string(),
                           .found = "no such file or directory",
                           .wanted = "a file of weights (.safetensors or .pt)"});
  require_weights_file(request.in);
  return load_state_file(request.in, request.key);
}

// An export that was killed has left a temporary file.
void delete_leftovers_of(const fs::path& out) {
  delete_stale_temporary_files(out.parent_path(), out.filename().string());
}

[[noreturn]] void refuse_word(const std::string& word, std::string_view part) {
  throw ConfigError({.place = "--dynamic " + word,
                     .found = "'" + std::string(part) + "' is not valid in a dynamic size",
                     .wanted =
                         "NAME=TENSOR:DIM, such as sequence=0:1, optionally followed by a comma-separated "
                         "list of TENSOR:DIM, min=N, max=N or multiple_of=N"});
}

std::int64_t number_in(const std::string& word, std::string_view part, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) refuse_word(word, part);
  return number;
}

void add_part(DynamicSize& size, const std::string& word, std::string_view part) {
  const auto number_after = [&](std::size_t at) { return number_in(word, part, part.substr(at + 1)); };
  if (const std::size_t equals = part.find('='); equals != part.npos) {
    const std::string_view key = part.substr(0, equals);
    if (key == "min")
      size.min = number_after(equals);
    else if (key == "max")
      size.max = number_after(equals);
    else if (key == "multiple_of")
      size.multiple_of = number_after(equals);
    else
      refuse_word(word, part);
    return;
  }
  const std::size_t colon = part.find(':');
  if (colon == part.npos) refuse_word(word, part);
  const std::int64_t tensor = number_in(word, part, part.substr(0, colon));
  if (tensor < 0) refuse_word(word, part);
  size.places.push_back({static_cast<std::size_t>(tensor), number_after(colon)});
}

}  // namespace

int export_command(const CommandContext& context) {
  const ConversionRequest& request = context.request.conversion;
  delete_leftovers_of(request.out);
  if (request.optimizer) return export_optimizer(context);
  if (request.in.extension() == ".pt2" && request.out.extension() == ".onnx") return convert_program(request);
  const bool is_program = request.out.extension() == ".pt2" || request.out.extension() == ".onnx";
  if (request.verify && request.out.extension() != ".onnx")
    throw ConfigError({.place = "--verify",
                       .found = request.out.string() + " is not an ONNX model",
                       .wanted = "OUT.onnx",
                       .remedy = request.out.extension() == ".pt2"
                                     ? "a .pt2 is compared with the model whenever it is written"
                                     : ""});
  if (is_program) return export_model(context);
  if (const std::string option = program_option_of(request); !option.empty())
    throw ConfigError(
        {.place = option,
         .found = request.out.string() + " is a weights file, which has neither modes nor inputs",
         .wanted = option == "--train" ? "OUT.pt2" : "OUT.pt2 or OUT.onnx"});
  check_ending(request.out);
  const WeightsSource weights = find_weights(request.in.string());
  print_source(weights);
  return convert(request, weights_from(weights.file));
}

int import_command(const CommandContext& context) {
  const ConversionRequest& request = context.request.conversion;
  check_ending(request.out);
  delete_leftovers_of(request.out);
  return convert(request, imported_from(request));
}

DynamicSize dynamic_size_of(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == word.npos || equals == 0) refuse_word(word, word);
  DynamicSize size{.name = word.substr(0, equals)};
  std::string_view rest = std::string_view(word).substr(equals + 1);
  for (std::size_t comma = rest.find(','); comma != rest.npos; comma = rest.find(',')) {
    add_part(size, word, rest.substr(0, comma));
    rest.remove_prefix(comma + 1);
  }
  add_part(size, word, rest);
  return size;
}

}  // namespace kindling
