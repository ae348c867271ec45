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

// How the flat tensors of a batch are nested: a leaf, a list of parts, or a map from names to parts.
struct BatchStructure {
  enum class Kind { leaf, list, map };
  Kind kind = Kind::list;
  std::vector<std::string> names{};  // of the parts of a map, in their order
  std::vector<std::shared_ptr<const BatchStructure>> parts{};
  std::size_t num_leaves = 0;
  std::vector<bool> on_host{};  // leaves that no move takes to a device; empty: none
};

// A batch of samples: any number of tensors, each with the samples along dimension 0. By the textbook's
// convention a list is [inputs..., labels]. Kept as one flat vector of tensors plus a shared description of
// how they are nested, so that moving a batch is one loop and copying the description costs nothing. Copies
// share the tensors; a batch that has been moved from is empty.
class KINDLING_API Batch {
 public:
  Batch() = default;
  // A list, by convention {inputs..., labels}.
  explicit Batch(std::vector<at::Tensor> tensors);
  Batch(std::initializer_list<at::Tensor> tensors);

  // A single tensor; a nested list; a nested map. Names of a map must differ (throws DataError).
  static Batch leaf(at::Tensor tensor);
  // A tensor that stays in host memory wherever the others go, such as the lengths of sequences, which
  // packing asks for there. Throws DataError for one that is elsewhere.
  static Batch host_leaf(at::Tensor tensor);
  static Batch list(const std::vector<Batch>& parts);
  static Batch map(const std::vector<std::pair<std::string, Batch>>& parts);

  // All tensors, depth first.
  std::span<const at::Tensor> tensors() const noexcept { return tensors_; }
  std::span<at::Tensor> tensors() noexcept { return tensors_; }
  const std::shared_ptr<const BatchStructure>& structure() const noexcept;

  // Whether number `leaf` of the tensors was made by host_leaf().
  bool stays_on_host(std::size_t leaf) const noexcept {
    return structure_ && leaf < structure_->on_host.size() && structure_->on_host[leaf];
  }

  // Number of samples: size(0) of the first tensor; 0 for an empty batch. Throws DataError for a tensor of
  // rank 0.
  std::int64_t num_samples() const;
  // The samples that count in means, metrics and gradients: all, or none in a padding batch, which repeats
  // samples so that each rank makes a step (see DataLoader::Cursor::shard). A batch made of the tensors of a
  // padding batch counts again.
  std::int64_t num_valid() const { return is_valid_ ? num_samples() : 0; }
  bool is_valid() const noexcept { return is_valid_; }
  void mark_padding() noexcept { is_valid_ = false; }
  [[deprecated("use num_valid()")]] std::int64_t num_counted() const { return num_valid(); }
  [[deprecated("use is_valid()")]] bool counts() const noexcept { return is_valid_; }
  [[deprecated("use mark_padding()")]] void count_nothing() noexcept { mark_padding(); }

  // Parts on the outermost level (1 for a single tensor).
  std::size_t size() const noexcept;
  bool empty() const noexcept { return tensors_.empty(); }
  // Lets go of the tensors; the memory of the list stays for the next batch.
  void clear() noexcept;

  // One part; throws DataError naming what there is.
  Batch part(std::size_t index) const;
  Batch part(std::string_view name) const;
  // One part that is a single tensor; throws DataError when it is not.
  const at::Tensor& operator[](std::size_t index) const;
  const at::Tensor& operator[](std::string_view name) const;

  // The last tensor, by convention the labels, and all before it. Throw DataError for fewer than two tensors.
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
  bool is_valid_ = true;
};

}  // namespace kindling
