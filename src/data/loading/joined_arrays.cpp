#include "data/loading/joined_arrays.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "data/loading/tensor_rows.h"
#include "kindling/base/error.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

class JoinedRows final : public RowSource {
 public:
  // `ends`: the number of rows up to the end of each part.
  JoinedRows(std::string place, std::vector<std::shared_ptr<const RowSource>> parts,
             std::vector<std::int64_t> ends, std::size_t row_bytes)
      : place_(std::move(place)), parts_(std::move(parts)), ends_(std::move(ends)), row_bytes_(row_bytes) {}

  // Rows of the same part that follow one another in the request are read at once.
  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override {
    std::vector<std::int64_t> in_part;
    for (std::int64_t i = 0; i < count;) {
      const auto part = static_cast<std::size_t>(std::ranges::upper_bound(ends_, numbers[i]) - ends_.begin());
      const std::int64_t begin = part == 0 ? 0 : ends_[part - 1], end = ends_[part];
      in_part.clear();
      for (; i < count && numbers[i] >= begin && numbers[i] < end; ++i) in_part.push_back(numbers[i] - begin);
      parts_[part]->read(in_part.data(), static_cast<std::int64_t>(in_part.size()), out);
      out += in_part.size() * row_bytes_;
    }
  }
  std::string place() const override { return place_; }
  std::shared_ptr<const RowSource> divided(std::size_t parts) const override {
    std::vector<std::shared_ptr<const RowSource>> divided_parts;
    std::vector<std::int64_t> ends;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      divided_parts.push_back(parts_[i]->divided(parts));
      if (!divided_parts.back()) return nullptr;
      ends.push_back(ends_[i] * static_cast<std::int64_t>(parts));
    }
    return std::make_shared<JoinedRows>(place_, std::move(divided_parts), std::move(ends),
                                        row_bytes_ / parts);
  }

 private:
  std::string place_;
  std::vector<std::shared_ptr<const RowSource>> parts_;
  std::vector<std::int64_t> ends_;
  std::size_t row_bytes_;
};

void require_alike(const SourceArray& first, const SourceArray& other) {
  if (first.values.dim() == 0) first.refuse("samples in each file, [samples, …]");
  if (other.values.dim() == first.values.dim() && other.values.scalar_type() == first.values.scalar_type() &&
      other.values.sizes().slice(1) == first.values.sizes().slice(1))
    return;
  other.refuse("samples like those of " + first.file.string() + ", " + type_text(first.values));
}

std::vector<std::int64_t> joined_chunks(const std::vector<SourceArray>& parts) {
  std::vector<std::int64_t> starts;
  std::int64_t begin = 0;
  for (const SourceArray& part : parts) {
    for (const std::int64_t start : part.chunk_starts) starts.push_back(begin + start);
    if (part.chunk_starts.empty() && part.values.size(0) > 0) starts.push_back(begin);
    begin += part.values.size(0);
  }
  return starts;
}

SourceArray joined_array(std::vector<SourceArray> parts, const std::filesystem::path& pattern) {
  SourceArray whole{.file = pattern, .name = parts.front().name};
  std::vector<at::Tensor> tensors;
  bool is_in_memory = true;
  for (const SourceArray& part : parts) {
    require_alike(parts.front(), part);
    is_in_memory = is_in_memory && !part.rows;
    tensors.push_back(part.values);
    whole.file_sizes.push_back(part.values.size(0));
  }
  whole.chunk_starts = joined_chunks(parts);
  if (is_in_memory) {
    whole.values = at::cat(tensors);
    return whole;
  }
  std::vector<std::shared_ptr<const RowSource>> rows;
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  for (const SourceArray& part : parts) {
    rows.push_back(part.rows ? part.rows : std::make_shared<TensorRows>(part.place(), part.values));
    ends.push_back(end += part.values.size(0));
  }
  std::vector<std::int64_t> sizes = parts.front().values.sizes().vec();
  sizes[0] = end;
  whole.values = at::empty({1}, parts.front().values.options()).expand(sizes);
  const std::size_t row_bytes =
      end == 0 ? 0 : static_cast<std::size_t>(whole.values.numel() / end) * whole.values.element_size();
  whole.rows = std::make_shared<JoinedRows>(whole.place(), std::move(rows), std::move(ends), row_bytes);
  return whole;
}

}  // namespace

std::vector<SourceArray> joined_arrays(std::vector<std::vector<SourceArray>> files,
                                       const std::filesystem::path& pattern) {
  if (files.size() == 1) return std::move(files.front());
  std::vector<SourceArray> all;
  for (const SourceArray& first : files.front()) {
    if (!first.values.defined()) {
      all.push_back(first);
      continue;
    }
    std::vector<SourceArray> parts;
    for (const std::vector<SourceArray>& arrays : files) {
      const auto found = std::ranges::find_if(arrays, [&](const SourceArray& array) {
        return array.name == first.name && array.values.defined();
      });
      if (found == arrays.end())
        throw DataError({.place = arrays.empty() ? pattern.string() : arrays.front().file.string(),
                         .found = "it has no array '" + first.name + "'",
                         .wanted = "the arrays of " + first.file.string()});
      parts.push_back(*found);
    }
    all.push_back(joined_array(std::move(parts), pattern));
  }
  return all;
}

}  // namespace kindling
