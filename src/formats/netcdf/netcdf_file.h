#pragma once

#include <netcdf.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/file.h"
#include "kindling/formats/safetensors.h"

// The library NetCDF. All functions that are not const members require the lock hdf5_mutex().
namespace kindling {

// Returns nullopt for types that are not numbers.
std::optional<TensorType> netcdf_tensor_type(nc_type type);

// Throws DataError unless the status is NC_NOERR. `what` fails: "reading samples".
void require_netcdf(int status, const std::string& place, const char* what);

// A file that is open for reading.
class NetcdfFile {
 public:
  // Throws DataError.
  explicit NetcdfFile(const std::filesystem::path& path);
  ~NetcdfFile();
  NetcdfFile(const NetcdfFile&) = delete;
  NetcdfFile& operator=(const NetcdfFile&) = delete;

  int id() const { return id_; }
  const std::filesystem::path& path() const { return path_; }
  // The library reads zeros beyond the end of a file of the classic formats.
  void require_whole() const;

 private:
  std::filesystem::path path_;
  InputFile file_;
  std::size_t size_;
  int id_ = -1;
};

struct NetcdfVariable {
  int group = -1, id = -1;
  nc_type type = NC_NAT;
  std::vector<std::string> dims{};
  std::vector<std::size_t> sizes{};
};

// Returns the variable `id` of a group, or the one of a path from the root, such as "forecast/t2m"; nullopt:
// there is none.
NetcdfVariable netcdf_variable(int group, int id, const std::string& name);
std::optional<NetcdfVariable> find_netcdf_variable(const NetcdfFile& file, const std::string& name);

// Returns the axis of the samples; an empty name is the first one. Throws DataError.
std::size_t netcdf_sample_axis(const NetcdfVariable& variable, const std::string& sample_dim,
                               const std::string& place);

}  // namespace kindling
