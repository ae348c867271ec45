#include "formats/netcdf/netcdf_file.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "formats/hdf5_lock.h"
#include "formats/netcdf/classic_netcdf.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

std::string name_of_dim(int group, int dim) {
  char name[NC_MAX_NAME + 1] = {};
  nc_inq_dimname(group, dim, name);
  return name;
}

}  // namespace

std::optional<TensorType> netcdf_tensor_type(nc_type type) {
  switch (type) {
    case NC_BYTE:
      return TensorType::int8;
    case NC_UBYTE:
      return TensorType::uint8;
    case NC_SHORT:
      return TensorType::int16;
    case NC_USHORT:
      return TensorType::uint16;
    case NC_INT:
      return TensorType::int32;
    case NC_UINT:
      return TensorType::uint32;
    case NC_INT64:
      return TensorType::int64;
    case NC_UINT64:
      return TensorType::uint64;
    case NC_FLOAT:
      return TensorType::float32;
    case NC_DOUBLE:
      return TensorType::float64;
    default:
      return std::nullopt;
  }
}

void require_netcdf(int status, const std::string& place, const char* what) {
  if (status == NC_NOERR) return;
  throw DataError({.place = place,
                   .found = std::string(what) + " fails: " + nc_strerror(status),
                   .wanted = "a NetCDF file that the library can read",
                   .remedy = "`ncdump -h FILE` shows what it contains"});
}

NetcdfFile::NetcdfFile(const std::filesystem::path& path) : path_(path), file_(path), size_(file_.size()) {
  const auto size = size_of_classic_netcdf(file_);
  if (size && *size > size_)
    throw DataError({.place = path.string(),
                     .found = "it has been cut off: it has " + std::to_string(size_) + " bytes",
                     .wanted = std::to_string(*size) + " bytes by its header",
                     .remedy = "copy the file again"});
  require_netcdf(nc_open(path.c_str(), NC_NOWRITE, &id_), path.string(), "opening it");
}

NetcdfFile::~NetcdfFile() {
  const std::lock_guard lock(hdf5_mutex());
  nc_close(id_);
}

void NetcdfFile::require_whole() const {
  if (const std::size_t size = std::filesystem::file_size(path_); size < size_)
    throw DataError({.place = path_.string(),
                     .found = "it has become shorter, from " + std::to_string(size_) + " to " +
                              std::to_string(size) + " bytes",
                     .wanted = "a file that does not change while it is read"});
}

NetcdfVariable netcdf_variable(int group, int id, const std::string& name) {
  NetcdfVariable variable{.group = group, .id = id};
  int num_dims = 0;
  require_netcdf(nc_inq_varndims(variable.group, variable.id, &num_dims), name, "reading its dimensions");
  std::vector<int> dims(static_cast<std::size_t>(num_dims));
  require_netcdf(
      nc_inq_var(variable.group, variable.id, nullptr, &variable.type, nullptr, dims.data(), nullptr), name,
      "reading its dimensions");
  for (const int dim : dims) {
    std::size_t size = 0;
    require_netcdf(nc_inq_dimlen(variable.group, dim, &size), name, "reading its dimensions");
    variable.dims.push_back(name_of_dim(variable.group, dim));
    variable.sizes.push_back(size);
  }
  return variable;
}

std::optional<NetcdfVariable> find_netcdf_variable(const NetcdfFile& file, const std::string& name) {
  NetcdfVariable variable{.group = file.id()};
  std::string rest = name;
  while (rest.starts_with('/')) rest.erase(0, 1);
  for (std::size_t slash = 0; (slash = rest.find('/')) != std::string::npos; rest.erase(0, slash + 1))
    if (nc_inq_grp_ncid(variable.group, rest.substr(0, slash).c_str(), &variable.group) != NC_NOERR)
      return std::nullopt;
  if (nc_inq_varid(variable.group, rest.c_str(), &variable.id) != NC_NOERR) return std::nullopt;
  return netcdf_variable(variable.group, variable.id, name);
}

std::size_t netcdf_sample_axis(const NetcdfVariable& variable, const std::string& sample_dim,
                               const std::string& place) {
  if (variable.dims.empty())
    throw DataError({.place = place, .found = "it is a single value", .wanted = "a dimension of samples"});
  if (sample_dim.empty()) return 0;
  const auto found = std::ranges::find(variable.dims, sample_dim);
  if (found != variable.dims.end()) return static_cast<std::size_t>(found - variable.dims.begin());
  throw DataError({.place = place,
                   .found = "it has no dimension '" + sample_dim + "' (data.sample_dim)",
                   .wanted = "one of its dimensions, " + list_names(variable.dims)});
}

}  // namespace kindling
