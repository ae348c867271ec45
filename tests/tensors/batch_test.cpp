#include "kindling/tensors/batch.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

at::Tensor filled(double value, std::int64_t n = 2) { return at::full({n}, value); }

// {"image": x, "boxes": [y, {"mask": z}]}
Batch nested_batch() {
  return Batch::map(
      {{"image", Batch::leaf(filled(1))},
       {"boxes", Batch::list({Batch::leaf(filled(2)), Batch::map({{"mask", Batch::leaf(filled(3))}})})}});
}

TEST(Batch, ListHoldsInputsThenLabels) {
  const Batch batch{filled(1), filled(2), filled(3)};
  EXPECT_EQ(batch.size(), 3);
  EXPECT_EQ(batch.num_samples(), 2);
  EXPECT_TRUE(same(batch[1], filled(2)));
  EXPECT_TRUE(same(batch.labels(), filled(3)));
  ASSERT_EQ(batch.inputs().size(), 2);
  EXPECT_TRUE(same(batch.inputs()[1], filled(2)));
}

TEST(Batch, ListMayBeLong) {
  const Batch batch(std::vector<at::Tensor>(20, filled(4)));
  EXPECT_EQ(batch.size(), 20);
  EXPECT_EQ(batch.structure()->num_leaves, 20);
  EXPECT_TRUE(same(batch[19], filled(4)));
}

TEST(Batch, EmptyHasNoSamples) {
  const Batch batch;
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.size(), 0);
  EXPECT_EQ(batch.num_samples(), 0);
  EXPECT_THROW(batch[0], DataError);
}

TEST(Batch, LeafIsOnePart) {
  const Batch batch = Batch::leaf(filled(5));
  EXPECT_EQ(batch.size(), 1);
  EXPECT_TRUE(same(batch[0], filled(5)));
  EXPECT_THROW(batch[1], DataError);
  EXPECT_THROW(batch.labels(), DataError);
}

TEST(Batch, NestingIsFlattenedDepthFirst) {
  const Batch batch = nested_batch();
  ASSERT_EQ(batch.tensors().size(), 3);
  EXPECT_TRUE(same(batch.tensors()[1], filled(2)));
  EXPECT_EQ(batch.size(), 2);
  EXPECT_TRUE(same(batch["image"], filled(1)));
  const Batch boxes = batch.part("boxes");
  EXPECT_EQ(boxes.size(), 2);
  EXPECT_TRUE(same(boxes[0], filled(2)));
  EXPECT_TRUE(same(boxes.part(1)["mask"], filled(3)));
}

TEST(Batch, CopiesShareTensorsAndStructure) {
  const Batch batch = nested_batch(), copy = batch;
  EXPECT_TRUE(copy["image"].is_same(batch["image"]));
  EXPECT_EQ(copy.structure(), batch.structure());
}

TEST(Batch, ErrorsNameWhatThereIs) {
  const Batch batch = nested_batch();
  EXPECT_EQ(error_text<DataError>([&] { batch["masks"]; }),
            "batch: it has no part named 'masks'; expected: one of 'image', 'boxes'");
  EXPECT_EQ(error_text<DataError>([&] { batch["boxes"]; }),
            "batch: that part is nested; expected: a single tensor; use part()");
  EXPECT_EQ(error_text<DataError>([&] { batch.part(2); }),
            "batch: it has no part 2; expected: an index below 2");
  EXPECT_EQ(error_text<DataError>([] { Batch({filled(1)})["x"]; }),
            "batch: it has no part named 'x'; expected: an index: this batch is a list");
  EXPECT_EQ(error_text<DataError>([] { Batch({filled(1)}).labels(); }),
            "batch: it holds 1 tensors; expected: [inputs..., labels]");
  EXPECT_THROW(Batch({filled(1)}).inputs(), DataError);
}

TEST(Batch, NamesOfAMapDiffer) {
  const auto make = [] {
    Batch::map({{"a", Batch::leaf(filled(1))}, {"b", Batch::leaf(filled(1))}, {"a", Batch::leaf(filled(2))}});
  };
  EXPECT_EQ(error_text<DataError>(make),
            "batch: the name 'a' is used twice in a map; expected: unique names");
}

TEST(Batch, SamplesNeedADimension) { EXPECT_THROW(Batch({at::scalar_tensor(1)}).num_samples(), DataError); }

TEST(Batch, ClearLetsGoOfTheTensors) {
  const at::Tensor tensor = filled(1);
  Batch batch{tensor, tensor};
  EXPECT_EQ(tensor.use_count(), 3);
  batch.clear();
  EXPECT_EQ(tensor.use_count(), 1);
  EXPECT_EQ(batch.size(), 0);
}

TEST(Batch, IsEmptyAfterItHasBeenMovedFrom) {
  Batch batch = Batch::map({{"x", Batch::leaf(at::ones({2}))}});
  const Batch moved = std::move(batch);
  EXPECT_EQ(moved.size(), 1);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is promised
  EXPECT_EQ(batch.size(), 0);
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.num_samples(), 0);
  EXPECT_EQ(batch.structure()->kind, BatchStructure::Kind::list);
  EXPECT_EQ(Batch::list({batch}).size(), 1);  // a part without tensors
  EXPECT_THROW(batch.part(0), DataError);
  EXPECT_THROW(batch.part("x"), DataError);
  // NOLINTEND(bugprone-use-after-move)
  batch = Batch{at::ones({3})};
  EXPECT_EQ(batch.num_samples(), 3);
}

}  // namespace
}  // namespace kindling
