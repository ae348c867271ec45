#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/utils/rnn.h>

#include <vector>

#include "kindling/base/export.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Sequences of different lengths as one padded tensor that can be packed on a device without a wait: the
// information that packing needs is computed in host memory, and moves with the batch or stays there.
//
//   Batch collate(…) { return Batch::list({Sequence::padded(sequences).to_batch(), Batch::leaf(labels)}); }
//
//   const auto words = Sequence::of(batch.part(0));
//   const auto [outputs, hidden] = gru->forward_with_packed_input(words.packed());
//   const at::Tensor padded = words.unpack(outputs);  // [batch, longest, …]
struct KINDLING_API Sequence {
  at::Tensor values;   // [batch, longest, …]
  at::Tensor lengths;  // int64 [batch], in host memory
  // int64 [batch, 3], on the device of the values: the lengths; the sequences sorted by decreasing length;
  // the position of each in that order.
  at::Tensor index;

  // Pads sequences [length, …] on the CPU, with the same dtype and the same shape after the length. Throws
  // DataError for an empty list, an empty sequence and different shapes.
  static Sequence padded(const std::vector<at::Tensor>& sequences, double padding = 0);
  // Returns the sequence in a part of a batch made by to_batch(). Throws DataError for other parts.
  static Sequence of(const Batch& part);
  // Returns {"values", "lengths", "index"}; the lengths are a host leaf.
  Batch to_batch() const;

  // For layers of LibTorch, with or without batch_first: a packed sequence does not depend on it.
  torch::nn::utils::rnn::PackedSequence packed() const { return pack(values); }
  // Packs other values for the same steps, [batch, longest, …], such as labels: pack(labels).data() are those
  // of the steps that exist, in the order of packed().data().
  torch::nn::utils::rnn::PackedSequence pack(const at::Tensor& padded) const;
  // Returns [batch, longest, …] in the order of the batch, with `padding` after the ends.
  at::Tensor unpack(const torch::nn::utils::rnn::PackedSequence& packed, double padding = 0) const;

  // Returns which steps exist: bool [batch, longest].
  at::Tensor mask() const;
  // Returns the last step of each sequence: [batch, longest, …] → [batch, …].
  at::Tensor last(const at::Tensor& padded) const;
};

}  // namespace kindling
