#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/utils/rnn.h>

#include <vector>

#include "kindling/base/export.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Sequences of different lengths as one padded tensor, ready to be packed on a device without a wait: what
// packing has to know there is made in host memory and moves with the batch, or stays.
//
//   Batch collate(…) { return Batch::list({Sequence::padded(sequences).to_batch(), Batch::leaf(labels)}); }
//
//   const auto words = Sequence::of(batch.part(0));
//   const auto [outputs, hidden] = gru->forward_with_packed_input(words.packed());
//   const at::Tensor padded = words.unpack(outputs);  // [batch, longest, …]
struct KINDLING_API Sequence {
  at::Tensor values;   // [batch, longest, …]
  at::Tensor lengths;  // int64 [batch], in host memory
  // int64 [batch, 3], where the values are: the lengths; the sequences by decreasing length; the place of
  // each in that order.
  at::Tensor index;

  // Sequences [length, …] on the CPU, of one dtype and shape behind their length. Throws DataError for none,
  // an empty one and for shapes that differ.
  static Sequence padded(const std::vector<at::Tensor>& sequences, double padding = 0);
  // The part of a batch that to_batch() has made. Throws DataError for another one.
  static Sequence of(const Batch& part);
  // {"values", "lengths", "index"}; the lengths are a host leaf.
  Batch to_batch() const;

  // For layers of LibTorch, with batch_first or without: a packed sequence has neither.
  torch::nn::utils::rnn::PackedSequence packed() const { return pack(values); }
  // Of other values for the same steps, [batch, longest, …], such as labels: pack(labels).data() are those of
  // the steps that there are, in the order of packed().data().
  torch::nn::utils::rnn::PackedSequence pack(const at::Tensor& padded) const;
  // [batch, longest, …] in the order of the batch, `padding` behind the ends.
  at::Tensor unpack(const torch::nn::utils::rnn::PackedSequence& packed, double padding = 0) const;

  // The steps that there are: bool [batch, longest].
  at::Tensor mask() const;
  // The last step of each: [batch, longest, …] → [batch, …].
  at::Tensor last(const at::Tensor& padded) const;
};

}  // namespace kindling
