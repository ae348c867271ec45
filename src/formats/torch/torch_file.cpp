#include "kindling/formats/torch_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error_kind.h"
#include "formats/tensor_types.h"
#include "formats/torch/pickle.h"
#include "formats/torch/torch_tensor_list.h"
#include "formats/zip/zip_archive.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"
#include "kindling/base/suggest.h"
#include "kindling/formats/torch_optimizer.h"

namespace kindling {
namespace {

using Kind = PickleValue::Kind;

bool is_state_dict(const Pickle& pickle, const PickleValue& value) {
  if (value.kind != Kind::dict) return false;
  for (std::size_t i = 0; i < value.items.size(); i += 2)
    if (pickle[value.items[i]].kind != Kind::text || pickle[value.items[i + 1]].kind != Kind::tensor)
      return false;
  return true;
}

std::vector<std::string> names_of_state_dicts(const Pickle& pickle, const PickleValue& dict) {
  std::vector<std::string> names;
  for_each_named(pickle, dict, [&](std::string_view name, const PickleValue& value) {
    if (!value.items.empty() && is_state_dict(pickle, value)) names.push_back(quoted_key(name));
  });
  return names;
}

[[noreturn]] void refuse_nested(const std::vector<std::string>& names, const std::string& place,
                                const std::string& found) {
  throw CheckpointError({.place = place,
                         .found = found,
                         .wanted = names.size() == 1 ? "the key " + names[0] + ", which is a state dict"
                                                     : "one of the keys of state dicts: " + list_names(names),
                         .remedy = "pass the key: --key of kindling import, or the key of load_state_file"});
}

// Throws the reason why a value is not a state dict.
[[noreturn]] void refuse_value(const Pickle& pickle, const PickleValue& value, const std::string& place) {
  if (value.kind != Kind::dict) refuse_torch(place, "", "it contains " + described(value), "a state dict");
  for (std::size_t i = 0; i < value.items.size(); i += 2) {
    const PickleValue &name = pickle[value.items[i]], &entry = pickle[value.items[i + 1]];
    if (name.kind != Kind::text)
      refuse_torch(place, "", "a key is " + described(name), "the name of a tensor");
    if (entry.kind != Kind::tensor)
      refuse_torch(place, ", entry " + quoted_key(name.text), "it is " + described(entry), "a tensor");
  }
  refuse_torch(place, "", "it does not contain a state dict");
}

const PickleValue& state_dict_in(const Pickle& pickle, const std::string& key, const std::string& place) {
  const PickleValue& all = pickle.result();
  const std::vector<std::string> names =
      all.kind == Kind::dict ? names_of_state_dicts(pickle, all) : std::vector<std::string>{};
  const PickleValue* value = key.empty() ? &all : nullptr;
  if (!key.empty() && all.kind == Kind::dict)
    for_each_named(pickle, all, [&](std::string_view name, const PickleValue& one) {
      if (name == key) value = &one;  // the last one counts, as in Python
    });
  if (value != nullptr && is_state_dict(pickle, *value)) return *value;
  if (!names.empty())
    refuse_nested(names, place,
                  key.empty() ? "the file's object is not a state dict"
                              : "there is no state dict under the key " + quoted_key(key));
  if (value == nullptr) refuse_torch(place, "", "there is no entry with the key " + quoted_key(key));
  refuse_value(pickle, *value, place);
}

// Returns the tensors of the state dict in a pickle, at the top or under a key. Validates that they fit into
// their storages, and that all together are not larger than shared storages explain. Throws CheckpointError.
std::vector<TorchTensor> state_dict_tensors(const Pickle& pickle, const std::string& key,
                                            const TorchStorages& storages, const std::string& place) {
  TorchTensorList tensors(pickle, storages, place);
  for_each_named(pickle, state_dict_in(pickle, key, place),
                 [&](std::string_view name, const PickleValue& value) { tensors.add(name, value); });
  return tensors.take();
}

// Returns the optimizer's state dict in a pickle, at the top or under a key.
struct OptimizerInPickle {
  std::vector<TorchTensor> tensors;
  std::vector<TorchOptimizerGroup> groups;
  std::vector<TorchOptimizerEntry> state;
};

inline const std::string kOptimizerRemedy =
    "save the state of a torch.optim optimizer in Python with torch.save(optimizer.state_dict(), path)";

constexpr std::string_view kStateKey = "state", kGroupsKey = "param_groups", kParametersKey = "params",
                           kRateKey = "lr";

const PickleValue* entry_of(const Pickle& pickle, const PickleValue& dict, std::string_view key) {
  const PickleValue* found = nullptr;  // the last one counts, as in Python
  if (dict.kind == PickleValue::Kind::dict)
    for_each_named(pickle, dict, [&](std::string_view name, const PickleValue& value) {
      if (name == key) found = &value;
    });
  return found;
}

bool is_number(const PickleValue& value) {
  return value.kind == PickleValue::Kind::integer || value.kind == PickleValue::Kind::real;
}
double number_of(const PickleValue& value) {
  return value.kind == PickleValue::Kind::real ? value.real : static_cast<double>(value.integer);
}

class OptimizerReader {
 public:
  using Kind = PickleValue::Kind;

  OptimizerReader(const Pickle& pickle, const TorchStorages& storages, const std::string& place)
      : pickle_(pickle), place_(place), tensors_(pickle, storages, place) {}

  OptimizerInPickle read(const std::string& key) {
    const PickleValue& dict = optimizer_at(key);
    for (const PickleValue::Place group : entry_of(pickle_, dict, kGroupsKey)->items)
      read_group(pickle_[group]);
    const PickleValue& state = *entry_of(pickle_, dict, kStateKey);
    for (std::size_t i = 0; i < state.items.size(); i += 2)
      read_state(pickle_[state.items[i]], pickle_[state.items[i + 1]]);
    found_.tensors = tensors_.take();
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(const std::string& where, const std::string& found, const std::string& wanted = "",
                           const std::string& remedy = kOptimizerRemedy) const {
    throw CheckpointError({.place = place_ + where, .found = found, .wanted = wanted, .remedy = remedy});
  }

  bool is_optimizer(const PickleValue& value) const {
    const PickleValue *state = entry_of(pickle_, value, kStateKey),
                      *groups = entry_of(pickle_, value, kGroupsKey);
    return state != nullptr && groups != nullptr && state->kind == Kind::dict && groups->kind == Kind::list;
  }

  const PickleValue& optimizer_at(const std::string& key) const {
    const PickleValue& all = pickle_.result();
    const PickleValue* const value = key.empty() ? &all : entry_of(pickle_, all, key);
    if (value != nullptr && is_optimizer(*value)) return *value;
    std::vector<std::string> names;
    if (all.kind == Kind::dict)
      for_each_named(pickle_, all, [&](std::string_view name, const PickleValue& one) {
        if (is_optimizer(one)) names.push_back(quoted_key(name));
      });
    const std::string found = key.empty()
                                  ? "the file's object is not an optimizer's state dict"
                                  : "there is no optimizer's state dict under the key " + quoted_key(key);
    if (names.empty()) refuse("", found, "a dict of \"state\" and \"param_groups\"");
    refuse("", found, "one of the keys of optimizers: " + list_names(names), "pass the key");
  }

  void read_group(const PickleValue& group) {
    const std::string where = ", group " + std::to_string(found_.groups.size());
    const PickleValue* const parameters = entry_of(pickle_, group, kParametersKey);
    if (parameters == nullptr || parameters->kind != Kind::list) refuse(where, "it has no list \"params\"");
    TorchOptimizerGroup& read = found_.groups.emplace_back();
    for (const PickleValue::Place place : parameters->items) {
      const PickleValue& number = pickle_[place];
      if (number.kind != Kind::integer || !parameters_.insert(number.integer).second)
        refuse(where, "\"params\" are not distinct numbers");
      read.parameters.push_back(number.integer);
    }
    for_each_named(pickle_, group, [&](std::string_view name, const PickleValue& value) {
      if (name == kRateKey && value.kind == Kind::tensor)
        refuse(where, "its lr is a tensor", "a number", "save it in Python with float(group[\"lr\"])");
      take_option(read.options, std::string(name), value);
    });
  }

  void take_option(TorchOptions& options, const std::string& name, const PickleValue& value) const {
    options.erase(name);  // the last one counts, as in Python
    if (value.kind == Kind::boolean)
      options[name] = value.integer != 0;
    else if (value.kind == Kind::integer)
      options[name] = value.integer;
    else if (value.kind == Kind::real)
      options[name] = value.real;
    else if ((value.kind == Kind::tuple || value.kind == Kind::list) && name != kParametersKey)
      take_numbers(options, name, value);
  }

  void take_numbers(TorchOptions& options, const std::string& name, const PickleValue& values) const {
    std::vector<double> numbers;
    for (const PickleValue::Place place : values.items) {
      if (!is_number(pickle_[place])) return;
      numbers.push_back(number_of(pickle_[place]));
    }
    options[name] = std::move(numbers);
  }

  void read_state(const PickleValue& parameter, const PickleValue& values) {
    if (parameter.kind != Kind::integer || !parameters_.contains(parameter.integer))
      refuse(", \"state\"", "it has a key that is not a parameter's number");
    const std::string number = std::to_string(parameter.integer), where = ", parameter " + number;
    if (values.kind != Kind::dict) refuse(where, "its state is " + described(values), "a dict");
    if (!with_state_.insert(parameter.integer).second) refuse(where, "its state appears twice");
    for_each_named(pickle_, values, [&](std::string_view name, const PickleValue& value) {
      TorchOptimizerEntry entry{.parameter = parameter.integer, .name = std::string(name)};
      if (value.kind == Kind::none) return;  // PyTorch before 2.0 stores None before the first momentum
      if (value.kind == Kind::tensor) {
        entry.tensor = tensors_.size();
        tensors_.add(number + "." + entry.name, value);
      } else if (is_number(value)) {
        entry.number = number_of(value);
      } else {
        refuse(where, "its state " + quoted_key(name) + " is " + described(value), "a tensor or a number");
      }
      found_.state.push_back(std::move(entry));
    });
  }

  const Pickle& pickle_;
  const std::string& place_;
  TorchTensorList tensors_;
  OptimizerInPickle found_;
  std::unordered_set<std::int64_t> parameters_, with_state_;  // their numbers
};

// Validated as TorchTensorList does. Throws CheckpointError.
OptimizerInPickle optimizer_in(const Pickle& pickle, const std::string& key, const TorchStorages& storages,
                               const std::string& place) {
  return OptimizerReader(pickle, storages, place).read(key);
}

using namespace std::string_view_literals;

constexpr std::size_t kMaxPickleBytes = std::size_t{1} << 26;
constexpr std::string_view kZipStart = "PK\3\4"sv;
// The magic number 0x1950a86a20f9469cfc6c at the start of files before PyTorch 1.6, as a pickle.
constexpr std::string_view kLegacyStart = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;

std::string start_of(const ByteSource& source) {
  std::string start(std::min(source.size, kLegacyStart.size()), '\0');
  source.read(0, start.data(), start.size());
  return start;
}

void check_start(const ByteSource& source, const std::string& place) {
  const std::string start = start_of(source);
  if (start.starts_with(kZipStart)) return;
  if (start == kLegacyStart)
    throw CheckpointError({.place = place,
                           .found = "it has the format of PyTorch before 1.6",
                           .wanted = "the format of torch.save since 1.6, a zip archive",
                           .remedy = conversion_in_python(place)});
  throw CheckpointError({.place = place,
                         .found = "it does not begin like a file of torch.save",
                         .wanted = "a zip archive",
                         .remedy = "check that it is the right file and complete"});
}

// The folder in the archive that contains everything, with its slash.
std::string root_of(const ZipArchive& archive, const std::string& place) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const ZipEntry& entry : archive.entries())
    if (entry.name.ends_with(kPickle) && entry.name.find('/') == entry.name.size() - kPickle.size())
      return entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
  throw CheckpointError({.place = place,
                         .found = "the zip archive has no entry FOLDER/data.pkl",
                         .wanted = "a file of torch.save",
                         .remedy = "check that it is the right file"});
}

// PyTorch before 2.1 did not record it, and ran on little-endian machines.
void check_byte_order(const ZipArchive& archive, const std::string& root, const std::string& place) {
  const ZipEntry* const order = archive.find(root + "byteorder");
  if (order == nullptr) return;
  const std::string found = archive.text(*order, 100);
  if (found != "little")
    throw CheckpointError({.place = place,
                           .found = "its byte order is " + json_string(found),
                           .wanted = "\"little\"",
                           .remedy = conversion_in_python(place)});
}

TorchStorages storages_in(const ZipArchive& archive, const std::string& root) {
  const std::string folder = root + "data/";
  TorchStorages storages;
  for (std::size_t i = 0; i < archive.entries().size(); ++i)
    if (const ZipEntry& entry = archive.entries()[i]; entry.name.starts_with(folder))
      storages.emplace(std::string_view(entry.name).substr(folder.size()), TorchStorage{i, entry.size});
  return storages;
}

// True if contiguous and row-major, whatever the strides of sizes of one.
bool is_in_row_order(const TorchTensor& tensor) {
  std::int64_t wanted = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != wanted) return false;
    wanted *= tensor.shape[i];
  }
  return true;
}

// Returns the number of values that it spans in its storage; the tensor is not empty.
std::size_t span_of(const TorchTensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return static_cast<std::size_t>(last) + 1;
}

// Copies from a piece of a storage that begins with the tensor's first value, into row-major order.
void gather(const TorchTensor& tensor, const char* from, char* out) {
  const std::size_t bytes = size_of(tensor.type), rank = tensor.shape.size();
  const std::int64_t row = tensor.shape[rank - 1], step = tensor.strides[rank - 1];
  std::vector<std::int64_t> place(rank - 1, 0);  // of a row
  for (std::int64_t at = 0;;) {
    for (std::int64_t i = 0; i < row; ++i, out += bytes)
      std::memcpy(out, from + static_cast<std::size_t>(at + i * step) * bytes, bytes);
    std::size_t axis = rank - 1;
    for (; axis > 0; --axis) {
      at += tensor.strides[axis - 1];
      if (++place[axis - 1] < tensor.shape[axis - 1]) break;
      at -= tensor.strides[axis - 1] * std::exchange(place[axis - 1], 0);
    }
    if (axis == 0) return;
  }
}

}  // namespace

std::size_t TorchTensor::size_bytes() const { return bytes_of(type, shape).value_or(0); }

bool is_torch_file(const std::filesystem::path& path) {
  return with_errors_as<CheckpointError>([&] {
    const std::string start = start_of(source_of(path));
    return start.starts_with(kZipStart) || start == kLegacyStart;
  });
}

// The archive, and which of its entries have been verified.
struct TorchFile::Storages {
  Storages(ByteSource source, const std::string& place)
      : archive(std::move(source), place), is_checked(archive.entries().size()) {}

  // `read` computes its result from the pickle and from the archive's storages.
  template <class Read>
  static auto open(ByteSource source, const std::string& place, const PickleRemedies& remedies, Read read) {
    check_start(source, place);
    auto storages = std::make_shared<Storages>(std::move(source), place);
    const ZipArchive& archive = storages->archive;
    const std::string root = root_of(archive, place);
    check_byte_order(archive, root, place);
    const std::string pickled = archive.text(*archive.find(root + "data.pkl"), kMaxPickleBytes);
    const Pickle pickle(pickled, place, remedies);
    return std::pair(storages, read(pickle, storages_in(archive, root)));
  }
  static auto open_state_dict(ByteSource source, const std::string& place, const std::string& key) {
    return open(std::move(source), place, conversions_in_python(place),
                [&](const Pickle& pickle, const TorchStorages& stored) {
                  return state_dict_tensors(pickle, key, stored, place);
                });
  }
  static auto open_optimizer(ByteSource source, const std::string& place, const std::string& key) {
    return open(std::move(source), place,
                PickleRemedies{kOptimizerRemedy, kOptimizerRemedy, kOptimizerRemedy},
                [&](const Pickle& pickle, const TorchStorages& stored) {
                  return optimizer_in(pickle, key, stored, place);
                });
  }

  ZipArchive archive;
  std::vector<std::atomic<bool>> is_checked;
};

TorchFile::TorchFile(const std::filesystem::path& path, const std::string& key) {
  with_errors_as<CheckpointError>([&] {
    std::tie(storages_, tensors_) = Storages::open_state_dict(source_of(path), path.string(), key);
  });
}

TorchFile TorchFile::of_bytes(std::string bytes, const std::string& place, const std::string& key) {
  TorchFile file;
  std::tie(file.storages_, file.tensors_) =
      Storages::open_state_dict(source_of_bytes(std::move(bytes)), place, key);
  return file;
}

TorchOptimizerFile open_torch_optimizer(const std::filesystem::path& path, const std::string& key) {
  return with_errors_as<CheckpointError>([&] {
    auto [storages, found] = TorchFile::Storages::open_optimizer(source_of(path), path.string(), key);
    TorchFile values;
    values.storages_ = std::move(storages);
    values.tensors_ = std::move(found.tensors);
    return TorchOptimizerFile{std::move(values), std::move(found.groups), std::move(found.state)};
  });
}

TorchOptimizerFile torch_optimizer_of_bytes(std::string bytes, const std::string& place,
                                            const std::string& key) {
  auto [storages, found] = TorchFile::Storages::open_optimizer(source_of_bytes(std::move(bytes)), place, key);
  TorchFile values;
  values.storages_ = std::move(storages);
  values.tensors_ = std::move(found.tensors);
  return TorchOptimizerFile{std::move(values), std::move(found.groups), std::move(found.state)};
}

const TorchTensor* TorchFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TorchTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void TorchFile::read(const TorchTensor& tensor, void* out) const {
  with_errors_as<CheckpointError>([&] {
    const ZipArchive& archive = storages_->archive;
    const ZipEntry& entry = archive.entries()[tensor.storage];
    const std::size_t size = tensor.size_bytes(), begin = tensor.offset * size_of(tensor.type);
    if (size == 0) return;
    const bool is_row_order = is_in_row_order(tensor);
    if (is_row_order && size == entry.size) return archive.read(entry, out);
    if (std::atomic<bool>& is_checked = storages_->is_checked[tensor.storage]; !is_checked) {
      archive.check(entry);
      is_checked = true;
    }
    if (is_row_order) return archive.read_piece(entry, begin, out, size);
    std::string piece(span_of(tensor) * size_of(tensor.type), '\0');
    archive.read_piece(entry, begin, piece.data(), piece.size());
    gather(tensor, piece.data(), static_cast<char*>(out));
  });
}

}  // namespace kindling
