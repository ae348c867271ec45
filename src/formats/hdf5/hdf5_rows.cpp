#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "formats/hdf5/chunked_rows.h"
#include "formats/hdf5/hdf5_dataset.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// Rows that the library itself reads and decodes, one thread at a time.
class LibraryRows final : public RowSource {
 public:
  LibraryRows(std::shared_ptr<const Hdf5Dataset> dataset, std::int64_t rows_per_chunk)
      : dataset_(std::move(dataset)),
        rows_per_chunk_(rows_per_chunk),
        // As in the file: some types of files have no counterpart in the library's types in memory.
        type_(dataset_->type.is_plain ? H5Dget_type(dataset_->id.get())
                                      : H5Tcopy(native_hdf5_type(dataset_->type.type)),
              H5Tclose),
        row_bytes_(H5Tget_size(type_.get())) {
    for (std::size_t i = 1; i < dataset_->shape.size(); ++i) row_bytes_ *= dataset_->shape[i];
  }

  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override {
    const Hdf5Turn turn;
    for (std::int64_t i = 0, end = 0; i < count; i = end) {
      for (end = i + 1; end < count && numbers[end] == numbers[end - 1] + 1;) ++end;
      read_range(static_cast<hsize_t>(numbers[i]), static_cast<hsize_t>(end - i), out);
      out += static_cast<std::size_t>(end - i) * row_bytes_;
    }
  }
  std::string place() const override { return dataset_->place(); }
  std::int64_t rows_per_chunk() const override { return rows_per_chunk_; }

 private:
  void read_range(hsize_t first, hsize_t count, char* out) const {
    std::vector<hsize_t> begin(dataset_->shape.size(), 0), sizes = dataset_->shape;
    const Hdf5Id in_file(H5Dget_space(dataset_->id.get()), H5Sclose);
    if (!sizes.empty()) {
      begin[0] = first, sizes[0] = count;
      H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, begin.data(), nullptr, sizes.data(), nullptr);
    }
    const Hdf5Id in_memory(sizes.empty()
                               ? H5Screate(H5S_SCALAR)
                               : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                           H5Sclose);
    if (H5Dread(dataset_->id.get(), type_.get(), in_memory.get(), in_file.get(), H5P_DEFAULT, out) < 0)
      refuse_hdf5(place(), "its rows cannot be read");
    if (dataset_->type.is_plain && dataset_->type.is_swapped)
      swap_byte_order(out, static_cast<std::size_t>(count) * row_bytes_, dataset_->value_bytes());
  }

  std::shared_ptr<const Hdf5Dataset> dataset_;
  std::int64_t rows_per_chunk_;
  Hdf5Id type_;
  std::size_t row_bytes_;
};

std::optional<ChunkFilter> known_filter(H5Z_filter_t number, std::span<const unsigned> values) {
  switch (number) {
    case H5Z_FILTER_DEFLATE:
      return ChunkFilter{.kind = ChunkFilter::Kind::deflate};
    case H5Z_FILTER_FLETCHER32:
      return ChunkFilter{.kind = ChunkFilter::Kind::fletcher32};
    case H5Z_FILTER_SHUFFLE:
      if (values.empty()) return std::nullopt;
      return ChunkFilter{.kind = ChunkFilter::Kind::shuffle, .value_bytes = values[0]};
    default:
      return std::nullopt;
  }
}

[[noreturn]] void refuse_filter(const Hdf5Dataset& dataset, H5Z_filter_t number, const std::string& name) {
  throw DataError({.place = dataset.place(),
                   .found = "its filter " + std::to_string(number) +
                            (name.empty() ? "" : " (" + one_line(name) + ")") + " is not installed",
                   .wanted = "gzip, shuffle, fletcher32 or an installed plugin",
                   .remedy =
                       "set HDF5_PLUGIN_PATH to the folder of the filter's plugin, or write the data set "
                       "with compression=\"gzip\""});
}

// Nullopt: a filter that the library must undo. Throws if it cannot.
std::optional<std::vector<ChunkFilter>> filters_of(const Hdf5Dataset& dataset, hid_t properties) {
  std::vector<ChunkFilter> filters;
  bool are_known = true;
  const int count = H5Pget_nfilters(properties);
  for (int i = 0; i < count; ++i) {
    std::array<unsigned, 8> values{};
    std::array<char, 64> name{};
    std::size_t num_values = values.size();
    unsigned flags = 0, config = 0;
    const H5Z_filter_t number = H5Pget_filter2(properties, static_cast<unsigned>(i), &flags, &num_values,
                                               values.data(), name.size() - 1, name.data(), &config);
    const auto filter = known_filter(number, std::span(values).first(std::min(num_values, values.size())));
    if (filter)
      filters.push_back(*filter);
    else if (are_known = false; H5Zfilter_avail(number) <= 0)
      refuse_filter(dataset, number, name.data());
  }
  return are_known ? std::optional(std::move(filters)) : std::nullopt;
}

// What is read of a chunk under the library's lock.
struct StoredChunk {
  ChunkBytes bytes{};  // of the size 0: the chunk was never written
  std::uint32_t skipped_filters = 0;
};

StoredChunk stored_chunk(const Hdf5Dataset& dataset, std::span<const std::int64_t> first) {
  std::vector<hsize_t> offset(first.begin(),
                              first.begin() + static_cast<std::ptrdiff_t>(dataset.shape.size()));
  const Hdf5Turn turn;
  hsize_t size = 0;
  if (H5Dget_chunk_storage_size(dataset.id.get(), offset.data(), &size) < 0) {
    if (hdf5_reason().find("not allocated") == std::string::npos)
      refuse_hdf5(dataset.place(), "a chunk cannot be found");
    return {};
  }
  StoredChunk chunk{.bytes = ChunkBytes(size)};
  if (size > 0 && H5Dread_chunk(dataset.id.get(), H5P_DEFAULT, offset.data(), &chunk.skipped_filters,
                                chunk.bytes.data.get()) < 0)
    refuse_hdf5(dataset.place(), "a chunk cannot be read");
  return chunk;
}

ChunkBytes filled_chunk(const std::vector<char>& fill, std::size_t size) {
  ChunkBytes chunk(size);
  for (std::size_t at = 0; at < size; at += fill.size())
    std::memcpy(chunk.data.get() + at, fill.data(), fill.size());
  return chunk;
}

// Zeros where the file does not define it.
std::vector<char> fill_value_of(const Hdf5Dataset& dataset, hid_t properties) {
  const Hdf5Id type(H5Dget_type(dataset.id.get()), H5Tclose);
  std::vector<char> value(H5Tget_size(type.get()), 0);
  if (H5Pget_fill_value(properties, type.get(), value.data()) < 0) std::ranges::fill(value, '\0');
  return value;
}

std::vector<std::int64_t> chunk_sizes_of(const Hdf5Dataset& dataset, hid_t properties) {
  std::vector<hsize_t> sizes(dataset.shape.size());
  H5Pget_chunk(properties, static_cast<int>(sizes.size()), sizes.data());
  return {sizes.begin(), sizes.end()};
}

std::shared_ptr<const RowSource> chunked_rows(const std::shared_ptr<const Hdf5Dataset>& dataset,
                                              hid_t properties, std::vector<ChunkFilter> filters) {
  std::vector<std::int64_t> chunk = chunk_sizes_of(*dataset, properties);
  std::vector<char> fill = fill_value_of(*dataset, properties);
  std::size_t size = fill.size();
  for (const std::int64_t count : chunk) size *= static_cast<std::size_t>(count);
  if (dataset->type.is_pair) chunk.push_back(2);
  const auto decode = [dataset, size, filters = std::move(filters),
                       fill = std::move(fill)](std::span<const std::int64_t> first) {
    StoredChunk stored = stored_chunk(*dataset, first);
    ChunkBytes bytes = stored.bytes.size == 0 ? filled_chunk(fill, size)
                                              : decode_chunk(std::move(stored.bytes), filters,
                                                             stored.skipped_filters, size, dataset->place());
    if (dataset->type.is_swapped) swap_byte_order(bytes.data.get(), size, dataset->value_bytes());
    return bytes;
  };
  return std::make_shared<ChunkedRows>(ChunkedRows::Options{.place = dataset->place(),
                                                            .shape = dataset->sizes(),
                                                            .chunk = std::move(chunk),
                                                            .value_bytes = dataset->value_bytes(),
                                                            .decode = decode});
}

// Nullptr: the values are not in one piece of this file.
std::shared_ptr<const RowSource> contiguous_rows(const Hdf5Dataset& dataset, hid_t properties) {
  const haddr_t begin = H5Dget_offset(dataset.id.get());
  const std::vector<std::int64_t> sizes = dataset.sizes();
  if (H5Pget_external_count(properties) > 0 || begin == HADDR_UNDEF || dataset.shape.empty()) return nullptr;
  std::size_t row_bytes = dataset.value_bytes();
  for (std::size_t i = 1; i < sizes.size(); ++i) row_bytes *= static_cast<std::size_t>(sizes[i]);
  auto file = std::make_shared<const InputFile>(dataset.file->path);
  if (begin > file->size() || static_cast<std::size_t>(sizes[0]) * row_bytes > file->size() - begin)
    throw DataError({.place = dataset.place(),
                     .found = "the file ends before its values",
                     .wanted = "a complete file",
                     .remedy = "copy the file again"});
  return std::make_shared<FileRows>(std::move(file), begin, row_bytes,
                                    dataset.type.is_swapped ? dataset.value_bytes() : 0);
}

}  // namespace

std::size_t Hdf5Dataset::value_bytes() const { return row_of(type.type).bytes; }

std::vector<std::int64_t> Hdf5Dataset::sizes() const {
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  if (type.is_pair) sizes.push_back(2);
  return sizes;
}

std::shared_ptr<const RowSource> hdf5_rows(std::shared_ptr<const Hdf5Dataset> dataset) {
  const Hdf5Id properties(H5Dget_create_plist(dataset->id.get()), H5Pclose);
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  std::int64_t rows_per_chunk = 1;
  std::shared_ptr<const RowSource> rows;
  if (layout == H5D_CONTIGUOUS && dataset->type.is_plain) rows = contiguous_rows(*dataset, properties.get());
  if (layout == H5D_CHUNKED) {
    rows_per_chunk = chunk_sizes_of(*dataset, properties.get())[0];
    auto filters = filters_of(*dataset, properties.get());
    unsigned options = 0;  // may leave chunks at the edges as they are
    H5Pget_chunk_opts(properties.get(), &options);
    if (filters && options == 0 && dataset->type.is_plain)
      rows = chunked_rows(dataset, properties.get(), std::move(*filters));
  }
  return rows ? rows : std::make_shared<LibraryRows>(std::move(dataset), rows_per_chunk);
}

}  // namespace kindling
