#include <functional>
#include <limits>

#include "bindings/c_calls.h"
#include "support/scratch.h"

namespace kindling::test {
namespace {

// Wrong calls: each gets a code and a sentence, and the trainer works afterwards.
class WrongCalls : public testing::Test {
 protected:
  void SetUp() override {
    trainer_ = make_trainer();
    freed_ = make_trainer();
    expect_ok(kindling_trainer_free(freed_));
    inputs_ = samples_.x.view();
    targets_ = samples_.y.view();
    expect_ok(kindling_tensor_from_array(&inputs_, &tensor_));
  }
  void TearDown() override {
    expect_ok(samples_.train(trainer_));
    EXPECT_TRUE(std::isfinite(loss_of(trainer_)));
    expect_ok(kindling_tensor_free(tensor_));
    expect_ok(kindling_trainer_free(trainer_));
    RecordProperty("refused", refused_);
  }

  void refused(kindling_status status, kindling_status expected, const std::string& what,
               const std::string& words = "") {
    ++refused_;
    EXPECT_EQ(status, expected) << what << ": " << kindling_error();
    const std::string text = kindling_error(), found = kindling_error_part(KINDLING_FOUND);
    EXPECT_FALSE(found.empty()) << what;
    EXPECT_NE(text.find(words), std::string::npos) << what << ": " << text;
    expect_ok(kindling_device_count(&devices_));  // a call that works leaves the text
    EXPECT_EQ(text, kindling_error()) << what;
  }

  kindling_trainer trainer_ = nullptr, freed_ = nullptr;
  kindling_tensor tensor_ = nullptr;
  Samples<float> samples_{KINDLING_FLOAT32};
  kindling_array inputs_{}, targets_{};
  int32_t devices_ = 0;
  int refused_ = 0;
};

TEST_F(WrongCalls, WithHandlesThatAreNone) {
  double number = 0;
  int32_t flag = 0;
  std::size_t count = 0;
  const char* name = nullptr;
  kindling_progress progress{};
  kindling_tensor output = nullptr;
  const Scratch folder;
  const std::string file = (folder / "weights.safetensors").string();
  const std::vector<std::pair<const char*, std::function<kindling_status(kindling_trainer)>>> calls{
      {"train_step", [&](auto t) { return kindling_train_step(t, &inputs_, 1, &targets_, 1); }},
      {"train_step_masked",
       [&](auto t) { return kindling_train_step_masked(t, &inputs_, 1, &targets_, 1, &targets_); }},
      {"loss_value", [&](auto t) { return kindling_loss_value(t, &number); }},
      {"finish_epoch", [&](auto t) { return kindling_finish_epoch(t); }},
      {"is_done", [&](auto t) { return kindling_is_done(t, &flag); }},
      {"log_value", [&](auto t) { return kindling_log_value(t, "a", 1); }},
      {"save_into", [&](auto t) { return kindling_save_into(t, file.c_str()); }},
      {"fit", [&](auto t) { return kindling_fit(t, nullptr); }},
      {"validate", [&](auto t) { return kindling_validate(t); }},
      {"test", [&](auto t) { return kindling_test(t); }},
      {"infer", [&](auto t) { return kindling_infer(t, &inputs_, 1, &targets_, 1); }},
      {"infer_tensor", [&](auto t) { return kindling_infer_tensor(t, &inputs_, 1, &output); }},
      {"predict", [&](auto t) { return kindling_predict(t, &output); }},
      {"metric", [&](auto t) { return kindling_metric(t, "val_loss", &number); }},
      {"metric_count", [&](auto t) { return kindling_metric_count(t, &count); }},
      {"metric_name", [&](auto t) { return kindling_metric_name(t, 0, &name); }},
      {"get_progress", [&](auto t) { return kindling_get_progress(t, &progress); }},
      {"learning_rate", [&](auto t) { return kindling_learning_rate(t, &number); }},
      {"request_stop", [&](auto t) { return kindling_request_stop(t); }},
      {"save", [&](auto t) { return kindling_save(t, file.c_str()); }},
      {"save_weights", [&](auto t) { return kindling_save_weights(t, file.c_str()); }},
      {"load_weights", [&](auto t) { return kindling_load_weights(t, file.c_str()); }},
      {"set_callback", [&](auto t) { return kindling_set_callback(t, 0, nullptr, nullptr); }},
      {"free",
       [&](auto t) { return t == nullptr ? kindling_loss_value(t, &number) : kindling_trainer_free(t); }},
  };
  const auto handle = [](std::uintptr_t bits) { return reinterpret_cast<kindling_trainer>(bits); };
  std::vector<std::pair<std::string, kindling_trainer>> wrong{
      {"null", nullptr},
      {"freed", freed_},
      {"a number", handle(12345)},
      {"an address", reinterpret_cast<kindling_trainer>(&samples_)},
      {"all bits", handle(std::numeric_limits<std::uintptr_t>::max())},
      {"a tensor", reinterpret_cast<kindling_trainer>(tensor_)},
  };
  for (const auto& [call_name, call] : calls)
    for (const auto& [kind, value] : wrong)
      refused(call(value), KINDLING_USAGE_ERROR, std::string(call_name) + " with " + kind, "trainer");
  EXPECT_EQ(refused_, 144);

  kindling_array array{};
  void* managed = nullptr;
  for (const auto& [kind, value] : wrong) {
    if (kind == "a tensor") continue;
    auto* const as_tensor = reinterpret_cast<kindling_tensor>(value);
    auto* const as_group = reinterpret_cast<kindling_group>(value);
    refused(kindling_tensor_array(as_tensor, &array), KINDLING_USAGE_ERROR, "array of " + kind);
    refused(kindling_tensor_to_dlpack(as_tensor, 1, &managed), KINDLING_USAGE_ERROR, "dlpack of " + kind);
    if (value == nullptr) continue;
    refused(kindling_tensor_free(as_tensor), KINDLING_USAGE_ERROR, "free of " + kind);
    refused(kindling_group_free(as_group), KINDLING_USAGE_ERROR, "group of " + kind);
  }
}

TEST_F(WrongCalls, WithNullPointers) {
  std::size_t count = 0;
  double value = 0;
  char address[256];
  int32_t port = 0;
  kindling_trainer made = nullptr;
  kindling_group group = nullptr;
  kindling_tensor tensor = nullptr;
  const char* const settings[] = {nullptr};
  const auto null = [&](kindling_status status, const char* argument) {
    refused(status, KINDLING_USAGE_ERROR, argument, std::string("'") + argument + "' is a null pointer");
  };
  null(kindling_device_count(nullptr), "count");
  null(kindling_count_arrays(nullptr), "counts");
  null(kindling_group_join(0, 1, 0, nullptr, 1, 0, &group), "address");
  null(kindling_group_join(0, 1, 0, "localhost", 1, 0, nullptr), "group");
  null(kindling_free_address(nullptr, 256, &port), "address");
  null(kindling_free_address(address, 256, nullptr), "port");
  null(kindling_trainer_create(nullptr, 1, nullptr, &made), "settings");
  null(kindling_trainer_create(settings, 1, nullptr, &made), "settings[0]");
  null(kindling_trainer_create(nullptr, 0, nullptr, nullptr), "trainer");
  null(kindling_trainer_from_text(nullptr, nullptr, 0, nullptr, &made), "toml");
  null(kindling_trainer_from_text("", nullptr, 0, nullptr, nullptr), "trainer");
  null(kindling_trainer_from_file(nullptr, nullptr, 0, nullptr, &made), "path");
  null(kindling_trainer_from_file("a", nullptr, 0, nullptr, nullptr), "trainer");
  null(kindling_train_step(trainer_, nullptr, 1, &targets_, 1), "inputs");
  null(kindling_train_step(trainer_, &inputs_, 1, nullptr, 1), "targets");
  null(kindling_train_step_masked(trainer_, &inputs_, 1, &targets_, 1, nullptr), "mask");
  null(kindling_loss_value(trainer_, nullptr), "loss");
  null(kindling_is_done(trainer_, nullptr), "is_done");
  null(kindling_log_value(trainer_, nullptr, 1), "name");
  null(kindling_save_into(trainer_, nullptr), "folder");
  null(kindling_infer(trainer_, nullptr, 1, &targets_, 1), "inputs");
  null(kindling_infer(trainer_, &inputs_, 1, nullptr, 1), "outputs");
  null(kindling_infer_tensor(trainer_, &inputs_, 1, nullptr), "output");
  null(kindling_predict(trainer_, nullptr), "outputs");
  null(kindling_metric(trainer_, nullptr, &value), "name");
  null(kindling_metric(trainer_, "a", nullptr), "value");
  null(kindling_metric_count(trainer_, nullptr), "count");
  null(kindling_metric_name(trainer_, 0, nullptr), "name");
  null(kindling_get_progress(trainer_, nullptr), "progress");
  null(kindling_learning_rate(trainer_, nullptr), "rate");
  null(kindling_save(trainer_, nullptr), "path");
  null(kindling_resume(trainer_, nullptr), "path");
  null(kindling_save_weights(trainer_, nullptr), "path");
  null(kindling_load_weights(trainer_, nullptr), "path");
  null(kindling_tensor_from_array(nullptr, &tensor), "array");
  null(kindling_tensor_from_array(&inputs_, nullptr), "tensor");
  null(kindling_tensor_from_dlpack(nullptr, 1, &tensor), "managed");
  null(kindling_tensor_array(tensor_, nullptr), "array");
  null(kindling_tensor_to_dlpack(tensor_, 1, nullptr), "managed");
  expect_ok(kindling_metric_count(trainer_, &count));
  EXPECT_EQ(count, 0U);
}

struct WrongArray {
  std::string what;
  kindling_array array;
  kindling_status status = KINDLING_USAGE_ERROR;
};

// Arrays that no function may read.
std::vector<WrongArray> wrong_arrays(const kindling_array& right) {
  static const std::int64_t negative[] = {32, -1}, huge[] = {INT64_MAX, 3}, far[] = {INT64_MAX / 2, 1},
                            lowest[] = {INT64_MIN, 1};
  const auto changed = [&](const std::function<void(kindling_array&)>& change) {
    kindling_array array = right;
    change(array);
    return array;
  };
  return {
      {"rank -1", changed([](auto& a) { a.rank = -1; })},
      {"rank 8", changed([](auto& a) { a.rank = 8; })},
      {"no shape", changed([](auto& a) { a.shape = nullptr; })},
      {"a negative size", changed([](auto& a) { a.shape = negative; })},
      {"too many elements", changed([](auto& a) { a.shape = huge; })},
      {"dtype 0", changed([](auto& a) { a.dtype = 0; })},
      {"dtype 11", changed([](auto& a) { a.dtype = 11; })},
      {"device 7", changed([](auto& a) { a.device = 7; })},
      {"GPU 63", changed([](auto& a) { a.device = KINDLING_CUDA, a.device_index = 63; }),
       KINDLING_DEVICE_ERROR},
      {"GPU -1", changed([](auto& a) { a.device = KINDLING_CUDA, a.device_index = -1; }),
       KINDLING_DEVICE_ERROR},
      {"no data", changed([](auto& a) { a.data = nullptr; })},
      {"an odd address", changed([](auto& a) { a.data = static_cast<char*>(a.data) + 1; })},
      {"strides too long", changed([](auto& a) { a.strides = far; })},
      {"the lowest stride", changed([](auto& a) { a.strides = lowest; })},
  };
}

TEST_F(WrongCalls, WithArraysThatAreNone) {
  kindling_tensor tensor = nullptr;
  kindling_array out = targets_;
  for (const WrongArray& wrong : wrong_arrays(inputs_)) {
    refused(kindling_train_step(trainer_, &wrong.array, 1, &targets_, 1), wrong.status, wrong.what,
            "inputs[0]");
    refused(kindling_infer(trainer_, &wrong.array, 1, &out, 1), wrong.status, wrong.what, "inputs[0]");
    refused(kindling_infer_tensor(trainer_, &wrong.array, 1, &tensor), wrong.status, wrong.what);
    refused(kindling_tensor_from_array(&wrong.array, &tensor), wrong.status, wrong.what, "array");
  }
  for (const WrongArray& wrong : wrong_arrays(targets_)) {
    refused(kindling_train_step(trainer_, &inputs_, 1, &wrong.array, 1), wrong.status, wrong.what,
            "targets[0]");
    refused(kindling_infer(trainer_, &inputs_, 1, &wrong.array, 1), wrong.status, wrong.what, "outputs[0]");
  }
}

TEST_F(WrongCalls, WithArraysThatDoNotFit) {
  OwnArray<float> few(KINDLING_FLOAT32, {5, 3}), wide(KINDLING_FLOAT32, {32, 4}),
      flat(KINDLING_FLOAT32, {32}), scalar(KINDLING_FLOAT32, {}), none(KINDLING_FLOAT32, {0, 3}),
      no_target(KINDLING_FLOAT32, {0, 1});
  OwnArray<std::int64_t> whole(KINDLING_INT64, {32, 1});
  OwnArray<std::uint8_t> mask(KINDLING_BOOL, {32}), short_mask(KINDLING_BOOL, {31});
  const auto array = [](auto& own) { return own.view(); };
  kindling_array few_x = array(few), wide_x = array(wide), flat_y = array(flat), one = array(scalar),
                 none_x = array(none), none_y = array(no_target), whole_y = array(whole), m = array(mask),
                 short_m = array(short_mask), reversed = targets_, repeated = targets_;
  const std::int64_t backwards[] = {-1, 1}, same[] = {0, 0};
  reversed.strides = backwards;
  repeated.strides = same;
  expect_ok(samples_.train(trainer_));  // the lazy layer knows its width from here on

  refused(kindling_train_step(trainer_, &few_x, 1, &targets_, 1), KINDLING_DATA_ERROR, "few", "[5, 3]");
  refused(kindling_train_step(trainer_, &one, 1, &targets_, 1), KINDLING_DATA_ERROR, "scalar", "rank 0");
  refused(kindling_train_step(trainer_, &inputs_, 1, &one, 1), KINDLING_DATA_ERROR, "scalar", "rank 0");
  refused(kindling_train_step(trainer_, &inputs_, 0, &targets_, 1), KINDLING_USAGE_ERROR, "no inputs");
  refused(kindling_train_step(trainer_, &none_x, 1, &none_y, 1), KINDLING_DATA_ERROR, "none", "no samples");
  refused(kindling_train_step(trainer_, &inputs_, 1, &flat_y, 1), KINDLING_DATA_ERROR, "flat", "[32]");
  EXPECT_NE(kindling_train_step(trainer_, &wide_x, 1, &targets_, 1), KINDLING_OK);
  EXPECT_NE(kindling_infer(trainer_, &wide_x, 1, &targets_, 1), KINDLING_OK);
  refused(kindling_train_step_masked(trainer_, &inputs_, 1, &targets_, 1, &m), KINDLING_DATA_ERROR, "mask",
          "the mask selects no sample");
  refused(kindling_train_step_masked(trainer_, &inputs_, 1, &targets_, 1, &short_m), KINDLING_DATA_ERROR,
          "mask", "[32]");
  refused(kindling_train_step_masked(trainer_, &inputs_, 1, &targets_, 1, &flat_y), KINDLING_DATA_ERROR,
          "mask", "KINDLING_BOOL");
  refused(kindling_infer(trainer_, &inputs_, 1, &few_x, 1), KINDLING_DATA_ERROR, "shape", "[5, 3]");
  refused(kindling_infer(trainer_, &inputs_, 1, &flat_y, 1), KINDLING_DATA_ERROR, "shape", "[32, 1]");
  refused(kindling_infer(trainer_, &inputs_, 1, &whole_y, 1), KINDLING_DATA_ERROR, "dtype", "floating-point");
  refused(kindling_infer(trainer_, &inputs_, 1, &targets_, 2), KINDLING_DATA_ERROR, "two outputs");
  refused(kindling_infer(trainer_, &inputs_, 1, &reversed, 1), KINDLING_USAGE_ERROR, "reversed", "negative");
  refused(kindling_infer(trainer_, &inputs_, 1, &repeated, 1), KINDLING_USAGE_ERROR, "repeated", "same");
}

TEST_F(WrongCalls, WithSettingsAndFilesThatAreNone) {
  const Scratch folder;
  const std::string missing = (folder / "missing.safetensors").string();
  refused(kindling_save_weights(trainer_, missing.c_str()), KINDLING_USAGE_ERROR, "no weights", "no weights");
  expect_ok(samples_.train(trainer_));
  const std::string nowhere = (folder / "none" / "a.safetensors").string();
  const std::string no_weights = (folder / "text.safetensors").string();
  std::ofstream(no_weights) << "text";
  const std::vector<std::string> settings{
      "",
      "model.name",
      "model.name=",
      "model.name=\"mpl\"",
      "model.hidden=\"wide\"",
      "model.hidden=[-1]",
      "model.widths=[3]",
      "optimizer.name=\"adamm\"",
      "optimizer.lr=\"fast\"",
      "optimizer.lr=-1",
      "trainer.precision=\"8-true\"",
      "trainer.max_epochs=0",
      "trainer.num_threads=0",
      "schedule.name=\"sometimes\"",
      "data.name=\"digts\"",
      "seed=-1",
      "nonsense.key=1",
      "model.init_weights=\"/none/at/all.safetensors\"",
      "callbacks.none=1",
      "ema.decay=2",
  };
  for (const std::string& setting : settings) {
    std::vector<const char*> texts{"model.name=\"mlp_regressor\"", setting.c_str()};
    kindling_trainer made = nullptr;
    const kindling_status status = kindling_trainer_create(texts.data(), texts.size(), nullptr, &made);
    EXPECT_TRUE(status == KINDLING_CONFIG_ERROR || status == KINDLING_CHECKPOINT_ERROR)
        << setting << " " << status;
    EXPECT_EQ(made, nullptr);
    EXPECT_STRNE(kindling_error(), "") << setting;
    ++refused_;
  }
  kindling_trainer made = nullptr;
  // Only the trainer refuses it, after the model has been made.
  const char* const many_gpus[] = {"model.name=\"mlp_regressor\"", "trainer.num_gpus=64",
                                   "trainer.require_gpus=true"};
  refused(kindling_trainer_create(many_gpus, 3, nullptr, &made), KINDLING_DEVICE_ERROR, "64 GPUs");
  refused(kindling_trainer_create(nullptr, 0, nullptr, &made), KINDLING_CONFIG_ERROR, "empty", "model.name");
  refused(kindling_trainer_from_text("[model", nullptr, 0, nullptr, &made), KINDLING_CONFIG_ERROR, "text");
  refused(kindling_trainer_from_file(missing.c_str(), nullptr, 0, nullptr, &made), KINDLING_CONFIG_ERROR,
          "file");
  refused(kindling_resume(trainer_, missing.c_str()), KINDLING_CHECKPOINT_ERROR, "missing");
  refused(kindling_load_weights(trainer_, missing.c_str()), KINDLING_CHECKPOINT_ERROR, "missing");
  refused(kindling_load_weights(trainer_, no_weights.c_str()), KINDLING_CHECKPOINT_ERROR, "no weights");
  refused(kindling_resume(trainer_, no_weights.c_str()), KINDLING_CHECKPOINT_ERROR, "no weights");
  EXPECT_NE(kindling_save(trainer_, nowhere.c_str()), KINDLING_OK);
  refused(kindling_save_weights(trainer_, "a.weights"), KINDLING_CONFIG_ERROR, "extension", ".safetensors");
  refused(kindling_save_weights(trainer_, "a.pt2"), KINDLING_CONFIG_ERROR, "pt2", "exported");
  refused(kindling_fit(trainer_, nullptr), KINDLING_CONFIG_ERROR, "no data", "[data]");
  refused(kindling_validate(trainer_), KINDLING_CONFIG_ERROR, "no data", "[data]");
}

TEST_F(WrongCalls, WithNumbersThatAreNone) {
  double value = 0;
  char address[256];
  int32_t port = 0;
  const char* name = nullptr;
  kindling_group group = nullptr;
  refused(kindling_set_log(nullptr, -1, nullptr), KINDLING_USAGE_ERROR, "level");
  refused(kindling_set_log(nullptr, 4, nullptr), KINDLING_USAGE_ERROR, "level");
  refused(kindling_set_callback(trainer_, 64, nullptr, nullptr), KINDLING_USAGE_ERROR, "event");
  refused(kindling_metric_name(trainer_, 99, &name), KINDLING_USAGE_ERROR, "index");
  refused(kindling_metric(trainer_, "val_loss", &value), KINDLING_ERROR, "metric", "val_loss");
  refused(kindling_loss_value(trainer_, &value), KINDLING_ERROR, "no step yet", "no training step");
  refused(kindling_free_address(address, 1, &port), KINDLING_USAGE_ERROR, "room");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused(kindling_group_join(-1, 2, 0, "localhost", 1, 0, &group), KINDLING_USAGE_ERROR, "rank");
  refused(kindling_group_join(2, 2, 0, "localhost", 1, 0, &group), KINDLING_USAGE_ERROR, "rank");
  refused(kindling_group_join(0, 0, 0, "localhost", 1, 0, &group), KINDLING_USAGE_ERROR, "size");
  refused(kindling_group_join(0, 2, 1, "localhost", 1, 0, &group), KINDLING_USAGE_ERROR, "local rank");
  refused(kindling_group_join(0, 2, 0, "localhost", 0, 0, &group), KINDLING_USAGE_ERROR, "port");
  refused(kindling_group_join(0, 2, 0, "localhost", 65536, 0, &group), KINDLING_USAGE_ERROR, "port");
  refused(kindling_group_join(0, 2, 0, "localhost", 1, nan, &group), KINDLING_USAGE_ERROR, "timeout");
  refused(kindling_group_join(0, 2, 0, "localhost", 1, -1, &group), KINDLING_USAGE_ERROR, "timeout");
  EXPECT_STREQ(kindling_error_part(-1), "");
  EXPECT_STREQ(kindling_error_part(4), "");
  EXPECT_STREQ(kindling_error_part(KINDLING_LOCATION), "kindling_group_join");
}

}  // namespace
}  // namespace kindling::test
