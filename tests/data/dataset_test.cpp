#include "kindling/data/dataset.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(TensorDataset, GathersSamplesInTheOrderAsked) {
  const TensorDataset set({at::arange(8).view({4, 2}), at::arange(4, at::kByte)});
  Batch batch;
  set.gather(at::tensor({3, 0}, at::kLong), batch);
  EXPECT_TRUE(same(batch[0], at::tensor({6, 7, 0, 1}, at::kLong).view({2, 2})));
  EXPECT_TRUE(same(batch[1], at::tensor({3, 0}, at::kByte)));
}

TEST(TensorDataset, HasTheValuesOfLazyViews) {
  const at::Tensor rows = at::arange(64, at::kFloat).view({2, 32});  // rows that are copied as bytes
  const TensorDataset data({at::_neg_view(rows)});
  Batch batch;
  data.gather(at::tensor({1, 0}, at::kLong), batch);
  EXPECT_TRUE(batch.tensors()[0].equal(-rows.flip(0)));
}

TEST(TensorDataset, WritesIntoTheBatchItFilledBefore) {
  const TensorDataset set({at::arange(8)});
  Batch batch;
  set.gather(at::tensor({1, 2, 3}, at::kLong), batch);
  const void* memory = batch[0].const_data_ptr();
  set.gather(at::tensor({5, 4}, at::kLong), batch);
  EXPECT_EQ(batch[0].const_data_ptr(), memory);
  EXPECT_TRUE(same(batch[0], at::tensor({5, 4}, at::kLong)));
}

TEST(TensorDataset, SlicesAreViews) {
  const at::Tensor values = at::arange(8);
  const Batch slice = TensorDataset({values}).slice(2, 5);
  EXPECT_TRUE(same(slice[0], at::tensor({2, 3, 4}, at::kLong)));
  EXPECT_EQ(slice[0].const_data_ptr<std::int64_t>(), values.const_data_ptr<std::int64_t>() + 2);
}

TEST(TensorDataset, RefusesWhatHasNoSamples) {
  EXPECT_EQ(error_text<DataError>([] { TensorDataset({}); }),
            "TensorDataset: no tensors; expected: at least one");
  EXPECT_EQ(error_text<DataError>([] { TensorDataset({at::scalar_tensor(1)}); }),
            "TensorDataset, tensor 0: its rank is 0; expected: the samples along dimension 0");
  EXPECT_EQ(error_text<DataError>([] {
              TensorDataset({at::zeros({3}), at::zeros({2})});
            }),
            "TensorDataset, tensor 1: it has 2 samples; expected: 3 samples, like the first tensor");
}

// Squares that are made when asked for.
class Squares : public Dataset {
 public:
  std::int64_t size() const override { return 6; }
  void gather(const at::Tensor& indices, Batch& batch) const override { batch = Batch{indices.mul(indices)}; }
};

TEST(Dataset, SliceOfACustomSetGathers) {
  EXPECT_TRUE(same(Squares().slice(2, 5)[0], at::tensor({4, 9, 16}, at::kLong)));
}

}  // namespace
}  // namespace kindling
