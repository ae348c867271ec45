#include "formats/hdf5/hdf5_writer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/file_replacement.h"
#include "formats/hdf5/hdf5_library.h"
#include "formats/hdf5/hdf5_types.h"
#include "formats/hdf5_lock.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kTruncate = 2;                          // H5F_ACC_TRUNC, see kReadOnly
constexpr std::size_t kChunkBytes = std::size_t{1} << 19;  // half of the library's cache for a data set

[[noreturn]] void refuse_write(const fs::path& path, const std::string& what) {
  leave_before_hdf5_exits();
  throw DataError({.place = path.string(),
                   .found = what + " fails (" + hdf5_reason() + ")",
                   .wanted = "a file system with space, on which HDF5 can write",
                   .remedy = "check the disk and try again; nothing has been replaced"});
}

std::vector<hsize_t> sizes_with_rows(hsize_t num_rows, const ColumnToWrite& column) {
  std::vector<hsize_t> sizes{num_rows};
  for (const std::int64_t size : column.row_shape) sizes.push_back(static_cast<hsize_t>(size));
  return sizes;
}

// Of whole rows, or of a part of one that is larger than a chunk.
std::vector<hsize_t> chunk_of(const ColumnToWrite& column) {
  std::vector<hsize_t> chunk = sizes_with_rows(1, column);
  std::size_t bytes = std::max<std::size_t>(1, column.row_bytes());
  for (std::size_t i = 1; i < chunk.size(); ++i) {
    chunk[i] = std::max<hsize_t>(1, chunk[i]);
    while (bytes > kChunkBytes && chunk[i] > 1) {
      bytes = bytes / chunk[i] * ((chunk[i] + 1) / 2);
      chunk[i] = (chunk[i] + 1) / 2;
    }
  }
  chunk[0] = std::max<hsize_t>(1, kChunkBytes / bytes);
  return chunk;
}

// References would point into another file, and the others describe how netCDF-4 has stored it.
bool is_kept(const std::string& name, hid_t type) {
  for (const char* const known : {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid",
                                  "_Netcdf4Coordinates", "_NCProperties", "_nc3_strict", "_FillValue",
                                  "missing_value", "valid_min", "valid_max", "valid_range", "actual_range"})
    if (name == known) return false;
  return H5Tdetect_class(type, H5T_REFERENCE) <= 0;
}

struct CopiedAttributes {
  hid_t to;
  std::size_t num_lost = 0;
};

bool copy_values(hid_t from, hid_t to, hid_t type, hid_t space) {
  const hssize_t count = H5Sget_simple_extent_npoints(space);
  if (count < 0) return false;
  if (count == 0 || H5Sget_simple_extent_type(space) == H5S_NULL) return true;
  std::vector<char> values(static_cast<std::size_t>(count) * H5Tget_size(type));
  if (H5Aread(from, type, values.data()) < 0) return false;
  const bool is_written = H5Awrite(to, type, values.data()) >= 0;
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, values.data());
  return is_written;
}

herr_t copy_attribute(hid_t dataset, const char* name, const H5A_info_t*, void* data) {
  auto& copied = *static_cast<CopiedAttributes*>(data);
  const Hdf5Id from(H5Aopen(dataset, name, H5P_DEFAULT), H5Aclose);
  const Hdf5Id stored(H5Aget_type(from.get()), H5Tclose), space(H5Aget_space(from.get()), H5Sclose);
  if (!from.is_valid() || !stored.is_valid() || !space.is_valid()) return ++copied.num_lost, 0;
  if (!is_kept(name, stored.get())) return 0;
  const Hdf5Id type(H5Tcopy(stored.get()), H5Tclose);  // one with a name belongs to its file
  const Hdf5Id in_memory(H5Tget_native_type(stored.get(), H5T_DIR_DEFAULT), H5Tclose);
  const Hdf5Id to(H5Acreate2(copied.to, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  if (!to.is_valid() || !in_memory.is_valid() ||
      !copy_values(from.get(), to.get(), in_memory.get(), space.get()))
    ++copied.num_lost;
  return 0;
}

// Sizes of 1 do not count: targets [rows] and outputs [rows, 1] are the same values.
template <class Sizes>
std::vector<std::int64_t> row_sizes_of(const Sizes& sizes, std::size_t first) {
  std::vector<std::int64_t> found;
  for (std::size_t i = first; i < sizes.size(); ++i)
    if (sizes[i] != 1) found.push_back(static_cast<std::int64_t>(sizes[i]));
  return found;
}

std::vector<hsize_t> extent_of(hid_t dataset) {
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
  std::vector<hsize_t> sizes(static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
  H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
  return sizes;
}

Hdf5Id created_file(const FileReplacement& replacement) {
  const Hdf5Turn turn;
  Hdf5Id file(H5Fcreate(replacement.temporary_path().c_str(), kTruncate, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  if (!file.is_valid()) refuse_write(replacement.path(), "creating the file");
  return file;
}

class Hdf5Writer final : public RowWriter {
 public:
  Hdf5Writer(const fs::path& path, std::span<const ColumnToWrite> columns, const RowTexts& texts,
             const RowOrigin& origin)
      : replacement_(path), columns_(columns.begin(), columns.end()), file_(created_file(replacement_)) {
    const Hdf5Turn turn;
    for (const ColumnToWrite& column : columns_) {
      create_dataset(column);
      if (column.estimates_targets || column.is_class) copy_attributes(column, datasets_.back(), origin);
    }
    if (!texts.name.empty()) write_texts(texts);  // now, so that errors come with the first batch
  }
  void append(std::span<const void* const> values, std::span<const std::int64_t> rows) override {
    const Hdf5Turn turn;
    for (std::size_t i = 0; i < columns_.size(); ++i) append_to(i, values[i], rows.size());
    num_rows_ += rows.size();
  }

  void finish() override {
    {
      const Hdf5Turn turn;
      datasets_.clear();
      if (!file_.close()) refuse_write(replacement_.path(), "closing the file");
    }
    replacement_.finish();
  }

 private:
  // Without the time, so that equal rows make equal files.
  void create_dataset(const ColumnToWrite& column) {
    const std::vector<hsize_t> sizes = sizes_with_rows(0, column), chunk = chunk_of(column);
    std::vector<hsize_t> most = sizes;
    most[0] = H5S_UNLIMITED;
    const Hdf5Id space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), most.data()), H5Sclose);
    const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(creation.get(), false);
    Hdf5Id dataset(H5Dcreate2(file_.get(), column.name.c_str(), native_hdf5_type(column.type), space.get(),
                              H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                   H5Dclose);
    if (!dataset.is_valid()) refuse_write(replacement_.path(), "creating '" + column.name + "'");
    datasets_.push_back(std::move(dataset));
  }

  void append_to(std::size_t i, const void* values, hsize_t count) {
    const ColumnToWrite& column = columns_[i];
    const hid_t dataset = datasets_[i].get();
    const std::vector<hsize_t> sizes = sizes_with_rows(num_rows_ + count, column),
                               counts = sizes_with_rows(count, column);
    std::vector<hsize_t> start(sizes.size());
    start[0] = num_rows_;
    if (H5Dset_extent(dataset, sizes.data()) < 0)
      refuse_write(replacement_.path(), "extending '" + column.name + "'");
    if (count == 0 || column.row_values() == 0) return;
    const Hdf5Id space(H5Dget_space(dataset), H5Sclose),
        in_memory(H5Screate_simple(static_cast<int>(counts.size()), counts.data(), nullptr), H5Sclose);
    H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, counts.data(), nullptr);
    if (H5Dwrite(dataset, native_hdf5_type(column.type), in_memory.get(), space.get(), H5P_DEFAULT, values) <
        0)
      refuse_write(replacement_.path(), "writing '" + column.name + "'");
  }

  // Texts of variable length in UTF-8, as those of h5py.
  void write_texts(const RowTexts& ids) {
    const Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), H5T_VARIABLE);
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    const hsize_t count = ids.texts.size();
    const Hdf5Id space(H5Screate_simple(1, &count, nullptr), H5Sclose);
    const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);
    const Hdf5Id dataset(H5Dcreate2(file_.get(), ids.name.c_str(), type.get(), space.get(), H5P_DEFAULT,
                                    creation.get(), H5P_DEFAULT),
                         H5Dclose);
    std::vector<const char*> texts;
    for (const std::string& text : ids.texts) texts.push_back(text.c_str());
    if (!dataset.is_valid() ||
        (count > 0 && H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data()) < 0))
      refuse_write(replacement_.path(), "writing '" + ids.name + "'");
  }

  void copy_attributes(const ColumnToWrite& column, const Hdf5Id& to, const RowOrigin& origin) {
    if (origin.files.empty()) return;
    const Hdf5File file(origin.files.front());
    const Hdf5Id from(H5Dopen2(file.id.get(), origin.array.c_str(), H5P_DEFAULT), H5Dclose);
    if (!from.is_valid()) return;
    const std::vector<hsize_t> sizes = extent_of(from.get());
    if (row_sizes_of(sizes, origin.num_row_dims) != row_sizes_of(column.row_shape, 0)) {
      log_warning("predict: '" + column.name + "' has no attributes of '" + origin.array +
                  "', because its samples have another shape");
      return;
    }
    CopiedAttributes copied{.to = to.get()};
    H5Aiterate2(from.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, copy_attribute, &copied);
    if (copied.num_lost > 0)
      log_warning("predict: " + std::to_string(copied.num_lost) + " attributes of '" + origin.array +
                  "' cannot be copied");
  }

  FileReplacement replacement_;
  std::vector<ColumnToWrite> columns_;
  Hdf5Id file_;  // closed before the temporary file is deleted, and after the data sets
  std::vector<Hdf5Id> datasets_{};
  hsize_t num_rows_ = 0;
};

}  // namespace

std::unique_ptr<RowWriter> hdf5_writer(const fs::path& path, std::span<const ColumnToWrite> columns,
                                       const RowTexts& texts, const RowOrigin& origin) {
  return std::make_unique<Hdf5Writer>(path, columns, texts, origin);
}

}  // namespace kindling
