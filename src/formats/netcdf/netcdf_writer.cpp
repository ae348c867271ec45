#include "formats/netcdf/netcdf_writer.h"

#include <netcdf.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/file_replacement.h"
#include "formats/hdf5_lock.h"
#include "formats/netcdf/netcdf_coordinates.h"
#include "formats/netcdf/netcdf_file.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

nc_type netcdf_type_of(TensorType type, const std::string& place) {
  if (type == TensorType::boolean) return NC_BYTE;
  for (const nc_type known :
       {NC_BYTE, NC_UBYTE, NC_SHORT, NC_USHORT, NC_INT, NC_UINT, NC_INT64, NC_UINT64, NC_FLOAT, NC_DOUBLE})
    if (netcdf_tensor_type(known) == type) return known;
  throw DataError({.place = place,
                   .found = "NetCDF does not have the type " + std::string(name_of(type)),
                   .wanted = "such as float32 or float64"});
}

void require_written(int status, const fs::path& path, const std::string& what) {
  if (status == NC_NOERR) return;
  leave_before_hdf5_exits();
  throw DataError({.place = path.string(),
                   .found = what + " fails: " + nc_strerror(status),
                   .wanted = "a file system with space, on which NetCDF can write",
                   .remedy = "check the disk and try again; nothing has been replaced"});
}

// A file that is being written; closed before its temporary file is deleted.
class NewNetcdfFile {
 public:
  explicit NewNetcdfFile(const FileReplacement& replacement) : path_(replacement.path()) {
    const std::lock_guard lock(hdf5_mutex());
    require_written(nc_create(replacement.temporary_path().c_str(), NC_NETCDF4 | NC_CLOBBER, &id_), path_,
                    "creating the file");
    nc_set_fill(id_, NC_NOFILL, nullptr);  // every value is written
  }
  ~NewNetcdfFile() {
    const std::lock_guard lock(hdf5_mutex());
    if (is_open_) nc_close(id_);
  }
  NewNetcdfFile(const NewNetcdfFile&) = delete;
  NewNetcdfFile& operator=(const NewNetcdfFile&) = delete;

  int id() const { return id_; }
  void close() {
    is_open_ = false;
    require_written(nc_close(id_), path_, "closing the file");
  }

 private:
  fs::path path_;
  int id_ = -1;
  bool is_open_ = true;
};

// The targets in their file.
struct NetcdfTargets {
  std::unique_ptr<const NetcdfFile> file{};
  NetcdfVariable variable{};
  std::string name{};                // without groups
  std::set<std::string> row_dims{};  // those that count rows
  std::vector<std::size_t> dims{};   // those of a sample
};

std::optional<NetcdfTargets> targets_of(const RowOrigin& origin) {
  if (origin.files.empty()) return std::nullopt;
  NetcdfTargets targets{.file = std::make_unique<const NetcdfFile>(origin.files.front())};
  const std::optional<NetcdfVariable> variable = find_netcdf_variable(*targets.file, origin.array);
  if (!variable) return std::nullopt;
  targets.variable = *variable;
  targets.name = origin.array.substr(origin.array.rfind('/') + 1);
  const std::size_t axis = netcdf_sample_axis(
      *variable, origin.sample_dim, targets.file->path().string() + ", variable '" + origin.array + "'");
  targets.row_dims.insert(variable->dims[axis]);
  for (std::size_t i = 0; i < variable->dims.size(); ++i) {
    if (i == axis) continue;
    if (targets.row_dims.size() < origin.num_row_dims)
      targets.row_dims.insert(variable->dims[i]);
    else
      targets.dims.push_back(i);
  }
  return targets;
}

// Sizes of 1 do not count: targets [rows] and outputs [rows, 1] are the same values.
bool has_same_rows(const NetcdfTargets& targets, const ColumnToWrite& column) {
  std::vector<std::size_t> sizes, expected;
  for (const std::size_t dim : targets.dims)
    if (const std::size_t size = targets.variable.sizes[dim]; size != 1) expected.push_back(size);
  for (const std::int64_t size : column.row_shape)
    if (size != 1) sizes.push_back(static_cast<std::size_t>(size));
  return sizes == expected;
}

class NetcdfWriter final : public RowWriter {
 public:
  NetcdfWriter(const fs::path& path, std::span<const ColumnToWrite> columns, const RowTexts& texts,
               const RowOrigin& origin, std::int64_t num_rows)
      : replacement_(path), columns_(columns.begin(), columns.end()), texts_(texts), file_(replacement_) {
    const std::lock_guard lock(hdf5_mutex());
    std::optional<NetcdfTargets> targets = targets_of(origin);
    std::shared_ptr<NetcdfSamples> samples;
    if (targets && origin.has_coordinates)
      samples =
          origin.sample_files.empty()
              ? std::make_shared<NetcdfSamples>(origin.files, origin.array, origin.sample_dim)
              : std::make_shared<NetcdfSamples>(origin.sample_files, origin.sample_array, origin.sample_dim);
    const std::string sample_dim = samples && origin.has_rows ? samples->dim() : "sample";
    require_written(
        nc_def_dim(file_.id(), sample_dim.c_str(), static_cast<std::size_t>(num_rows), &sample_dim_), path,
        "defining a dimension");
    coordinates_.emplace(file_.id(), path.string(), sample_dim, sample_dim_);
    const auto is_estimate = [](const ColumnToWrite& column) {
      return column.estimates_targets || column.is_class;
    };
    if (targets && std::ranges::any_of(columns_, is_estimate) &&
        std::ranges::none_of(columns_, [&](const ColumnToWrite& column) {
          return is_estimate(column) && has_same_rows(*targets, column);
        }))
      log_warning("predict: the predictions have no name, units and grid of '" + origin.array +
                  "', because its samples have another shape");
    define(targets, samples, origin.has_rows);
    coordinates_->copy_fixed();
  }

  void append(std::span<const void* const> values, std::span<const std::int64_t> rows) override {
    const std::lock_guard lock(hdf5_mutex());
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const Variable& variable = variables_[i];
      std::vector<std::size_t> start(variable.row_sizes.size() + 1), counts{rows.size()};
      start[0] = num_rows_;
      counts.insert(counts.end(), variable.row_sizes.begin(), variable.row_sizes.end());
      if (rows.empty()) continue;
      require_written(nc_put_vara(file_.id(), variable.id, start.data(), counts.data(), values[i]),
                      replacement_.path(), "writing '" + columns_[i].name + "'");
    }
    coordinates_->copy_rows(rows, num_rows_);
    num_rows_ += rows.size();
  }

  void finish() override {
    {
      const std::lock_guard lock(hdf5_mutex());
      if (!texts_.name.empty()) write_texts();
      coordinates_.reset();
      file_.close();
    }
    replacement_.finish();
  }

 private:
  struct Variable {
    int id = -1;
    std::vector<std::size_t> row_sizes{};
  };

  void define(const std::optional<NetcdfTargets>& targets, const std::shared_ptr<NetcdfSamples>& samples,
              bool has_rows) {
    std::set<std::string> names{texts_.name};
    for (ColumnToWrite& column : columns_) {
      if (targets && column.estimates_targets && has_same_rows(*targets, column)) column.name = targets->name;
      names.insert(column.name);
    }
    std::vector<bool> is_like_targets;
    for (const ColumnToWrite& column : columns_) {
      is_like_targets.push_back(targets && (column.estimates_targets || column.is_class) &&
                                has_same_rows(*targets, column));
      define_column(column, is_like_targets.back() ? &*targets : nullptr);
    }
    if (targets)
      coordinates_->define(
          {.targets = &targets->variable,
           .row_dims = targets->row_dims,
           .samples = samples,
           .has_rows = has_rows,
           .is_like_targets = std::ranges::find(is_like_targets, true) != is_like_targets.end(),
           .taken_names = std::move(names)});
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (is_like_targets[i])
        coordinates_->copy_attributes(targets->variable, variables_[i].id, columns_[i].is_class);
    if (!texts_.name.empty())
      require_written(nc_def_var(file_.id(), texts_.name.c_str(), NC_STRING, 1, &sample_dim_, &text_id_),
                      replacement_.path(), "defining '" + texts_.name + "'");
    const std::string conventions = "CF-1.8";
    nc_put_att_text(file_.id(), NC_GLOBAL, "Conventions", conventions.size(), conventions.c_str());
    require_written(nc_enddef(file_.id()), replacement_.path(), "defining the variables");
  }

  // `targets`: nullptr: the column has dimensions of its own.
  void define_column(const ColumnToWrite& column, const NetcdfTargets* targets) {
    std::vector<int> dims{sample_dim_};
    Variable variable;
    const auto add = [&](const std::string& name, std::size_t size) {
      const std::optional<int> dim = coordinates_->define_dim(name, size);
      if (!dim)
        throw DataError(
            {.place = replacement_.path().string(),
             .found = "'" + column.name + "' has a dimension '" + name + "' of size " + std::to_string(size),
             .wanted = "sizes above 0, and one size for each name"});
      dims.push_back(*dim);
      variable.row_sizes.push_back(size);
    };
    if (targets != nullptr)
      for (const std::size_t dim : targets->dims)
        add(targets->variable.dims[dim], targets->variable.sizes[dim]);
    else
      for (std::size_t i = 0; i < column.row_shape.size(); ++i)
        add(column.name + "_dim_" + std::to_string(i + 1), static_cast<std::size_t>(column.row_shape[i]));
    const nc_type type =
        netcdf_type_of(column.type, replacement_.path().string() + ", '" + column.name + "'");
    require_written(nc_def_var(file_.id(), column.name.c_str(), type, static_cast<int>(dims.size()),
                               dims.data(), &variable.id),
                    replacement_.path(), "defining '" + column.name + "'");
    variables_.push_back(std::move(variable));
  }

  void write_texts() {
    std::vector<const char*> texts;
    for (const std::string& text : texts_.texts) texts.push_back(text.c_str());
    const std::size_t start = 0, count = texts.size();
    if (count == 0) return;
    require_written(nc_put_vara_string(file_.id(), text_id_, &start, &count, texts.data()),
                    replacement_.path(), "writing '" + texts_.name + "'");
  }

  FileReplacement replacement_;
  std::vector<ColumnToWrite> columns_;
  RowTexts texts_;
  NewNetcdfFile file_;
  int sample_dim_ = -1, text_id_ = -1;
  std::optional<NetcdfCoordinates> coordinates_{};
  std::vector<Variable> variables_{};
  std::size_t num_rows_ = 0;
};

}  // namespace

std::unique_ptr<RowWriter> netcdf_writer(const fs::path& path, std::span<const ColumnToWrite> columns,
                                         const RowTexts& texts, const RowOrigin& origin,
                                         std::int64_t num_rows) {
  return std::make_unique<NetcdfWriter>(path, columns, texts, origin, num_rows);
}

}  // namespace kindling
