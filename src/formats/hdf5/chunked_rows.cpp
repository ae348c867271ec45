#include "formats/hdf5/chunked_rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

namespace kindling {
namespace {

// Of rows whose places are in memory at once.
constexpr std::int64_t kMostRowsAtOnce = std::int64_t{1} << 16;
constexpr std::size_t kCacheBytes = std::size_t{1} << 27;

std::size_t bytes_after(std::size_t dims, const std::vector<std::int64_t>& sizes, std::size_t value_bytes) {
  for (std::size_t i = dims; i < sizes.size(); ++i) value_bytes *= static_cast<std::size_t>(sizes[i]);
  return value_bytes;
}

// Moves to the next indices below the sizes, the last one first. Returns false after the last indices.
bool advance(std::vector<std::int64_t>& indices, const std::vector<std::int64_t>& steps,
             const std::vector<std::int64_t>& sizes, std::size_t first, std::size_t end) {
  for (std::size_t i = end; i-- > first;) {
    indices[i] += steps[i];
    if (indices[i] < sizes[i]) return true;
    indices[i] = 0;
  }
  return false;
}

}  // namespace

std::shared_ptr<ChunkCache> ChunkCache::shared() {
  static std::mutex mutex;
  static std::weak_ptr<ChunkCache> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<ChunkCache> cache = known.lock();
  if (!cache) known = cache = std::make_shared<ChunkCache>(kCacheBytes);
  return cache;
}

std::uint64_t ChunkCache::next_array() {
  static std::atomic<std::uint64_t> next = 0;
  return next++;
}

std::shared_ptr<ChunkCache::Entry> ChunkCache::entry_of(const Key& key, std::size_t size) {
  const std::lock_guard lock(mutex_);
  if (const auto known = places_.find(key); known != places_.end()) {
    entries_.splice(entries_.begin(), entries_, known->second);
    return known->second->second;
  }
  for (bytes_ += size; bytes_ > max_bytes_ && !entries_.empty(); entries_.pop_back()) {
    bytes_ -= entries_.back().second->size;
    places_.erase(entries_.back().first);
  }
  entries_.emplace_front(key, std::make_shared<Entry>(size));
  places_[key] = entries_.begin();
  return entries_.front().second;
}

ChunkCache::Chunk ChunkCache::get(const Key& key, std::size_t size,
                                  const std::function<ChunkBytes()>& decode) {
  const std::shared_ptr<Entry> entry = entry_of(key, size);
  const std::lock_guard lock(entry->mutex);
  if (!entry->chunk) entry->chunk = std::make_shared<const ChunkBytes>(decode());
  return entry->chunk;
}

// The rows of a request that are in the same chunks.
struct ChunkedRows::Band {
  std::int64_t number = 0;
  struct Row {
    std::size_t in_result, in_chunk;
  };
  std::vector<Row> rows{};  // in the order of the request
};

ChunkedRows::ChunkedRows(Options options)
    : options_(std::move(options)),
      row_bytes_(bytes_after(options_.row_dims, options_.shape, options_.value_bytes)),
      chunk_row_bytes_(bytes_after(options_.row_dims, options_.chunk, options_.value_bytes)),
      chunk_bytes_(bytes_after(0, options_.chunk, options_.value_bytes)) {
  for (std::size_t i = options_.row_dims; i < options_.shape.size(); ++i)
    chunks_per_band_ *= (options_.shape[i] + options_.chunk[i] - 1) / options_.chunk[i];
}

ChunkedRows::Place ChunkedRows::place_of(std::int64_t row) const {
  const std::vector<std::int64_t>&shape = options_.shape, &chunk = options_.chunk;
  if (options_.row_dims == 1) return {row / chunk[0], row % chunk[0]};
  const std::int64_t whole = row / shape[1], part = row % shape[1];
  return {whole / chunk[0] * bands_of_rows() + part / chunk[1],
          whole % chunk[0] * chunk[1] + part % chunk[1]};
}

std::int64_t ChunkedRows::bands_of_rows() const {
  return options_.row_dims == 1 ? 1 : (options_.shape[1] + options_.chunk[1] - 1) / options_.chunk[1];
}

// Consecutive rows of divided ones are in the same chunk only if it has parts of one row of the array.
std::int64_t ChunkedRows::rows_per_chunk() const {
  const std::vector<std::int64_t>& chunk = options_.chunk;
  if (options_.row_dims == 1) return chunk[0];
  return chunk[0] == 1 && options_.shape[1] % chunk[1] == 0 ? chunk[1] : 1;
}

std::shared_ptr<const RowSource> ChunkedRows::divided(std::size_t parts) const {
  const bool is_dimension = options_.row_dims == 1 && options_.shape.size() > 1 &&
                            options_.shape[1] == static_cast<std::int64_t>(parts);
  if (!is_dimension) return nullptr;
  Options options = options_;
  options.row_dims = 2;
  return std::make_shared<ChunkedRows>(std::move(options));
}

void ChunkedRows::read(const std::int64_t* numbers, std::int64_t count, char* out) const {
  if (row_bytes_ == 0) return;
  for (std::int64_t begin = 0; begin < count; begin += kMostRowsAtOnce)
    read_some(numbers + begin, std::min(kMostRowsAtOnce, count - begin),
              out + static_cast<std::size_t>(begin) * row_bytes_);
}

void ChunkedRows::read_some(const std::int64_t* numbers, std::int64_t count, char* out) const {
  std::map<std::int64_t, Band> bands;
  for (std::int64_t i = 0; i < count; ++i) {
    const Place place = place_of(numbers[i]);
    Band& band = bands[place.band];
    band.number = place.band;
    band.rows.push_back({static_cast<std::size_t>(i), static_cast<std::size_t>(place.row_in_chunk)});
  }
  for (const auto& [number, band] : bands) read_band(band, out);
}

void ChunkedRows::read_band(const Band& band, char* out) const {
  std::vector<std::int64_t> first(options_.shape.size(), 0);
  first[0] = band.number / bands_of_rows() * options_.chunk[0];
  if (options_.row_dims == 2) first[1] = band.number % bands_of_rows() * options_.chunk[1];
  std::int64_t chunk = band.number * chunks_per_band_;
  do {
    const ChunkCache::Chunk bytes =
        cache_->get({array_, chunk++}, chunk_bytes_, [&] { return options_.decode(first); });
    if (chunks_per_band_ == 1 && chunk_row_bytes_ == row_bytes_)
      copy_rows(band, bytes->data.get(), out);
    else
      copy_block(band, first, bytes->data.get(), out);
  } while (advance(first, options_.chunk, options_.shape, options_.row_dims, first.size()));
}

// Rows that are whole within a chunk; consecutive ones at once.
void ChunkedRows::copy_rows(const Band& band, const char* chunk, char* out) const {
  const std::vector<Band::Row>& rows = band.rows;
  for (std::size_t i = 0, end = 0; i < rows.size(); i = end) {
    for (end = i + 1; end < rows.size() && rows[end].in_result == rows[end - 1].in_result + 1 &&
                      rows[end].in_chunk == rows[end - 1].in_chunk + 1;)
      ++end;
    std::memcpy(out + rows[i].in_result * row_bytes_, chunk + rows[i].in_chunk * row_bytes_,
                (end - i) * row_bytes_);
  }
}

// Parts of rows: those of the array that are within the chunk that begins at `first`.
void ChunkedRows::copy_block(const Band& band, const std::vector<std::int64_t>& first, const char* chunk,
                             char* out) const {
  const std::size_t last = first.size() - 1;
  std::vector<std::int64_t> sizes(first.size());
  for (std::size_t i = options_.row_dims; i <= last; ++i)
    sizes[i] = std::min(options_.chunk[i], options_.shape[i] - first[i]);
  const std::vector<std::int64_t> ones(first.size(), 1);
  std::vector<std::int64_t> at(first.size(), 0);
  const std::size_t run_bytes = static_cast<std::size_t>(sizes[last]) * options_.value_bytes;
  do {
    std::int64_t from = 0, to = 0;  // in values within a row
    for (std::size_t i = options_.row_dims; i <= last; ++i) {
      from = from * options_.chunk[i] + at[i];
      to = to * options_.shape[i] + first[i] + at[i];
    }
    for (const Band::Row& row : band.rows)
      std::memcpy(
          out + row.in_result * row_bytes_ + static_cast<std::size_t>(to) * options_.value_bytes,
          chunk + row.in_chunk * chunk_row_bytes_ + static_cast<std::size_t>(from) * options_.value_bytes,
          run_bytes);
  } while (advance(at, ones, sizes, options_.row_dims, last));
}

}  // namespace kindling
