#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// The nesting of the flat tensors of a batch: a leaf, a list of parts, or a map from names to parts.
struct BatchStructure {
  enum class Kind { leaf, list, map };
  Kind kind = Kind::list;
  std::vector<std::string> names{};  // of the parts of a map, in order
  std::vector<std::shared_ptr<const BatchStructure>> parts{};
  std::size_t num_leaves = 0;
  std::vector<bool> on_host{};  // leaves that are never moved to a device; empty: none
};

// A batch of samples: any number of tensors, each with the samples along dimension 0. As in Dive into Deep
// Learning, a list is [inputs..., labels] by convention. Stored as one flat vector of tensors plus a shared
// description of their nesting, so that moving a batch is one loop and copying the description costs nothing.
// Copies share the tensors; a moved-from batch is empty.
class KINDLING_API Batch {
 public:
  Batch() = default;
  // Creates a list, by convention {inputs..., labels}.
  explicit Batch(std::vector<at::Tensor> tensors);
  Batch(std::initializer_list<at::Tensor> tensors);

  // Return a single tensor, a nested list or a nested map. Names in a map must be unique (throws DataError).
  static Batch leaf(at::Tensor tensor);
  // Returns a tensor that always stays in host memory, such as the lengths of sequences, which packing needs
  // there. Throws DataError for a tensor on a device.
  static Batch host_leaf(at::Tensor tensor);
  static Batch list(const std::vector<Batch>& parts);
  static Batch map(const std::vector<std::pair<std::string, Batch>>& parts);

  // All tensors, depth first.
  std::span<const at::Tensor> tensors() const noexcept { return tensors_; }
  std::span<at::Tensor> tensors() noexcept { return tensors_; }
  const std::shared_ptr<const BatchStructure>& structure() const noexcept;

  // True if tensor number `leaf` was made by host_leaf().
  bool stays_on_host(std::size_t leaf) const noexcept {
    return structure_ && leaf < structure_->on_host.size() && structure_->on_host[leaf];
  }

  // Returns the number of samples: size(0) of the first tensor; 0 for an empty batch. Throws DataError for a
  // tensor of rank 0.
  std::int64_t num_samples() const;
  // Returns the number of samples that count in means, metrics and gradients: all, or none in a padding
  // batch, which repeats samples so that every rank makes a step (see DataLoader::Cursor::shard). A new batch
  // made of the tensors of a padding batch counts again.
  std::int64_t num_valid() const { return is_valid_ ? num_samples() : 0; }
  bool is_valid() const noexcept { return is_valid_; }
  void mark_padding() noexcept { is_valid_ = false; }
  [[deprecated("use num_valid()")]] std::int64_t num_counted() const { return num_valid(); }
  [[deprecated("use is_valid()")]] bool counts() const noexcept { return is_valid_; }
  [[deprecated("use mark_padding()")]] void count_nothing() noexcept { mark_padding(); }

  // Random numbers of the samples, float32 [samples, count] in [0, 1), on the device of the batch; undefined
  // unless DataModule::num_random_numbers() asks for some. They are not part of the batch: a new batch made
  // of its tensors has none.
  const at::Tensor& random_numbers() const noexcept { return random_numbers_; }
  void set_random_numbers(at::Tensor numbers) noexcept { random_numbers_ = std::move(numbers); }

  // Returns the number of parts on the outermost level (1 for a single tensor).
  std::size_t size() const noexcept;
  bool empty() const noexcept { return tensors_.empty(); }
  // Releases the tensors; keeps the list's capacity for the next batch.
  void clear() noexcept;

  // Returns one part; throws DataError that lists the existing ones.
  Batch part(std::size_t index) const;
  Batch part(std::string_view name) const;
  // Returns one part that is a single tensor; throws DataError if it is not.
  const at::Tensor& operator[](std::size_t index) const;
  const at::Tensor& operator[](std::string_view name) const;

  // Return the last tensor, by convention the labels, and all before it. Throw DataError for fewer than two
  // tensors.
  const at::Tensor& labels() const;
  std::span<const at::Tensor> inputs() const;

 private:
  struct Location {
    std::size_t first_leaf;
    std::shared_ptr<const BatchStructure> structure;
  };
  Location locate(std::size_t index) const;
  std::size_t index_of(std::string_view name) const;
  Batch part_at(const Location& at) const;
  const at::Tensor& tensor_at(const Location& at) const;

  std::vector<at::Tensor> tensors_;
  std::shared_ptr<const BatchStructure> structure_;  // null: an empty list
  at::Tensor random_numbers_;
  bool is_valid_ = true;
};

}  // namespace kindling
