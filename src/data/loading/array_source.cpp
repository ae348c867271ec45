#include "data/loading/array_source.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/error_kind.h"
#include "base/joined.h"
#include "base/memory_info.h"
#include "data/loading/file_pattern.h"
#include "data/loading/joined_arrays.h"
#include "data/loading/stored_dataset.h"
#include "formats/arrays/stored_array.h"
#include "formats/hdf5/hdf5_array.h"
#include "formats/netcdf/netcdf_array.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/suggest.h"
#include "kindling/formats/npy.h"
#include "tensors/scalar_types.h"
#include "tensors/shape_text.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytesInMemory = std::size_t{1} << 32;  // are read within seconds
// Of one array that is read although others stay in their files, such as labels.
constexpr std::size_t kSmallArrayBytes = std::size_t{1} << 26;
constexpr std::int64_t kSomeSamples = 256;

std::string extension_of(const fs::path& file) { return lower_case(file.extension().string()); }

bool is_raw(const fs::path& file) {
  const std::string extension = extension_of(file);
  return extension == ".bin" || extension == ".raw" || extension == ".dat";
}

std::string place_of(const fs::path& file, const std::string& name) {
  return file.string() + (name.empty() ? "" : ", array '" + name + "'");
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

// Without reading values. Nullopt: the file is read as a whole.
std::optional<std::vector<StoredArray>> stored_arrays_of(const ArrayRequest& request) {
  const std::string extension = extension_of(request.file);
  if (extension == ".npy") return std::vector{stored_npy(request.file)};
  if (extension == ".npz") return stored_npz(request.file, request.names);
  if (is_raw(request.file))
    return std::vector{stored_raw(request.file, request.raw_samples, "data." + request.raw_key)};
  if (extension == ".safetensors") {
    std::vector<StoredArray> arrays = stored_safetensors(request.file);
    for (StoredArray& array : arrays) array.is_requested = request.names.contains(array.name);
    return arrays;
  }
  if (is_hdf5_file(request.file)) return stored_hdf5(request.file, request.names);
  if (is_netcdf_file(request.file))
    return stored_netcdf(request.file, request.names, request.sample_dim,
                         request.decode == "xarray" ? NetcdfDecoding::xarray : NetcdfDecoding::netcdf4);
  if (extension == ".pt" || extension == ".pth") return std::nullopt;
  throw ConfigError({.place = "data." + request.key,
                     .found = request.file.string() + " ends with '" + extension + "'",
                     .wanted = kArrayFileKind});
}

std::vector<SourceArray> read_whole(const ArrayRequest& request) {
  std::vector<SourceArray> arrays;
  const fs::path& file = request.file;
  const std::string extension = extension_of(file);
  if (extension == ".npy") return {{.file = file, .values = tensor_of(read_npy(file))}};
  if (extension == ".npz") {
    for (NpyArray& array : read_npz(file, request.names)) {
      const bool is_read = request.names.contains(array.name);
      arrays.push_back(
          {.file = file, .name = array.name, .values = is_read ? tensor_of(array) : at::Tensor()});
      array.bytes = {};  // not all of them twice
    }
    return arrays;
  }
  // A copy: the file may change during the run.
  for (auto& [name, tensor] : read_state(WeightsFile::open(file)).tensors)
    arrays.push_back({.file = file, .name = name, .values = std::move(tensor)});
  return arrays;
}

// False for an array whose values are not as they are needed. Rows of one that is stored by columns are
// scattered over the whole file.
bool is_plain(const StoredArray& stored) {
  return !stored.is_compressed && (!stored.is_column_major || stored.shape.size() < 2);
}

std::vector<std::int64_t> chunk_starts_of(const StoredArray& stored) {
  std::vector<std::int64_t> starts;
  const std::int64_t rows = stored.rows && !stored.shape.empty() ? stored.rows->rows_per_chunk() : 1;
  if (rows < 2) return starts;
  for (std::int64_t start = 0; start < stored.shape[0]; start += rows) starts.push_back(start);
  return starts;
}

SourceArray plain_array(const StoredArray& stored, const std::shared_ptr<const InputFile>& file,
                        bool stays_in_file) {
  SourceArray array{.file = file->path(), .name = stored.name, .chunk_starts = chunk_starts_of(stored)};
  const at::ScalarType type = scalar_type_of(stored.type);
  const std::int64_t num_rows = stored.shape.empty() ? 1 : stored.shape[0];
  array.rows = stored.rows
                   ? stored.rows
                   : std::make_shared<FileRows>(
                         file, stored.begin,
                         stored.size_bytes / static_cast<std::size_t>(std::max<std::int64_t>(1, num_rows)));
  if (stays_in_file && !stored.shape.empty()) {
    array.values = at::empty({1}, type).expand(stored.shape);
    return array;
  }
  array.values = at::empty(stored.shape, type);
  const at::Tensor numbers = at::arange(num_rows, at::kLong);
  with_errors_as<DataError>([&] {
    array.rows->read(numbers.const_data_ptr<std::int64_t>(), num_rows,
                     static_cast<char*>(array.values.mutable_data_ptr()));
  });
  array.rows = nullptr;
  return array;
}

void require_memory_for_columns(const StoredArray& stored, const fs::path& file) {
  constexpr std::size_t kCopies = 3;  // of its values while it is transposed
  const std::optional<std::size_t> free = memory_info_bytes("MemAvailable");
  if (!stored.is_column_major || !free || stored.size_bytes <= *free / kCopies) return;
  throw DataError({.place = place_of(file, stored.name),
                   .found = "it is stored by columns (fortran_order) and has " +
                            std::to_string(stored.size_bytes) + " bytes",
                   .wanted = "an array stored by rows, or one that fits into memory three times",
                   .remedy = "save numpy.ascontiguousarray(array)"});
}

SourceArray array_of(const StoredArray& stored, const ArrayRequest& request,
                     const std::shared_ptr<const InputFile>& file, bool stays_in_file) {
  if (!stored.is_requested) return {.file = request.file, .name = stored.name};
  if (is_plain(stored)) return plain_array(stored, file, stays_in_file);
  require_memory_for_columns(stored, request.file);
  ArrayRequest alone = request;
  alone.names = {stored.name};
  for (SourceArray& array : read_whole(alone))
    if (array.name == stored.name) return std::move(array);
  throw DataError({.place = place_of(request.file, stored.name),
                   .found = "the array is gone",
                   .wanted = "a file that does not change while it is read"});
}

void log_stored_array(const StoredArray& stored, const fs::path& file) {
  log_info("data: " + place_of(file, stored.name) + ": its " + std::to_string(stored.size_bytes) +
           " bytes stay in the file, from which batches are read");
}

std::vector<SourceArray> read_with_rows_in_file(const ArrayRequest& request,
                                                const std::vector<StoredArray>& stored,
                                                const std::set<std::string>& names_in_file) {
  const auto file = std::make_shared<const InputFile>(request.file);
  std::vector<SourceArray> arrays;
  for (const StoredArray& one : stored) {
    arrays.push_back(array_of(one, request, file, names_in_file.contains(one.name)));
    if (arrays.back().rows) log_stored_array(one, request.file);
  }
  return arrays;
}

// The files of a request, and what is known of their arrays without reading values.
struct RequestedFiles {
  std::vector<ArrayRequest> requests{};  // one per file
  std::vector<std::optional<std::vector<StoredArray>>> stored{};
  std::map<std::string, std::size_t> bytes_of_arrays{};  // by name, of all files together
};

RequestedFiles requested_files(const ArrayRequest& request) {
  RequestedFiles files;
  for (fs::path& file : files_of(request.file)) {
    files.requests.push_back(request);
    files.requests.back().file = std::move(file);
    files.stored.push_back(stored_arrays_of(files.requests.back()));
    if (!files.stored.back()) continue;
    for (const StoredArray& array : *files.stored.back())
      if (array.is_requested) files.bytes_of_arrays[array.name] += array.size_bytes;
  }
  return files;
}

// `fits`: whether all arrays of all requests have at most `max_bytes`. Arrays of more than `max_array_bytes`
// stay in their files.
std::vector<std::vector<SourceArray>> read_files_of(const RequestedFiles& files, bool fits,
                                                    std::size_t max_array_bytes, std::size_t max_bytes) {
  std::set<std::string> names_in_file;
  for (const auto& [name, size] : files.bytes_of_arrays)
    if (size > max_array_bytes) names_in_file.insert(name);
  std::vector<std::vector<SourceArray>> all;
  for (std::size_t i = 0; i < files.requests.size(); ++i) {
    const ArrayRequest& request = files.requests[i];
    const auto& stored = files.stored[i];
    // Reading the whole file also verifies its checksums.
    const bool is_whole =
        !stored || (fits && !is_raw(request.file) && !is_hdf5_file(request.file) &&
                    !is_netcdf_file(request.file) && fs::file_size(request.file) <= max_bytes);
    all.push_back(is_whole ? read_whole(request) : read_with_rows_in_file(request, *stored, names_in_file));
  }
  return all;
}

}  // namespace

bool has_one_array(const fs::path& file) { return extension_of(file) == ".npy" || is_raw(file); }

std::string SourceArray::place() const { return place_of(file, name); }

void SourceArray::refuse(const std::string& wanted) const {
  throw DataError({.place = place(), .found = "it is " + type_text(values), .wanted = wanted});
}

void SourceArray::require_files_like(const SourceArray& other) const {
  if (file_sizes == other.file_sizes || file_sizes.size() != other.file_sizes.size()) return;
  const auto different = std::ranges::mismatch(file_sizes, other.file_sizes);
  const auto number = static_cast<std::size_t>(different.in1 - file_sizes.begin());
  throw DataError(
      {.place = place(),
       .found = files_of(file)[number].string() + " has " + std::to_string(*different.in1) + " samples of it",
       .wanted = std::to_string(*different.in2) + ", as of '" + other.name + "'"});
}

at::Tensor SourceArray::all_samples() const {
  return rows ? StoredRows({.source = rows, .like = values}).read_all() : values;
}

at::Tensor SourceArray::some_samples() const {
  if (!rows) return values;
  const std::int64_t count = values.size(0), bytes = values.numel() / count * values.element_size();
  const std::int64_t most =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(kSmallArrayBytes) / bytes, 1, kSomeSamples);
  const std::int64_t chosen = std::min(count, most), step = count / chosen;
  const StoredRows stored({.source = rows, .like = values});
  at::Tensor samples = stored.none().clone();
  stored.read(at::arange(0, chosen * step, step, at::kLong), samples);
  return samples;
}

std::size_t most_array_bytes_in_memory(bool is_required) {
  constexpr std::size_t kCopies = 4;  // parts of them for training and validation are copies
  const std::optional<std::size_t> free = memory_info_bytes("MemAvailable");
  const std::size_t most = free.value_or(kMostBytesInMemory) / kCopies;
  return is_required ? most : std::min(most, kMostBytesInMemory);
}

std::vector<std::vector<SourceArray>> read_arrays(const std::vector<ArrayRequest>& requests,
                                                  std::size_t max_bytes) {
  std::vector<RequestedFiles> all_files;
  std::size_t bytes = 0;
  for (const ArrayRequest& request : requests) {
    all_files.push_back(requested_files(request));
    for (const auto& [name, size] : all_files.back().bytes_of_arrays) bytes += size;
  }
  const bool fits = bytes <= max_bytes;
  std::vector<std::vector<SourceArray>> all;
  for (std::size_t i = 0; i < requests.size(); ++i)
    all.push_back(
        joined_arrays(read_files_of(all_files[i], fits,
                                    fits ? max_bytes : std::min(kSmallArrayBytes, max_bytes), max_bytes),
                      requests[i].file));
  return all;
}

const SourceArray& array_named(const std::vector<SourceArray>& arrays, const std::string& name,
                               const fs::path& file, const char* key) {
  if (arrays.size() == 1 && arrays.front().name.empty()) return arrays.front();
  std::vector<std::string> names;
  for (const SourceArray& array : arrays) {
    if (array.name == name) return array;
    names.push_back(array.name);
  }
  std::ranges::sort(names);
  const std::string guess = nearest(name, names);
  throw ConfigError({.place = std::string("data.") + key,
                     .found = file.string() + " has no array '" + name + "'",
                     .wanted = names.empty() ? "a file with arrays" : "one of " + list_names(names),
                     .remedy = guess.empty() ? "" : "did you mean '" + guess + "'?"});
}

}  // namespace kindling
