#include "cli/run/start_files.h"

#include <ATen/Context.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <iostream>
#include <set>
#include <string_view>
#include <utility>

#include "base/joined.h"
#include "data/sources/training_labels.h"
#include "data/sources/unified_values.h"
#include "formats/tables/table_units.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/data/input_transform.h"
#include "kindling/data/sampler.h"
#include "kindling/data/table_data.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/regressor.h"
#include "kindling/optim/python_optimizer.h"
#include "runs/run_folder.h"

namespace kindling {
namespace {

constexpr const char* kInitMap = "model.init_map";

// Returns the names that begin with the prefix, without it. Throws ConfigError if there are none.
std::vector<std::string> without_prefix(const std::vector<std::string>& names, const std::string& prefix,
                                        const std::filesystem::path& file) {
  std::vector<std::string> inner;
  for (const std::string& name : names)
    if (name.starts_with(prefix)) inner.push_back(name.substr(prefix.size()));
  if (!inner.empty() || prefix.empty()) return inner;
  std::set<std::string> beginnings;
  for (const std::string& name : names)
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      beginnings.insert(name.substr(0, dot + 1));
  const std::string close = nearest(prefix, std::vector(beginnings.begin(), beginnings.end()));
  throw ConfigError({.place = "model.init_prefix",
                     .found = "no name in " + file.string() + " begins with '" + prefix + "'",
                     .wanted = "the beginning of a tensor name, such as '" +
                               (beginnings.empty() ? std::string() : *beginnings.begin()) + "'",
                     .remedy = close.empty() ? "" : "did you mean '" + close + "'?"});
}

// Throws CheckpointError if no parameter was loaded. `names` are those of the file.
void require_parameter(const LoadReport& report, const Module& model, const std::vector<std::string>& names,
                       const std::filesystem::path& file) {
  const auto parameters = model.named_parameters();
  const auto is_parameter = [&](const std::string& name) { return parameters.contains(name); };
  if (std::ranges::any_of(report.loaded, is_parameter)) return;
  std::string examples;
  if (!names.empty() && !report.missing.empty())
    examples = "the file has names such as '" + names.front() + "', the model '" + report.missing.front() +
               "': rename them with model.init_prefix and model.init_map";
  throw CheckpointError({.place = file.string(),
                         .found = "none of its " + std::to_string(names.size()) +
                                  " tensors has the name and shape of a parameter of the model",
                         .wanted = "at least one",
                         .remedy = examples});
}

// The encoded inputs of the model: "column 'age'", "category 'Bern' of column 'city'".
std::vector<std::string> columns_of(const TableSchema& schema) {
  std::vector<std::string> columns;
  for (const TableFeature& feature : schema.features) {
    std::string column = "column '" + one_line(feature.name) + "'";
    if (const auto unit = schema.units.find(feature.name); unit != schema.units.end())
      column += " in '" + one_line(unit_text(unit->second)) + "'";
    if (feature.kind == ColumnKind::number) columns.push_back(column);
    for (const std::string& category : feature.categories)
      columns.push_back("category '" + one_line(category) + "' of " + column);
  }
  return columns;
}

// "single rows", "windows of 16 rows"
std::string sample_text(const TableSchema& schema) {
  return schema.window == 0 ? "single rows" : "windows of " + counted(schema.window, "row");
}

// Throws CheckpointError if the file has the values of a transform that are not those of the data. Without
// the description of its columns, only equal data shows that the columns have kept their order.
void require_same_values(const InputTransform& fitted, const std::filesystem::path& weights) {
  if (fitted.program_input_type() == at::kDouble)
    throw CheckpointError({.place = weights.string(),
                           .found = "it lacks the description of the columns, which has the offsets that are "
                                    "subtracted from numbers too large for float32",
                           .wanted = "a file with the description",
                           .remedy = "use the run or its weights.safetensors"});
  const StateDict saved = weights_from(weights);
  const auto buffers = fitted.named_buffers();
  for (const auto& [name, value] : saved.tensors) {
    if (!is_of_input_transform(name)) continue;
    const at::Tensor* const own = buffers.find(name.substr(std::string_view(kInputTransform).size() + 1));
    if (own == nullptr || (own->sizes() == value.sizes() && at::allclose(*own, value.to(own->scalar_type()))))
      continue;
    throw CheckpointError({.place = weights.string(),
                           .found = "it does not name its columns, and its values of '" + name +
                                    "' are not those of the training data",
                           .wanted = "the training data that the weights belong to",
                           .remedy = "use the run or its weights.safetensors, which name the columns"});
  }
}

constexpr const char* kClassWeights = "model.class_weights";

// Loaders may draw random numbers when they are made, which the run must not miss.
at::Tensor without_drawing(at::Tensor (*labels_of)(DataModule&), DataModule& data) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  at::Tensor labels = labels_of(data);
  generator.set_state(state);
  return labels;
}

// Returns model.num_classes; 0: the model has no such option.
std::int64_t num_classes_of(const ConfigTables& config) {
  const auto values = config.values();
  const auto found = values.find("model.num_classes");
  return found == values.end() ? 0 : std::stoll(found->second);
}

// Throws ConfigError for classes that the training samples lack: their weight would be infinite.
at::Tensor balanced_weights_of(DataModule& data, std::int64_t num_classes_of_model,
                               std::int64_t ignore_index) try {
  at::Tensor labels = without_drawing(training_labels, data);
  if (labels.defined() && !labels.is_floating_point()) labels = labels.masked_select(labels.ne(ignore_index));
  const std::vector<std::string> names = data.class_names();
  const std::int64_t num_classes =
      names.empty() ? num_classes_of_model : static_cast<std::int64_t>(names.size());
  const at::Tensor weights = balanced_class_weights(labels, num_classes);
  const double* const weight = weights.const_data_ptr<double>();
  for (std::int64_t i = 0; i < weights.size(0); ++i)
    if (weight[i] == 0)
      throw ConfigError({.place = kClassWeights,
                         .found = "no training sample has the class " + std::to_string(i) +
                                  (names.empty() ? "" : " ('" + names[static_cast<std::size_t>(i)] + "')"),
                         .wanted = "samples of every class",
                         .remedy = "set it to a list, or split the data with stratify"});
  return weights;
} catch (const DataError& error) {
  ErrorParts parts = error.parts();
  parts.place = kClassWeights + std::string(": ") + parts.place;
  throw ConfigError(std::move(parts));
}

std::string count_text(std::size_t count, const char* meaning) {
  return std::to_string(count) + (count == 1 ? " tensor " : " tensors ") + meaning;
}

// Returns "2 tensors not in the file, initialized: net.3.weight, net.3.bias".
std::string names_line(const std::vector<std::string>& names, const char* meaning, std::size_t max_names) {
  std::string line = count_text(names.size(), meaning) + ": ";
  for (std::size_t i = 0; i < std::min(names.size(), max_names); ++i) line += (i > 0 ? ", " : "") + names[i];
  if (names.size() > max_names) line += " and " + std::to_string(names.size() - max_names) + " more";
  return line;
}

}  // namespace

OptimizerFactory with_start(const OptimizerFactory& make, const OptimizerStartOptions& start) {
  if (!start.init_state) return make;
  return [make, start](ParameterGroups parameters) {
    auto optimizer = make(std::move(parameters));
    load_python_optimizer(*optimizer, *start.init_state, start.init_key);
    return optimizer;
  };
}

StartWeights load_init_weights(const ConfigTables& config, Module& model) try {
  const ModelOptions& options = config.model;
  StartWeights weights{find_weights(options.init_weights->string())};
  const LoadOptions load{.strict = options.init_strict,
                         .prefix = options.init_prefix,
                         .map = name_map_of(options.init_map, kInitMap),
                         .key = options.init_key};
  std::vector<std::string> names;
  if (!load.strict || !load.prefix.empty() || !load.map.empty()) {
    names = without_prefix(names_in(weights.file, load.key), load.prefix, weights.file);
    check_name_map(load.map, names, kInitMap);
  }
  LoadReport report = load_weights_from(model, weights.file, load);
  if (load.strict) return weights;
  require_parameter(report, model, names, weights.file);
  weights.report = std::move(report);
  return weights;
} catch (const ConfigError&) {
  throw;
} catch (const Error& error) {  // names the file only
  ErrorParts parts = error.parts();
  parts.place = "'model.init_weights': " + parts.place;
  throw CheckpointError(parts);
}

void require_same_columns(const ConfigTables& config, DataModule& data) {
  const auto transform = data.input_transform();
  if (!config.model.init_weights || !config.model.init_strict || !transform) return;
  const std::string saved = transform_in(find_weights(config.model.init_weights->string()).file);
  if (saved.empty() || dynamic_cast<const TableData*>(&data) == nullptr) return;
  const TableSchema& schema = dynamic_cast<const TableData&>(data).schema();
  const TableSchema trained = with_texts_of(schema, TableSchema::parse(saved, "model.init_weights"));
  if (trained.window != schema.window)
    throw ConfigError({.place = "model.init_weights",
                       .found = "the weights were trained with " + sample_text(trained) +
                                " where the data has " + sample_text(schema),
                       .wanted = "the same data.window",
                       .remedy = "or set model.init_strict = false to load the weights that fit"});
  const std::vector<std::string> before = columns_of(trained), now = columns_of(schema);
  const auto [left, right] = std::ranges::mismatch(before, now);
  if (left == before.end() && right == now.end()) return;
  const auto text_at = [](const auto& columns, auto at) { return at == columns.end() ? "no column" : *at; };
  throw ConfigError(
      {.place = "model.init_weights",
       .found = "the weights were trained with " + text_at(before, left) + " where the data has " +
                text_at(now, right),
       .wanted = "the same columns and categories in the same order",
       .remedy =
           "list them in data.features, or set model.init_strict = false to load the weights nevertheless"});
}

std::shared_ptr<DataModule> make_data_for(const RunConfig& config, const std::filesystem::path& weights,
                                          Module& model, const std::filesystem::path& predicted) {
  const std::string transform = transform_in(weights);
  const auto data = config.make_data([&](DataModule& made) {
    if (!transform.empty()) made.restore_input_transform(transform);
    if (!predicted.empty()) made.predict_from(predicted);
  });
  if (!has_transform(weights)) return data;
  if (transform.empty() && data->input_transform()) require_same_values(*data->input_transform(), weights);
  set_input_transform(model, data->input_transform());
  return data;
}

std::vector<std::string> trained_class_names(const WeightsSource& weights, DataModule& data) {
  const std::filesystem::path run = weights.file.empty() ? std::filesystem::path() : run_with(weights);
  std::vector<std::string> now = data.class_names(), trained;
  if (!run.empty()) trained = run_data(run).class_names;
  if (trained.empty()) return now;
  if (const std::string difference = class_difference(trained, now); !difference.empty())
    log_warning(
        "data: the classes are not those of the training (" + difference +
        "); predicted classes get their names of the training, and labels of the data may mean others");
  return trained;
}

void give_class_weights(const ConfigTables& config, Module& model, DataModule& data) {
  const ModelOptions& options = config.model;
  const bool is_balanced = options.has_balanced_weights();
  const std::vector<double>& weights = options.class_weights.numbers;
  if (!is_balanced && weights.empty()) return;
  auto* const of_classes = dynamic_cast<ClassLossModel*>(&model);
  if (of_classes == nullptr)
    throw ConfigError({.place = kClassWeights,
                       .found = "the model " + options.name + " is not a classifier",
                       .wanted = "a classifier, such as mlp or small_cnn"});
  if (!is_balanced && std::ranges::all_of(weights, [](double weight) { return weight == 0; }))
    throw ConfigError(
        {.place = kClassWeights, .found = "all weights are 0", .wanted = "at least one above 0"});
  const auto count = static_cast<std::int64_t>(weights.size());
  const std::int64_t num_classes = num_classes_of(config);
  if (!is_balanced && num_classes > 0 && count != num_classes)
    throw ConfigError(
        {.place = kClassWeights,
         .found = std::to_string(count) + " weights, and num_classes = " + std::to_string(num_classes),
         .wanted = "one weight per class"});
  if (is_balanced && of_classes->loss_options().multi_label)
    throw ConfigError({.place = kClassWeights,
                       .found = "it is \"balanced\", and a sample has several labels (model.multi_label)",
                       .wanted = "model.pos_weight, the weight of the ones of each class"});
  constexpr std::int64_t kIgnored = -100;
  try {
    of_classes->set_class_weights(
        is_balanced
            ? balanced_weights_of(data, num_classes, config.class_loss.ignore_index.value_or(kIgnored))
            : at::tensor(weights, at::kDouble));
  } catch (const ConfigError& error) {
    ErrorParts parts = error.parts();
    if (parts.place == "label_smoothing")
      parts.place = "model.label_smoothing";
    else
      parts.place = kClassWeights;
    throw ConfigError(std::move(parts));
  }
}

// Targets that are fields may not fit into memory, so they are read in parts.
void fit_without_drawing(Regressor& model, DataModule& data) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  model.fit_target_scale(training_target_parts(data));
  generator.set_state(state);
}

void give_target_scale(const ConfigTables& config, Module& model, DataModule& data) {
  auto* const net = dynamic_cast<Regressor*>(&model);
  if (net == nullptr || !net->scales_targets()) return;
  const auto buffers = model.named_buffers(/*recurse=*/false);
  const bool has_loaded = config.model.init_weights && (buffers["target_mean"].ne(0).any().item<bool>() ||
                                                        buffers["target_std"].ne(1).any().item<bool>());
  if (!has_loaded) fit_without_drawing(*net, data);
}

StartWeights start_from_files(const RunConfig& config, Module& model) {
  StartWeights weights;
  if (config.model.init_weights) weights = load_init_weights(config, model);
  if (!config.optimizer_start.init_state) return weights;
  if (!config.model.init_weights)
    throw ConfigError({.place = "optimizer.init_state",
                       .found = "an optimizer state belongs to the weights that it was saved with",
                       .wanted = "model.init_weights in addition"});
  with_start(config.trainer_options().optimizer, config.optimizer_start)(ParameterGroups(model));
  return weights;
}

std::vector<std::string> report_lines(const StartWeights& weights, std::size_t max_names) {
  std::vector<std::string> lines;
  if (!weights.report) return lines;
  const LoadReport& report = *weights.report;
  lines.push_back(count_text(report.loaded.size(), "loaded"));
  std::vector<std::string> misfits;
  for (const auto& [name, shape, wanted] : report.misfits)
    misfits.push_back(name + " (" + shape + (wanted.empty() ? "" : ", the model's is " + wanted) + ")");
  if (!misfits.empty()) lines.push_back(names_line(misfits, "of another shape, skipped", max_names));
  if (!report.missing.empty())
    lines.push_back(names_line(report.missing, "not in the file, initialized", max_names));
  if (!report.unexpected.empty())
    lines.push_back(names_line(report.unexpected, "not in the model, skipped", max_names));
  return lines;
}

void print_start(const StartWeights& weights) {
  print_source(weights);
  if (!weights.report) return;
  if (weights.run.empty()) std::cerr << "weights  " << weights.file.string() << "\n";
  for (const std::string& line : report_lines(weights, /*max_names=*/5)) std::cerr << "  " << line << "\n";
}

}  // namespace kindling
