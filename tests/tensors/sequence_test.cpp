#include "kindling/tensors/sequence.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class Sequences : public OnDevice {
 protected:
  // Of 2, 4, 1 and 4 steps; step t of sequence i is 10·i + t + 1.
  Sequence four() const {
    std::vector<at::Tensor> sequences;
    for (const std::int64_t length : {2, 4, 1, 4})
      sequences.push_back(at::arange(1, length + 1, at::kFloat) +
                          10.0 * static_cast<double>(sequences.size()));
    return Sequence::of(move_to(Sequence::padded(sequences, -1).to_batch(), device_));
  }
};
KINDLING_RUN_ON_DEVICES(Sequences);

TEST_P(Sequences, ArePaddedWithTheirLengthsInHostMemory) {
  const Sequence all = four();
  const at::Tensor expected =
      at::tensor({1, 2, -1, -1, 11, 12, 13, 14, 21, -1, -1, -1, 31, 32, 33, 34}, at::kFloat).view({4, 4});
  EXPECT_TRUE(same(all.values, expected));
  EXPECT_EQ(all.values.device(), device_);
  EXPECT_TRUE(all.lengths.is_cpu());
  EXPECT_TRUE(same(all.lengths, at::tensor({2, 4, 1, 4}, at::kLong)));
  EXPECT_TRUE(same(all.mask(), expected > 0));
  EXPECT_TRUE(same(all.last(all.values), at::tensor({2, 14, 21, 34}, at::kFloat)));
  EXPECT_TRUE(
      same(all.last(at::stack({all.values, 2 * all.values}, 2)).select(1, 1), 2 * all.last(all.values)));
}

// What LibTorch packs, which pads first and asks for lengths.
TEST_P(Sequences, ArePackedAsLibTorchDoes) {
  const Sequence all = four();
  const auto packed = all.packed();
  const auto expected = torch::nn::utils::rnn::pack_padded_sequence(
      all.values.cpu(), all.lengths, /*batch_first=*/true, /*enforce_sorted=*/false);
  EXPECT_TRUE(same(packed.batch_sizes(), expected.batch_sizes()));
  EXPECT_TRUE(packed.batch_sizes().is_cpu());
  EXPECT_TRUE(same(packed.data(), expected.data()));
  EXPECT_TRUE(same(packed.unsorted_indices().index_select(0, packed.sorted_indices()), at::arange(4)));
  EXPECT_TRUE(same(all.unpack(packed, -1), all.values));
  EXPECT_TRUE(same(all.pack(2 * all.values).data(), 2 * packed.data()));
}

TEST_P(Sequences, AreRefusedWhenTheyDoNotGoTogether) {
  const auto error_of = [](const std::vector<at::Tensor>& sequences) {
    return error_text<DataError>([&] { Sequence::padded(sequences); });
  };
  EXPECT_NE(error_of({}).find("at least one"), std::string::npos);
  EXPECT_NE(error_of({at::ones({2}), at::ones({0})}).find("number 1 is empty"), std::string::npos);
  EXPECT_NE(error_of({at::ones({2, 3}), at::ones({2, 4})}).find("[2, 4]"), std::string::npos);
  EXPECT_NE(error_of({at::ones({2}), at::ones({2}, at::kLong)}).find("the same dtype"), std::string::npos);
  EXPECT_THROW(Sequence::of(Batch{at::ones({2})}), DataError);
  EXPECT_THROW(four().pack(at::ones({4, 3})), DataError);
}

// At any position in a batch.
TEST_P(Sequences, HostLeavesStayWhereTheyAre) {
  const at::Tensor host = at::ones({2}), other = at::zeros({2});
  const Batch nested =
      Batch::list({Batch::leaf(other), Batch::map({{"a", Batch::host_leaf(host)}, {"b", Batch::leaf(other)}}),
                   Batch::leaf(other)});
  const Batch moved = move_to(nested, device_);
  EXPECT_TRUE(moved.part(1)["a"].is_same(host));
  EXPECT_EQ(moved[0].device(), device_);
  EXPECT_EQ(moved.part(1)["b"].device(), device_);
  EXPECT_EQ(moved[2].device(), device_);
  EXPECT_TRUE(move_to(moved.part(1), device_)["a"].is_same(host));
  const Batch copied = copy_to(nested, device_);
  EXPECT_TRUE(copied.part(1)["a"].is_cpu());
  EXPECT_FALSE(copied.part(1)["a"].is_same(host));
  EXPECT_TRUE(nested.stays_on_host(1));
  EXPECT_FALSE(nested.stays_on_host(2));
  if (!device_.is_cpu()) {
    EXPECT_THROW(Batch::host_leaf(moved[0]), DataError);
  }
}

}  // namespace
}  // namespace kindling
