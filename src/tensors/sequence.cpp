#include "kindling/tensors/sequence.h"

#include <ATen/ops/_pack_padded_sequence.h>
#include <ATen/ops/_pad_packed_sequence.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/pad_sequence.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>

#include "kindling/base/error.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

using torch::nn::utils::rnn::PackedSequence;

[[noreturn]] void refuse_sequences(std::string found, std::string wanted) {
  throw DataError({.place = "sequences", .found = std::move(found), .wanted = std::move(wanted)});
}

void require_alike(const std::vector<at::Tensor>& sequences) {
  if (sequences.empty()) refuse_sequences("none", "at least one");
  const at::Tensor& first = sequences.front();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const at::Tensor& one = sequences[i];
    const std::string place = "number " + std::to_string(i);
    if (one.dim() == 0 || one.size(0) == 0) refuse_sequences(place + " is empty", "at least one step");
    if (!one.is_cpu()) refuse_sequences(place + " is on " + one.device().str(), "sequences in host memory");
    if (one.sizes().slice(1) != first.sizes().slice(1) || one.scalar_type() != first.scalar_type())
      refuse_sequences(
          place + " has the shape " + shape_text(one) + " and the first one " + shape_text(first),
          "the same dtype, and shapes that differ only in length");
  }
}

// Returns the positions in `index`.
at::Tensor order(const Sequence& sequence) { return sequence.index.select(1, 1); }
at::Tensor places(const Sequence& sequence) { return sequence.index.select(1, 2); }

}  // namespace

Sequence Sequence::padded(const std::vector<at::Tensor>& sequences, double padding) {
  require_alike(sequences);
  std::vector<std::int64_t> lengths;
  for (const at::Tensor& one : sequences) lengths.push_back(one.size(0));
  Sequence made{.values = at::pad_sequence(sequences, /*batch_first=*/true, padding),
                .lengths = at::tensor(lengths, at::kLong),
                .index = {}};
  const at::Tensor by_length = made.lengths.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  made.index = at::stack({made.lengths, by_length, by_length.argsort()}, 1);
  return made;
}

Batch Sequence::to_batch() const {
  return Batch::map({{"values", Batch::leaf(values)},
                     {"lengths", Batch::host_leaf(lengths)},
                     {"index", Batch::leaf(index)}});
}

Sequence Sequence::of(const Batch& part) {
  if (part.structure()->names != std::vector<std::string>{"values", "lengths", "index"})
    refuse_sequences("a part of " + std::to_string(part.tensors().size()) + " tensors",
                     "a part made by Sequence::to_batch()");
  return {.values = part["values"], .lengths = part["lengths"], .index = part["index"]};
}

PackedSequence Sequence::pack(const at::Tensor& padded) const {
  if (padded.dim() < 2 || padded.size(0) != values.size(0) || padded.size(1) != values.size(1))
    refuse_sequences("values of the shape " + shape_text(padded),
                     "[" + std::to_string(values.size(0)) + ", " + std::to_string(values.size(1)) + ", ...]");
  const at::Tensor decreasing = std::get<0>(lengths.sort(/*dim=*/0, /*descending=*/true));
  auto [data, batch_sizes] =
      at::_pack_padded_sequence(padded.index_select(0, order(*this)), decreasing, /*batch_first=*/true);
  return PackedSequence(std::move(data), std::move(batch_sizes), order(*this), places(*this));
}

// LibTorch's own function would move the positions to the host.
at::Tensor Sequence::unpack(const PackedSequence& packed, double padding) const {
  const at::Tensor padded = std::get<0>(at::_pad_packed_sequence(
      packed.data(), packed.batch_sizes(), /*batch_first=*/true, padding, values.size(1)));
  return padded.index_select(0, places(*this));
}

at::Tensor Sequence::mask() const {
  return at::arange(values.size(1), index.options()).unsqueeze(0) < index.select(1, 0).unsqueeze(1);
}

at::Tensor Sequence::last(const at::Tensor& padded) const {
  std::vector<std::int64_t> sizes = padded.sizes().vec();
  sizes[1] = 1;
  at::Tensor at = index.select(1, 0) - 1;
  while (at.dim() < padded.dim()) at = at.unsqueeze(-1);
  return padded.gather(1, at.expand(sizes)).squeeze(1);
}

}  // namespace kindling
