#include "kindling/data/table_data.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "data/loading/balanced_sampler.h"
#include "data/loading/window_dataset.h"
#include "data/sources/data_checks.h"
#include "data/sources/split_findings.h"
#include "data/sources/table_checks.h"
#include "data/sources/table_findings.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_reader.h"
#include "data/sources/table_rows.h"
#include "data/sources/table_transform.h"
#include "data/sources/table_windows.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/sampler.h"

namespace kindling {
namespace {

constexpr const char* kTableFile = "a CSV or JSON lines file";
constexpr const char *kTableInMemory = "the table", *kTableToPredict = "the table to predict";

TableDataOptions with_name(TableDataOptions options) {
  if (options.file.empty()) options.file = kTableInMemory;
  return options;
}

at::Tensor index_tensor(const std::vector<std::int64_t>& rows) { return at::tensor(rows, at::kLong); }

}  // namespace

struct TableData::Impl {
  // The tensors of a loader; undefined if there are no such samples.
  struct Samples {
    at::Tensor raw{}, labels{};
    std::vector<std::string> ids{};
    std::vector<std::int64_t> begins{};  // of windows in `raw`; empty: samples are rows
    // Of validation samples: the numbers in the file of their rows, or of the last rows of their windows.
    std::vector<std::size_t> row_numbers{};
  };

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

  static std::vector<std::size_t> row_numbers_of(const Table& table, const std::vector<std::int64_t>& samples,
                                                 const std::optional<TableWindows>& windows) {
    // In one pass: Table::row_number() passes the skipped rows for each row.
    std::vector<std::size_t> of_rows(table.num_rows), numbers;
    auto skipped = table.skipped.begin();
    std::size_t number = 0;
    for (std::size_t& of_row : of_rows) {
      for (++number; skipped != table.skipped.end() && skipped->row <= number; ++skipped) ++number;
      of_row = number;
    }
    for (const std::int64_t sample : samples) {
      const auto index = static_cast<std::size_t>(sample);
      numbers.push_back(of_rows[windows ? static_cast<std::size_t>(windows->last_rows[index]) : index]);
    }
    return numbers;
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
    if (!reader.has_kept(options.file)) require_data_file(options.file, "file", kTableFile);
    const std::string place = options.file.string();
    const bool fits = !transform;
    const Table table = fits
                            ? reader.read_first()
                            : reader.read_again(options.file, transform->schema(), TableColumns::of_training);
    if (table.num_rows == 0)
      throw DataError({.place = place, .found = "the table has no rows", .wanted = "at least one"});
    TableSchema schema = fits ? schema_of(table, options, place) : transform->schema();
    if (fits) reader.add_units(schema);
    const std::optional<TableWindows> windows = windows_in(table, schema, WindowUse::trains, place);
    const SplitIndices indices =
        split_samples(table, schema, options, shared, windows ? &*windows : nullptr, place);
    const std::vector<std::int64_t> training_rows = windows ? windows->rows_of(indices.train) : indices.train;
    if (fits) {
      drop_empty_features(table, training_rows, options.features, schema, place);
      keep_categories_of(table, training_rows, schema);
      for (const std::string& finding : findings_in(table, schema, training_rows, layout_of(options), place))
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
    if (!schema.label_separator.empty()) {
      log_rows_without_label(labels, "rows", place);
      warn_of_unshared_classes(labels, indices, schema.classes, place);
    } else if (!schema.label.empty()) {
      const auto* const classes = labels.const_data_ptr<std::int64_t>();
      warn_of_unvalidated_classes({classes, classes + labels.numel()}, indices, schema.classes,
                                  options.stratify, place);
    }
    if (windows) rows.raw = rows.raw.index_select(0, index_tensor(windows->order));
    train =
        windows ? samples_of(rows, labels, indices.train, *windows) : samples_of(rows, labels, indices.train);
    val = windows ? samples_of(rows, labels, indices.val, *windows) : samples_of(rows, labels, indices.val);
    train.row_numbers = row_numbers_of(table, indices.train, windows);
    val.row_numbers = row_numbers_of(table, indices.val, windows);
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
    const Table table = reader.read_again(
        file, schema, use == LabelUse::none ? TableColumns::of_inputs : TableColumns::with_labels);
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
    if (labels.defined() && !schema.label_separator.empty()) log_rows_without_label(labels, "rows", place);
    const std::vector<std::int64_t> all = all_of(windows ? windows->begins.size() : table.num_rows);
    if (windows) rows.raw = rows.raw.index_select(0, index_tensor(windows->order));
    samples = windows ? samples_of(rows, labels, all, *windows) : samples_of(rows, labels, all);
    if (use == LabelUse::required) samples->row_numbers = row_numbers_of(table, all, windows);
    return *samples;
  }

  SampleIds ids_of(const Samples& samples) const {
    const std::string& id = transform->schema().id;
    if (!id.empty() && !samples.ids.empty()) return {.name = id, .values = samples.ids};
    SampleIds ids{.name = "row"};
    for (const std::size_t number : samples.row_numbers) ids.values.push_back(std::to_string(number));
    return ids;
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
      loader.sampler = balanced_sampler(samples.labels, loader.seed);
    std::shared_ptr<const Dataset> dataset;
    if (samples.begins.empty())
      dataset = std::make_shared<TensorDataset>(std::move(tensors));
    else
      dataset = std::make_shared<WindowDataset>(samples.raw, samples.begins, *options.window, samples.labels);
    return std::make_shared<DataLoader>(std::move(dataset), std::move(loader));
  }

  explicit Impl(TableDataOptions of_data) : options(std::move(of_data)) {}

  TableDataOptions options;
  TableReader reader{options};
  std::filesystem::path predict_file{};  // empty: the test or validation samples
  std::shared_ptr<TableTransform> transform{};
  bool is_read = false;                      // the training file
  std::shared_ptr<const Sampler> sampler{};  // by `weights`
  std::size_t num_main_files = 0;            // of val_files: 1 if the first one is the main set
  std::vector<NamedLoader> more_val_loaders{};
  Samples train{}, val{};
  std::optional<Samples> test{}, predict{};
  std::shared_ptr<DataLoader> train_loader{}, val_loader{}, test_loader{}, predict_loader{};
};

TableData::TableData(TableDataOptions options, DataOptions data_options)
    : DataModule(std::move(data_options)) {
  check_table_options(options, this->options());
  impl_ = std::make_unique<Impl>(std::move(options));
}

TableData::TableData(Table table, TableDataOptions options, DataOptions data_options)
    : TableData(with_name(std::move(options)), std::move(data_options)) {
  impl_->reader.keep(impl_->options.file, std::move(table));
}

TableData::~TableData() = default;

void TableData::prepare_data() {
  if (!impl_->predict_file.empty() && !impl_->reader.has_kept(impl_->predict_file) &&
      !std::filesystem::exists(impl_->predict_file))
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
    // Windows are predicted also where the row that they predict does not exist yet.
    const bool has_windows = impl_->options.window.has_value();
    if (has_windows && impl_->test && impl_->test->labels.defined()) impl_->test.reset();
    const auto& test = impl_->read_samples(impl_->test, *impl_->options.test_file,
                                           has_windows ? Impl::LabelUse::none : Impl::LabelUse::if_present);
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
  require_same_windows(impl_->options, schema);
  require_same_separator(impl_->options, schema);
  impl_->options.label_separator = schema.label_separator;
  impl_->options.window.reset();
  if (schema.window > 0) {
    impl_->options.window = schema.window;
    impl_->options.horizon = schema.horizon;
    impl_->options.series = schema.series;
    impl_->options.time = schema.time;
  }
  impl_->transform = std::make_shared<TableTransform>(schema);
}

void TableData::predict_from(const std::filesystem::path& file) {
  impl_->predict_file = file;
  impl_->predict.reset();
  impl_->predict_loader.reset();
}

void TableData::predict_from(Table table) {
  impl_->reader.keep(kTableToPredict, std::move(table));
  predict_from(std::filesystem::path(kTableToPredict));
}

std::vector<std::string> TableData::class_names() { return schema().classes; }

std::vector<std::string> TableData::skipped_samples() { return impl_->reader.skipped(); }

SampleIds TableData::train_ids() {
  impl_->read_training_file(options());
  return impl_->ids_of(impl_->train);
}

SampleIds TableData::val_ids() {
  impl_->read_training_file(options());
  return impl_->ids_of(impl_->val);
}

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
