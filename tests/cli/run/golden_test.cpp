#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "kindling/tensors/state_dict.h"
#include "support/mnist_files.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Json = nlohmann::json;

Json golden_case(const std::string& name) {
  const Json golden = Json::parse(text_of(kGolden / "cases.json"));
  for (const auto& each : golden["cases"])
    if (each["name"] == name) return each;
  throw std::runtime_error("no golden case '" + name + "'");
}

bool needs_mnist(const Json& golden) { return !golden.contains("data"); }

// The table [data] of the case; make_golden.py takes the same samples.
std::string data_config(const Json& golden) {
  std::string text = "[data]\nshuffle = false\nbatch_size = " + golden["batch_size"].dump() + "\n";
  if (!needs_mnist(golden)) return text + "name = " + golden["data"].dump() + "\n";
  return text + "name = \"idx\"\nimages = \"" + std::filesystem::absolute(mnist_images()).string() +
         "\"\nlabels = \"" + std::filesystem::absolute(mnist_labels()).string() + "\"\ntrain = [0, " +
         golden["samples"].dump() + "]\nval = [6400, 7400]\n";
}

// The case as a user would write it. JSON's numbers, strings, booleans and arrays are TOML's too.
std::string config_of(const Json& golden, const std::filesystem::path& reference) {
  std::string text = "[model]\ninit_weights = \"" + (reference / "init.safetensors").string() + "\"\n";
  for (const auto& [key, value] : golden["model"].items()) text += key + " = " + value.dump() + "\n";
  text += data_config(golden) + "[optimizer]\n";
  for (const auto& [key, value] : golden["optimizer"].items()) text += key + " = " + value.dump() + "\n";
  if (golden.contains("schedule"))
    text += "[schedule]\nname = \"cosine\"\nwarmup_steps = " + golden["schedule"]["warmup_steps"].dump() +
            "\nwarmup_start_factor = " + golden["schedule"]["start_factor"].dump() + "\n";
  text += "[trainer]\nlog_every_n_steps = 1\nmax_steps = " + golden["steps"].dump() + "\n";
  if (golden.contains("accumulate"))
    text += "accumulate_grad_batches = " + golden["accumulate"].dump() + "\n";
  if (golden.contains("clip")) text += "gradient_clip_val = " + golden["clip"].dump() + "\n";
  return text;
}

struct ReferenceStep {
  double loss, lr;
  std::string grad_norm;
};

std::vector<ReferenceStep> reference_steps(const std::filesystem::path& file) {
  std::istringstream stream(text_of(file));
  std::vector<ReferenceStep> steps;
  std::string line;
  std::getline(stream, line);  // the header
  while (std::getline(stream, line)) {
    if (line.ends_with("\r")) line.pop_back();
    std::istringstream cells(line);
    std::string step, loss, lr, norm;
    std::getline(cells, step, ',');
    std::getline(cells, loss, ',');
    std::getline(cells, lr, ',');
    std::getline(cells, norm, ',');
    steps.push_back({std::stod(loss), std::stod(lr), norm});
  }
  return steps;
}

std::vector<Json> step_records(const std::filesystem::path& file) {
  std::istringstream stream(text_of(file));
  std::vector<Json> records;
  for (std::string line; std::getline(stream, line);)
    if (Json record = Json::parse(line); record.contains("train_loss_step")) records.push_back(record);
  return records;
}

class GoldenCase : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Json golden = golden_case(GetParam());
    if (needs_mnist(golden) && !has_mnist()) GTEST_SKIP() << missing_mnist();
    write_text(scratch_ / "case.toml", config_of(golden, reference()));
  }
  static std::filesystem::path reference() { return kGolden / "reference" / GetParam(); }
  std::vector<std::string> fit(const std::string& runs) const {
    return {"fit", "-c", (scratch_ / "case.toml").string(), "--run.dir", (scratch_ / runs).string()};
  }
  std::filesystem::path run(const std::string& runs) const { return scratch_ / runs / "case/0001"; }

  static void expect_reference_steps(const std::filesystem::path& run);
  static void expect_reference_weights(const std::filesystem::path& run);

  const Scratch scratch_;
};

void GoldenCase::expect_reference_steps(const std::filesystem::path& run) {
  const auto expected = reference_steps(reference() / "losses.csv");
  const auto records = step_records(run / "metrics.jsonl");
  ASSERT_EQ(records.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i + 1));
    EXPECT_EQ(records[i]["global_step"].get<std::size_t>(), i + 1);
    // Other matrix kernels (CPU type, threads) change losses and norms by up to 1e-6, relative; 1e-5 leaves a
    // margin.
    EXPECT_NEAR(records[i]["train_loss_step"].get<double>(), expected[i].loss, 1e-5 * expected[i].loss);
    EXPECT_NEAR(records[i]["lr"].get<double>(), expected[i].lr, 1e-8);  // the reference has 9 digits
    EXPECT_EQ(records[i].contains("grad_norm"), !expected[i].grad_norm.empty());
    if (expected[i].grad_norm.empty()) continue;
    const double norm = std::stod(expected[i].grad_norm);
    EXPECT_NEAR(records[i]["grad_norm"].get<double>(), norm, 1e-5 * norm);
  }
}

void GoldenCase::expect_reference_weights(const std::filesystem::path& run) {
  const StateDict weights = load_safetensors(run / "weights.safetensors");
  const StateDict final_weights = load_safetensors(reference() / "final.safetensors");
  ASSERT_EQ(weights.tensors.size(), final_weights.tensors.size());
  for (const auto& [name, tensor] : final_weights.tensors) {
    const at::Tensor* found = weights.find(name);
    ASSERT_NE(found, nullptr) << name;
    const at::Tensor distance = (*found - tensor).abs();
    // The last bits of the kernels grow to this in 120 steps, including Nesterov momentum. If a gradient
    // consists only of rounding errors, an optimizer that divides by its size turns it into a full step: this
    // is allowed for one weight in 10,000.
    EXPECT_LE(distance.gt(1e-4).sum().item<std::int64_t>(), tensor.numel() / 10000) << name;
    EXPECT_LE(distance.max().item<double>(), 1e-3) << name;
  }
}

TEST_P(GoldenCase, IsReproducedFromAConfigFile) {
  const ProgramRun golden = run_program(fit("runs"));
  ASSERT_EQ(golden.exit_code, 0) << golden.err;
  expect_reference_steps(run("runs"));
  expect_reference_weights(run("runs"));
}

// In separate processes, because MKL chooses its kernels once.
TEST_P(GoldenCase, IsReproducedWithAndWithoutMklsFastKernels) {
  for (const std::string setting : {"on", "off"}) {
    SCOPED_TRACE(setting);
    std::vector<std::string> words = fit(setting);
    words.push_back("run.fast_mkl=" + setting);
    ASSERT_EQ(run_process(words, scratch_ / "out.txt"), 0) << text_of(scratch_ / "out.txt");
    expect_reference_steps(run(setting));
    expect_reference_weights(run(setting));
  }
}

INSTANTIATE_TEST_SUITE_P(Mnist, GoldenCase,
                         testing::Values("softmax_sgd", "mlp_sgd_momentum", "mlp_adam_clip",
                                         "lenet_adamw_warmup_cosine", "mlp_adamw_accumulate4", "mlp_rmsprop",
                                         "mlp_adagrad", "mlp_nadam", "mlp_radam"),
                         [](const auto& info) { return std::string(info.param); });

// These need nothing but the repository.
INSTANTIATE_TEST_SUITE_P(Digits, GoldenCase,
                         testing::Values("digits_mlp_sgd_momentum", "digits_mlp_adamw_warmup_cosine",
                                         "digits_softmax_adam_accumulate4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kindling
