#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "formats/arrays/row_source.h"
#include "kindling/base/export.h"

namespace kindling {

inline constexpr const char* kArrayFileKind =
    "a .npz, .npy, .safetensors, .pt, HDF5 (.h5, .hdf5), NetCDF (.nc) or raw (.bin, .raw, .dat) file";

// True for files of one array, which has no name: .npy and raw ones (.bin, .raw, .dat).
bool has_one_array(const std::filesystem::path& file);

// Arrays to read from a file.
struct ArrayRequest {
  std::filesystem::path file{};   // or a pattern of files (files_of()), whose arrays are joined
  std::string key{};              // that names the file: "file"
  std::set<std::string> names{};  // of the arrays; a file with one array ignores them
  // Of a raw file: the type and shape of a sample (stored_raw()), and the key that has them.
  std::string raw_samples{}, raw_key{};
  // Of a NetCDF file, see stored_netcdf(): the dimension of the samples; "netcdf4" or "xarray".
  std::string sample_dim{}, decode = "netcdf4";
};

// An array of a file: in memory, or one whose rows stay in the file.
struct SourceArray {
  std::filesystem::path file{};
  std::string name{};   // empty: the file has one array
  at::Tensor values{};  // in memory, or of the type and sizes only; undefined: it was not requested
  std::shared_ptr<const RowSource> rows{};  // nullptr: the values are in memory
  // The first sample of each chunk that is decoded as a whole, also of an array in memory; empty: the array
  // is not stored in chunks.
  std::vector<std::int64_t> chunk_starts{};
  std::vector<std::int64_t> file_sizes{};  // samples of each file of a pattern; empty: there is one file

  std::string place() const;  // for messages: "a.npz, array 'x'"
  // Throws DataError that names the array, its type and its sizes.
  [[noreturn]] void refuse(const std::string& wanted) const;
  // Throws DataError unless each file of a pattern has as many samples of both arrays.
  void require_files_like(const SourceArray& other) const;
  at::Tensor all_samples() const;
  // Returns all samples of an array in memory; otherwise some that are evenly spaced.
  at::Tensor some_samples() const;
};

// Reads the arrays of each request. If all of them together have more than `max_bytes`, large ones stay in
// their files, as far as their rows can be read from there; they are logged. Throws DataError, which names
// the file and the array, and ConfigError.
KINDLING_API std::vector<std::vector<SourceArray>> read_arrays(const std::vector<ArrayRequest>& requests,
                                                               std::size_t max_bytes);

// Returns how many bytes of arrays are read into memory. `is_required`: as many as can be, because they are
// to be kept on a GPU.
std::size_t most_array_bytes_in_memory(bool is_required);

// Returns the array of a name; the only one of its file has none. `key`: the option that has the name. Throws
// ConfigError with the names that the file has.
KINDLING_API const SourceArray& array_named(const std::vector<SourceArray>& arrays, const std::string& name,
                                            const std::filesystem::path& file, const char* key);

}  // namespace kindling
