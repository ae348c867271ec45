#include "formats/hdf5/hdf5_array.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/hdf5/hdf5_dataset.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::size_t kMostListed = 200;  // names in an error
constexpr std::size_t kLibraryCacheBytes = std::size_t{1} << 26, kLibraryCacheSlots = 12421;

// True if each part of the path is a link of the group before it.
bool has_link(hid_t file, const std::string& name) {
  for (std::size_t end = name.find_first_not_of('/'); end != std::string::npos && end < name.size();) {
    end = std::min(name.find('/', end), name.size());
    if (H5Lexists(file, name.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    end = name.find_first_not_of('/', end);
  }
  return true;
}

struct NamesOfDatasets {
  std::string prefix{};
  std::vector<std::string> names{};
};

// Data sets that cannot be opened are listed, too.
herr_t add_name(hid_t group, const char* name, const H5L_info_t*, void* names) {
  auto& found = *static_cast<NamesOfDatasets*>(names);
  const Hdf5Id object(H5Oopen(group, name, H5P_DEFAULT), H5Oclose);
  const bool is_dataset = !object.is_valid() || H5Iget_type(object.get()) == H5I_DATASET;
  if (is_dataset) found.names.push_back(found.prefix + one_line(name));
  return found.names.size() < kMostListed ? 0 : 1;
}

std::vector<std::string> names_in(hid_t group, const std::string& prefix) {
  NamesOfDatasets found{.prefix = prefix};
  H5Lvisit(group, H5_INDEX_NAME, H5_ITER_INC, add_name, &found);
  return found.names;
}

[[noreturn]] void refuse_object(const std::string& place, const Hdf5Id& object, const std::string& name) {
  if (H5Iget_type(object.get()) != H5I_GROUP)
    throw DataError({.place = place, .found = "it is a type", .wanted = "a data set"});
  const std::vector<std::string> names = names_in(object.get(), name + (name.ends_with('/') ? "" : "/"));
  throw DataError({.place = place,
                   .found = "it is a group",
                   .wanted = "a data set",
                   .remedy = names.empty() ? "" : "it has " + list_names(names)});
}

Hdf5Id open_dataset(const Hdf5File& file, const std::string& name, const std::string& place) {
  {
    const Hdf5Id object(H5Oopen(file.id.get(), name.c_str(), H5P_DEFAULT), H5Oclose);
    if (!object.is_valid()) refuse_hdf5(place, "it cannot be opened");
    if (H5Iget_type(object.get()) != H5I_DATASET) refuse_object(place, object, name);
  }
  const Hdf5Id access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  H5Pset_chunk_cache(access.get(), kLibraryCacheSlots, kLibraryCacheBytes, 1.0);
  Hdf5Id dataset(H5Dopen2(file.id.get(), name.c_str(), access.get()), H5Dclose);
  if (!dataset.is_valid()) refuse_hdf5(place, "it cannot be opened");
  return dataset;
}

std::vector<hsize_t> shape_of(const Hdf5Id& dataset, const std::string& place) {
  const Hdf5Id space(H5Dget_space(dataset.get()), H5Sclose);
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL)
    throw DataError({.place = place, .found = "it has no values", .wanted = "numbers [samples, …]"});
  std::vector<hsize_t> shape(static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
  H5Sget_simple_extent_dims(space.get(), shape.data(), nullptr);
  return shape;
}

Hdf5Type type_of(const Hdf5Id& dataset, const std::string& place) {
  const Hdf5Id type(H5Dget_type(dataset.get()), H5Tclose);
  if (const auto found = hdf5_type_of(type.get())) return *found;
  throw DataError(
      {.place = place,
       .found = "its values are " + hdf5_type_text(type.get()),
       .wanted = "booleans, integers or floating-point numbers of at most 8 bytes, or complex numbers"});
}

StoredArray array_of_dataset(const std::shared_ptr<const Hdf5File>& file, const std::string& name) {
  const std::string place = file->path.string() + ", array '" + one_line(name) + "'";
  Hdf5Id id = open_dataset(*file, name, place);
  const Hdf5Type type = type_of(id, place);
  std::vector<hsize_t> shape = shape_of(id, place);
  const auto dataset = std::make_shared<Hdf5Dataset>(
      Hdf5Dataset{.file = file, .name = name, .id = std::move(id), .type = type, .shape = std::move(shape)});
  StoredArray array{.name = name, .type = type.type, .shape = dataset->sizes()};
  const std::optional<std::size_t> bytes = bytes_of(array.type, array.shape);
  if (!bytes) throw DataError({.place = place, .found = "its sizes have no meaning", .wanted = "a data set"});
  array.size_bytes = *bytes;
  array.rows = hdf5_rows(dataset);
  return array;
}

}  // namespace

bool can_read_hdf5() noexcept { return true; }

std::vector<StoredArray> stored_hdf5(const std::filesystem::path& path, const std::set<std::string>& names) {
  const auto file = std::make_shared<const Hdf5File>(path);
  const Hdf5Turn turn;
  std::vector<StoredArray> arrays;
  const std::string* missing = nullptr;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    if (has_link(file->id.get(), name))
      arrays.push_back(array_of_dataset(file, name));
    else
      missing = &name;
  }
  if (missing == nullptr) return arrays;
  const char* const prefix = missing->starts_with('/') ? "/" : "";
  for (std::string& name : names_in(file->id.get(), prefix))
    if (!names.contains("/" + name) && !names.contains(name.substr(std::string_view(prefix).size())) &&
        !names.contains(name))
      arrays.push_back({.name = std::move(name), .is_requested = false});
  return arrays;
}

}  // namespace kindling
