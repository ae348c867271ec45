#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/arrays/row_source.h"
#include "formats/hdf5/chunk_filters.h"

namespace kindling {

// The chunks that were used last, in decoded form: of all arrays together, so that many files need no more
// memory than one. Thread-safe: if several threads request the same chunk, one of them decodes it.
class ChunkCache {
 public:
  using Chunk = std::shared_ptr<const ChunkBytes>;
  using Key = std::pair<std::uint64_t, std::int64_t>;  // number of the array, and of the chunk in it

  // Returns the cache of all arrays. It exists as long as one of them does.
  static std::shared_ptr<ChunkCache> shared();
  // Returns a number that no other array has.
  static std::uint64_t next_array();
  explicit ChunkCache(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // `size`: of the decoded chunk. Keeps one chunk of any size.
  Chunk get(const Key& key, std::size_t size, const std::function<ChunkBytes()>& decode);

 private:
  struct Entry {
    explicit Entry(std::size_t size) : size(size) {}
    std::mutex mutex;
    Chunk chunk{};
    std::size_t size;
  };
  std::shared_ptr<Entry> entry_of(const Key& key, std::size_t size);

  std::size_t max_bytes_, bytes_ = 0;
  std::mutex mutex_;
  std::list<std::pair<Key, std::shared_ptr<Entry>>> entries_{};  // the latest one first
  std::map<Key, decltype(entries_)::iterator> places_{};
};

// The rows of an array that is stored in chunks, each of which is decoded as a whole.
class ChunkedRows final : public RowSource {
 public:
  struct Options {
    std::string place{};
    // Of the array and of a chunk, in values and of the same length.
    std::vector<std::int64_t> shape{}, chunk{};
    std::size_t value_bytes = 0;
    // Dimensions that count rows: 1, or 2 for rows that are parts of the array's rows.
    std::size_t row_dims = 1;
    // Returns the decoded bytes of the chunk that begins at these indices. Thread-safe.
    std::function<ChunkBytes(std::span<const std::int64_t>)> decode{};
  };
  explicit ChunkedRows(Options options);

  // Reads each chunk at most once for a batch of up to 65,536 rows, whatever their order.
  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override;
  std::string place() const override { return options_.place; }
  std::int64_t rows_per_chunk() const override;
  std::shared_ptr<const RowSource> divided(std::size_t parts) const override;

 private:
  // The number of the chunks that have a row, in the order of the dimensions that count rows, and the number
  // of the row in these.
  struct Place {
    std::int64_t band, row_in_chunk;
  };
  Place place_of(std::int64_t row) const;
  std::int64_t bands_of_rows() const;  // in the second dimension of rows
  struct Band;
  void read_some(const std::int64_t* numbers, std::int64_t count, char* out) const;
  void read_band(const Band& band, char* out) const;
  void copy_rows(const Band& band, const char* chunk, char* out) const;
  void copy_block(const Band& band, const std::vector<std::int64_t>& first, const char* chunk,
                  char* out) const;

  Options options_;
  std::size_t row_bytes_, chunk_row_bytes_, chunk_bytes_;
  std::int64_t chunks_per_band_ = 1;  // that have parts of the same rows
  std::uint64_t array_ = ChunkCache::next_array();
  std::shared_ptr<ChunkCache> cache_ = ChunkCache::shared();
};

}  // namespace kindling
