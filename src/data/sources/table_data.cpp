#include "kindling/data/table_data.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/config_errors.h"
#include "base/joined.h"
#include "data/loading/window_dataset.h"
#include "data/sources/data_checks.h"
#include "data/sources/date_columns.h"
#include "data/sources/split_findings.h"
#include "data/sources/table_checks.h"
#include "data/sources/table_findings.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_rows.h"
#include "data/sources/table_split.h"
#include "data/sources/table_transform.h"
#include "data/sources/table_windows.h"
#include "data/sources/unified_values.h"
#include "formats/tables/wrong_values.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "kindling/data/sampler.h"
#include "kindling/data/split.h"

namespace kindling {
namespace {

constexpr const char* kTableFile = "a CSV or JSON lines file";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

at::Tensor index_tensor(const std::vector<std::int64_t>& rows) { return at::tensor(rows, at::kLong); }

void add_unless_listed(std::vector<std::string>& names, const std::string& name,
                       const TableOptions& options) {
  if (!name.empty() && !contains(options.numbers, name) && !contains(options.categories, name) &&
      !contains(options.known_categories, name))
    names.push_back(name);
}

}  // namespace

struct TableData::Impl {
  // The tensors of a loader; undefined if there are no such samples.
  struct Samples {
    at::Tensor raw{}, labels{};
    std::vector<std::string> ids{};
    std::vector<std::int64_t> begins{};  // of windows in `raw`; empty: samples are rows
  };

  // The options that read a file. Ids, labels and groups are texts in every file: "01" is not "1".
  TableOptions reading(const TableOptions& columns, const std::string& id, const std::string& label) const {
    TableOptions read = layout_of(options);
    read.numbers = columns.numbers;
    read.categories = columns.categories;
    read.known_categories = columns.known_categories;
    read.skips_others = columns.skips_others;
    read.skips_broken = columns.skips_broken;
    add_unless_listed(read.categories, id, read);
    add_unless_listed(read.known_categories, label, read);
    for (const std::string& name : {options.group, options.series}) {
      if (contains(options.numbers, name))
        add_unless_listed(read.numbers, name, read);
      else if (!contains(options.features, name))
        add_unless_listed(read.categories, name, read);
    }
    // The reader takes columns of numbers as such: features, targets and weights.
    if (!contains(options.features, options.time) && !contains(options.target, options.time) &&
        options.time != options.weights)
      add_unless_listed(read.known_categories, options.time, read);
    for (const std::string& name : columns.skips_others ? std::vector<std::string>() : options.dates)
      add_unless_listed(read.known_categories, name, read);
    return read;
  }

  enum class Columns : std::uint8_t { of_inputs, with_labels, of_training };

  bool skips() const { return options.on_broken == "skip"; }

  // Removes rows without labels, and records which rows the table lacks.
  Table without_broken(Table table, const std::filesystem::path& file) {
    // A window needs consecutive rows, so that windows are omitted instead.
    if (!options.window && (skips() || options.on_missing_target == "skip")) {
      std::vector<std::string> labels = options.target;
      if (!options.label.empty()) labels.push_back(options.label);
      skip_rows_without(labels, table, file.string());
    }
    if (table.skipped.empty()) return table;
    std::vector<std::string> errors;
    const std::size_t first = table.skipped.front().row;
    for (BrokenRow& row : table.skipped) errors.push_back(std::move(row.error));
    if (table.num_rows == 0)
      throw DataError({.place = file.string(),
                       .found = "no row can be used; the first error: " + errors[0],
                       .wanted = "at least one row that can be read"});
    if (skips())
      warn_of_skipped(errors, errors.size() + table.num_rows, "rows");
    else
      log_warning("data.on_missing_target: omitted " + std::to_string(errors.size()) + " of " +
                  counted(errors.size() + table.num_rows, "row") + " of " + file.filename().string() +
                  " without a value to predict, the first: row " + std::to_string(first));
    skipped.insert(skipped.end(), errors.begin(), errors.end());
    return table;
  }

  // Columns that the config declares keep their texts.
  bool is_declared(const std::string& name) const {
    return contains(options.categories, name) || contains(options.numbers, name);
  }

  void unify(TableColumn& column) const {
    if (column.kind == ColumnKind::category && !is_declared(column.name)) unify_values(column);
  }

  // Reads a file by the schema.
  Table read_again(const std::filesystem::path& file, Columns columns) {
    const TableSchema& schema = transform->schema();
    const bool with_labels = columns != Columns::of_inputs;
    TableOptions read = schema.table_options();
    read.skips_broken = with_labels && skips();
    if (columns == Columns::of_training) add_unless_listed(read.numbers, options.weights, read);
    if (with_labels)
      for (const std::string& target : schema.targets) add_unless_listed(read.numbers, target, read);
    Table table = read_table_or_list_errors(file, reading(read, schema.id, with_labels ? schema.label : ""));
    for (TableColumn& column : table.columns) unify_by(schema, column);
    for (const std::string& name : schema.dates) {
      if (table.find(name) == nullptr)
        throw DataError({.place = file.string(),
                         .found = "the column '" + one_line(name) + "' is missing",
                         .wanted = "the dates that the model was trained on"});
      add_date_columns(name, /*only_varying=*/false, table, file.string());
    }
    return with_labels ? without_broken(std::move(table), file) : table;
  }

  // Reads the training file without a schema. The names of its columns are those of the config.
  Table read_first() {
    try {
      Table table = read_table_or_list_errors(
          options.file,
          reading({.numbers = options.numbers, .categories = options.categories, .skips_broken = skips()},
                  options.id, options.label));
      warn_of_names(table);
      take_row_name(table);
      for (const std::string& name : options.dates)
        add_date_columns(name, /*only_varying=*/true, table, options.file.string());
      require_columns(table);
      for (TableColumn& column : table.columns) unify(column);
      return without_broken(std::move(table), options.file);
    } catch (const DataError& error) {
      if (error.parts().found.starts_with("no column has the name ")) require_columns(names_only());
      throw;
    }
  }

  // Read without the columns that the config names, any of which may be absent.
  Table names_only() const {
    TableOptions read = layout_of(options);
    read.skips_broken = skips();
    return read_table(options.file, read);
  }

  void warn_of_names(const Table& table) const {
    const std::size_t numbers = table.num_number_names, all = table.columns.size() + table.num_unnamed;
    if (numbers > 0 && 2 * numbers >= all)
      log_warning(options.file.string() + ", header: " + std::to_string(numbers) + " of " +
                  counted(all, "name") +
                  " are numbers, as if this were a row of values: set data.header = false if it is");
  }

  // A column without a name identifies rows if no other does.
  void take_row_name(const Table& table) {
    const std::string& name = table.row_name;
    const std::string place = options.file.string();
    if (table.num_unnamed > 0)
      log_warning(place + ": " + counted(table.num_unnamed, "column") + " without a name " +
                  (table.num_unnamed == 1 ? "is" : "are") + " omitted");
    if (name.empty() || contains(options.features, name)) return;
    const TableColumn& column = *table.find(name);
    const bool is_id = options.id.empty() && !column.categories.empty();
    if (is_id) options.id = name;
    if (options.id != name && !contains(options.exclude, name)) options.exclude.push_back(name);
    log_warning(place + ": the column without a name " +
                (is_id ? "identifies rows, as '" + name + "' in predictions" : "is omitted"));
  }

  // Throws ConfigErrors with every column that the config names and the file does not have.
  void require_columns(const Table& table) const {
    std::vector<ErrorParts> missing;
    const auto check = [&](const std::string& key, const std::vector<std::string>& names) {
      for (std::size_t i = 0; i < names.size(); ++i)
        if (!names[i].empty() && table.find(names[i]) == nullptr)
          missing.push_back(missing_column(table, names[i],
                                           names.size() == 1 ? key : key + "[" + std::to_string(i) + "]",
                                           options.file.string()));
    };
    check("data.target", options.target);
    check("data.label", {options.label});
    check("data.features", options.features);
    check("data.exclude", options.exclude);
    check("data.numbers", options.numbers);
    check("data.categories", options.categories);
    check("data.weights", {options.weights});
    check("data.id", {options.id});
    check("data.group", {options.group});
    check("data.series", {options.series});
    check("data.time", {options.time});
    check("data.dates", options.dates);
    if (!missing.empty()) throw ConfigErrors(std::move(missing));
  }

  std::optional<TableWindows> windows_in(const Table& table, const TableSchema& schema, WindowUse use,
                                         const std::string& place) const {
    if (schema.window == 0) return std::nullopt;
    return windows_of(table, schema, options, use, place);
  }

  // `raw` and `ids` are those of all rows, `labels` those of all samples.
  static Samples samples_of(const TableRows& rows, const at::Tensor& labels,
                            const std::vector<std::int64_t>& indices) {
    if (indices.empty()) return {};
    const at::Tensor chosen = index_tensor(indices);
    Samples samples{.raw = rows.raw.index_select(0, chosen)};
    if (labels.defined()) samples.labels = labels.index_select(0, chosen);
    if (!rows.ids.empty())
      for (const std::int64_t row : indices) samples.ids.push_back(rows.ids[static_cast<std::size_t>(row)]);
    return samples;
  }

  // `raw`: in the order of the windows' rows, shared by all sets. Without ids, windows are identified by the
  // number of their last row.
  static Samples samples_of(const TableRows& rows, const at::Tensor& labels,
                            const std::vector<std::int64_t>& indices, const TableWindows& windows) {
    if (indices.empty()) return {};
    Samples samples{.raw = rows.raw};
    if (labels.defined()) samples.labels = labels.index_select(0, index_tensor(indices));
    for (const std::int64_t index : indices) {
      const auto window = static_cast<std::size_t>(index);
      const auto last = static_cast<std::size_t>(windows.last_rows[window]);
      samples.begins.push_back(windows.begins[window]);
      samples.ids.push_back(rows.ids.empty() ? std::to_string(last + 1) : rows.ids[last]);
    }
    return samples;
  }

  static std::vector<std::int64_t> all_of(std::size_t count) {
    std::vector<std::int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // A window has the weight of the row that it predicts.
  void draw_by_weights(const Table& table, const std::optional<TableWindows>& windows,
                       const std::vector<std::int64_t>& samples, std::int64_t seed) {
    const std::string place = options.file.string();
    at::Tensor weights =
        weights_of(table, require_column(table, options.weights, "data.weights", place), place);
    if (windows) weights = weights.index_select(0, index_tensor(windows->targets));
    sampler = weighted_training(weights.index_select(0, index_tensor(samples)), seed,
                                place + ", column '" + options.weights + "'", windows ? "windows" : "rows");
  }

  // Reads the training file, and fits the transform unless a saved one is used.
  void read_training_file(const DataOptions& shared) {
    if (is_read) return;
    require_data_file(options.file, "file", kTableFile);
    const std::string place = options.file.string();
    const bool fits = !transform;
    const Table table = fits ? read_first() : read_again(options.file, Columns::of_training);
    if (table.num_rows == 0)
      throw DataError({.place = place, .found = "the table has no rows", .wanted = "at least one"});
    TableSchema schema = fits ? schema_of(table, options, place) : transform->schema();
    const std::optional<TableWindows> windows = windows_in(table, schema, WindowUse::trains, place);
    const SplitIndices indices =
        split_samples(table, schema, options, shared, windows ? &*windows : nullptr, place);
    const std::vector<std::int64_t> training_rows = windows ? windows->rows_of(indices.train) : indices.train;
    if (fits) {
      drop_empty_features(table, training_rows, options.features, schema, place);
      keep_categories_of(table, training_rows, schema);
      for (const std::string& finding : findings_in(table, schema, training_rows, place))
        log_warning(finding);
    }
    TableRows rows = rows_of(table, schema, options.missing, place);
    const at::Tensor labels = labels_of(table, schema, windows ? &windows->targets : nullptr, place);
    if (fits) {
      auto fitted = std::make_shared<TableTransform>(schema);
      fitted->fit(rows.raw.index_select(0, index_tensor(training_rows)), options.missing, options.normalize,
                  place);
      transform = std::move(fitted);
    }
    if (!schema.label.empty()) {
      const auto* const classes = labels.const_data_ptr<std::int64_t>();
      warn_of_unvalidated_classes({classes, classes + labels.numel()}, indices, schema.classes,
                                  options.stratify, place);
    }
    if (windows) rows.raw = rows.raw.index_select(0, index_tensor(windows->order));
    train =
        windows ? samples_of(rows, labels, indices.train, *windows) : samples_of(rows, labels, indices.train);
    val = windows ? samples_of(rows, labels, indices.val, *windows) : samples_of(rows, labels, indices.val);
    if (!options.weights.empty()) draw_by_weights(table, windows, indices.train, shared.seed);
    if (const bool is_split = !indices.val.empty(); !is_split && !options.val_files.empty()) {
      std::optional<Samples> samples;
      val = read_samples(samples, options.val_files.front(), LabelUse::required);
      num_main_files = 1;
    }
    is_read = true;
  }

  static bool has_labels(const Table& table, const TableSchema& schema) {
    if (!schema.label.empty()) return table.find(schema.label) != nullptr;
    return std::all_of(schema.targets.begin(), schema.targets.end(),
                       [&](const std::string& target) { return table.find(target) != nullptr; });
  }

  enum class LabelUse : std::uint8_t { required, if_present, none };

  // Reads another file, once.
  const Samples& read_samples(std::optional<Samples>& samples, const std::filesystem::path& file,
                              LabelUse use) {
    if (samples) return *samples;
    const TableSchema& schema = transform->schema();
    const Table table = read_again(file, use == LabelUse::none ? Columns::of_inputs : Columns::with_labels);
    const bool with_labels =
        use == LabelUse::required || (use == LabelUse::if_present && has_labels(table, schema));
    const std::string place = file.string();
    TableRows rows = rows_of(table, schema, options.missing, place);
    if (table.num_rows == 0)
      throw DataError({.place = place, .found = "the table has no rows", .wanted = "at least one"});
    const std::optional<TableWindows> windows =
        windows_in(table, schema, with_labels ? WindowUse::trains : WindowUse::predicts, place);
    const at::Tensor labels =
        with_labels ? labels_of(table, schema, windows ? &windows->targets : nullptr, place) : at::Tensor();
    if (!windows) return samples.emplace(samples_of(rows, labels, all_of(table.num_rows)));
    rows.raw = rows.raw.index_select(0, index_tensor(windows->order));
    return samples.emplace(samples_of(rows, labels, all_of(windows->begins.size()), *windows));
  }

  // Returns nullptr if there are no samples.
  std::shared_ptr<DataLoader> loader_of(const Samples& samples, const DataModule& data, bool train) const {
    if (!samples.raw.defined()) return nullptr;
    std::vector<at::Tensor> tensors{samples.raw};
    if (samples.labels.defined()) tensors.push_back(samples.labels);
    const bool draws = train && sampler != nullptr;
    if (samples.begins.empty() && !draws) return data.get_tensorloader(std::move(tensors), train);
    DataLoaderOptions loader = data.loader_options(train);
    if (draws)
      loader.sampler = sampler;
    else if (train && data.options().sampler == "balanced")
      loader.sampler =
          std::make_shared<WeightedSampler>(balanced_sample_weights(samples.labels), loader.seed);
    std::shared_ptr<const Dataset> dataset;
    if (samples.begins.empty())
      dataset = std::make_shared<TensorDataset>(std::move(tensors));
    else
      dataset = std::make_shared<WindowDataset>(samples.raw, samples.begins, *options.window, samples.labels);
    return std::make_shared<DataLoader>(std::move(dataset), std::move(loader));
  }

  TableDataOptions options;
  std::filesystem::path predict_file{};  // empty: the test or validation samples
  std::shared_ptr<TableTransform> transform{};
  bool is_read = false;                      // the training file
  std::shared_ptr<const Sampler> sampler{};  // by `weights`
  std::vector<std::string> skipped{};        // an error per row
  std::size_t num_main_files = 0;            // of val_files: 1 if the first one is the main set
  std::vector<NamedLoader> more_val_loaders{};
  Samples train{}, val{};
  std::optional<Samples> test{}, predict{};
  std::shared_ptr<DataLoader> train_loader{}, val_loader{}, test_loader{}, predict_loader{};
};

TableData::TableData(TableDataOptions options, DataOptions data_options)
    : DataModule(std::move(data_options)) {
  check_table_options(options, this->options());
  impl_ = std::make_unique<Impl>(Impl{.options = std::move(options)});
}

TableData::~TableData() = default;

void TableData::prepare_data() {
  if (!impl_->predict_file.empty() && !std::filesystem::exists(impl_->predict_file))
    throw DataError({.place = impl_->predict_file.string(),
                     .found = "no such file",
                     .wanted = std::string(kTableFile) + " to predict"});
  if (!impl_->transform) impl_->read_training_file(options());
  if (!impl_->predict_file.empty()) return;
  if (impl_->options.test_file) require_data_file(*impl_->options.test_file, "test_file", kTableFile);
  for (const std::filesystem::path& file : impl_->options.val_files)
    require_data_file(file, "val_files", kTableFile);
}

std::shared_ptr<DataLoader> TableData::train_dataloader() {
  impl_->read_training_file(options());
  if (!impl_->train_loader) impl_->train_loader = impl_->loader_of(impl_->train, *this, /*train=*/true);
  return impl_->train_loader;
}

std::shared_ptr<DataLoader> TableData::val_dataloader() {
  impl_->read_training_file(options());
  if (!impl_->val_loader) impl_->val_loader = impl_->loader_of(impl_->val, *this, /*train=*/false);
  return impl_->val_loader;
}

std::vector<NamedLoader> TableData::more_val_dataloaders() {
  impl_->read_training_file(options());
  const std::vector<std::filesystem::path>& files = impl_->options.val_files;
  for (std::size_t i = impl_->num_main_files + impl_->more_val_loaders.size(); i < files.size(); ++i) {
    std::optional<Impl::Samples> samples;
    const Impl::Samples& rows = impl_->read_samples(samples, files[i], Impl::LabelUse::required);
    impl_->more_val_loaders.push_back(
        {files[i].stem().string(), impl_->loader_of(rows, *this, /*train=*/false)});
  }
  return impl_->more_val_loaders;
}

std::shared_ptr<DataLoader> TableData::test_dataloader() {
  if (!impl_->options.test_file) return val_dataloader();
  prepare();
  if (impl_->test && !impl_->test->labels.defined()) impl_->test.reset();  // read for predictions
  const Impl::Samples& test =
      impl_->read_samples(impl_->test, *impl_->options.test_file, Impl::LabelUse::required);
  if (!impl_->test_loader) impl_->test_loader = impl_->loader_of(test, *this, /*train=*/false);
  return impl_->test_loader;
}

std::shared_ptr<DataLoader> TableData::predict_dataloader() {
  if (impl_->predict_file.empty()) {
    if (!impl_->options.test_file) return val_dataloader();
    prepare();
    const auto& test =
        impl_->read_samples(impl_->test, *impl_->options.test_file, Impl::LabelUse::if_present);
    if (test.labels.defined()) return test_dataloader();
    if (!impl_->predict_loader) impl_->predict_loader = impl_->loader_of(test, *this, /*train=*/false);
    return impl_->predict_loader;
  }
  prepare();
  const Impl::Samples& rows = impl_->read_samples(impl_->predict, impl_->predict_file, Impl::LabelUse::none);
  if (!impl_->predict_loader) impl_->predict_loader = impl_->loader_of(rows, *this, /*train=*/false);
  return impl_->predict_loader;
}

Batch TableData::on_after_batch_transfer(Batch batch) {
  at::Tensor& inputs = batch.tensors()[0];
  impl_->transform->follow(inputs);
  inputs = impl_->transform->forward(inputs);
  return batch;
}

std::shared_ptr<InputTransform> TableData::input_transform() { return impl_->transform; }

void TableData::restore_input_transform(const std::string& description) {
  const TableSchema schema = TableSchema::parse(description, kInputTransform);
  impl_->options.window.reset();
  if (schema.window > 0) {
    impl_->options.window = schema.window;
    impl_->options.series = schema.series;
    impl_->options.time = schema.time;
  }
  impl_->transform = std::make_shared<TableTransform>(schema);
}

void TableData::predict_from(const std::filesystem::path& file) { impl_->predict_file = file; }

std::vector<std::string> TableData::class_names() { return schema().classes; }

std::vector<std::string> TableData::skipped_samples() { return impl_->skipped; }

SampleIds TableData::predict_ids() {
  const Impl::Samples& samples = !impl_->predict_file.empty() && impl_->predict ? *impl_->predict
                                 : impl_->test                                  ? *impl_->test
                                                                                : impl_->val;
  if (samples.ids.empty()) return {};
  return {.name = schema().id.empty() ? "row" : schema().id, .values = samples.ids};
}

const TableSchema& TableData::schema() const {
  if (!impl_->transform)
    throw Error({.place = "TableData::schema",
                 .found = "the file has not been read",
                 .remedy = "call prepare() first"});
  return impl_->transform->schema();
}

}  // namespace kindling
