// A run on pairs in time, from the config to predictions, rollouts in the report and an exported program.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/base/file.h"
#include "kindling/interop/exported_module.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

// Five trajectories of rotating and shrinking points far from the origin, which a linear map describes.
class RolloutRun : public testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(0);
    const at::Tensor turn = at::tensor({0.9, -0.2, 0.2, 0.9}, at::kDouble).view({2, 2});
    std::vector<at::Tensor> times{at::randn({5, 2}, at::kDouble)};
    for (int i = 1; i < 30; ++i) times.push_back(times.back().matmul(turn));
    states_ = (at::stack(times, 1) * 3 + 100).to(at::kFloat).contiguous();
    save_safetensors({.tensors = {{"u", states_}}, .metadata = {}}, scratch_ / "u.safetensors");
    write_text(
        scratch_ / "points.toml",
        "[model]\nname = \"linear_regression\"\nnum_outputs = 2\n[data]\nname = \"arrays\"\n"
        "file = \"u.safetensors\"\ninputs = \"u\"\nlayout = \"series_time\"\nhorizon = 1\n"
        "normalize_by = \"channels\"\ninput_noise = 0.001\nval = [4, 5]\nrollout_steps = 6\n"
        "batch_size = 29\n[optimizer]\nname = \"adam\"\nlr = 0.05\n[trainer]\nmax_epochs = 60\n"
        "num_threads = 1\nnum_gpus = 0\n[checkpoint]\nmonitor = \"val_rollout_rmse\"\nmode = \"min\"\n");
  }
  ProgramRun fit(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"fit", scratch_ / "points.toml", "--quiet", "--progress=none",
                               "run.dir=" + (scratch_ / "runs").string()});
    return run_program(more);
  }
  // The error of the steps of the last trajectory, as a part of what they change.
  double error_of_steps(const at::Tensor& next) const {
    const at::Tensor steps = states_[4].narrow(0, 1, 29) - states_[4].narrow(0, 0, 29);
    return ((next.detach() - states_[4].narrow(0, 1, 29)).norm() / steps.norm()).item<double>();
  }

  Scratch scratch_;
  at::Tensor states_;
};

TEST_F(RolloutRun, RecordsRolloutsAndPredictsInTheUnitOfTheData) {
  const ProgramRun fitted = fit();
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const std::filesystem::path run = scratch_ / "runs/points/0001";
  const auto records = records_of(run);
  EXPECT_LT(records.back()["val_rollout_error"], 1e-3) << "of states around 100";
  EXPECT_EQ(records.back().count("val_rollout_rmse/6"), 1U);
  EXPECT_EQ(records.back().count("val_rollout_rmse/7"), 0U);
  const std::string table = read_file(run / "rollout.csv", 10'000),
                    report = read_file(run / "report.html", 10'000'000);
  EXPECT_TRUE(table.starts_with("step,rmse,relative_error\n1,")) << table;
  EXPECT_NE(report.find("Errors of rollouts"), std::string::npos);
  const ProgramRun plotted = run_program({"plot", run, "--color=never"});
  EXPECT_NE(plotted.out.find("rollout RMSE"), std::string::npos) << plotted.out << plotted.err;

  const ProgramRun validated = run_program({"validate", run, "--quiet"});
  EXPECT_NE(validated.out.find("\nval_rollout_rmse/6 "), std::string::npos) << validated.out << validated.err;

  const ProgramRun predicted =
      run_program({"predict", run, "--quiet", "--out", scratch_ / "predicted.safetensors"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const StateDict values = load_safetensors(scratch_ / "predicted.safetensors");
  EXPECT_LT(error_of_steps(*values.find("outputs")), 0.01);
}

TEST_F(RolloutRun, ExportsAProgramFromStatesToStates) {
  ASSERT_EQ(fit({"trainer.max_epochs=60"}).exit_code, 0);
  const std::filesystem::path run = scratch_ / "runs/points/0001";
  const ProgramRun exported = run_program({"export", run, scratch_ / "step.pt2", "--with-transforms"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  ExportedModule program({.file = scratch_ / "step.pt2", .loss = "mse"});
  EXPECT_LT(error_of_steps(program.forward(states_[4].narrow(0, 0, 29))), 0.01);
}

TEST_F(RolloutRun, ExportsNoProgramFromStatesToScaledStates) {
  ASSERT_EQ(fit({"trainer.max_epochs=1"}).exit_code, 0);
  const ProgramRun exported = run_program({"export", scratch_ / "runs/points/0001", scratch_ / "step.pt2"});
  EXPECT_EQ(exported.exit_code, 2);
  EXPECT_NE(exported.err.find("step.pt2: the data scale inputs and targets, and the program would scale the "
                              "inputs only; expected: a program that returns its outputs in the unit of the "
                              "data; use --with-transforms\n"),
            std::string::npos)
      << exported.err;
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "step.pt2"));
}

TEST_F(RolloutRun, ScalesTargetsOnce) {
  EXPECT_EQ(fit({"model.scale_target=true"}).err,
            "model.scale_target: the data scale the targets already; expected: one scale of the targets; set "
            "model.scale_target = false\n");
}

}  // namespace
}  // namespace kindling
