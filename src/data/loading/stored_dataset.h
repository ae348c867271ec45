#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "formats/arrays/row_source.h"
#include "kindling/base/export.h"
#include "kindling/data/dataset.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// The rows of an array that stays in its file, [samples, …] in row-major order.
class KINDLING_API StoredRows {
 public:
  struct Options {
    std::shared_ptr<const RowSource> source{};
    at::Tensor like{};  // has the array's type and sizes; its values are not used
    // Converts rows as they are in the file, which are in a buffer of this class, to those of a batch, each
    // on its own. Must be thread-safe. Returns its argument if nothing is converted. Empty: as in the file.
    std::function<at::Tensor(const at::Tensor&)> convert{};
  };
  explicit StoredRows(Options options);

  std::int64_t size() const { return options_.like.size(0); }
  // Reads rows by their numbers, int64 [n], into a tensor of this class or an empty one. Thread-safe. Throws
  // DataError if the file has become shorter, and what `convert` throws.
  void read(const at::Tensor& numbers, at::Tensor& out) const;
  at::Tensor read_all() const;
  // Returns an empty tensor, [0, …], as batches have it.
  const at::Tensor& none() const { return none_; }

 private:
  void require_rows(const std::int64_t* numbers, std::int64_t count) const;

  Options options_;
  std::size_t row_bytes_;
  at::Tensor none_;
  bool is_converted_;
};

// Samples of several arrays, of which at least one stays in its file. Thread-safe.
class KINDLING_API StoredDataset final : public Dataset {
 public:
  using Column = std::variant<at::Tensor, StoredRows>;  // a tensor in memory: [samples, …], on the CPU

  // `chosen`: the samples of the arrays that this set has, in its order; nullptr: all.
  explicit StoredDataset(std::vector<Column> columns, const std::vector<std::int64_t>* chosen = nullptr);

  std::int64_t size() const override { return size_; }
  void gather(const at::Tensor& indices, Batch& batch) const override;
  bool is_thread_safe() const override { return true; }

  // Returns the last column of all samples, and reads no other. The second is undefined if that is in a file.
  at::Tensor labels() const;
  at::Tensor labels_in_memory() const;
  // Those of the samples from `first` to before `end`, if the last column is in a file.
  at::Tensor labels_in_file(std::int64_t first, std::int64_t end) const;
  std::int64_t bytes_per_sample() const;  // in a batch

 private:
  at::Tensor rows_of(const at::Tensor& indices) const;

  std::vector<Column> columns_;
  std::int64_t size_, first_ = 0;
  at::Tensor rows_;  // int64 [size]; undefined: first_, first_ + 1, …
};

// Of a column: the number of rows; an empty tensor [0, …], as batches have it; all rows, in memory.
std::int64_t num_rows_of(const StoredDataset::Column& column);
at::Tensor no_rows_of(const StoredDataset::Column& column);
at::Tensor all_rows_of(const StoredDataset::Column& column);

// Returns how many samples to gather at once for a pass over all of them: those of 16 MiB at most if they may
// be large, in files or pairs.
KINDLING_API std::int64_t samples_at_once(const Dataset& dataset);

}  // namespace kindling
