// The peer "aoti_step": the whole training step as one AOTInductor package, called from C++. Weights,
// batches, options and JSON lines are those of bare_loop.cpp. The first argument is the folder that
// ../compile_step.py has written.

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <map>
#include <string>
#include <vector>

#include "common.h"

int main(int argc, char** argv) {
  TORCH_CHECK(argc > 1, "the folder of the packages is missing: aoti_loop FOLDER --case CASE");
  const std::string folder = argv[1];
  const Args args = parse(argc - 1, argv + 1);
  torch::set_num_threads(args.threads);
  at::globalContext().setFlushDenormal(true);
  const std::map<std::string, StepCase> cases{{"step_tiny", kStepTiny}, {"step_deep", kStepDeep}};
  const auto found = cases.find(args.name);
  TORCH_CHECK(found != cases.end(), "unknown case '", args.name, "'");
  const StepCase& step_case = found->second;

  const c10::InferenceMode inference_mode;
  const auto package = folder + "/" + args.name + "-" + std::to_string(args.threads) + ".pt2";
  torch::inductor::AOTIModelPackageLoader train_step(package, "model",
                                                     /*run_single_threaded=*/true);
  const auto batches = batches_of(step_case);
  auto inputs = mlp(step_case.widths)->parameters();
  const auto count = inputs.size();
  for (size_t i = 0; i < 2 * count; ++i) inputs.push_back(torch::zeros_like(inputs[i]));  // moments
  inputs.push_back(torch::zeros({}));                                                     // step number
  inputs.resize(inputs.size() + 2);                                                       // input, target

  Clock clock(args);
  double loss = 0;
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    loss = 0;
    for (const auto& batch : batches) {
      inputs.end()[-2] = batch.data;
      inputs.end()[-1] = batch.target;
      loss += train_step.run(inputs)[0].item<float>() / step_case.steps;
    }
  }
  clock.tick();
  report_times(args, clock, "us/step", step_case.steps, {.peer = "aoti_step", .final_loss = loss});
}
