#include "cli/config/other_names.h"

#include <algorithm>
#include <utility>

#include "base/joined.h"

namespace kindling {
namespace {

struct OtherValue {
  const char *path, *other, *value;
};

constexpr std::pair<const char*, const char*> kKeys[] = {
    {"accelerator", "trainer.num_gpus"},
    {"devices", "trainer.num_gpus"},
    {"gpus", "trainer.num_gpus"},
    {"num_devices", "trainer.num_gpus"},
    {"cuda", "trainer.num_gpus"},
    {"device", "trainer.num_gpus"},
    {"strategy", "trainer.num_processes"},
    {"num_nodes", "trainer.num_processes"},
    {"epochs", "trainer.max_epochs"},
    {"num_epochs", "trainer.max_epochs"},
    {"n_epochs", "trainer.max_epochs"},
    {"steps", "trainer.max_steps"},
    {"num_steps", "trainer.max_steps"},
    {"amp", "trainer.precision"},
    {"fp16", "trainer.precision"},
    {"bf16", "trainer.precision"},
    {"gradient_clip", "trainer.gradient_clip_val"},
    {"grad_clip", "trainer.gradient_clip_val"},
    {"clip_grad_norm", "trainer.gradient_clip_val"},
    {"max_grad_norm", "trainer.gradient_clip_val"},
    {"clipnorm", "trainer.gradient_clip_val"},
    {"gradient_accumulation_steps", "trainer.accumulate_grad_batches"},
    {"accumulation_steps", "trainer.accumulate_grad_batches"},
    {"lr", "optimizer.lr"},
    {"learning_rate", "optimizer.lr"},
    {"weight_decay", "optimizer.weight_decay"},
    {"momentum", "optimizer.momentum"},
    {"batch", "data.batch_size"},
    {"batch_size", "data.batch_size"},
    {"bs", "data.batch_size"},
    {"train_batch_size", "data.batch_size"},
    {"dataset", "data.name"},
    {"data_dir", "data.root"},
    {"x_col", "data.image"},
    {"y_col", "data.label"},
    {"label_delim", "data.label_separator"},
    {"scheduler", "schedule.name"},
    {"lr_scheduler", "schedule.name"},
    {"warmup", "schedule.warmup_steps"},
    {"num_warmup_steps", "schedule.warmup_steps"},
    {"default_root_dir", "run.dir"},
    {"output_dir", "run.dir"},
    {"save_top_k", "checkpoint.keep_best"},
    {"every_n_train_steps", "checkpoint.every_n_steps"},
    {"ckpt_path", "checkpoint.resume"},
    {"resume_from_checkpoint", "checkpoint.resume"},
    {"pretrained", "model.init_weights"},
    {"random_seed", "seed"},
};

constexpr OtherValue kValues[] = {
    {"trainer.precision", "fp16", "16-mixed"},
    {"trainer.precision", "float16", "16-mixed"},
    {"trainer.precision", "half", "16-mixed"},
    {"trainer.precision", "16", "16-mixed"},
    {"trainer.precision", "16-true", "bf16-true"},
    {"trainer.precision", "amp", "16-mixed"},
    {"trainer.precision", "bf16", "bf16-mixed"},
    {"trainer.precision", "bfloat16", "bf16-mixed"},
    {"trainer.precision", "fp32", "32-true"},
    {"trainer.precision", "float32", "32-true"},
    {"trainer.precision", "32", "32-true"},
    {"trainer.precision", "fp64", "64-true"},
    {"trainer.precision", "double", "64-true"},
    {"trainer.precision", "float64", "64-true"},
    {"trainer.precision", "64", "64-true"},
    {"schedule.name", "CosineAnnealingLR", "cosine"},
    {"schedule.name", "CosineAnnealingWarmRestarts", "cosine_restarts"},
    {"schedule.name", "StepLR", "step"},
    {"schedule.name", "MultiStepLR", "multistep"},
    {"schedule.name", "ExponentialLR", "exponential"},
    {"schedule.name", "LinearLR", "linear"},
    {"schedule.name", "PolynomialLR", "polynomial"},
    {"schedule.name", "OneCycleLR", "one_cycle"},
    {"schedule.name", "ReduceLROnPlateau", "plateau"},
    {"schedule.name", "SequentialLR", "sequence"},
    {"schedule.name", "ConstantLR", "constant"},
    {"model.name", "cnn", "small_cnn"},
    {"model.name", "resnet", "resnet18"},
    {"model.name", "linear", "linear_regression"},
    {"model.name", "logistic_regression", "softmax_regression"},
};

}  // namespace

void add_other_names(ConfigReader& reader) {
  for (const auto& [other, path] : kKeys) reader.add_key_hint(other, path);
  for (const OtherValue& each : kValues) reader.add_value_hint(each.path, each.other, each.value);
}

std::string key_for_other_name(std::string_view name) {
  std::string plain = lower_case(name);
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const auto& [other, path] : kKeys)
    if (plain == other) return path;
  return {};
}

}  // namespace kindling
