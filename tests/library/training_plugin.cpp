#include "training_plugin.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <kindling/kindling.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <sstream>
#include <stdexcept>

namespace kd = kindling;

namespace {

// No random operator; reads a value on the host once, which logs a warning.
struct Line : kd::Module {
  Line() : layer(register_module("layer", torch::nn::Linear(1, 1))) {}
  at::Tensor forward(const at::Tensor& x) override { return layer->forward(x); }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
    const at::Tensor loss = (y - labels).square().mean();
    if (reads_its_loss) last_loss = loss.item<double>();
    log("largest", (y - labels).abs().max());
    return loss;
  }
  torch::nn::Linear layer;
  bool reads_its_loss = false;
  double last_loss = 0;
};

struct Points : kd::DataModule {
  Points() : kd::DataModule({.batch_size = 8}) {}
  std::shared_ptr<kd::DataLoader> train_dataloader() override { return train_loader_of(tensors); }
  std::shared_ptr<kd::DataLoader> val_dataloader() override { return val_loader_of(tensors); }
  std::vector<at::Tensor> tensors{at::linspace(0, 1, 64).unsqueeze(1), at::linspace(1, 3, 64).unsqueeze(1)};
};

struct Interruption : kd::Callback {
  explicit Interruption(bool throws) : throws(throws) {}
  void on_train_batch_end(kd::Trainer& trainer, kd::Module&) override {
    if (throws) throw std::runtime_error("enough");
    trainer.request_stop();
  }
  bool throws;
};

struct Parts {
  std::shared_ptr<Line> model = std::make_shared<Line>();
  Points data;
};
Parts* parts = nullptr;

template <class Kind>
bool throws(const std::function<void()>& call) {
  try {
    call();
  } catch (const Kind&) {
    return true;
  }
  return false;
}

kd::FitResult fit(kd::TrainerOptions options) {
  return kd::Trainer(std::move(options)).fit(parts->model, parts->data);
}

// Requests many GPUs, so that the library logs a warning without them.
kd::TrainerOptions two_epochs() {
  return {.max_epochs = 2, .num_gpus = 127, .gradient_clip_val = 1, .log_every_n_steps = 1};
}

int own_loop() {
  kd::Trainer trainer(two_epochs());
  trainer.prepare_model(parts->model);
  trainer.train_step(trainer.prepare_batch(kd::Batch(parts->data.tensors)));
  return trainer.finish_epoch().count("train_loss") == 1;
}

int errors() {
  kd::TrainerOptions broken = two_epochs();
  broken.callbacks = {std::make_shared<Interruption>(true)};
  int expected = throws<std::runtime_error>([&] { fit(broken); });
  expected += throws<kd::ConfigError>([] { fit({}); });
  expected += throws<kd::ConfigError>([] { kd::Trainer({.max_epochs = -1}); });
  Points other;
  other.tensors = {at::ones({64, 2}), at::ones({64, 1})};  // the layer takes one feature
  expected += throws<kd::Error>([&] { kd::Trainer(two_epochs()).fit(parts->model, other); });
  return expected;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void plugin_prepare() {
  at::manual_seed(1);
  parts = new Parts;
  at::set_num_threads(3);  // chosen by the host, different from LibTorch's default
}

__attribute__((visibility("default"))) int plugin_train() {
  int expected = fit(two_epochs()).status == kd::FitStatus::finished;
  kd::TrainerOptions stopped = two_epochs();
  stopped.callbacks = {std::make_shared<Interruption>(false)};
  expected += fit(stopped).status == kd::FitStatus::stopped;
  parts->model->reads_its_loss = true;
  expected += fit(two_epochs()).progress.epoch == 2;
  parts->model->reads_its_loss = false;
  kd::Trainer trainer(two_epochs());
  expected += trainer.validate(parts->model, parts->data).count("val_loss") == 1;
  expected += trainer.predict(parts->model, parts->data).size(0) == 64;
  return expected + own_loop() + errors();
}

__attribute__((visibility("default"))) const char* plugin_settings() {
  static std::string text;
  auto& context = at::globalContext();
  std::ostringstream out;
  out << "threads " << at::get_num_threads() << " " << at::get_num_interop_threads() << "\n"
      << "dtype " << c10::get_default_dtype_as_scalartype() << "\n"
      << "grad " << at::GradMode::is_enabled() << " inference " << c10::InferenceMode::is_enabled() << "\n"
      << "deterministic " << context.deterministicAlgorithms() << context.deterministicAlgorithmsWarnOnly()
      << context.deterministicFillUninitializedMemory() << context.deterministicCuDNN()
      << context.benchmarkCuDNN() << "\n"
      << "autocast " << at::autocast::is_autocast_enabled(at::kCPU)
      << at::autocast::is_autocast_enabled(at::kCUDA) << "\n"
      << "mkldnn " << context.userEnabledMkldnn() << " matmul "
      << static_cast<int>(context.float32MatmulPrecision()) << "\n"
      << "anomaly " << torch::autograd::AnomalyMode::is_enabled() << "\n"
      << "callbacks " << at::hasCallbacks() << "\n"
      << "warnings " << c10::WarningUtils::get_warning_handler() << " " << c10::WarningUtils::get_warnAlways()
      << "\n"
      << "generator";
  const at::Tensor state = context.defaultGenerator(at::kCPU).get_state();
  for (std::int64_t i = 0; i < state.numel(); ++i) out << ' ' << int{state.const_data_ptr<std::uint8_t>()[i]};
  return (text = out.str()).c_str();
}
}
