#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_set>

#include "base/error_kind.h"
#include "base/utf8.h"
#include "formats/tensor_types.h"
#include "formats/torch/pickle_names.h"
#include "formats/torch/pickle_text.h"
#include "formats/zip/zip_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"
#include "kindling/formats/torch_file.h"
#include "kindling/formats/torch_optimizer.h"

namespace kindling {
namespace {

void check_to_write(std::span<const TensorToWrite> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    const auto refuse = [&](const std::string& found) {
      throw CheckpointError(
          {.place = "tensor " + json_string(tensor.name.substr(0, 100)) + " to be written", .found = found});
    };
    if (row_of(tensor.type).storage.empty())
      refuse("a .pt cannot have its type " + std::string(name_of(tensor.type)) +
             " here; write .safetensors instead");
    if (bytes_of(tensor.type, tensor.shape) != tensor.size_bytes)
      refuse("its size does not match its type and shape");
    if (!names.insert(tensor.name).second) refuse("the name is used twice");
    if (!is_utf8(tensor.name)) refuse("its name is not valid UTF-8");
  }
}

using Storages = std::vector<std::string_view>;  // their values

void write_archive(const std::filesystem::path& path, const std::string& pickle, const Storages& storages) {
  ZipWriter archive;
  archive.add("archive/data.pkl", pickle);
  archive.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < storages.size(); ++i)
    archive.add("archive/data/" + std::to_string(i), storages[i]);
  archive.add("archive/version", "3\n");
  with_errors_as<CheckpointError>([&] { write_file_atomically(path, archive.finish()); });
}

std::string pickled_option(const TorchOptions::mapped_type& option) {
  struct Visitor {
    std::string operator()(bool value) const { return value ? "\x88" : "\x89"; }  // NEWTRUE, NEWFALSE
    std::string operator()(std::int64_t value) const { return pickled_integer(value); }
    std::string operator()(double value) const { return pickled_real(value); }
    std::string operator()(const std::vector<double>& values) const {
      std::string items = "(";
      for (const double value : values) items += pickled_real(value);
      return items + "t";
    }
    std::string operator()(const std::string& value) const { return pickled_text(value); }
    std::string operator()(std::monostate) const { return "N"; }
  };
  return std::visit(Visitor(), option);
}

// Returns the instructions for one value of a state, and adds its storages.
std::string pickled_state(const TensorToWrite& tensor, TorchStateForm form, Storages& storages) {
  const auto pickled = [&](const TensorToWrite& one) {
    storages.emplace_back(static_cast<const char*>(one.data), one.size_bytes);
    return pickled_tensor_of(one, storages.size() - 1);
  };
  if (form == TorchStateForm::tensor) return pickled(tensor);
  if (form == TorchStateForm::list) {
    std::string rows = "](";
    TensorToWrite row{.type = tensor.type, .shape = {tensor.shape.begin() + 1, tensor.shape.end()}};
    row.size_bytes = tensor.shape[0] == 0 ? 0 : tensor.size_bytes / static_cast<std::size_t>(tensor.shape[0]);
    for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
      row.data = static_cast<const char*>(tensor.data) + static_cast<std::size_t>(i) * row.size_bytes;
      rows += pickled(row);
    }
    return rows + "e";
  }
  const double number = *static_cast<const double*>(tensor.data);
  return form == TorchStateForm::real ? pickled_real(number)
                                      : pickled_integer(static_cast<std::int64_t>(number));
}

}  // namespace

void write_torch_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors) {
  check_to_write(tensors);
  std::map<std::tuple<const void*, TensorType, std::size_t>, std::size_t> known;
  Storages storages;
  std::string pickle = "\x80\x02" + pickled_name(kOrderedDict) + ")R(";
  for (const TensorToWrite& tensor : tensors) {
    const auto [place, is_new] =
        known.try_emplace({tensor.data, tensor.type, tensor.size_bytes}, storages.size());
    if (is_new) storages.emplace_back(static_cast<const char*>(tensor.data), tensor.size_bytes);
    pickle += pickled_text(tensor.name) + pickled_tensor_of(tensor, place->second);
  }
  write_archive(path, pickle + "u.", storages);
}

void write_torch_optimizer(const std::filesystem::path& path, std::span<const TorchOptimizerGroup> groups,
                           const std::map<std::int64_t, std::vector<TensorToWrite>>& state,
                           const std::map<std::string, TorchStateForm>& forms) {
  Storages storages;
  std::string pickle = "\x80\x02}(" + pickled_text("state") + "}(";
  for (const auto& [parameter, tensors] : state) {
    check_to_write(tensors);
    pickle += pickled_integer(parameter) + "}(";
    for (const TensorToWrite& tensor : tensors) {
      const auto form = forms.find(tensor.name);
      pickle += pickled_text(tensor.name) +
                pickled_state(tensor, form == forms.end() ? TorchStateForm::tensor : form->second, storages);
    }
    pickle += "u";
  }
  pickle += "u" + pickled_text("param_groups") + "](";
  for (const TorchOptimizerGroup& group : groups) {
    pickle += "}(";
    for (const auto& [name, value] : group.options) pickle += pickled_text(name) + pickled_option(value);
    pickle += pickled_text("params") + "](";
    for (const std::int64_t parameter : group.parameters) pickle += pickled_integer(parameter);
    pickle += "eu";
  }
  write_archive(path, pickle + "eu.", storages);
}

}  // namespace kindling
