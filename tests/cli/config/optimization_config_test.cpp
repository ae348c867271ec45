// [schedule], [optimizer.groups] and model.freeze: what a config does, prints and refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

const std::string kTinyRun = R"(
[model]
name = "mlp"
hidden = [8]
[data]
name = "digits"
batch_size = 100
train = [0, 500]
val = [0, 100]
[trainer]
max_steps = 10
log_every_n_steps = 1
)";

class OptimizationConfig : public testing::Test {
 protected:
  ProgramRun fit(const std::string& more, std::vector<std::string> words = {}) {
    write_text(scratch_ / "tiny.toml", kTinyRun + more);
    words.insert(words.begin(),
                 {"fit", "-c", (scratch_ / "tiny.toml").string(), "--run.dir", (scratch_ / "runs").string()});
    return run_program(words);
  }
  // Returns the error for the config, without the path of its file.
  std::string refusal(const std::string& more) {
    const ProgramRun run = fit(more, {"--check"});
    EXPECT_EQ(run.exit_code, 2);
    const std::size_t start = run.err.find("error: ");
    return start == std::string::npos ? run.err : run.err.substr(start);
  }
  std::filesystem::path run(int number) const {
    return scratch_ / "runs/tiny" /
           (number < 10 ? "000" + std::to_string(number) : "00" + std::to_string(number));
  }
  std::vector<double> rates(int number) const {
    std::istringstream lines(text_of(run(number) / "metrics.jsonl"));
    std::vector<double> all;
    for (std::string line; std::getline(lines, line);)
      if (const auto record = nlohmann::json::parse(line); record.contains("train_loss_step"))
        all.push_back(record["lr"].get<double>());
    return all;
  }

  const Scratch scratch_;
};

TEST_F(OptimizationConfig, ListsAllSchedules) {
  const std::string out = run_program({"list", "schedules"}).out;
  for (const char* name : {"constant", "step", "multistep", "exponential", "linear", "polynomial",
                           "inverse_sqrt", "cosine", "cosine_restarts", "one_cycle", "plateau", "sequence"})
    EXPECT_NE(out.find(std::string(name) + " "), std::string::npos) << name;
}

// Every column of the golden schedules, from the program's records.
TEST_F(OptimizationConfig, RatesAreThoseOfTheGoldenSchedules) {
  const auto golden = nlohmann::json::parse(text_of(kGolden / "cases.json"));
  std::map<std::string, std::vector<double>> expected;
  std::istringstream lines(text_of(kGolden / "reference/schedules.csv"));
  std::vector<std::string> header;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::size_t column = 0;
    const bool is_header = header.empty();
    for (std::string cell; std::getline(cells, cell, ','); ++column) {
      if (cell.ends_with('\r')) cell.pop_back();
      if (is_header)
        header.push_back(cell);
      else if (column > 0)
        expected[header[column]].push_back(std::stod(cell));
    }
  }
  int number = 0;
  for (const auto& each : golden["schedules"]) {
    SCOPED_TRACE(each["name"].get<std::string>());
    std::string config = "[optimizer]\nname = \"sgd\"\nlr = " + each["lr"].dump() + "\n[schedule]\n";
    const bool is_warm = each["name"] == "warmup_cosine";  // its name differs from that in a config
    for (const auto& [key, value] : each["schedule"].items()) {
      const bool is_name = key == "name";
      config += is_warm && key == "start_factor" ? "warmup_start_factor" : key;
      config += " = " + (is_warm && is_name ? "\"cosine\"" : value.dump()) + "\n";
    }
    const ProgramRun fitted = fit(config, {"trainer.max_steps=" + each["steps"].dump()});
    ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
    const std::vector<double> found = rates(++number), wanted = expected.at(each["name"]);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t step = 0; step < wanted.size(); ++step)
      EXPECT_NEAR(found[step], wanted[step], 1e-12) << step;  // the file has 12 digits
  }
  EXPECT_EQ(number, 10);
}

TEST_F(OptimizationConfig, MakesASequenceOfItsParts) {
  const std::string parts = R"([optimizer]
name = "sgd"
lr = 1.0
[schedule]
name = "sequence"
milestones = [4]
[[schedule.parts]]
name = "linear"
start_factor = 0.0
[[schedule.parts]]
name = "exponential"
gamma = 0.5
)";
  const ProgramRun fitted = fit(parts);
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_EQ(rates(1), (std::vector<double>{0, 0.25, 0.5, 0.75, 1, 0.5, 0.25, 0.125, 0.0625, 0.03125}));
  // Resolving the resolved config again changes nothing.
  const std::string printed = text_of(run(1) / "config.toml");
  write_text(scratch_ / "again.toml", printed);
  EXPECT_EQ(run_program({"fit", "-c", (scratch_ / "again.toml").string(), "--print-config"}).out, printed);
}

TEST_F(OptimizationConfig, ReducesTheRateOnAPlateauOfEpochs) {
  const std::string plateau = R"([optimizer]
name = "sgd"
lr = 1e-30
[schedule]
name = "plateau"
factor = 0.5
patience = 0
eps = 0.0
)";
  // The model learns nothing at this rate, so no epoch is better than the first one.
  const ProgramRun still = fit(plateau, {"trainer.max_steps=15"});
  ASSERT_EQ(still.exit_code, 0) << still.err;
  const std::vector<double> found = rates(1);
  ASSERT_EQ(found.size(), 15u);
  EXPECT_EQ(found[9], 1e-30);
  EXPECT_EQ(found[10], 5e-31);
}

TEST_F(OptimizationConfig, RefusesInvalidSchedules) {
  EXPECT_EQ(refusal("[schedule]\nname = 'multistep'\n"),
            "error: multistep schedule: milestones is not set; expected: at least one step\n"
            "   13 | [schedule]\n"
            "      |  ^~~~~~~~\n"
            "1 error, nothing was run\n");
  EXPECT_NE(refusal("[schedule]\nname = 'cosine'\n[[schedule.parts]]\nname = 'step'\n")
                .find("cosine schedule: it has parts; expected: no parts; "
                      "[[schedule.parts]] requires name = \"sequence\"\n"),
            std::string::npos);
  EXPECT_NE(refusal("[schedule]\nname = 'sequence'\n").find("sequence schedule: it has no parts"),
            std::string::npos);
  EXPECT_NE(refusal("[schedule]\nname = 'sequence'\nmilestones = [3]\n[[schedule.parts]]\nname = 'plateau'\n"
                    "[[schedule.parts]]\nname = 'step'\n")
                .find("a part waits for a plateau"),
            std::string::npos);
  EXPECT_NE(refusal("[schedule]\nname = 'sequence'\n[[schedule.parts]]\nstep_size = 3\n")
                .find("'schedule.parts[0].name' is missing"),
            std::string::npos);
  // One error per mistake: missing options of the schedule are not reported in addition.
  EXPECT_EQ(refusal("[schedule]\nname = 'exponential'\ngamma = 'x'\n"),
            "error: 'schedule.gamma': expected a number, found the string \"x\"\n"
            "1 error, nothing was run\n");
}

// Each option of a schedule with an invalid value.
TEST_F(OptimizationConfig, RefusesValuesOutOfRange) {
  for (const std::string wrong : {"name='multistep'\nmilestones=[-1]",
                                  "name='multistep'\nmilestones=[1]\ngamma=-1.0",
                                  "name='exponential'\ngamma=-0.1",
                                  "name='polynomial'\ntotal_iters=0",
                                  "name='polynomial'\npower=-1.0",
                                  "name='inverse_sqrt'\ntimescale=0",
                                  "name='cosine_restarts'\nT_0=0",
                                  "name='cosine_restarts'\nT_0=1\nT_mult=0",
                                  "name='cosine_restarts'\nT_0=1\neta_min=-1.0",
                                  "name='one_cycle'\nmax_lr=-1.0",
                                  "name='one_cycle'\ntotal_steps=0",
                                  "name='one_cycle'\npct_start=1.1",
                                  "name='one_cycle'\nanneal_strategy='x'",
                                  "name='one_cycle'\ncycle_momentum=1",
                                  "name='one_cycle'\nbase_momentum=1.0",
                                  "name='one_cycle'\nmax_momentum=-1.0",
                                  "name='one_cycle'\ndiv_factor=0.0",
                                  "name='one_cycle'\nfinal_div_factor=0.0",
                                  "name='one_cycle'\nthree_phase=2",
                                  "name='plateau'\nfactor=1.0",
                                  "name='plateau'\npatience=-1",
                                  "name='plateau'\nthreshold=-1.0",
                                  "name='plateau'\nthreshold_mode='x'",
                                  "name='plateau'\ncooldown=-1",
                                  "name='plateau'\nmin_lr=-1.0",
                                  "name='plateau'\neps=-1.0",
                                  "name='plateau'\nmode='x'",
                                  "name='plateau'\nmonitor=3",
                                  "name='sequence'\nmilestones=[0]",
                                  "name='step'\ninterval='batch'"}) {
    const std::string key = wrong.substr(wrong.rfind('\n') + 1, wrong.rfind('=') - wrong.rfind('\n') - 1);
    EXPECT_EQ(refusal("[schedule]\n" + wrong + "\n").find("error: 'schedule." + key), 0u) << wrong;
  }
}

TEST_F(OptimizationConfig, GroupsUseTheirOptions) {
  const std::string groups = R"([optimizer]
name = "sgd"
lr = 0.1
[[optimizer.groups]]
match = "net.1.*"
lr = 0.0
)";
  ASSERT_EQ(fit(groups, {"trainer.max_steps=1"}).exit_code, 0);
  ASSERT_EQ(fit(groups).exit_code, 0);
  const StateDict one = load_safetensors(run(1) / "weights.safetensors");
  const StateDict ten = load_safetensors(run(2) / "weights.safetensors");
  EXPECT_TRUE(same(*one.find("net.1.weight"), *ten.find("net.1.weight")));
  EXPECT_FALSE(same(*one.find("net.3.weight"), *ten.find("net.3.weight")));
  EXPECT_EQ(rates(2).front(), 0.1) << "that of the parameters without a group";
  const std::string printed = text_of(run(1) / "config.toml");
  EXPECT_NE(printed.find("\n[[optimizer.groups]]\nmatch = \"net.1.*\""), std::string::npos) << printed;
  const std::string none = fit("[optimizer]\nname='sgd'\n", {"--print-config"}).out;
  EXPECT_NE(none.find("\n# [[optimizer.groups]]\n# match = \"\""), std::string::npos) << none;
}

TEST_F(OptimizationConfig, RefusesGroupsWithoutParameters) {
  EXPECT_EQ(refusal("[optimizer]\n[[optimizer.groups]]\nlr = 1.0\n"),
            "error: 'optimizer.groups[0].match' is missing\n"
            "   14 | [[optimizer.groups]]\n"
            "      | ^~~~~~~~~~~~~~~~~~~~\n"
            "1 error, nothing was run\n");
  EXPECT_EQ(refusal("[optimizer]\n[[optimizer.groups]]\nmatch = '*'\nlr = -1.0\n").substr(0, 71),
            "error: 'optimizer.groups[0].lr': expected a number >= 0, found -1.0\n1 e");
  const ProgramRun run = fit("[optimizer]\n[[optimizer.groups]]\nmatch = 'net.2.*'\n");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(
      run.err.substr(run.err.find("error: ")),
      "error: 'optimizer.groups': 'net.2.*' matches no name; expected: one of net.1.weight, net.1.bias, "
      "net.3.weight, net.3.bias; did you mean 'net.1.*'?\n"
      "   14 | [[optimizer.groups]]\n"
      "      | ^~~~~~~~~~~~~~~~~~~~\n"
      "1 error, nothing was run\n");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs")) << "it is refused before there is a folder";
}

TEST_F(OptimizationConfig, FrozenParametersStayUnchangedAfterAResume) {
  write_small_cnn(scratch_ / "cnn.toml", "every_n_steps = 10");
  const auto fit_cnn = [&](const std::string& runs, std::vector<std::string> more) {
    more.insert(
        more.begin(),
        {"fit", "-c", (scratch_ / "cnn.toml").string(), "run.dir=" + (scratch_ / runs).string(),
         "model.freeze=[\"net.0.*\", \"net.1.*\"]", "optimizer.weight_decay=0.5", "schedule.name=constant"});
    return run_program(more);
  };
  ASSERT_EQ(fit_cnn("whole", {"trainer.max_epochs=3"}).exit_code, 0);
  ASSERT_EQ(fit_cnn("parts", {"trainer.max_epochs=1"}).exit_code, 0);
  const auto weights = [&](const std::string& runs) {
    return load_safetensors(scratch_ / runs / "cnn/0001/weights.safetensors");
  };
  const StateDict first = weights("parts"), last = weights("whole");
  const auto resumed =
      run_program({"fit", "--resume", (scratch_ / "parts/cnn/0001").string(), "trainer.max_epochs=3"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run(scratch_ / "parts/cnn/0001", scratch_ / "whole/cnn/0001");
  std::size_t num_same = 0;
  for (const auto& [name, tensor] : first.tensors) {
    const bool is_frozen = name.starts_with("net.0.") || name.starts_with("net.1.");
    EXPECT_EQ(same(tensor, *last.find(name)), is_frozen) << name;
    num_same += is_frozen;
  }
  EXPECT_EQ(num_same, 6u) << "convolution and batch norm, statistics included";
}

TEST_F(OptimizationConfig, FreezesForSomeEpochsAndResumesIdentically) {
  write_small_cnn(scratch_ / "cnn.toml", "every_n_steps = 10\nkeep_last = 20");
  const auto fit_cnn = [&](const std::string& runs, const std::string& end) {
    return run_program({"fit", "-c", (scratch_ / "cnn.toml").string(), end,
                        "run.dir=" + (scratch_ / runs).string(), "model.freeze=[\"net.0.*\", \"net.1.*\"]",
                        "model.freeze_epochs=2", "optimizer.weight_decay=0.5", "schedule.name=constant"});
  };
  ASSERT_EQ(fit_cnn("whole", "trainer.max_epochs=4").exit_code, 0);
  ASSERT_EQ(fit_cnn("resumed", "trainer.max_epochs=4").exit_code, 0);
  const std::filesystem::path whole = scratch_ / "whole/cnn/0001", resumed = scratch_ / "resumed/cnn/0001";
  // 23 steps per epoch: within the third epoch, at the end of the last frozen one, and within that one.
  for (const char* step : {"60", "46", "30"}) {
    const std::string file = std::string("checkpoints/step-000000") + step + ".safetensors";
    const ProgramRun run = run_program({"fit", "--resume", (resumed / file).string()});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    expect_same_run(resumed, whole);
  }
  ASSERT_EQ(fit_cnn("first", "trainer.max_steps=1").exit_code, 0);
  const StateDict first = load_safetensors(scratch_ / "first/cnn/0001/weights.safetensors"),
                  frozen = load_safetensors(whole / "checkpoints/step-00000046.safetensors"),
                  last = load_safetensors(whole / "weights.safetensors");
  for (const std::string name : {"net.0.weight", "net.1.weight", "net.1.running_mean"}) {
    EXPECT_TRUE(same(*first.find(name), *frozen.find("model." + name))) << name;
    EXPECT_FALSE(same(*first.find(name), *last.find(name))) << name;
  }
}

TEST_F(OptimizationConfig, RefusesFreezeEpochsWithoutPatterns) {
  const ProgramRun run = fit("", {"model.freeze_epochs=2", "--check"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(
      run.err.find("'model.freeze_epochs' has no effect without 'model.freeze', which says what to freeze"),
      std::string::npos)
      << run.err;
}

TEST_F(OptimizationConfig, RefusesToFreezeUnknownParameters) {
  const ProgramRun run = fit("", {"model.freeze=[\"nt.1.*\"]"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.err.find("'model.freeze[0]': 'nt.1.*' matches no name; expected: one of net.1.weight"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("did you mean 'net.1.*'?"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace kindling
