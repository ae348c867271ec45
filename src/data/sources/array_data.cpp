#include "kindling/data/array_data.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/joined.h"
#include "data/loading/array_checks.h"
#include "data/loading/array_columns.h"
#include "data/loading/array_series.h"
#include "data/loading/array_source.h"
#include "data/loading/balanced_sampler.h"
#include "data/loading/chunk_sampler.h"
#include "data/loading/file_pattern.h"
#include "data/loading/sample_ranges.h"
#include "data/loading/stacked_channels.h"
#include "data/loading/stored_dataset.h"
#include "data/loading/window_dataset.h"
#include "data/sources/data_checks.h"
#include "data/sources/split_findings.h"
#include "data/transforms/array_scale.h"
#include "data/transforms/channel_scale.h"
#include "data/transforms/random_patch.h"
#include "data/transforms/sample_noise.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/suggest.h"
#include "kindling/data/dataset.h"
#include "kindling/data/split.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

bool is_integer(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

using Column = StoredDataset::Column;

void require_array_file(const fs::path& file, const char* key) {
  if (!is_file_pattern(file)) require_data_file(file, key, kArrayFileKind);
}

at::Tensor checked_weights(const SourceArray& array, std::int64_t num_samples) {
  if (array.values.is_complex() || array.values.numel() != num_samples)
    array.refuse("one weight per sample, [" + std::to_string(num_samples) + "]");
  at::Tensor values = array.all_samples().to(at::kDouble).flatten();
  for (std::int64_t i = 0; i < num_samples; ++i)
    if (const double weight = values.const_data_ptr<double>()[i]; !std::isfinite(weight) || weight < 0)
      throw DataError({.place = array.place() + ", sample " + std::to_string(i),
                       .found = "the weight " + number_text(weight),
                       .wanted = "a finite number that is at least 0"});
  return values;
}

// Returns true for samples of as many dimensions that are all integers or all floating-point: pixels as bytes
// are not pixels in [0, 1]. Whether it takes other sizes is up to the model.
bool are_alike(const at::Tensor& inputs, const at::Tensor& others) {
  return inputs.dim() == others.dim() && is_integer(inputs) == is_integer(others);
}

at::Tensor samples_of(const at::Tensor& tensor, const std::vector<std::int64_t>& chosen) {
  if (static_cast<std::int64_t>(chosen.size()) == tensor.size(0)) return tensor;  // both are in order
  return tensor.index_select(0, at::tensor(chosen, at::kLong));
}

at::Tensor labels_of(const Dataset& dataset) {
  const auto* const stored = dynamic_cast<const StoredDataset*>(&dataset);
  return stored != nullptr ? stored->labels() : labels_in_memory(dataset);
}

// `chosen`: nullptr: all samples.
std::shared_ptr<const Dataset> dataset_of(const std::vector<Column>& columns,
                                          const std::vector<std::int64_t>* chosen = nullptr) {
  std::vector<at::Tensor> tensors;
  for (const Column& column : columns) {
    const auto* const tensor = std::get_if<at::Tensor>(&column);
    if (tensor == nullptr) return std::make_shared<StoredDataset>(columns, chosen);
    tensors.push_back(chosen == nullptr ? *tensor : samples_of(*tensor, *chosen));
  }
  return std::make_shared<TensorDataset>(std::move(tensors));
}

}  // namespace

struct ArrayData::Impl {
  using Arrays = std::vector<SourceArray>;

  // The columns of inputs, which also has the arrays of more_inputs in `arrays`, and labels.
  std::vector<Column> columns_of(const SourceArray& inputs, const SourceArray& labels,
                                 const Arrays& arrays) const {
    std::vector<Column> samples{input_column(inputs, is_scaled(options))};
    Column label = label_column(labels, inputs.values.size(0));
    labels.require_files_like(inputs);
    add_more_inputs(arrays, options.file, samples);
    samples.push_back(std::move(label));
    return samples;
  }

  // An array with further ones stacked as channels. `more_key`: the option that names them.
  SourceArray with_channels(const SourceArray& first, const Arrays& arrays, const fs::path& file,
                            const std::vector<std::string>& more, const char* more_key) const {
    Arrays channels{first};
    for (const std::string& channel : more) channels.push_back(array_named(arrays, channel, file, more_key));
    return stacked_channels(channels, options.layout == "series_time" ? 2 : 1);
  }
  SourceArray inputs_in(const Arrays& arrays, const fs::path& file) const {
    return with_channels(array_named(arrays, options.inputs, file, "inputs"), arrays, file,
                         options.more_channels, "more_channels");
  }
  SourceArray labels_in(const Arrays& arrays, const fs::path& file) const {
    return with_channels(array_named(arrays, options.labels, file, "labels"), arrays, file,
                         options.more_label_channels, "more_label_channels");
  }

  // `lengths`: of an array [series, time, …], its first two dimensions.
  void add_more_inputs(const Arrays& arrays, const fs::path& file, std::vector<Column>& samples,
                       const std::optional<SeriesLengths>& lengths = {}) const {
    for (const std::string& name : options.more_inputs) {
      SourceArray more = array_named(arrays, name, file, "more_inputs");
      if (lengths) more = rows_of_series(more, *lengths);
      Column column = input_column(more, /*will_be_scaled=*/false);
      if (const std::int64_t count = num_rows_of(samples[0]); more.values.size(0) != count)
        more.refuse("as many samples as in the other inputs, [" + std::to_string(count) + ", …]");
      more.require_files_like(array_named(arrays, options.inputs, file, "inputs"));
      samples.push_back(std::move(column));
    }
  }

  std::vector<Arrays> read_files(const DataOptions& shared) const {
    std::set<std::string> names{options.inputs, options.val_inputs, options.weights, options.series};
    names.insert(options.more_inputs.begin(), options.more_inputs.end());
    names.insert(options.more_channels.begin(), options.more_channels.end());
    std::set<std::string> of_labels(options.more_label_channels.begin(), options.more_label_channels.end());
    if (!options.horizon) of_labels.insert({options.labels, options.val_labels});
    if (!options.labels_file) names.insert(of_labels.begin(), of_labels.end());
    require_array_file(options.file, "file");
    std::vector<ArrayRequest> requests{request_of_inputs(options.file, names)};
    if (options.labels_file) {
      require_array_file(*options.labels_file, "labels_file");
      requests.push_back({.file = *options.labels_file,
                          .key = "labels_file",
                          .names = of_labels,
                          .raw_samples = options.labels,
                          .raw_key = "labels",
                          .sample_dim = options.sample_dim,
                          .decode = options.decode});
    }
    return read_arrays(requests, most_array_bytes_in_memory(shared.resident == "on"));
  }

  ArrayRequest request_of_inputs(const fs::path& file, std::set<std::string> names) const {
    return {.file = file,
            .key = "file",
            .names = std::move(names),
            .raw_samples = options.inputs,
            .raw_key = "inputs",
            .sample_dim = options.sample_dim,
            .decode = options.decode};
  }

  // Nullopt: all samples are for training.
  std::optional<SplitIndices> split(const std::vector<Column>& samples, const DataOptions& shared) const {
    const std::int64_t count = num_rows_of(samples[0]);
    if (!options.val_fraction && !options.folds && !shared.train && !shared.val) return std::nullopt;
    if (!options.val_fraction && !options.folds) return samples_in_ranges(count, shared);
    SplitOptions split{.val_fraction = options.val_fraction,
                       .folds = options.folds,
                       .fold = options.fold,
                       .seed = options.seed,
                       .place = "data"};
    if (options.stratify) {
      const at::Tensor none = no_rows_of(samples.back());
      if (!is_integer(none) || none.dim() != 1)
        throw ConfigError({.place = "data.stratify",
                           .found = "the labels are " + type_text(none),
                           .wanted = "classes, integers [samples]"});
      const at::Tensor labels = all_rows_of(samples.back());
      split.classes.assign(labels.const_data_ptr<std::int64_t>(),
                           labels.const_data_ptr<std::int64_t>() + labels.numel());
    }
    SplitIndices indices = split_indices(count, split);
    if (!split.classes.empty())
      warn_of_unvalidated_classes(split.classes, indices, {}, options.stratify, "data");
    return indices;
  }

  // Rows of one array, of which the targets are later ones.
  void prepare_pairs(const DataOptions& shared) {
    const std::vector<Arrays> files = read_files(shared);
    SourceArray states = inputs_in(files.front(), options.file);
    const SourceArray* const series =
        options.series.empty() ? nullptr
                               : &array_named(files.front(), options.series, options.file, "series");
    if (options.files_continue) {
      if (series != nullptr) series->require_files_like(states);
      states.file_sizes.clear();
    }
    const std::optional<SeriesLengths> lengths = series_lengths(states, options);
    const Trajectories trajectories = trajectories_of(states, series, lengths);
    std::vector<Column> columns{input_column(states, is_scaled(options))};
    warn_if_coarse(states, options);
    add_more_inputs(files.front(), options.file, columns, lengths);
    check_patch(columns, states.place());
    const SeriesPairs pairs = split_pairs(trajectories, options, shared, states.place());
    const auto targets = dataset_of({columns.front()});
    describe_samples(columns.front(), states);
    fit_scale(*targets, rows_of(pairs.train), states.place());
    const auto inputs = columns.size() == 1 ? targets : dataset_of(columns);
    train = std::make_shared<PairDataset>(inputs, targets, pairs.train);
    train_rows = pairs.train.inputs;
    if (!pairs.val.inputs.empty()) val = std::make_shared<PairDataset>(inputs, targets, pairs.val);
    val_rows = pairs.val.targets;
    if (options.rollout_steps == 0) return;
    rollouts = std::make_shared<PairDataset>(inputs, targets, pairs.rollouts.pairs);
    rollout_group = pairs.rollouts.group_size;
  }

  // The last dimensions of a sample, as many as those of `patch`.
  at::IntArrayRef space_of(at::IntArrayRef sizes) const {
    return sizes.size() > options.patch.size() ? sizes.slice(sizes.size() - options.patch.size())
                                               : at::IntArrayRef{};
  }

  // Throws DataError unless all columns are fields that have such patches, or values without places.
  void check_patch(const std::vector<Column>& columns, const std::string& place) const {
    if (options.patch.empty()) return;
    const std::vector<std::int64_t> inputs = no_rows_of(columns.front()).sizes().vec();
    const at::IntArrayRef space = space_of(inputs);
    const auto refuse = [&](const std::string& found, const std::string& wanted) {
      throw DataError({.place = place, .found = found, .wanted = wanted, .remedy = "see data.patch"});
    };
    for (std::size_t i = 0; i < options.patch.size(); ++i)
      if (space.empty() || space[i] < options.patch[i])
        refuse("the samples are " + shape_text(at::IntArrayRef(inputs).slice(1)),
               "at least the sizes of a patch, " + shape_text(options.patch) + ", in the last dimensions");
    for (const Column& column : columns)
      if (const std::vector<std::int64_t> sizes = no_rows_of(column).sizes().vec();
          !is_field(sizes, space) && sizes.size() > 2)
        refuse("the fields of the inputs are " + shape_text(space) + ", and further inputs or labels are " +
                   shape_text(at::IntArrayRef(sizes).slice(1)),
               "fields of the same size, or [samples] or [samples, values] without places");
  }

  void describe_samples(const Column& inputs, const SourceArray& array) {
    sample = no_rows_of(inputs).clone();
    is_coarse = sample.scalar_type() == at::kDouble && coarse_feature(array.some_samples(), 0);
  }

  // Computes the statistics of normalize_by from rows of a data set of the inputs, unless saved ones are
  // used.
  void fit_scale(const Dataset& inputs, const std::vector<std::int64_t>& rows, const std::string& place) {
    if (!options.normalize_by) return;
    const bool is_by_channel = *options.normalize_by == "channels" && sample.dim() > 1;
    const std::int64_t channels = is_by_channel ? sample.size(1) : 1;
    if (scale && scale->mean().size(0) != channels)
      throw CheckpointError({.place = place,
                             .found = "the samples have " + counted(channels, "channel"),
                             .wanted = counted(scale->mean().size(0), "channel") +
                                       ", as the data that the weights were trained on"});
    if (scale) return;
    scale = std::make_shared<ChannelScale>(channels, options.fill_missing);
    scale->fit(inputs, rows, place);
  }

  const ArrayDataOptions options;
  std::shared_ptr<ChannelScale> scale{};  // of normalize_by
  std::shared_ptr<const Dataset> rollouts{};
  std::int64_t rollout_group = 0;                      // the samples of a batch of them
  std::shared_ptr<const Dataset> train{}, val{};       // inputs and labels; nullptr: none
  std::shared_ptr<const Sampler> sampler{};            // by `weights` or `shuffle_chunks`
  std::vector<std::int64_t> train_rows{}, val_rows{};  // in the arrays; empty: all
  at::Tensor sample{};                                 // of the training, [0, …]: its shape and dtype
  bool is_coarse = false;                              // in float32, before the scaling
  fs::path predict_file{};
  std::shared_ptr<DataLoader> train_loader{}, val_loader{}, predict_loader{}, rollout_loader{};
};

PredictionOriginSource::~PredictionOriginSource() = default;

ArrayData::ArrayData(ArrayDataOptions options, DataOptions data_options)
    : DataModule(std::move(data_options)) {
  check_array_options(options, this->options());
  impl_ = std::make_unique<Impl>(Impl{.options = std::move(options)});
}

ArrayData::~ArrayData() = default;

void ArrayData::prepare_data() {
  const ArrayDataOptions& options = impl_->options;
  if (!impl_->predict_file.empty() && !fs::exists(options.file)) return;  // only predicts another file
  if (options.horizon) return impl_->prepare_pairs(this->options());
  const std::vector<Impl::Arrays> files = impl_->read_files(this->options());
  const Impl::Arrays &inputs = files.front(), &labels = files.back();
  const fs::path labels_file = options.labels_file.value_or(options.file);
  const SourceArray first = impl_->inputs_in(inputs, options.file);
  const std::vector<Column> samples = impl_->columns_of(first, impl_->labels_in(labels, labels_file), inputs);
  impl_->check_patch(samples, first.place());
  warn_if_coarse(first, options);
  impl_->describe_samples(samples[0], first);
  const std::optional<SplitIndices> split = impl_->split(samples, this->options());
  if (options.normalize_by)
    impl_->fit_scale(*dataset_of({samples[0]}),
                     split ? split->train : consecutive_rows(0, num_rows_of(samples[0])), first.place());
  if (split) impl_->train_rows = split->train;
  if (split && options.val_inputs.empty()) impl_->val_rows = split->val;
  impl_->train = dataset_of(samples, split ? &split->train : nullptr);
  if (split && !split->val.empty()) impl_->val = dataset_of(samples, &split->val);
  if (!options.weights.empty()) {
    const SourceArray& array = array_named(inputs, options.weights, options.file, "weights");
    const at::Tensor weights = checked_weights(array, num_rows_of(samples[0]));
    impl_->sampler = weighted_training(split ? samples_of(weights, split->train) : weights,
                                       this->options().seed, array.place(), "samples");
  }
  if (options.shuffle_chunks > 0)
    impl_->sampler = chunk_sampler(array_named(inputs, options.inputs, options.file, "inputs"),
                                   split ? &split->train : nullptr,
                                   {.num_mixed = options.shuffle_chunks,
                                    .seed = this->options().seed,
                                    .order_seed = this->options().order_seed});
  if (options.val_inputs.empty()) return;
  impl_->val = dataset_of(
      impl_->columns_of(array_named(inputs, options.val_inputs, options.file, "val_inputs"),
                        array_named(labels, options.val_labels, labels_file, "val_labels"), inputs));
}

std::shared_ptr<DataLoader> ArrayData::train_dataloader() {
  prepare();
  if (impl_->train_loader || !impl_->train) return impl_->train_loader;
  DataLoaderOptions loader = loader_options(/*train=*/true);
  if (options().sampler == "balanced")
    loader.sampler = balanced_sampler(labels_of(*impl_->train), loader.seed);
  if (impl_->sampler) loader.sampler = impl_->sampler;
  return impl_->train_loader = std::make_shared<DataLoader>(std::exchange(impl_->train, nullptr), loader);
}

std::shared_ptr<DataLoader> ArrayData::val_dataloader() {
  prepare();
  if (!impl_->val_loader && impl_->val)
    impl_->val_loader =
        std::make_shared<DataLoader>(std::exchange(impl_->val, nullptr), loader_options(/*train=*/false));
  return impl_->val_loader;
}

std::shared_ptr<DataLoader> ArrayData::predict_dataloader() {
  if (impl_->predict_file.empty()) return val_dataloader();
  if (impl_->predict_loader) return impl_->predict_loader;
  prepare();
  const fs::path& file = impl_->predict_file;
  const std::string& name = impl_->options.inputs;
  std::set<std::string> names{name};
  for (const auto* const more : {&impl_->options.more_inputs, &impl_->options.more_channels})
    names.insert(more->begin(), more->end());
  require_array_file(file, "file");
  const auto arrays = read_arrays({impl_->request_of_inputs(file, std::move(names))},
                                  most_array_bytes_in_memory(/*is_required=*/false));
  SourceArray inputs = impl_->inputs_in(arrays[0], file);
  const std::optional<SeriesLengths> lengths = series_lengths(inputs, impl_->options);
  if (lengths) inputs = rows_of_series(inputs, *lengths);
  std::vector<Column> samples{input_column(inputs, is_scaled(impl_->options))};
  if (impl_->sample.defined() && !are_alike(no_rows_of(samples[0]), impl_->sample))
    inputs.refuse("samples like those of the training, " +
                  std::string(c10::toString(impl_->sample.scalar_type())) + " " +
                  shape_text(impl_->sample.sizes().slice(1)) + " each, of the same or another size");
  impl_->add_more_inputs(arrays[0], file, samples, lengths);
  return impl_->predict_loader =
             std::make_shared<DataLoader>(dataset_of(samples), loader_options(/*train=*/false));
}

Batch ArrayData::on_after_batch_transfer(Batch batch, Stage stage) {
  const ArrayDataOptions& options = impl_->options;
  const at::Tensor numbers = batch.random_numbers();
  batch = on_after_batch_transfer(std::move(batch));
  const std::int64_t count = num_random_numbers(stage);
  if (count == 0) return batch;
  if (!numbers.defined() || numbers.size(1) != count)
    throw DataError({.place = options.patch.empty() ? "data.input_noise" : "data.patch",
                     .found = "the batch has no random numbers",
                     .wanted = "a batch of the loader of ArrayData"});
  at::Tensor& inputs = batch.tensors()[0];
  if (options.input_noise > 0)
    inputs = inputs + sample_noise(inputs, numbers.narrow(1, 0, kNumbersOfNoise)).mul_(options.input_noise);
  if (options.patch.empty()) return batch;
  const auto num_dims = static_cast<std::int64_t>(options.patch.size());
  const std::vector<std::int64_t> sizes = inputs.sizes().vec();
  for (at::Tensor& tensor : batch.tensors())
    if (is_field(tensor.sizes(), impl_->space_of(sizes)))
      tensor = random_patches(tensor, numbers.narrow(1, count - num_dims, num_dims), options.patch);
  return batch;
}

Batch ArrayData::on_after_batch_transfer(Batch batch) {
  const ArrayDataOptions& options = impl_->options;
  if (impl_->scale) impl_->scale->follow(batch.tensors()[0]);
  const auto scale = [&](at::Tensor& values) {
    values = impl_->scale ? impl_->scale->scaled(values) : scaled(values, options);
    if (options.horizon) values = values.to(at::kFloat);  // states are numbers, not tokens
  };
  const std::span<at::Tensor> tensors = batch.tensors();
  const std::size_t num_inputs = options.more_inputs.size() + 1;
  scale(tensors[0]);
  // Batches to predict have no targets.
  if (options.horizon && tensors.size() == num_inputs + 1) scale(tensors.back());
  if (options.fill_missing)
    for (at::Tensor& input : tensors.first(num_inputs))
      input = with_missing_filled(input, *options.fill_missing);
  return batch;
}

at::Tensor ArrayData::unscale_targets(const at::Tensor& values) {
  if (!impl_->options.horizon) return values;
  return impl_->scale ? impl_->scale->inverse(values) : unscaled(values, impl_->options);
}

std::int64_t ArrayData::num_random_numbers(Stage stage) const {
  if (stage != Stage::train) return 0;
  return (impl_->options.input_noise > 0 ? kNumbersOfNoise : 0) + std::ssize(impl_->options.patch);
}

Rollouts ArrayData::rollouts() {
  prepare();
  if (!impl_->rollout_loader && impl_->rollouts) {
    DataLoaderOptions loader = loader_options(/*train=*/false);
    loader.batch_size = impl_->rollout_group;
    loader.resident = "off";
    impl_->rollout_loader = std::make_shared<DataLoader>(std::exchange(impl_->rollouts, nullptr), loader);
  }
  if (!impl_->rollout_loader) return {};
  return {.loader = impl_->rollout_loader, .num_steps = impl_->options.rollout_steps};
}

std::shared_ptr<InputTransform> ArrayData::input_transform() { return impl_->scale; }

void ArrayData::restore_input_transform(const std::string& description) {
  if (impl_->options.normalize_by) impl_->scale = ChannelScale::from_description(description);
}

std::optional<at::ScalarType> ArrayData::program_input_type() {
  const at::Tensor& sample = impl_->sample;
  if (!sample.defined() || sample.scalar_type() != at::kDouble) return std::nullopt;
  return impl_->is_coarse ? at::kDouble : at::kFloat;
}

SampleIds ArrayData::train_ids() {
  const std::int64_t count = train_dataloader()->dataset().size();
  SampleIds ids{.name = "row"};
  for (std::int64_t i = 0; i < count; ++i)
    ids.values.push_back(
        std::to_string(impl_->train_rows.empty() ? i : impl_->train_rows[static_cast<std::size_t>(i)]));
  return ids;
}

PredictionOrigin ArrayData::predict_origin() {
  const ArrayDataOptions& options = impl_->options;
  const bool is_other_file = !impl_->predict_file.empty(), has_series = options.layout == "series_time";
  PredictionOrigin origin{.file = options.labels_file.value_or(options.file),
                          .array = options.labels,
                          .sample_dim = options.sample_dim,
                          .has_rows = !has_series,
                          .num_row_dims = has_series ? 2U : 1U,
                          .data_files = {options.file}};
  if (options.labels_file) origin.data_files.push_back(*options.labels_file);
  if (options.horizon) {
    origin.file = options.file;
    origin.array = options.inputs;
  } else if (!is_other_file && !options.val_labels.empty()) {
    origin.array = options.val_labels;
  }
  if (!is_other_file) {
    origin.rows = impl_->val_rows;
    return origin;
  }
  // The last states that pairs in time predict are rows that no file has.
  origin.has_rows = !options.horizon;
  origin.predicted_file = impl_->predict_file;
  origin.predicted_array = options.inputs;
  origin.data_files.push_back(impl_->predict_file);
  return origin;
}

void ArrayData::predict_from(const fs::path& file) { impl_->predict_file = file; }

}  // namespace kindling
