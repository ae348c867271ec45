#include <gtest/gtest.h>
#include <torch/nn.h>
#include <ctime>
#include <cstdio>
#include "kindling/nn/module.h"
#include "kindling/optim/adam.h"
#include "training/small_fit.h"
namespace kindling {
namespace {
struct Net : Module {
  Net(int kind) {
    if (kind == 0) net = torch::nn::Sequential{torch::nn::Linear(20,64),torch::nn::ReLU(),torch::nn::Linear(64,64),torch::nn::ReLU(),torch::nn::Linear(64,1)};
    else for (int i=0;i<16;i++){ net->push_back(torch::nn::Linear(64,64)); if(i<15) net->push_back(torch::nn::ReLU()); }
    register_module("net", net);
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  at::Tensor loss(const at::Tensor& a, const at::Tensor& b) override { return torch::mse_loss(a,b); }
  bool static_step() const override { return true; }
  torch::nn::Sequential net;
};
struct Clock : Callback {
  void on_train_epoch_start(Trainer&, Module&) override { timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID,&t); double now=t.tv_sec*1e6+t.tv_nsec*1e-3; if(last>0) best=std::min(best,now-last); last=now; }
  double last=0,best=1e18;
};
TEST(Bench, Steps) {
  at::set_num_threads(1); at::globalContext().setFlushDenormal(true);
  const int only = std::getenv("KIND") ? std::atoi(std::getenv("KIND")) : -1; const int epochs = std::getenv("EPOCHS") ? std::atoi(std::getenv("EPOCHS")) : 8;
  for (int kind=0;kind<2;kind++) for (const char* graph : {"off","on","off","on"}) {
    if (only >= 0 && (kind != only || std::string(graph) == "off")) continue;
    torch::manual_seed(0);
    auto model=std::make_shared<Net>(kind);
    const int n= kind? 320:1280;
    TensorData data({torch::randn({32*n,kind?64:20}), torch::randn({32*n,kind?64:1})}, {}, {.batch_size=32,.shuffle=false});
    auto clock=std::make_shared<Clock>();
    Trainer trainer({.max_epochs=epochs,.gradient_clip_val=1.0,.step_graph=graph,.optimizer=[](ParameterGroups p){return std::make_unique<Adam>(std::move(p),AdamOptions{});},.callbacks={clock}});
    auto r=trainer.fit(model,data);
    std::printf("%d %s %.2f us/step loss %.9g\n",kind,graph,clock->best/n,r.metrics.at("train_loss"));
  }
}
}
}
