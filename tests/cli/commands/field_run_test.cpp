// A run on fields with missing values, from the config to predictions and an exported program.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/base/file.h"
#include "kindling/interop/exported_module.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

constexpr double kNoTemperature = std::numeric_limits<double>::quiet_NaN();

// A wave that moves along the second dimension, which is periodic, by two cells per row. Some cells are land
// and have no values; others lack them at some times.
class FieldRun : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(0);
    const at::Tensor time = at::arange(60).view({-1, 1, 1}), y = at::arange(7).view({1, -1, 1}),
                     x = at::arange(12).view({1, 1, -1});
    states_ = 280 + 10 * at::sin((x - 2 * time) * (2 * 3.14159265358979 / 12) + 0.3 * y);
    is_missing_ = at::rand({60, 7, 12}).lt(0.1);
    is_missing_.narrow(1, 2, 3).narrow(2, 4, 4).fill_(true);
    states_ = states_.to(at::kFloat).masked_fill(is_missing_, kNoTemperature);
    save_safetensors({.tensors = {{"sst", states_}}, .metadata = {}}, scratch_ / "sst.safetensors");
    write_text(scratch_ / "sea.toml",
               "[model]\nname = \"unet_regressor\"\nwidth = 4\ndepth = 2\npadding_mode = \"circular\"\n"
               "residual = true\nignore_missing = true\nmetrics = [\"mae\"]\n[data]\nname = \"arrays\"\n"
               "file = \"sst.safetensors\"\ninputs = \"sst\"\nhorizon = 1\nnormalize_by = \"all\"\n"
               "fill_missing = 0\nval_fraction = 0.2\nbatch_size = 8\n[optimizer]\nname = \"adam\"\n"
               "lr = 0.02\n[trainer]\nmax_epochs = 30\nnum_threads = 1\nnum_gpus = 0\n");
  }
  ProgramRun fit(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"fit", scratch_ / "sea.toml", "--quiet", "--progress=none",
                               "run.dir=" + (scratch_ / "runs").string()});
    return run_program(more);
  }

  Scratch scratch_;
  at::Tensor states_, is_missing_;
};

TEST_F(FieldRun, LearnsFromTheValuesThatAreThere) {
  const ProgramRun fitted = fit();
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const std::filesystem::path run = scratch_ / "runs/sea/0001";
  const auto last = records_of(run).back();
  EXPECT_LT(last.at("val_loss"), 0.2) << "of states with a variance of 1";
  EXPECT_TRUE(std::isfinite(last.at("val_mae").get<double>()));

  ASSERT_EQ(run_program({"predict", run, scratch_ / "sst.safetensors", "--out", scratch_ / "p.safetensors"})
                .exit_code,
            0);
  const at::Tensor predicted = *load_safetensors(scratch_ / "p.safetensors").find("outputs");
  EXPECT_TRUE(predicted.isfinite().all().item<bool>());
  ASSERT_EQ(predicted.sizes(), states_.sizes());
  const at::Tensor next = states_.narrow(0, 49, 11), there = next.isnan().logical_not(),
                   errors = (predicted.narrow(0, 48, 11) - next).masked_select(there);
  EXPECT_LT(errors.square().mean().sqrt().item<double>(), 0.5 * 10 / std::sqrt(2.));

  const ProgramRun exported = run_program({"export", run, scratch_ / "sea.pt2", "--with-transforms"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  ExportedModule program({.file = scratch_ / "sea.pt2", .loss = "mse"});
  program.eval();
  EXPECT_TRUE(close(program.forward(states_).detach(), predicted, 1e-3));
}

TEST_F(FieldRun, WithoutTheKeysOfMissingValuesNamesThem) {
  const ProgramRun without = fit({"model.ignore_missing=false"});
  EXPECT_NE(without.exit_code, 0);
  EXPECT_NE(without.err.find("tensor 1, the last of its batch, has NaN"), std::string::npos) << without.err;
  EXPECT_NE(without.err.find("set model.ignore_missing = true (targets)"), std::string::npos) << without.err;
  const auto conflict = fit({"data.rollout_steps=3"});
  EXPECT_NE(conflict.err.find("'data.fill_missing': rollout_steps is set, too"), std::string::npos)
      << conflict.err;
}

}  // namespace
}  // namespace kindling
