// A program may change a model, LibTorch's settings or gradients in the middle of an epoch. Captured steps
// then train like eager ones: the change is detected in the next step. What cannot be detected is documented
// (docs/explain/step_capture.md): a layer or tensor that is assigned to a member of the user's class only.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <typeinfo>

#include "training/capture/random_net.h"
#include "training/capture/step_graph.h"

namespace kindling {
namespace {

using Undo = std::function<void()>;

// A change of a model; returns how to undo it, and nothing if the model has no such layer.
struct ModelChange {
  const char* name;
  std::function<Undo(RandomNet&)> apply;
};

template <class Layer>
Layer* first_layer(RandomNet& net) {
  for (const auto& layer : net.modules(/*include_self=*/false))
    if (auto* found = layer->template as<Layer>()) return found;
  return nullptr;
}

template <class Layer, class Act>
std::function<Undo(RandomNet&)> on(Act act) {
  return [act](RandomNet& net) {
    Layer* layer = first_layer<Layer>(net);
    return layer == nullptr ? Undo() : Undo(act(*layer));
  };
}

// Assigns a value and returns how to assign the former one.
template <class Value>
Undo assigned(Value& place, Value value) {
  const Value former = std::exchange(place, std::move(value));
  return [&place, former] { place = former; };
}

at::Tensor like(const at::Tensor& tensor, double value) {
  return at::full_like(tensor.detach(), value).requires_grad_(tensor.requires_grad());
}

void write(const at::Tensor& tensor, const std::function<void(at::Tensor&)>& act) {
  const torch::NoGradGuard no_grad;
  at::Tensor values = tensor;
  act(values);
}

Undo written(const at::Tensor& tensor, const std::function<void(at::Tensor&)>& act) {
  const at::Tensor former = tensor.detach().clone();
  write(tensor, act);
  return [tensor, former] { write(tensor, [&](at::Tensor& values) { values.copy_(former); }); };
}

template <class Get, class Set, class Value>
Undo set_global(Get get, Set set, Value value) {
  const Value former = get();
  set(value);
  return [set, former] { set(former); };
}

using torch::nn::BatchNorm1dImpl, torch::nn::Conv1dImpl, torch::nn::DropoutImpl, torch::nn::GRUImpl,
    torch::nn::LayerNormImpl, torch::nn::LinearImpl, torch::nn::SequentialImpl;

std::vector<ModelChange> changes_of_layers() {
  return {
      {"the head is replaced",
       [](RandomNet& net) -> Undo {
         const torch::nn::Linear former = net.head;
         torch::nn::Linear other(kWidth, 4);
         write(other->weight, [](at::Tensor& values) { values.fill_(0.1); });
         net.head = net.replace_module("head", other);
         return [&net, former] { net.head = net.replace_module("head", former); };
       }},
      {"the head is replaced in the registry only",
       [](RandomNet& net) -> Undo {
         const torch::nn::Linear former = net.head;
         net.replace_module("head", torch::nn::Linear(kWidth, 4));
         return [&net, former] { net.replace_module("head", former); };
       }},
      {"a weight is assigned",
       on<LinearImpl>([](auto& l) { return assigned(l.weight, like(l.weight, 0.05)); })},
      {"a bias is assigned", on<LinearImpl>([](auto& l) { return assigned(l.bias, like(l.bias, 0.5)); })},
      {"a convolution's weight is assigned",
       on<Conv1dImpl>([](auto& l) { return assigned(l.weight, like(l.weight, 0.05)); })},
      {"a running mean is assigned",
       on<BatchNorm1dImpl>([](auto& l) { return assigned(l.running_mean, like(l.running_mean, 0.5)); })},
      {"a norm's weight is assigned",
       on<LayerNormImpl>([](auto& l) { return assigned(l.weight, like(l.weight, 2)); })},
      {"a weight gets other data", on<LinearImpl>([](auto& l) -> Undo {
         const at::Tensor former = l.weight.detach();
         l.weight.set_data(former * 0.5);
         return [&l, former] { l.weight.set_data(former); };
       })},
      {"a weight gets other strides", on<LinearImpl>([](auto& l) -> Undo {
         const at::Tensor former = l.weight.detach();
         l.weight.set_data(former.t().contiguous().t());
         return [&l, former] { l.weight.set_data(former); };
       })},
      {"a weight is halved in place",
       on<LinearImpl>([](auto& l) { return written(l.weight, [](at::Tensor& v) { v.mul_(0.5); }); })},
      {"a running variance is filled", on<BatchNorm1dImpl>([](auto& l) {
         return written(l.running_var, [](at::Tensor& v) { v.fill_(2); });
       })},
      {"a module gets a parameter",
       [](RandomNet& net) -> Undo {
         net.register_parameter("extra", at::ones({3}));
         return [] {};
       }},
      {"a module gets a buffer",
       [](RandomNet& net) -> Undo {
         net.register_buffer("extra", at::ones({3}));
         return [] {};
       }},
      {"a sequence gets a layer", on<SequentialImpl>([](auto& l) -> Undo {
         l.push_back(torch::nn::Tanh());
         return [] {};
       })},
      {"two layers share a weight",
       [](RandomNet& net) -> Undo {
         LinearImpl* first = first_layer<LinearImpl>(net);
         if (first == net.head.get() || first->weight.sizes() != at::IntArrayRef({kWidth, kWidth})) return {};
         return assigned(first->weight, at::cat({net.head->weight, net.head->weight}).detach());
       }},
  };
}

std::vector<ModelChange> changes_of_modes() {
  return {
      {"the model is put into evaluation mode",
       [](RandomNet& net) -> Undo {
         net.eval();
         return [&net] { net.train(); };
       }},
      {"dropout is put into evaluation mode", on<DropoutImpl>([](auto& l) -> Undo {
         l.eval();
         return [&l] { l.train(); };
       })},
      {"batch norm is put into evaluation mode", on<BatchNorm1dImpl>([](auto& l) -> Undo {
         l.eval();
         return [&l] { l.train(); };
       })},
      {"a GRU is put into evaluation mode", on<GRUImpl>([](auto& l) -> Undo {
         l.eval();
         return [&l] { l.train(); };
       })},
      {"a weight is frozen", on<LinearImpl>([](auto& l) -> Undo {
         l.weight.requires_grad_(false);
         return [&l] { l.weight.requires_grad_(true); };
       })},
      {"the head is frozen",
       [](RandomNet& net) -> Undo {
         net.freeze(*net.head);
         return [&net] { net.unfreeze(*net.head); };
       }},
      {"a gradient is set",
       [](RandomNet& net) -> Undo {
         net.head->bias.mutable_grad() = at::ones_like(net.head->bias);
         return [] {};
       }},
      {"a gradient is removed",
       [](RandomNet& net) -> Undo {
         net.head->weight.mutable_grad() = at::Tensor();
         return [] {};
       }},
      {"a hook is added",
       [](RandomNet& net) -> Undo {
         const at::Tensor weight = net.head->weight;
         const unsigned hook =
             weight.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
         return [weight, hook] { weight.remove_hook(hook); };
       }},
  };
}

std::vector<ModelChange> changes_of_settings() {
  const auto context = [](bool (at::Context::*get)() const, void (at::Context::*set)(bool), bool value) {
    return [=](RandomNet&) {
      at::Context& all = at::globalContext();
      return set_global([=, &all] { return (all.*get)(); }, [=, &all](bool on) { (all.*set)(on); }, value);
    };
  };
  return {
      {"autocast is switched on",
       [](RandomNet&) {
         return set_global([] { return at::autocast::is_autocast_enabled(at::kCPU); },
                           [](bool on) { at::autocast::set_autocast_enabled(at::kCPU, on); }, true);
       }},
      {"the default dtype changes",
       [](RandomNet&) {
         return set_global([] { return c10::get_default_dtype(); },
                           [](caffe2::TypeMeta type) { c10::set_default_dtype(type); },
                           caffe2::TypeMeta::Make<double>());
       }},
      {"oneDNN is switched off",
       context(&at::Context::userEnabledMkldnn, &at::Context::setUserEnabledMkldnn, false)},
      {"an attention kernel is switched off",
       context(&at::Context::userEnabledFlashSDP, &at::Context::setSDPUseFlash, false)},
      {"the number of threads changes",
       [](RandomNet&) {
         return set_global([] { return at::get_num_threads(); }, [](int n) { at::set_num_threads(n); }, 2);
       }},
      {"the random numbers begin again",
       [](RandomNet&) -> Undo {
         torch::manual_seed(77);
         return [] {};
       }},
  };
}

std::vector<ModelChange> all_model_changes() {
  std::vector<ModelChange> all = changes_of_layers();
  for (auto& more : {changes_of_modes(), changes_of_settings()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Applies a change after a batch of the second epoch, and undoes it `undo_after` batches later (0: at the
// end).
class Changer : public Callback {
 public:
  Changer(const ModelChange& change, std::int64_t after, std::int64_t undo_after)
      : change_(change), after_(after), undo_after_(undo_after) {}
  // Also after a step that threw: settings are those of the process.
  ~Changer() override {
    if (undo_) undo_();
  }
  void on_train_batch_end(Trainer&, Module& model) override {
    ++num_batches_;
    if (num_batches_ == after_) {
      undo_ = change_.apply(dynamic_cast<RandomNet&>(model));
      was_applied = static_cast<bool>(undo_);
    }
    if (undo_ && undo_after_ > 0 && num_batches_ == after_ + undo_after_) std::exchange(undo_, {})();
  }
  bool was_applied = false;

 private:
  const ModelChange& change_;
  std::int64_t after_, undo_after_, num_batches_ = 0;
  Undo undo_;
};

struct ChangedFit {
  std::vector<at::Tensor> values;
  std::string text, said, error;
  bool was_applied;
  int num_calls;
};

// Three epochs of nine full batches and a short one.
ChangedFit changed_fit(unsigned seed, const ModelChange& change, bool is_undone, const char* step_graph) {
  const SaidBySteps said(LogLevel::warning);
  torch::manual_seed(seed);
  const auto model = std::make_shared<RandomNet>(seed);
  const std::int64_t n = 9 * kRows + 5;
  TensorData data({at::randn({n, kLength, kWidth}), at::randint(4, {n})}, {}, {.batch_size = kRows});
  ChangedFit result{};
  {
    const auto changer = std::make_shared<Changer>(change, 13 + seed % 4, is_undone ? 2 : 0);
    try {
      Trainer(
          {.max_epochs = 3,
           .step_graph = step_graph,
           .optimizer = [](ParameterGroups p) { return std::make_unique<Adam>(std::move(p), AdamOptions{}); },
           .callbacks = {changer}})
          .fit(model, data);
    } catch (const std::exception& error) {
      result.error = typeid(error).name();
    }
    result.was_applied = changer->was_applied;
    for (const at::Tensor& tensor : model->parameters()) result.values.push_back(tensor.detach().clone());
    for (const at::Tensor& tensor : model->buffers()) result.values.push_back(tensor.clone());
    for (const at::Tensor& tensor : model->head->parameters())
      result.values.push_back(tensor.detach().clone());
  }
  result.text = model->text();
  result.said = said.text();
  result.num_calls = model->num_calls;
  return result;
}

// The log may warn, but only of what it does not warn of without capture.
void expect_equal_fits(const ChangedFit& captured, const ChangedFit& eager) {
  EXPECT_EQ(captured.error, eager.error);
  ASSERT_EQ(captured.values.size(), eager.values.size());
  for (std::size_t i = 0; i < eager.values.size(); ++i)
    EXPECT_TRUE(same(captured.values[i], eager.values[i])) << "tensor " << i << "; " << captured.said;
}

// KINDLING_SOAK_CHANGES=1 tries every change on every model; otherwise each model meets one of eight.
TEST(MidEpochChanges, TrainLikeEagerSteps) {
  const bool tries_all = std::getenv("KINDLING_SOAK_CHANGES") != nullptr;
  const std::vector<ModelChange> changes = all_model_changes();
  int num_applied = 0, num_replayed = 0;
  for (unsigned seed = 1; seed <= 40; ++seed)
    for (std::size_t i = 0; i < 2 * changes.size(); ++i) {
      if (!tries_all && (seed + i) % 8 != 0) continue;
      const ModelChange& change = changes[i / 2];
      const bool is_undone = i % 2 == 1;
      const ChangedFit eager = changed_fit(seed, change, is_undone, "off");
      if (!eager.was_applied) continue;
      const ChangedFit captured = changed_fit(seed, change, is_undone, "on");
      SCOPED_TRACE(std::string(change.name) + (is_undone ? ", then undone, " : ", ") + std::to_string(seed) +
                   ": " + captured.text);
      expect_equal_fits(captured, eager);
      ++num_applied;
      num_replayed += captured.num_calls < eager.num_calls ? 1 : 0;
    }
  std::cout << num_applied << " changes, " << num_replayed << " of them in runs with replayed steps\n";
  EXPECT_GT(num_applied, 150);
  EXPECT_GT(num_replayed, num_applied * 8 / 10);
}

}  // namespace
}  // namespace kindling
