#include "cli/commands/prediction_file.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>

#include "base/joined.h"
#include "cli/commands/prediction_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/csv.h"
#include "kindling/formats/image.h"
#include "kindling/formats/npz.h"
#include "kindling/tensors/state_dict.h"
#include "tensors/host_values.h"
#include "tensors/scalar_types.h"

namespace kindling {
namespace {

constexpr std::int64_t kNoClassInMask = 255;

std::int64_t num_samples(const Predictions& predictions) {
  return (predictions.values.defined() ? predictions.values : predictions.classes).size(0);
}

void require_rows(const at::Tensor& tensor, const std::string& name, std::int64_t most_dimensions) {
  if (!tensor.defined() || tensor.dim() <= most_dimensions) return;
  throw ConfigError({.place = "predict",
                     .found = "the " + name + " of a sample have the shape " +
                              shape_text(tensor.sizes().slice(1)) + ", which CSV cannot hold",
                     .wanted = "a file that keeps shapes",
                     .remedy = "for example --out predictions.npz; .safetensors and .jsonl also keep them"});
}

// Text has one number per value.
void require_real(const at::Tensor& values) {
  if (values.defined() && values.is_complex())
    throw ConfigError({.place = "predict",
                       .found = "the outputs are complex numbers, which CSV and JSONL cannot hold",
                       .wanted = "--out FILE.npz or FILE.safetensors"});
}

// "output_0"
std::string column_prefix(const std::string& name) {
  return name == "outputs" ? "output_" : name == "labels" ? "label_" : "probability_";
}

std::string json_values(const at::Tensor& tensor) {
  if (tensor.dim() == 0)
    return tensor.is_floating_point() ? json_number(tensor.item<double>())
                                      : std::to_string(tensor.item<std::int64_t>());
  std::string text = "[";
  if (tensor.dim() > 1) {
    for (std::int64_t i = 0; i < tensor.size(0); ++i) text += (i > 0 ? "," : "") + json_values(tensor[i]);
  } else {
    const at::Tensor row = tensor.to(at::kDouble).contiguous();
    const double* value = row.const_data_ptr<double>();
    for (std::int64_t i = 0; i < row.size(0); ++i) text += (i > 0 ? "," : "") + json_number(value[i]);
  }
  return text + "]";
}

bool has_ids(const Predictions& predictions) { return !predictions.ids.name.empty(); }

const std::string& id_of(const Predictions& predictions, std::int64_t sample) {
  return predictions.ids.values.at(static_cast<std::size_t>(sample));
}

// The class of a sample, or of each of its answers.
struct ClassText {
  bool has_class = true;
  const std::string* name = nullptr;  // nullptr: the class has no name
};

ClassText class_of(const Predictions& predictions, std::int64_t sample) {
  if (predictions.classes.dim() != 1) return {};
  const auto number = predictions.classes[sample].item<std::int64_t>();
  if (number < 0) return {.has_class = false};
  const auto index = static_cast<std::size_t>(number);
  return {.name = index < predictions.class_names.size() ? &predictions.class_names[index] : nullptr};
}

// Returns the names of the classes that a sample has.
std::vector<std::string> classes_of(const Predictions& predictions, std::int64_t sample) {
  std::vector<std::string> names;
  const at::Tensor row = predictions.several[sample].contiguous();
  for (std::int64_t i = 0; i < row.size(0); ++i)
    if (row.const_data_ptr<std::int64_t>()[i] == 1)
      names.push_back(predictions.class_names.at(static_cast<std::size_t>(i)));
  return names;
}

// Returns the first separator that no class name has.
std::string separator_of(const std::vector<std::string>& names) {
  for (const char* const separator : {"|", ";", ",", " "})
    if (std::ranges::none_of(names, [&](const auto& name) { return name.find(separator) != name.npos; }))
      return separator;
  return "|";
}

std::string jsonl_of(const Predictions& predictions) {
  require_real(predictions.values);
  std::string text;
  for (std::int64_t i = 0; i < num_samples(predictions); ++i) {
    text += "{\"sample\":" + std::to_string(i);
    if (has_ids(predictions))
      text += "," + json_string(predictions.ids.name) + ":" + json_string(id_of(predictions, i));
    if (predictions.classes.defined()) {
      const auto [has_class, name] = class_of(predictions, i);
      text += ",\"class\":" + (!has_class ? "null"
                               : name     ? json_string(*name)
                                          : json_values(predictions.classes[i]));
    }
    if (predictions.several.defined())
      text += ",\"classes\":[" + joined(classes_of(predictions, i), ",", json_string) + "]";
    if (predictions.values.defined())
      text += "," + json_string(predictions.name) + ":" + json_values(predictions.values[i]);
    text += "}\n";
  }
  return text;
}

StateDict tensors_of(const Predictions& predictions) {
  StateDict state;
  state.tensors.emplace_back("sample", at::arange(num_samples(predictions), at::kLong));
  if (const at::Tensor ids = id_numbers_of(predictions.ids); ids.defined())
    state.tensors.emplace_back(predictions.ids.name, ids);
  if (predictions.classes.defined()) state.tensors.emplace_back("class", host_values(predictions.classes));
  if (predictions.several.defined()) state.tensors.emplace_back("classes", predictions.several);
  if (predictions.values.defined())
    state.tensors.emplace_back(predictions.name, host_values(predictions.values));
  for (const auto& [name, values] : predictions.more)
    state.tensors.emplace_back(state.find(name) == nullptr ? name : "output." + name, host_values(values));
  return state;
}

TensorToWrite array_of(const std::string& name, const at::Tensor& tensor) {
  const std::optional<TensorType> type = tensor_type_of(tensor.scalar_type());
  if (!type || row_of(*type).numpy.empty())
    throw ConfigError({.place = "predict",
                       .found = "NumPy does not have the type " + std::string(toString(tensor.scalar_type())),
                       .wanted = "--out FILE.safetensors"});
  return {.name = name,
          .type = *type,
          .shape = tensor.sizes().vec(),
          .data = tensor.const_data_ptr(),
          .size_bytes = tensor.nbytes()};
}

// NumPy has no bfloat16; float32 holds its values.
void write_arrays(const Predictions& predictions, const std::filesystem::path& file) {
  StateDict state = tensors_of(predictions);
  std::vector<TensorToWrite> arrays;
  for (auto& [name, tensor] : state.tensors) {
    if (tensor.scalar_type() == at::kBFloat16) tensor = tensor.to(at::kFloat);
    arrays.push_back(array_of(name, tensor));
  }
  std::vector<TextsToWrite> texts;
  if (has_ids(predictions) && state.find(predictions.ids.name) == nullptr)
    texts.push_back({.name = predictions.ids.name, .texts = predictions.ids.values});
  write_npz(file, arrays, texts);
}

void write_safetensors(const Predictions& predictions, const std::filesystem::path& file) {
  const StateDict state = tensors_of(predictions);
  if (has_ids(predictions) && state.find(predictions.ids.name) == nullptr)
    log_warning(file.string() + " has no '" + predictions.ids.name +
                "', because safetensors files cannot hold texts; write .npz, .jsonl or .csv to keep it");
  save_safetensors(state, file);
}

// Files of earlier predictions, or the masks of a data set, have the names of those that are written.
void check_mask_folder(const std::filesystem::path& folder) {
  const auto refuse = [&](const char* found) {
    throw ConfigError({.place = "--out " + folder.string(),
                       .found = found,
                       .wanted = "a new or an empty directory for masks",
                       .remedy = "nothing has been written"});
  };
  std::filesystem::path path = folder;
  if (!path.has_filename()) path = path.parent_path();  // without the / at the end
  if (!std::filesystem::exists(path)) return;
  if (!std::filesystem::is_directory(path)) refuse("it is not a directory");
  if (!std::filesystem::is_empty(path)) refuse("the directory has files");
}

}  // namespace

bool is_mask_folder(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path) || (!path.empty() && !path.has_filename());
}

void write_masks(const at::Tensor& classes, const std::vector<std::string>& names,
                 const std::filesystem::path& folder) {
  if (!classes.defined() || classes.dim() != 3)
    throw ConfigError(
        {.place = "--out " + folder.string(),
         .found = "it is a directory of masks, and a sample of the model has no class per pixel",
         .wanted = "a file, such as predictions.npz"});
  const at::Tensor values = classes.masked_fill(classes.lt(0), kNoClassInMask).cpu();
  if (values.numel() > 0 && values.max().item<std::int64_t>() > kNoClassInMask)
    throw ConfigError({.place = "--out " + folder.string(),
                       .found = "the class " + std::to_string(values.max().item<std::int64_t>()),
                       .wanted = "classes up to 255, which masks can hold",
                       .remedy = "for example --out predictions.npz"});
  const at::Tensor bytes = values.to(at::kByte).contiguous();
  const std::int64_t height = bytes.size(1), width = bytes.size(2);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::uint8_t* const first =
        bytes.const_data_ptr<std::uint8_t>() + static_cast<std::int64_t>(i) * height * width;
    const std::filesystem::path file = (folder / names[i]).replace_extension(".png");
    std::filesystem::create_directories(file.parent_path());
    write_mask(file,
               {.width = width, .height = height, .channels = 1, .pixels = {first, first + height * width}});
  }
}

at::Tensor id_numbers_of(const SampleIds& ids) {
  if (ids.name.empty()) return {};
  at::Tensor numbers = at::empty({static_cast<std::int64_t>(ids.values.size())}, at::kLong);
  auto* out = numbers.mutable_data_ptr<std::int64_t>();
  for (const std::string& text : ids.values) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
    if (error != std::errc() || std::to_string(*out++) != text) return {};
  }
  return numbers;
}

void check_prediction_file(const std::filesystem::path& file) {
  if (is_mask_folder(file)) return check_mask_folder(file);
  const std::string extension = file.extension().string();
  if (extension != ".csv" && extension != ".jsonl" && extension != ".npz" && extension != ".safetensors" &&
      !is_written_in_parts(file))
    throw ConfigError({.place = "--out " + file.string(),
                       .found = extension.empty() ? "the file has no extension"
                                                  : "unsupported extension '" + extension + "'",
                       .wanted = ".csv, .jsonl, .npz, .npy, .safetensors, HDF5 (.h5, .hdf5), or NetCDF (.nc, "
                                 ".nc4, .cdf); or a directory for masks, such as masks/"});
  require_prediction_library(file);
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw ConfigError({.place = "--out " + file.string(),
                       .found = "there is no directory " + folder.string(),
                       .wanted = "a file in an existing directory"});
}

bool keeps_tensors(const std::filesystem::path& file) {
  return file.extension() == ".npz" || file.extension() == ".safetensors";
}

std::string csv_of(const Predictions& predictions) {
  require_real(predictions.values);
  require_rows(predictions.values, predictions.name, 2);
  require_rows(predictions.classes, "labels", 1);
  const std::int64_t count = num_samples(predictions);
  const bool has_values = predictions.values.defined(), has_classes = predictions.classes.defined(),
             has_several = predictions.several.defined();
  const std::string separator = separator_of(predictions.class_names);
  const std::int64_t columns = !has_values                     ? 0
                               : predictions.values.dim() == 1 ? 1
                                                               : predictions.values.size(1);
  std::string text = "sample";
  if (has_ids(predictions)) text += "," + csv_field(predictions.ids.name);
  if (has_classes) text += ",class";
  if (has_several) text += ",classes";
  for (std::int64_t j = 0; j < columns; ++j)
    text += "," + column_prefix(predictions.name) + std::to_string(j);
  text += "\n";
  const at::Tensor classes = has_classes ? predictions.classes.contiguous() : at::Tensor();
  const at::Tensor values = has_values ? predictions.values.to(at::kDouble).contiguous() : at::Tensor();
  const double* value = has_values ? values.const_data_ptr<double>() : nullptr;
  for (std::int64_t i = 0; i < count; ++i) {
    text += std::to_string(i);
    if (has_ids(predictions)) text += "," + csv_field(id_of(predictions, i));
    if (has_classes) {
      const auto [has_class, name] = class_of(predictions, i);
      text += "," + (!has_class ? ""
                     : name     ? csv_field(*name)
                                : std::to_string(classes.const_data_ptr<std::int64_t>()[i]));
    }
    if (has_several) text += "," + csv_field(joined(classes_of(predictions, i), separator));
    for (std::int64_t j = 0; j < columns; ++j) text += "," + number_text(*value++);
    text += "\n";
  }
  return text;
}

void write_predictions(const Predictions& predictions, const std::filesystem::path& file) {
  delete_stale_temporary_files(std::filesystem::absolute(file).parent_path(), file.filename().string());
  const std::string extension = file.extension().string();
  if (extension == ".csv") return write_file_atomically(file, csv_of(predictions));
  if (extension == ".jsonl") return write_file_atomically(file, jsonl_of(predictions));
  if (extension == ".npz") return write_arrays(predictions, file);
  write_safetensors(predictions, file);
}

}  // namespace kindling
