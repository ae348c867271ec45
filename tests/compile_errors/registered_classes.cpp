#include "kindling/cli/registry.h"

namespace {

struct Options {
  double lr = 1;
  static constexpr auto fields = kindling::fields(kindling::field("lr", &Options::lr));
};

class Net : public kindling::Module {};

class Share : public kindling::Metric {
 public:
  explicit Share(std::string name);
  at::Tensor update(const at::Tensor& outputs, const at::Tensor&) const override { return outputs; }
  double compute(std::span<const double> sums, double) const override { return sums[0]; }
};

class Rows : public kindling::DataModule {
 public:
  explicit Rows(Options) {}
  std::shared_ptr<kindling::DataLoader> train_dataloader() override { return nullptr; }
};

class Watch {};

void schedule(Options) {}

void train(std::shared_ptr<kindling::Module> model);

void registered(kindling::Registry& registry, Net& net) {
  registry.model<Net, Options>("net");        // error: a model derives from kindling::Module and has a
  registry.metric<Share>("share");            // error: a metric derives from kindling::Metric and has a
  registry.data<Rows, Options>("rows");       // error: a data module derives from kindling::DataModule and
  registry.callback<Watch>("watch");          // error: a callback derives from kindling::Callback and has a
  registry.schedule("steps", "", &schedule);  // error: a schedule is registered by a function Schedule(
  train(net);                                 // error: pass the model as a pointer: auto model = std
}

}  // namespace
