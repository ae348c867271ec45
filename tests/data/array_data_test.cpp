#include "kindling/data/array_data.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>

#include "kindling/base/error.h"
#include "kindling/tensors/state_dict.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class Arrays : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name,
                              std::vector<std::pair<std::string, at::Tensor>> tensors) {
    save_safetensors({.tensors = std::move(tensors), .metadata = {}}, scratch_ / name);
    return scratch_ / name;
  }
  static Batch all_of(DataModule& data, const std::shared_ptr<DataLoader>& loader) {
    std::vector<at::Tensor> inputs, labels;
    for (const Batch& batch : *loader) {
      const Batch done = data.on_after_batch_transfer(batch);
      inputs.push_back(done[0].clone());
      if (done.tensors().size() > 1) labels.push_back(done[1].clone());
    }
    return labels.empty() ? Batch{at::cat(inputs)} : Batch{at::cat(inputs), at::cat(labels)};
  }
  std::string refusal(ArrayDataOptions options, DataOptions shared = {}) {
    std::string text;
    try {
      ArrayData(std::move(options), std::move(shared)).prepare();
    } catch (const Error& error) {
      text = error.what();
    }
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }

  Scratch scratch_;
  const at::Tensor images_ = at::arange(40).remainder(256).to(at::kByte).view({10, 2, 2});
  const at::Tensor classes_ = at::arange(10).remainder(3);
};

TEST_F(Arrays, BecomeInputsAndClasses) {
  const auto file = write("a.safetensors", {{"x", images_}, {"y", classes_.to(at::kByte).unsqueeze(1)}});
  ArrayData data({.file = file, .normalize = {{0.5, 0.25}}, .divisor = 255},
                 {.batch_size = 4, .shuffle = false, .val = {{8, 10}}});
  const Batch train = all_of(data, data.train_dataloader()), val = all_of(data, data.val_dataloader());
  EXPECT_EQ(train[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(close(train[0], (images_.narrow(0, 0, 8).to(at::kFloat) / 255 - 0.5) / 0.25, 1e-6));
  EXPECT_TRUE(same(train[1], classes_.narrow(0, 0, 8)));
  EXPECT_TRUE(same(val[1], classes_.narrow(0, 8, 2)));
}

TEST_F(Arrays, BecomeTargetsOfARegressor) {
  const at::Tensor x = at::rand({6, 3}, at::kDouble), y = at::rand({6}, at::kDouble);
  const auto file = write("a.safetensors", {{"x", x}, {"y", y}, {"tokens", at::arange(6).view({6, 1})}});
  ArrayData data({.file = file}, {.shuffle = false});
  const Batch all = all_of(data, data.train_dataloader());
  EXPECT_TRUE(same(all[0], x.to(at::kFloat)));
  EXPECT_TRUE(same(all[1], y.to(at::kFloat).unsqueeze(1)));
  EXPECT_EQ(data.val_dataloader(), nullptr);
  ArrayData tokens({.file = file, .inputs = "tokens"}, {.shuffle = false});
  EXPECT_EQ(all_of(tokens, tokens.train_dataloader())[0].scalar_type(), at::kLong);
}

TEST_F(Arrays, ValidationSamplesHaveNamesOfTheirOwn) {
  const auto file = write("a.safetensors", {{"x_train", images_},
                                            {"y_train", classes_},
                                            {"x_test", images_.narrow(0, 0, 3)},
                                            {"y_test", classes_.narrow(0, 0, 3)}});
  ArrayData data({.file = file,
                  .inputs = "x_train",
                  .labels = "y_train",
                  .val_inputs = "x_test",
                  .val_labels = "y_test"},
                 {.shuffle = false});
  EXPECT_EQ(data.train_dataloader()->num_samples(), 10);
  EXPECT_TRUE(same(all_of(data, data.val_dataloader())[0], images_.narrow(0, 0, 3).to(at::kFloat)));
}

TEST_F(Arrays, AreSplitByClass) {
  const auto file = write("a.safetensors", {{"x", images_}, {"y", at::arange(10).remainder(2)}});
  ArrayData data({.file = file, .val_fraction = 0.4, .stratify = true}, {.shuffle = false});
  const Batch val = all_of(data, data.val_dataloader());
  EXPECT_EQ(val.num_samples(), 4);
  EXPECT_EQ(val[1].sum().item<std::int64_t>(), 2);
  EXPECT_EQ(data.train_dataloader()->num_samples(), 6);
}

TEST_F(Arrays, NameTheRowsOfTrainingSamples) {
  const auto file = write("a.safetensors", {{"x", at::arange(10).view({10, 1})}, {"y", at::arange(10)}});
  for (const double fraction : {0.4, 0.2}) {
    ArrayData data({.file = file, .val_fraction = fraction}, {.shuffle = false});
    const Batch train = all_of(data, data.train_dataloader());
    const SampleIds ids = data.train_ids();
    EXPECT_EQ(ids.name, "row");
    ASSERT_EQ(std::ssize(ids.values), train.num_samples());
    for (std::int64_t i = 0; i < train.num_samples(); ++i)
      EXPECT_EQ(ids.values[static_cast<std::size_t>(i)], std::to_string(train[1][i].item<std::int64_t>()));
  }
  ArrayData whole({.file = file}, {.shuffle = false});
  EXPECT_EQ(whole.train_ids().values.size(), 10U);
  EXPECT_EQ(whole.train_ids().values.back(), "9");
}

// Files that NumPy has written.
TEST_F(Arrays, ComeFromNumpy) {
  const auto seeds = std::filesystem::path(KINDLING_TESTS) / "fuzz/seeds/npy_fuzzer";
  ArrayData archive({.file = seeds / "two.npz"}, {.shuffle = false});
  const Batch all = all_of(archive, archive.train_dataloader());
  EXPECT_TRUE(same(all[0], at::zeros({2, 2})));  // bytes
  EXPECT_TRUE(same(all[1], at::ones({2}, at::kLong)));
  ArrayData files({.file = seeds / "floats.npy", .labels_file = seeds / "columns.npy"}, {.shuffle = false});
  const Batch both = all_of(files, files.train_dataloader());
  EXPECT_TRUE(same(both[0], at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_TRUE(same(both[1], at::arange(6).view({2, 3})));  // stored by columns
}

// Names of classes are texts, which are not read.
TEST_F(Arrays, MayHaveOthersBesideThemInTheFile) {
  const auto file = std::filesystem::path(KINDLING_TESTS) / "fuzz/seeds/npy_fuzzer/named.npz";
  ArrayData data({.file = file}, {.shuffle = false});
  EXPECT_TRUE(same(all_of(data, data.train_dataloader())[0], at::arange(6, at::kFloat).view({3, 2})));
  EXPECT_NE(refusal({.file = file, .labels = "name"}).find("one of names, x, y"), std::string::npos);
  EXPECT_NE(refusal({.file = file, .labels = "names"}).find("the type <U2 is not supported"),
            std::string::npos);
}

TEST_F(Arrays, OfLabelsAreReadFromTheirFileOnly) {
  const auto file =
      std::filesystem::path(KINDLING_TESTS) / "fuzz/seeds/npy_fuzzer/named.npz";  // names: texts
  const auto labels = write("labels.safetensors", {{"names", classes_.narrow(0, 0, 3)}});
  ArrayData data({.file = file, .labels_file = labels, .labels = "names"}, {.shuffle = false});
  EXPECT_TRUE(same(all_of(data, data.train_dataloader())[1], classes_.narrow(0, 0, 3)));
}

TEST_F(Arrays, OfSixteenBitsBecomeFloat32) {
  const at::Tensor x = at::arange(40, at::kHalf).view({10, 4}) / 7;
  const auto file = write("a.safetensors", {{"x", x}, {"y", classes_}});
  ArrayData data({.file = file, .normalize = {{0.5, 0.25}}, .divisor = 3}, {.shuffle = false});
  const Batch all = all_of(data, data.train_dataloader());
  EXPECT_TRUE(same(all[0], ((x.to(at::kDouble) / 3 - 0.5) / 0.25).to(at::kFloat)));
}

// (x / divisor - mean) / std of NumPy's float64, rounded once.
TEST_F(Arrays, AreScaledInFloat64) {
  const at::Tensor steps = at::arange(600).view({600, 1});
  const auto data_of = [&](const at::Tensor& x, double divisor, std::array<double, 2> normalize) {
    return ArrayData({.file = write("a.safetensors", {{"x", x}, {"y", steps}}),
                      .normalize = normalize,
                      .divisor = divisor},
                     {.shuffle = false});
  };
  const at::Tensor seconds = steps + 1700000000, scores = (steps.to(at::kDouble) - 299.5) / 173.2;
  const at::Tensor pascal = steps.to(at::kDouble) / 64 + 101325;
  struct Case {
    at::Tensor x;
    double divisor = 1, mean = 0, std = 1;
    at::Tensor expected;
  };
  for (const Case& one : {
           Case{seconds, 1, 1700000299.5, 173.2, scores},
           Case{seconds.to(at::kInt), 1, 1700000299.5, 173.2, scores},
           Case{seconds.to(at::kDouble), 1, 1700000299.5, 173.2, scores},
           Case{seconds * 1000, 1000, 1700000299.5, 173.2, scores},
           Case{(seconds * 1000).to(at::kDouble), 1000, 1700000299.5, 173.2, scores},
           Case{pascal, 1, 101325 + 299.5 / 64, 173.2 / 64, scores},
           Case{pascal.to(at::kFloat), 1, 101325 + 299.5 / 64, 173.2 / 64, scores},
           Case{(steps + 29315).to(at::kShort), 100, 293.15 + 2.995, 1.732, scores},
       }) {
    ArrayData data = data_of(one.x, one.divisor, {one.mean, one.std});
    LogLines log;
    const at::Tensor found = all_of(data, data.train_dataloader())[0];
    EXPECT_TRUE(log.texts.empty()) << log.texts.front();
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    EXPECT_TRUE(close(found, one.expected.to(at::kFloat), 1e-6)) << one.x.scalar_type() << one.divisor;
  }
}

TEST_F(Arrays, TakeFloat64InProgramsIfFloat32LacksDigits) {
  const at::Tensor steps = at::arange(600, at::kDouble).unsqueeze(1);
  const auto type_of = [&](const at::Tensor& x) {
    ArrayData data({.file = write("a.safetensors", {{"x", x}, {"y", steps}}), .normalize = {{300, 173}}});
    data.prepare();
    return data.program_input_type();
  };
  EXPECT_EQ(type_of(steps + 1.7e9), at::kDouble);
  EXPECT_EQ(type_of(at::cat({steps, steps + 1.7e9}, 1)), at::kDouble);
  EXPECT_EQ(type_of(steps), at::kFloat);
  EXPECT_EQ(type_of(steps.to(at::kFloat)), std::nullopt);  // as in the file
}

TEST_F(Arrays, WarnOfDigitsThatFloat32RoundsAway) {
  const at::Tensor steps = at::arange(600, at::kDouble).unsqueeze(1);
  const at::Tensor x = at::cat({steps, steps + 1.7e9}, 1);
  const auto warnings_of = [&](const at::Tensor& inputs, ArrayDataOptions options) {
    options.file = write("a.safetensors", {{"x", inputs}, {"y", steps}});
    const LogLines log;
    ArrayData(options).prepare();
    return log.texts;
  };
  const std::vector<std::string> expected{
      (scratch_ / "a.safetensors").string() +
      ", array 'x': float32 rounds feature 1 of the samples by more than 1e-3 of its standard deviation; set "
      "data.normalize = [mean, std], whose mean is subtracted in float64, or subtract an offset in the file"};
  EXPECT_EQ(warnings_of(x, {}), expected);
  EXPECT_EQ(warnings_of(x, {.divisor = 10}), expected);
  EXPECT_EQ(warnings_of(x.to(at::kLong), {.divisor = 10}), expected);
  EXPECT_TRUE(warnings_of(x.narrow(1, 1, 1), {.normalize = {{1.7e9, 100}}}).empty());
  EXPECT_TRUE(warnings_of(x.to(at::kLong), {}).empty());  // they stay integers
  EXPECT_TRUE(warnings_of(steps, {}).empty());
}

TEST_F(Arrays, OfAnotherFileArePredicted) {
  const auto file = write("a.safetensors", {{"x", images_}, {"y", classes_}});
  const auto other = write("b.safetensors", {{"x", images_.narrow(0, 5, 2)}});
  ArrayData data({.file = file});
  data.predict_from(other);
  EXPECT_TRUE(same(all_of(data, data.predict_dataloader())[0], images_.narrow(0, 5, 2).to(at::kFloat)));
  for (const at::Tensor& odd : {images_.to(at::kFloat), images_.flatten(1), images_.unsqueeze(1)}) {
    ArrayData refusing({.file = file});
    refusing.predict_from(write("odd.safetensors", {{"x", odd}}));
    EXPECT_NE(error_text<DataError>([&] { refusing.predict_dataloader(); })
                  .find("expected: samples like those of the training, Byte [2, 2] each, of the same or "
                        "another size"),
              std::string::npos);
  }
  ArrayData larger({.file = file});
  larger.predict_from(write("larger.safetensors", {{"x", at::zeros({3, 4, 6}, at::kByte)}}));
  EXPECT_EQ(all_of(larger, larger.predict_dataloader())[0].sizes(), (at::IntArrayRef{3, 4, 6}));
  std::filesystem::remove(file);  // the training file is not needed then
  ArrayData alone({.file = file});
  alone.predict_from(other);
  EXPECT_EQ(alone.predict_dataloader()->num_samples(), 2);
}

TEST_F(Arrays, MayBeSeveralInputs) {
  const at::Tensor mask = images_.gt(5), weights = at::linspace(0, 1, 10, at::kDouble);
  const auto file = write("a.safetensors", {{"x", images_}, {"y", classes_}, {"mask", mask}, {"w", weights}});
  ArrayData data(
      {.file = file, .more_inputs = {"mask", "w"}, .divisor = 2, .val_fraction = 0.2, .stratify = true},
      {.batch_size = 4, .shuffle = false});
  for (const auto& loader : {data.train_dataloader(), data.val_dataloader()})
    for (const Batch& batch : *loader) {
      const Batch done = data.on_after_batch_transfer(batch);
      ASSERT_EQ(done.tensors().size(), 4U);
      const at::Tensor bytes = (done[0] * 2).to(at::kByte);  // those of a sample are consecutive
      EXPECT_TRUE(same(done[1], bytes.gt(5)));
      EXPECT_TRUE(close(done[2], bytes.select(1, 0).select(1, 0).to(at::kFloat) / 36, 1e-6));
      EXPECT_TRUE(
          same(done.labels(), bytes.select(1, 0).select(1, 0).to(at::kLong).div(4, "floor").remainder(3)));
    }
  data.predict_from(write("new.safetensors", {{"x", images_}, {"mask", mask}, {"w", weights}}));
  for (const Batch& batch : *data.predict_dataloader()) EXPECT_EQ(batch.tensors().size(), 3U);
}

TEST_F(Arrays, KeepTheirType) {
  const auto file = write("a.safetensors", {{"x", images_}, {"y", classes_}, {"mask", images_.gt(5)}});
  ArrayData bytes({.file = file, .keep_type = true}, {.shuffle = false}),
      flags({.file = file, .inputs = "mask", .keep_type = true}, {.shuffle = false});
  EXPECT_TRUE(same(all_of(bytes, bytes.train_dataloader())[0], images_));
  EXPECT_TRUE(same(all_of(flags, flags.train_dataloader())[0], images_.gt(5)));
}

TEST_F(Arrays, RefuseSeveralInputsThatDoNotFit) {
  const auto file =
      write("a.safetensors", {{"x", images_}, {"y", classes_}, {"few", classes_.narrow(0, 0, 3)}});
  EXPECT_EQ(refusal({.file = file, .more_inputs = {"few"}}),
            "a.safetensors, array 'few': it is Long [3]; expected: as many samples as in the other inputs, "
            "[10, …]");
  EXPECT_EQ(
      refusal({.file = file, .more_inputs = {"x"}, .val_inputs = "x", .val_labels = "y"}),
      "data.more_inputs: it is set, and val_inputs names one array; expected: a part of the samples for "
      "validation, such as val_fraction");
  EXPECT_EQ(refusal({.file = file, .keep_type = true, .divisor = 255}),
            "data.keep_type: it is set, and divisor or normalize, too; expected: one of them: scaled numbers "
            "are float32");
}

TEST_F(Arrays, RefuseWhatDoesNotFit) {
  const auto file =
      write("a.safetensors", {{"x", images_}, {"y", classes_}, {"few", classes_.narrow(0, 0, 9)}});
  EXPECT_EQ(refusal({.file = file, .inputs = "X"}),
            "data.inputs: a.safetensors has no array 'X'; expected: one of few, x, y; did you mean 'x'?");
  EXPECT_EQ(refusal({.file = file, .labels = "few"}),
            "a.safetensors, array 'few': it is Long [9]; expected: one label per sample, [10, …]");
  const auto none = write("none.safetensors", {{"x", at::zeros({0, 3})}, {"y", at::zeros({0}, at::kLong)}});
  EXPECT_EQ(
      refusal({.file = none}),
      "none.safetensors, array 'x': it is Float [0, 3]; expected: at least one sample, and values in it");
  EXPECT_NE(refusal({.file = scratch_ / "b.npz"}).find("b.npz"), std::string::npos);
  EXPECT_EQ(refusal({.file = file, .val_inputs = "x"}),
            "data: only one of val_inputs and val_labels is set; expected: both or none");
  EXPECT_EQ(refusal({.file = file, .val_inputs = "x", .val_labels = "y"}, {.val = {{0, 2}}}),
            "data.val_inputs: it is set, and the samples are split, too; expected: one way to get validation "
            "samples");
  EXPECT_EQ(refusal({.file = file, .stratify = true}),
            "data.stratify: the samples are not split; expected: val_fraction or folds");
  at::Tensor large = at::ones({10, 2}, at::kDouble);
  large[4][1] = 1e300;
  EXPECT_EQ(
      refusal({.file = write("large.safetensors", {{"x", large}, {"y", classes_}})}),
      "large.safetensors, array 'x': it is Double [10, 2]; expected: values that float32 can hold, up to "
      "3.4e38");
  EXPECT_EQ(
      refusal({.file = write("w.safetensors", {{"x", images_}, {"y", classes_}, {"w", at::arange(10) >= 8}}),
               .weights = "w"},
              {.train = {{0, 8}}}),
      "w.safetensors, array 'w': all training samples have the weight 0; expected: at least one with a "
      "larger weight");
  std::ofstream(scratch_ / "a.csv") << "x";
  EXPECT_EQ(refusal({.file = scratch_ / "a.csv"}),
            "data.file: a.csv ends with '.csv'; expected: a .npz, .npy, .safetensors, .pt, "
            "HDF5 (.h5, .hdf5), NetCDF (.nc) or raw (.bin, .raw, .dat) file");
}

// Every name would mean the only array: labels would be the inputs, and validation samples those of the
// training.
TEST_F(Arrays, OfAFileWithOneArrayHaveNoNames) {
  EXPECT_EQ(refusal({.file = "x.npy"}),
            "data.labels_file: it is not set, and a .npy file has one array; expected: a file of the labels");
  EXPECT_EQ(refusal({.file = "x.npy", .labels_file = "y.npz", .weights = "w"}),
            "data.weights: it is set, and a .npy file has one array; expected: a .npz file with the weights");
  for (const char* labels : {"y.npy", "y.npz"})
    EXPECT_NE(refusal({.file = std::string(labels) == "y.npy" ? "x.npz" : "x.NPY",
                       .labels_file = labels,
                       .val_inputs = "a",
                       .val_labels = "b"})
                  .find("data.val_inputs: it is set, and a .npy file has one array"),
              std::string::npos);
}

TEST_F(Arrays, AreDrawnByTheirWeights) {
  at::Tensor weights = at::zeros({10});
  weights[3] = 1;
  weights[9] = 5;
  const auto file = write("a.safetensors", {{"x", images_}, {"y", at::arange(10)}, {"w", weights}});
  ArrayData data({.file = file, .weights = "w"}, {.batch_size = 4, .val = {{8, 10}}});
  const Batch all = all_of(data, data.train_dataloader());
  EXPECT_TRUE(same(all[1], at::full({8}, 3, at::kLong)));  // 9 is for validation
  EXPECT_NE(refusal({.file = file, .weights = "w"}, {.sampler = "shuffled"}).find("data.sampler is set, too"),
            std::string::npos);
  EXPECT_NE(refusal({.file = file, .weights = "v"}).find("data.weights"), std::string::npos);
  const auto broken = write("b.safetensors", {{"x", images_}, {"y", classes_}, {"w", weights - 2}});
  EXPECT_EQ(
      refusal({.file = broken, .weights = "w"}),
      "b.safetensors, array 'w', sample 0: the weight -2; expected: a finite number that is at least 0");
}

}  // namespace
}  // namespace kindling
