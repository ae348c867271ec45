#include "kindling/tensors/batch.h"

#include <algorithm>

#include "base/joined.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

using Structure = std::shared_ptr<const BatchStructure>;

const Structure& leaf_structure() {
  static const Structure structure =
      std::make_shared<BatchStructure>(BatchStructure{.kind = BatchStructure::Kind::leaf, .num_leaves = 1});
  return structure;
}

const Structure& host_leaf_structure() {
  static const Structure structure = std::make_shared<BatchStructure>(
      BatchStructure{.kind = BatchStructure::Kind::leaf, .num_leaves = 1, .on_host = {true}});
  return structure;
}

Structure new_list_structure(std::size_t size) {
  BatchStructure list{.num_leaves = size};
  list.parts.assign(size, leaf_structure());
  return std::make_shared<BatchStructure>(std::move(list));
}

// Loaders create flat lists all the time, so their descriptions are shared.
Structure list_structure(std::size_t size) {
  static const std::vector<Structure> small = [] {
    std::vector<Structure> made;
    for (std::size_t n = 0; n <= 8; ++n) made.push_back(new_list_structure(n));
    return made;
  }();
  return size < small.size() ? small[size] : new_list_structure(size);
}

[[noreturn]] void refuse(std::string found, std::string wanted) {
  throw DataError({.place = "batch", .found = std::move(found), .wanted = std::move(wanted)});
}

}  // namespace

Batch::Batch(std::vector<at::Tensor> tensors)
    : tensors_(std::move(tensors)), structure_(list_structure(tensors_.size())) {}

Batch::Batch(std::initializer_list<at::Tensor> tensors) : Batch(std::vector<at::Tensor>(tensors)) {}

Batch Batch::leaf(at::Tensor tensor) {
  Batch batch;
  batch.tensors_.push_back(std::move(tensor));
  batch.structure_ = leaf_structure();
  return batch;
}

Batch Batch::host_leaf(at::Tensor tensor) {
  if (!tensor.is_cpu()) refuse("a tensor on " + tensor.device().str(), "a tensor in host memory");
  Batch batch = leaf(std::move(tensor));
  batch.structure_ = host_leaf_structure();
  return batch;
}

Batch Batch::list(const std::vector<Batch>& parts) {
  Batch batch;
  BatchStructure structure;
  for (const Batch& part : parts) {
    structure.parts.push_back(part.structure());
    if (const auto& on_host = part.structure()->on_host; !on_host.empty()) {
      structure.on_host.resize(batch.tensors_.size());
      structure.on_host.insert(structure.on_host.end(), on_host.begin(), on_host.end());
    }
    batch.tensors_.insert(batch.tensors_.end(), part.tensors_.begin(), part.tensors_.end());
  }
  structure.num_leaves = batch.tensors_.size();
  batch.structure_ = std::make_shared<BatchStructure>(std::move(structure));
  return batch;
}

Batch Batch::map(const std::vector<std::pair<std::string, Batch>>& parts) {
  std::vector<std::string> names;
  std::vector<Batch> values;
  for (const auto& [name, part] : parts) {
    if (std::ranges::find(names, name) != names.end())
      refuse("the name '" + name + "' is used twice in a map", "unique names");
    names.push_back(name);
    values.push_back(part);
  }
  Batch batch = list(values);
  BatchStructure structure = *batch.structure_;
  structure.kind = BatchStructure::Kind::map;
  structure.names = std::move(names);
  batch.structure_ = std::make_shared<BatchStructure>(std::move(structure));
  return batch;
}

const std::shared_ptr<const BatchStructure>& Batch::structure() const noexcept {
  static const Structure empty = list_structure(0);
  return structure_ ? structure_ : empty;
}

std::int64_t Batch::num_samples() const {
  if (tensors_.empty()) return 0;
  if (tensors_.front().dim() == 0) refuse("its first tensor has rank 0", "the samples along dimension 0");
  return tensors_.front().size(0);
}

std::size_t Batch::size() const noexcept {
  return structure()->kind == BatchStructure::Kind::leaf ? 1 : structure()->parts.size();
}

void Batch::clear() noexcept {
  tensors_.clear();
  structure_.reset();
  random_numbers_.reset();
  is_valid_ = true;
}

Batch::Location Batch::locate(std::size_t index) const {
  if (index >= size())
    refuse("it has no part " + std::to_string(index), "an index below " + std::to_string(size()));
  if (structure_->kind == BatchStructure::Kind::leaf) return {0, structure_};
  std::size_t first_leaf = 0;
  for (std::size_t i = 0; i < index; ++i) first_leaf += structure_->parts[i]->num_leaves;
  return {first_leaf, structure_->parts[index]};
}

std::size_t Batch::index_of(std::string_view name) const {
  const auto& names = structure()->names;
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  const std::string known = joined(names, "', '");
  refuse("it has no part named '" + std::string(name) + "'",
         names.empty() ? "an index: this batch is a list" : "one of '" + known + "'");
}

Batch Batch::part_at(const Location& at) const {
  Batch part;
  const auto first = tensors_.begin() + static_cast<std::ptrdiff_t>(at.first_leaf);
  part.tensors_.assign(first, first + static_cast<std::ptrdiff_t>(at.structure->num_leaves));
  part.structure_ = at.structure;
  return part;
}

const at::Tensor& Batch::tensor_at(const Location& at) const {
  if (at.structure->kind != BatchStructure::Kind::leaf)
    refuse("that part is nested", "a single tensor; use part()");
  return tensors_[at.first_leaf];
}

Batch Batch::part(std::size_t index) const { return part_at(locate(index)); }
Batch Batch::part(std::string_view name) const { return part_at(locate(index_of(name))); }
const at::Tensor& Batch::operator[](std::size_t index) const { return tensor_at(locate(index)); }
const at::Tensor& Batch::operator[](std::string_view name) const { return tensor_at(locate(index_of(name))); }

const at::Tensor& Batch::labels() const {
  if (tensors_.size() < 2)
    refuse("it holds " + std::to_string(tensors_.size()) + " tensors", "[inputs..., labels]");
  return tensors_.back();
}

std::span<const at::Tensor> Batch::inputs() const {
  labels();  // the same condition
  return tensors().first(tensors_.size() - 1);
}

}  // namespace kindling
