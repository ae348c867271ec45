#include "formats/pt2_file.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "formats/pt2_arguments.h"
#include "formats/pt2_program.h"
#include "formats/zip_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 28;  // a large model's program takes some ten million
constexpr std::string_view kFormatEntry = "archive_format", kModelEntry = "models/model.json";

std::size_t bytes_of(ProgramType type) {
  switch (type) {
    case ProgramType::uint8:
    case ProgramType::int8:
    case ProgramType::boolean:
      return 1;
    case ProgramType::int16:
    case ProgramType::float16:
    case ProgramType::bfloat16:
      return 2;
    case ProgramType::int32:
    case ProgramType::float32:
    case ProgramType::complex32:
      return 4;
    case ProgramType::int64:
    case ProgramType::float64:
    case ProgramType::complex64:
      return 8;
    case ProgramType::complex128:
      return 16;
  }
  return 16;
}

// All values lie inside `storage_bytes`; no number on the way leaves 64 bits.
bool fits(const ProgramTensor& tensor, std::size_t storage_bytes) {
  const std::size_t room = storage_bytes / bytes_of(tensor.type);
  const auto is_small = [&](const ProgramSize& size) {
    return size.expression.empty() && size.number >= 0 && static_cast<std::uint64_t>(size.number) <= room;
  };
  const auto is_empty = [](const ProgramSize& size) { return size.number == 0 && size.expression.empty(); };
  if (!is_small(tensor.offset)) return false;
  if (std::ranges::any_of(tensor.sizes, is_empty))
    return std::ranges::all_of(tensor.sizes, is_small) && std::ranges::all_of(tensor.strides, is_small);
  std::uint64_t last = static_cast<std::uint64_t>(tensor.offset.number);
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const ProgramSize &size = tensor.sizes[i], &stride = tensor.strides[i];
    if (!size.expression.empty() || size.number < 0 || !stride.expression.empty() || stride.number < 0)
      return false;
    if (size.number == 1) continue;
    if (!is_small(size) || !is_small(stride)) return false;
    const auto steps = static_cast<std::uint64_t>(size.number - 1),
               step = static_cast<std::uint64_t>(stride.number);
    if (step > 0 && steps > room / step) return false;
    last += steps * step;
    if (last > room) return false;
  }
  return last < room;
}

std::string root_of_pt2(const ZipArchive& archive, const std::string& place) {
  for (const ZipEntry& entry : archive.entries())
    if (entry.name.ends_with(kFormatEntry) &&
        entry.name.find('/') + kFormatEntry.size() + 1 == entry.name.size())
      return entry.name.substr(0, entry.name.size() - kFormatEntry.size());
  throw CheckpointError(
      {.place = place,
       .found = "the archive has no " + std::string(kFormatEntry) + " in a folder of its own",
       .wanted = "a file of torch.export.save",
       .remedy = "for weights alone, without a program, take a model's init_weights"});
}

}  // namespace

Pt2File::Pt2File(const std::filesystem::path& path) : Pt2File(source_of(path), path.string()) {}

Pt2File Pt2File::of_bytes(std::string bytes, const std::string& place) {
  return {source_of_bytes(std::move(bytes)), place};
}

Pt2File::Pt2File(ByteSource source, const std::string& place)
    : archive_(std::move(source), place, ZipArchive::Deflated::read),
      place_(place),
      root_(root_of_pt2(archive_, place)) {
  check_format();
  const std::string where = place_ + ", " + std::string(kModelEntry);
  const nlohmann::json model = parse_json(text_of(kModelEntry), where);
  program_ = program_of(JsonView(model, where));
  weights_ = read_weights("data/weights/", "model_weights_config.json");
  constants_ = read_weights("data/constants/", "model_constants_config.json");
}

void Pt2File::check_format() const {
  const auto want = [&](std::string_view entry, std::string_view wanted) {
    const std::string found = text_of(entry);
    if (found != wanted)
      throw CheckpointError({.place = place_,
                             .found = std::string(entry) + " is " + json_string(found.substr(0, 100)),
                             .wanted = json_string(wanted),
                             .remedy = "save the program with torch.export.save of PyTorch 2.11 to 2.13"});
  };
  want(kFormatEntry, "pt2");
  want("archive_version", "0");
  if (archive_.find(root_ + "byteorder") != nullptr) want("byteorder", "little");
}

std::string Pt2File::text_of(std::string_view name) const {
  const ZipEntry* const entry = archive_.find(root_ + std::string(name));
  if (entry == nullptr)
    throw CheckpointError({.place = place_,
                           .found = "the archive has no entry " + std::string(name),
                           .wanted = "a file of torch.export.save, whose program is named \"model\"",
                           .remedy = "save it again with torch.export.save"});
  return archive_.text(*entry, kMaxJsonBytes);
}

std::size_t Pt2File::storage_at(const std::string& path) {
  const ZipEntry* const entry = archive_.find(path);
  if (entry == nullptr)
    throw CheckpointError({.place = place_, .found = "the archive has no entry " + json_string(path)});
  const auto place = static_cast<std::size_t>(entry - archive_.entries().data());
  const auto known = std::ranges::find(storages_, place);
  if (known == storages_.end()) {
    storages_.push_back(place);
    return storages_.size() - 1;
  }
  return static_cast<std::size_t>(known - storages_.begin());
}

std::vector<ProgramWeight> Pt2File::read_weights(const std::string& folder, const std::string& config) {
  const std::string where = place_ + ", " + folder + config;
  const nlohmann::json parsed = parse_json(text_of(folder + config), where);
  std::vector<ProgramWeight> weights;
  for (const auto& [name, payload] : JsonView(parsed, where)["config"].members()) {
    if (payload["use_pickle"].boolean())
      payload.refuse("it is saved as a pickle, which is a program", "plain tensors",
                     "export a model without objects or tensors of its own kinds");
    weights.push_back({.name = name,
                       .tensor = tensor_of(payload["tensor_meta"]),
                       .is_parameter = payload["is_param"].boolean(),
                       .storage = storage_at(root_ + folder + payload["path_name"].text())});
    if (!fits(weights.back().tensor, storage_bytes(weights.back().storage)))
      payload.refuse("its values do not lie inside the " +
                     std::to_string(storage_bytes(weights.back().storage)) + " bytes of its entry");
  }
  return weights;
}

void Pt2File::read_storage(std::size_t storage, void* out) const { archive_.read(entry_of(storage), out); }

void Pt2File::write_copy(const std::filesystem::path& path,
                         std::span<const std::string_view> storages) const {
  ZipWriter writer;
  std::vector<std::string> copied;
  copied.reserve(archive_.entries().size());
  for (std::size_t i = 0; i < archive_.entries().size(); ++i) {
    const ZipEntry& entry = archive_.entries()[i];
    const auto storage = std::ranges::find(storages_, i);
    if (storage != storages_.end()) {
      writer.add(entry.name, storages[static_cast<std::size_t>(storage - storages_.begin())]);
    } else {
      archive_.read(entry, copied.emplace_back(entry.size, '\0').data());
      writer.add(entry.name, copied.back());
    }
  }
  write_file_atomically(path, writer.finish());
}

}  // namespace kindling
