#include "kindling/data/array_data.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/std.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "data/loading/sample_ranges.h"
#include "data/sources/data_checks.h"
#include "data/sources/number_scale.h"
#include "data/sources/split_findings.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/suggest.h"
#include "kindling/data/split.h"
#include "kindling/formats/npy.h"
#include "tensors/scalar_types.h"
#include "tensors/shape_text.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
using NamedArrays = std::vector<std::pair<std::string, at::Tensor>>;

constexpr const char* kFileKind = "a .npz, .npy, .safetensors or .pt file";

bool is_npy(const fs::path& file) { return lower_case(file.extension().string()) == ".npy"; }

void check_array_options(const ArrayDataOptions& options, const DataOptions& shared) {
  validate(options, "data");
  const auto refuse = [](const char* place, const char* found, const char* wanted) {
    throw ConfigError({.place = place, .found = found, .wanted = wanted});
  };
  // Each name would mean the only array of such a file.
  if (is_npy(options.file)) {
    if (!options.labels_file)
      refuse("data.labels_file", "it is not set, and a .npy file has one array", "a file of the labels");
    if (!options.weights.empty())
      refuse("data.weights", "it is set, and a .npy file has one array", "a .npz file with the weights");
  }
  if (!options.val_inputs.empty() &&
      (is_npy(options.file) || (options.labels_file && is_npy(*options.labels_file))))
    refuse("data.val_inputs", "it is set, and a .npy file has one array",
           "a .npz file with the validation samples, or a part of the samples, such as val_fraction");
  if (!options.more_inputs.empty() && is_npy(options.file))
    refuse("data.more_inputs", "it is set, and a .npy file has one array", "a .npz file with all inputs");
  if (!options.more_inputs.empty() && !options.val_inputs.empty())
    refuse("data.more_inputs", "it is set, and val_inputs names one array",
           "a part of the samples for validation, such as val_fraction");
  if (options.keep_type && (options.divisor != 1 || options.normalize))
    refuse("data.keep_type", "it is set, and divisor or normalize, too",
           "one of them: scaled numbers are float32");
  if (options.normalize && !((*options.normalize)[1] > 0))
    refuse("data.normalize", "the standard deviation is not positive", "[mean, std] with std > 0");
  if (options.val_inputs.empty() != options.val_labels.empty())
    refuse("data", "only one of val_inputs and val_labels is set", "both or none");
  if (options.val_fraction && options.folds)
    refuse("data", "both val_fraction and folds are set", "one of them");
  const bool is_split = options.val_fraction || options.folds;
  if (is_split && (shared.train || shared.val))
    refuse("data", "val_fraction or folds, and a range of samples in train or val",
           "one way to split the samples");
  if (!options.val_inputs.empty() && (is_split || shared.val))
    refuse("data.val_inputs", "it is set, and the samples are split, too",
           "one way to get validation samples");
  if (!options.weights.empty() && shared.sampler)
    refuse("data.weights", "data.sampler is set, too", "one of them: weights draw the samples by themselves");
  if (options.fold != 0 && !options.folds)
    refuse("data.fold", "folds is not set", "folds = N, with fold < N");
  if (options.stratify && !is_split)
    refuse("data.stratify", "the samples are not split", "val_fraction or folds");
}

at::Tensor tensor_of(const NpyArray& array) {
  std::vector<std::int64_t> shape = array.shape;
  if (array.is_column_major) std::ranges::reverse(shape);
  at::Tensor tensor = at::empty(shape, scalar_type_of(array.type));
  if (!array.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
  if (!array.is_column_major) return tensor;
  std::vector<std::int64_t> order(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(order.size() - 1 - i);
  return tensor.permute(order).contiguous();
}

// Of an archive, only the arrays of these names are read; the others are undefined.
NamedArrays arrays_in(const fs::path& file, const char* key, const std::set<std::string>& names) {
  require_data_file(file, key, kFileKind);
  const std::string extension = lower_case(file.extension().string());
  if (is_npy(file)) return {{"", tensor_of(read_npy(file))}};
  if (extension == ".npz") {
    NamedArrays arrays;
    for (NpyArray& array : read_npz(file, names)) {
      const bool is_read = names.contains(array.name);
      arrays.emplace_back(array.name, is_read ? tensor_of(array) : at::Tensor());
      array.bytes = {};  // not all of them twice
    }
    return arrays;
  }
  if (extension == ".safetensors" || extension == ".pt" || extension == ".pth")
    return read_state(WeightsFile::open(file)).tensors;  // a copy: the file may change during the run
  throw ConfigError({.place = std::string("data.") + key,
                     .found = file.string() + " ends with '" + extension + "'",
                     .wanted = kFileKind});
}

// Returns the array of a name; the only one of a .npy file has none. `key`: the option that names it.
at::Tensor array_named(const NamedArrays& arrays, const std::string& name, const fs::path& file,
                       const char* key) {
  if (arrays.size() == 1 && arrays.front().first.empty()) return arrays.front().second;
  std::vector<std::string> names;
  for (const auto& [known, tensor] : arrays) {
    if (known == name) return tensor;
    names.push_back(known);
  }
  std::ranges::sort(names);
  const std::string guess = nearest(name, names);
  throw ConfigError({.place = std::string("data.") + key,
                     .found = file.string() + " has no array '" + name + "'",
                     .wanted = names.empty() ? "a file with arrays" : "one of " + list_names(names),
                     .remedy = guess.empty() ? "" : "did you mean '" + guess + "'?"});
}

[[noreturn]] void refuse_array(const fs::path& file, const std::string& name, const at::Tensor& tensor,
                               const std::string& wanted) {
  throw DataError({.place = file.string() + (name.empty() ? "" : ", array '" + name + "'"),
                   .found = "it is " + type_text(tensor),
                   .wanted = wanted});
}

bool is_integer(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

at::Tensor as_float32(const at::Tensor& tensor, const fs::path& file, const std::string& name) {
  at::Tensor values = tensor.to(at::kFloat);
  if (at::isinf(values).sum().item<std::int64_t>() != at::isinf(tensor).sum().item<std::int64_t>())
    refuse_array(file, name, tensor, "values that float32 can hold, up to 3.4e38");
  return values;
}

bool is_scaled(const ArrayDataOptions& options) { return options.divisor != 1 || options.normalize; }

// Returns the first feature of samples [samples, …] that float32 would round by more than 1e-3 of its
// standard deviation after the subtraction of `mean`; nullopt: there is none.
std::optional<std::int64_t> coarse_feature(const at::Tensor& samples, double mean) {
  const at::Tensor features = samples.reshape({samples.size(0), -1}).to(at::kDouble);
  const at::Tensor deviation = at::std(features, at::IntArrayRef{0}, /*unbiased=*/false);
  const at::Tensor largest = at::maximum((features.amax(0) - mean).abs(), (features.amin(0) - mean).abs());
  const at::Tensor is_coarse = (deviation > 0) & (largest * kFloat32Rounding > deviation * kMostRounding);
  if (!is_coarse.any().item<bool>()) return std::nullopt;
  return is_coarse.to(at::kByte).argmax().item<std::int64_t>();
}

// Scaled integers and float64 have digits that float32 may lack.
bool may_lose_digits(const at::Tensor& inputs, const ArrayDataOptions& options) {
  if (is_integer(inputs)) return is_scaled(options) && inputs.element_size() >= 4;
  return inputs.scalar_type() == at::kDouble;
}

void warn_if_coarse(const at::Tensor& inputs, const ArrayDataOptions& options) {
  if (!may_lose_digits(inputs, options)) return;
  const double mean = options.normalize ? (*options.normalize)[0] * options.divisor : 0;
  const auto feature = coarse_feature(inputs, mean);
  if (!feature) return;
  const std::string array = is_npy(options.file) ? "" : ", array '" + options.inputs + "'";
  log_warning(
      options.file.string() + array + ": float32 rounds feature " + std::to_string(*feature) +
      " of the samples by more than 1e-3 of its standard deviation; set data.normalize = [mean, std], "
      "whose mean is subtracted in float64, or subtract an offset in the file");
}

// Inputs of float64 keep it until they are scaled.
at::Tensor checked_inputs(at::Tensor inputs, const ArrayDataOptions& options, const fs::path& file,
                          const std::string& name) {
  if (inputs.dim() == 0 || inputs.is_complex()) refuse_array(file, name, inputs, "numbers [samples, …]");
  if (inputs.numel() == 0) refuse_array(file, name, inputs, "at least one sample, and values in it");
  switch (inputs.scalar_type()) {
    case at::kDouble: {
      at::Tensor rounded = as_float32(inputs, file, name);
      return is_scaled(options) ? inputs.contiguous() : rounded;
    }
    case at::kUInt16:  // LibTorch computes little with these
    case at::kUInt32:
    case at::kUInt64:
      return inputs.to(at::kLong);
    default:
      return inputs.contiguous();
  }
}

at::Tensor checked_labels(at::Tensor labels, std::int64_t num_samples, const fs::path& file,
                          const std::string& name) {
  if (labels.dim() == 0 || labels.is_complex() || labels.size(0) != num_samples)
    refuse_array(file, name, labels, "one label per sample, [" + std::to_string(num_samples) + ", …]");
  if (is_integer(labels)) {
    labels = labels.to(at::kLong);
    return labels.dim() == 2 && labels.size(1) == 1 ? labels.squeeze(1) : labels.contiguous();
  }
  labels = as_float32(labels, file, name);
  return labels.dim() == 1 ? labels.unsqueeze(1) : labels.contiguous();
}

at::Tensor checked_weights(const at::Tensor& weights, std::int64_t num_samples, const fs::path& file,
                           const std::string& name) {
  if (weights.is_complex() || weights.numel() != num_samples)
    refuse_array(file, name, weights, "one weight per sample, [" + std::to_string(num_samples) + "]");
  at::Tensor values = weights.to(at::kDouble).flatten();
  for (std::int64_t i = 0; i < num_samples; ++i)
    if (const double weight = values.const_data_ptr<double>()[i]; !std::isfinite(weight) || weight < 0)
      throw DataError({.place = file.string() + ", array '" + name + "', sample " + std::to_string(i),
                       .found = "the weight " + number_text(weight),
                       .wanted = "a finite number that is at least 0"});
  return values;
}

// Returns true for samples of the same shape that are all integers or all floating-point: pixels as bytes are
// not pixels in [0, 1].
bool are_alike(const at::Tensor& inputs, const at::Tensor& others) {
  return inputs.sizes().slice(1) == others.sizes().slice(1) && is_integer(inputs) == is_integer(others);
}

// Returns (inputs / divisor - mean) / std as float32, or integers that are not scaled. Computes in float64,
// unless it divides numbers of 16 bits or less, which float32 holds exactly.
at::Tensor scaled(const at::Tensor& inputs, const ArrayDataOptions& options) {
  const bool is_small = inputs.element_size() < 4 && !options.keep_type;
  if (!is_scaled(options)) return is_small ? inputs.to(at::kFloat) : inputs;
  if (is_small && !options.normalize)
    return at::div(inputs.is_floating_point() ? inputs.to(at::kFloat) : inputs, options.divisor);
  at::Tensor values = inputs.to(at::kDouble);
  if (options.divisor != 1) values = at::div(values, options.divisor);
  if (options.normalize) values = (values - (*options.normalize)[0]) / (*options.normalize)[1];
  return values.to(at::kFloat);
}

at::Tensor samples_of(const at::Tensor& tensor, const std::vector<std::int64_t>& chosen) {
  if (static_cast<std::int64_t>(chosen.size()) == tensor.size(0)) return tensor;  // both are in order
  return tensor.index_select(0, at::tensor(chosen, at::kLong));
}

}  // namespace

struct ArrayData::Impl {
  // The inputs and labels of a file, by the names in the options.
  std::vector<at::Tensor> read(const NamedArrays& inputs, const NamedArrays& labels,
                               const std::string& input_name, const std::string& label_name,
                               const char* input_key, const char* label_key) const {
    const fs::path& labels_file = options.labels_file.value_or(options.file);
    const at::Tensor raw = array_named(inputs, input_name, options.file, input_key);
    const at::Tensor x = checked_inputs(raw, options, options.file, input_name);
    if (input_name == options.inputs) warn_if_coarse(raw, options);
    const at::Tensor y = checked_labels(array_named(labels, label_name, labels_file, label_key), x.size(0),
                                        labels_file, label_name);
    std::vector<at::Tensor> samples{x};
    add_more_inputs(inputs, options.file, samples);
    samples.push_back(y);
    return samples;
  }

  void add_more_inputs(const NamedArrays& arrays, const fs::path& file,
                       std::vector<at::Tensor>& samples) const {
    ArrayDataOptions unscaled;
    for (const std::string& name : options.more_inputs) {
      const at::Tensor more =
          checked_inputs(array_named(arrays, name, file, "more_inputs"), unscaled, file, name);
      if (more.size(0) != samples[0].size(0))
        refuse_array(
            file, name, more,
            "as many samples as in the other inputs, [" + std::to_string(samples[0].size(0)) + ", …]");
      samples.push_back(more);
    }
  }

  SplitIndices split(const std::vector<at::Tensor>& samples, const DataOptions& shared) const {
    const std::int64_t count = samples[0].size(0);
    if (!options.val_fraction && !options.folds) return samples_in_ranges(count, shared);
    SplitOptions split{.val_fraction = options.val_fraction,
                       .folds = options.folds,
                       .fold = options.fold,
                       .seed = options.seed,
                       .place = "data"};
    if (options.stratify) {
      const at::Tensor& labels = samples.back();
      if (!is_integer(labels) || labels.dim() != 1)
        throw ConfigError({.place = "data.stratify",
                           .found = "the labels are " + type_text(labels),
                           .wanted = "classes, integers [samples]"});
      split.classes.assign(labels.const_data_ptr<std::int64_t>(),
                           labels.const_data_ptr<std::int64_t>() + labels.numel());
    }
    SplitIndices indices = split_indices(count, split);
    if (!split.classes.empty())
      warn_of_unvalidated_classes(split.classes, indices, {}, options.stratify, "data");
    return indices;
  }

  const ArrayDataOptions options;
  std::vector<at::Tensor> train{}, val{};    // inputs and labels; empty: none
  std::shared_ptr<const Sampler> sampler{};  // by `weights`
  at::Tensor sample{};                       // of the training, [0, …]: its shape and dtype
  bool is_coarse = false;                    // in float32, before the scaling
  fs::path predict_file{};
  std::shared_ptr<DataLoader> train_loader{}, val_loader{}, predict_loader{};
};

ArrayData::ArrayData(ArrayDataOptions options, DataOptions data_options)
    : DataModule(std::move(data_options)) {
  check_array_options(options, this->options());
  impl_ = std::make_unique<Impl>(Impl{.options = std::move(options)});
}

ArrayData::~ArrayData() = default;

void ArrayData::prepare_data() {
  const ArrayDataOptions& options = impl_->options;
  if (!impl_->predict_file.empty() && !fs::exists(options.file)) return;  // only predicts another file
  std::set<std::string> names{options.inputs, options.val_inputs, options.weights};
  names.insert(options.more_inputs.begin(), options.more_inputs.end());
  const std::set<std::string> of_labels{options.labels, options.val_labels};
  if (!options.labels_file) names.insert(of_labels.begin(), of_labels.end());
  const NamedArrays inputs = arrays_in(options.file, "file", names);
  const NamedArrays other =
      options.labels_file ? arrays_in(*options.labels_file, "labels_file", of_labels) : NamedArrays();
  const NamedArrays& labels = options.labels_file ? other : inputs;
  const std::vector<at::Tensor> samples =
      impl_->read(inputs, labels, options.inputs, options.labels, "inputs", "labels");
  impl_->sample = samples[0].narrow(0, 0, 0);
  impl_->is_coarse = samples[0].scalar_type() == at::kDouble && coarse_feature(samples[0], 0);
  const SplitIndices split = impl_->split(samples, this->options());
  for (const at::Tensor& tensor : samples) {
    impl_->train.push_back(samples_of(tensor, split.train));
    if (!split.val.empty()) impl_->val.push_back(samples_of(tensor, split.val));
  }
  if (!options.weights.empty()) {
    const at::Tensor weights = checked_weights(array_named(inputs, options.weights, options.file, "weights"),
                                               samples[0].size(0), options.file, options.weights);
    impl_->sampler =
        weighted_training(samples_of(weights, split.train), this->options().seed,
                          options.file.string() + ", array '" + options.weights + "'", "samples");
  }
  if (options.val_inputs.empty()) return;
  impl_->val =
      impl_->read(inputs, labels, options.val_inputs, options.val_labels, "val_inputs", "val_labels");
}

std::shared_ptr<DataLoader> ArrayData::train_dataloader() {
  prepare();
  if (impl_->train_loader || impl_->train.empty()) return impl_->train_loader;
  std::vector<at::Tensor> tensors = std::exchange(impl_->train, {});
  if (!impl_->sampler) return impl_->train_loader = get_tensorloader(std::move(tensors), /*train=*/true);
  DataLoaderOptions loader = loader_options(/*train=*/true);
  loader.sampler = impl_->sampler;
  return impl_->train_loader =
             std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::move(tensors)), loader);
}

std::shared_ptr<DataLoader> ArrayData::val_dataloader() {
  prepare();
  if (!impl_->val_loader && !impl_->val.empty())
    impl_->val_loader = get_tensorloader(std::exchange(impl_->val, {}), /*train=*/false);
  return impl_->val_loader;
}

std::shared_ptr<DataLoader> ArrayData::predict_dataloader() {
  if (impl_->predict_file.empty()) return val_dataloader();
  if (!impl_->predict_loader) {
    const fs::path& file = impl_->predict_file;
    const std::string& name = impl_->options.inputs;
    prepare();
    std::set<std::string> names{name};
    names.insert(impl_->options.more_inputs.begin(), impl_->options.more_inputs.end());
    const NamedArrays arrays = arrays_in(file, "file", names);
    const at::Tensor inputs =
        checked_inputs(array_named(arrays, name, file, "inputs"), impl_->options, file, name);
    if (impl_->sample.defined() && !are_alike(inputs, impl_->sample))
      refuse_array(
          file, name, inputs,
          "samples like the training samples, " + type_text(impl_->sample) + " except for their number");
    std::vector<at::Tensor> samples{inputs};
    impl_->add_more_inputs(arrays, file, samples);
    impl_->predict_loader = std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::move(samples)),
                                                         loader_options(/*train=*/false));
  }
  return impl_->predict_loader;
}

Batch ArrayData::on_after_batch_transfer(Batch batch) {
  at::Tensor& inputs = batch.tensors()[0];
  inputs = scaled(inputs, impl_->options);
  return batch;
}

std::optional<at::ScalarType> ArrayData::program_input_type() {
  const at::Tensor& sample = impl_->sample;
  if (!sample.defined() || sample.scalar_type() != at::kDouble) return std::nullopt;
  return impl_->is_coarse ? at::kDouble : at::kFloat;
}

void ArrayData::predict_from(const fs::path& file) { impl_->predict_file = file; }

}  // namespace kindling
