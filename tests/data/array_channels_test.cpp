// Several arrays as the channels of one, and missing values: data.more_channels and data.fill_missing.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/array_source.h"
#include "data/loading/stacked_channels.h"
#include "data/loading/stored_dataset.h"
#include "data/transforms/channel_scale.h"
#include "kindling/base/error.h"
#include "kindling/data/array_data.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class ArrayChannels : public testing::Test {
 protected:
  ArrayChannels() { at::manual_seed(0); }

  std::filesystem::path write(std::vector<std::pair<std::string, at::Tensor>> tensors,
                              const std::string& name = "a.safetensors") {
    save_safetensors({.tensors = std::move(tensors), .metadata = {}}, scratch_ / name);
    return scratch_ / name;
  }
  std::string refusal(ArrayDataOptions options) {
    std::string text = error_text<Error>([&] { ArrayData(std::move(options)).prepare(); });
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  static Batch first_batch(DataModule& data, const std::shared_ptr<DataLoader>& loader) {
    DataLoader::Cursor cursor(*loader);
    cursor.seek(0, 0);
    Batch batch;
    EXPECT_TRUE(cursor.next(batch));
    return data.on_after_batch_transfer(std::move(batch));
  }

  Scratch scratch_;
  const at::Tensor u_ = at::randn({10, 4, 3}), v_ = at::randn({10, 4, 3}), y_ = at::randn({10, 4, 3});
};

TEST_F(ArrayChannels, FollowInputsAndLabels) {
  ArrayData data({.file = write({{"u", u_}, {"v", v_}, {"y", y_}}),
                  .inputs = "v",
                  .labels = "y",
                  .more_channels = {"u", "y"},
                  .more_label_channels = {"u"},
                  .normalize_by = "channels"},
                 {.batch_size = 10, .shuffle = false});
  const Batch batch = first_batch(data, data.train_dataloader());
  const at::Tensor channels = at::stack({v_, u_, y_}, 1).to(at::kDouble);
  const at::Tensor scaled = (channels - channels.mean({0, 2, 3}, true)) /
                            channels.std(at::IntArrayRef{0, 2, 3}, /*unbiased=*/false, /*keepdim=*/true);
  EXPECT_TRUE(close(batch[0], scaled.to(at::kFloat), 1e-6));
  EXPECT_TRUE(same(batch[1], at::stack({y_, u_}, 1)));
  data.predict_from(write({{"y", y_}, {"v", v_}, {"u", u_}}, "b.safetensors"));
  EXPECT_TRUE(same(first_batch(data, data.predict_dataloader())[0], batch[0]));
}

TEST_F(ArrayChannels, OfPairsAreThoseOfInputsAndTargets) {
  ArrayDataOptions options{.file = write({{"u", u_}, {"v", v_}}),
                           .inputs = "u",
                           .more_channels = {"v"},
                           .horizon = 1,
                           .layout = "series_time"};
  ArrayData data(options, {.batch_size = 30, .shuffle = false});
  const Batch batch = first_batch(data, data.train_dataloader());
  const at::Tensor states = at::stack({u_, v_}, 2);  // [series, time, channels, 3]
  EXPECT_TRUE(same(batch[0], states.narrow(1, 0, 3).flatten(0, 1)));
  EXPECT_TRUE(same(batch[1], states.narrow(1, 1, 3).flatten(0, 1)));
}

TEST_F(ArrayChannels, StayInTheirFiles) {
  const auto file = write({{"u", u_}, {"v", v_}});
  const auto arrays = read_arrays({{.file = file, .key = "file", .names = {"u", "v"}}}, /*max_bytes=*/0);
  const SourceArray &u = array_named(arrays[0], "u", file, "inputs"),
                    &v = array_named(arrays[0], "v", file, "inputs");
  ASSERT_TRUE(u.rows && v.rows);
  SourceArray in_memory = v;
  in_memory.rows = nullptr;
  in_memory.values = v_;
  for (const SourceArray& second : {v, in_memory})
    for (const std::size_t row_dims : {1U, 2U}) {
      const SourceArray stacked = stacked_channels({u, second}, row_dims);
      const at::Tensor expected = at::stack({u_, v_}, static_cast<std::int64_t>(row_dims));
      ASSERT_TRUE(stacked.rows);
      EXPECT_EQ(stacked.values.sizes(), expected.sizes());
      EXPECT_TRUE(same(stacked.all_samples(), expected));
      if (row_dims == 1) continue;
      const auto times = stacked.rows->divided(4);
      ASSERT_TRUE(times);
      const std::vector<std::int64_t> numbers{7, 39, 0};
      at::Tensor rows = at::empty({3, 2, 3});
      times->read(numbers.data(), 3, static_cast<char*>(rows.mutable_data_ptr()));
      EXPECT_TRUE(same(rows, expected.flatten(0, 1).index_select(0, at::tensor(numbers))));
      EXPECT_FALSE(stacked.rows->divided(3));
    }
}

TEST_F(ArrayChannels, MustBeAlike) {
  const auto file = write({{"u", u_}, {"v", v_.narrow(0, 0, 9)}, {"w", v_.to(at::kDouble)}, {"y", y_}});
  EXPECT_EQ(
      refusal({.file = file, .inputs = "u", .labels = "y", .more_channels = {"v"}}),
      "a.safetensors, array 'v': it is Float [9, 4, 3]; expected: the type and sizes of 'u', Float [10, "
      "4, 3]");
  EXPECT_EQ(
      refusal({.file = file, .inputs = "u", .labels = "y", .more_label_channels = {"w"}}),
      "a.safetensors, array 'w': it is Double [10, 4, 3]; expected: the type and sizes of 'y', Float [10, "
      "4, 3]");
  const std::string unknown = refusal({.file = file, .inputs = "u", .labels = "y", .more_channels = {"vv"}});
  EXPECT_TRUE(unknown.starts_with("data.more_channels: a.safetensors has no array 'vv'")) << unknown;
  EXPECT_EQ(refusal({.file = "x.npy", .labels_file = "y.npz", .more_channels = {"v"}}),
            "data.more_channels: it is set, and a .npy file has one array; expected: a .npz file with all "
            "channels");
  EXPECT_EQ(
      refusal({.file = file, .inputs = "u", .more_label_channels = {"v"}, .horizon = 1}),
      "data.more_label_channels: it is set, and data.horizon, too; expected: one of them: the targets are "
      "rows of data.inputs");
}

TEST_F(ArrayChannels, MissingValuesOfInputsAreFilledAfterTheScaling) {
  at::Tensor x = at::randn({10, 2, 3}).mul_(4).add_(50), more = at::randn({10, 1});
  const at::Tensor is_missing = at::rand({10, 2, 3}).lt(0.3);
  x.masked_fill_(is_missing, NAN);
  more[4] = NAN;
  at::Tensor y = at::randn({10, 1});
  y[7] = NAN;
  const auto file = write({{"x", x}, {"more", more}, {"y", y}});
  const ArrayDataOptions options{
      .file = file, .more_inputs = {"more"}, .normalize_by = "channels", .fill_missing = -3};
  ArrayData data(options, {.batch_size = 10, .shuffle = false});
  const Batch batch = first_batch(data, data.train_dataloader());
  EXPECT_TRUE(same(batch[0].eq(-3), is_missing));
  for (std::int64_t channel = 0; channel < 2; ++channel) {
    const at::Tensor there =
        batch[0].select(1, channel).masked_select(is_missing.select(1, channel).logical_not());
    EXPECT_NEAR(there.mean().item<double>(), 0, 1e-6);
    EXPECT_NEAR(there.std(/*unbiased=*/false).item<double>(), 1, 1e-6);
  }
  EXPECT_EQ(batch[1][4].item<float>(), -3);
  EXPECT_TRUE(batch[2][7].isnan().item<bool>());  // targets stay

  const auto scale = ChannelScale::from_description(data.input_transform()->description());
  EXPECT_EQ(scale->description(), R"({"kind":"channels","channels":2,"fill_missing":-3})");
  EXPECT_TRUE(scale->adopt(scale->description()));
  for (const auto& [other, found] :
       {std::pair{ChannelScale(2).description(), "data.fill_missing is -3, and was absent when it was saved"},
        std::pair{ChannelScale(3, 0).description(),
                  "the training data have 2 channels, and had 3 when it was saved"}})
    try {
      scale->adopt(other);
      ADD_FAILURE() << other;
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.parts().found, found);
    }
  EXPECT_TRUE(refusal({.file = file, .normalize_by = "channels"})
                  .ends_with("if they are missing values, set data.fill_missing = 0"));
  EXPECT_EQ(refusal({.file = file, .fill_missing = INFINITY}),
            "data: fill_missing is inf; expected: a finite number");
}

// Files of one time step each are one trajectory.
TEST_F(ArrayChannels, OfFilesThatContinueOneAnother) {
  for (int i = 0; i < 4; ++i) write({{"x", u_.narrow(0, i, 1)}}, "t" + std::to_string(i) + ".safetensors");
  const std::string files = scratch_ / "t*.safetensors";
  EXPECT_NE(refusal({.file = files, .horizon = 1}).find("no series has 2 rows"), std::string::npos);
  ArrayData data({.file = files, .horizon = 2, .files_continue = true}, {.batch_size = 4, .shuffle = false});
  const Batch batch = first_batch(data, data.train_dataloader());
  EXPECT_TRUE(same(batch[0], u_.narrow(0, 0, 2)));
  EXPECT_TRUE(same(batch[1], u_.narrow(0, 2, 2)));
  EXPECT_EQ(refusal({.file = scratch_ / "t0.safetensors", .horizon = 1, .files_continue = true}),
            "data.files_continue: it is set, and data.file is not a pattern; expected: a pattern of files of "
            "rows, such as data.file = \"t*.nc\"");
}

// NaN of a state is filled as an input, and stays as a target.
TEST_F(ArrayChannels, MissingValuesOfPairsAreFilledInInputsOnly) {
  at::Tensor x = at::randn({6, 3});
  x[2] = NAN;
  ArrayData data({.file = write({{"x", x}}), .fill_missing = 0, .horizon = 1},
                 {.batch_size = 5, .shuffle = false});
  const Batch batch = first_batch(data, data.train_dataloader());
  EXPECT_TRUE(same(batch[0], x.narrow(0, 0, 5).nan_to_num()));
  EXPECT_TRUE(batch[1][1].isnan().all().item<bool>());
  EXPECT_TRUE(same(batch[1].nan_to_num(), x.narrow(0, 1, 5).nan_to_num()));
}

}  // namespace
}  // namespace kindling
