// Runs that begin in Python and continue here, and the other way round.
// tests/optim/fixtures/python_training.py writes the fixtures.

#include "kindling/optim/python_optimizer.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <fstream>
#include <set>
#include <sstream>

#include "kindling/base/error.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/lbfgs.h"
#include "kindling/optim/muon.h"
#include "kindling/optim/sgd.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

const fs::path kTrainings = fs::path(KINDLING_TESTS) / "optim" / "fixtures";

// Kinds of operators round differently, in the last bits of float32; 50 smooth steps keep that small.
constexpr double kSameLoss = 1e-6;

// Python's options of the same name.
std::unique_ptr<Optimizer> optimizer_of(const std::string& kind, const torch::nn::Module& model) {
  if (kind == "sgd")
    return std::make_unique<Sgd>(model, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
  if (kind == "lbfgs")
    return std::make_unique<Lbfgs>(model, LbfgsOptions{.lr = 0.5, .max_iter = 3, .history_size = 4});
  if (kind == "muon") {
    ParameterGroup matrices;
    for (const at::Tensor& parameter : model.parameters())
      if (parameter.dim() == 2) matrices.parameters.push_back(parameter);
    return std::make_unique<Muon>(std::vector{matrices},
                                  MuonOptions{.lr = 0.05, .weight_decay = 0.05, .momentum = 0.9});
  }
  return std::make_unique<AdamW>(  // also for "named"
      model,
      AdamWOptions{.lr = 0.01, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true});
}

torch::nn::Sequential small_tanh_net() {
  return torch::nn::Sequential{torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3)};
}

std::vector<double> train(torch::nn::Sequential& model, Optimizer& optimizer, const StateDict& data,
                          int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    const auto loss_and_gradients = [&] {
      optimizer.zero_grad();
      const auto loss =
          torch::nn::functional::cross_entropy(model->forward(*data.find("x")), *data.find("y"));
      loss.backward();
      return loss;
    };
    losses.push_back(optimizer.step_with(loss_and_gradients).item<double>());
  }
  return losses;
}

void expect_same_losses(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], kSameLoss) << "step " << i;
}

std::vector<double> numbers_in(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel()};
}

struct Begun {
  explicit Begun(const std::string& kind)
      : file(kTrainings / "torch_2.13.0" / (kind + ".pt")), optimizer(optimizer_of(kind, *model)) {
    load_state_dict(*model, load_state_file(file, "model"));
  }

  fs::path file;
  torch::nn::Sequential model = small_tanh_net();
  std::unique_ptr<Optimizer> optimizer;
};

class PythonTraining : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, PythonTraining, testing::Values("sgd", "adamw", "lbfgs", "muon", "named"));

TEST_P(PythonTraining, IsContinuedByKindling) {
  const std::string kind = GetParam();
  int versions = 0;
  for (const auto& folder : fs::directory_iterator(kTrainings)) {
    if (!folder.is_directory()) continue;
    SCOPED_TRACE(folder.path().filename().string());
    if (!fs::exists(folder.path() / (kind + ".pt"))) continue;  // older than this kind
    Begun begun(kind);
    load_state_dict(*begun.model, load_state_file(folder.path() / (kind + ".pt"), "model"));
    load_python_optimizer(*begun.optimizer, folder.path() / (kind + ".pt"), "optimizer");
    const StateDict data = load_state_file(folder.path() / (kind + ".data.pt"));
    expect_same_losses(train(begun.model, *begun.optimizer, data, 50), numbers_in(*data.find("losses")));
    ++versions;
  }
  EXPECT_GE(versions, 1);
}

// Without the state the losses are others: the test above can fail.
TEST_P(PythonTraining, DiffersWithoutTheStateOfItsOptimizer) {
  Begun begun(GetParam());
  const StateDict data =
      load_state_file(kTrainings / "torch_2.13.0" / (std::string(GetParam()) + ".data.pt"));
  const std::vector<double> found = train(begun.model, *begun.optimizer, data, 50);
  EXPECT_GT(std::abs(found[5] - numbers_in(*data.find("losses"))[5]), 100 * kSameLoss);
}

TEST_P(PythonTraining, IsContinuedInPythonAfterKindling) {
  const std::string python = python_with_torch(), kind = GetParam();
  if (python.empty()) GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  if (kind == "named") return;  // Python matches by order
  const Scratch scratch;
  Begun begun(kind);
  const fs::path data_file = kTrainings / "torch_2.13.0" / (kind + ".data.pt");
  const StateDict data = load_state_file(data_file);
  train(begun.model, *begun.optimizer, data, 7);
  save_torch(state_dict(*begun.model), scratch / "model.pt");
  save_python_optimizer(*begun.optimizer, scratch / "optimizer.pt");
  const std::string command = python + " " + (kTrainings / "python_training.py").string() + " continue " +
                              kind + " " + (scratch / "model.pt").string() + " " +
                              (scratch / "optimizer.pt").string() + " " + data_file.string() + " >" +
                              (scratch / "losses").string() + " 2>" + (scratch / "log").string();
  const int code = std::system(command.c_str());
  std::ostringstream log;
  log << std::ifstream(scratch / "log").rdbuf();
  ASSERT_EQ(code, 0) << log.str();
  std::vector<double> in_python;
  std::ifstream losses(scratch / "losses");
  for (double loss; losses >> loss;) in_python.push_back(loss);
  expect_same_losses(train(begun.model, *begun.optimizer, data, 50), in_python);
}

TEST_P(PythonTraining, RoundTripsUnchanged) {
  const Scratch scratch;
  Begun begun(GetParam()), other(GetParam());
  load_python_optimizer(*begun.optimizer, begun.file, "optimizer");
  save_python_optimizer(*begun.optimizer, scratch / "x.pt");
  load_python_optimizer(*other.optimizer, scratch / "x.pt");
  const StateDict there = begun.optimizer->state_dict(), here = other.optimizer->state_dict();
  EXPECT_GE(there.tensors.size(), 2u);
  ASSERT_EQ(here.tensors.size(), there.tensors.size());
  for (const auto& [name, tensor] : there.tensors) EXPECT_TRUE(here.find(name)->equal(tensor)) << name;
}

TEST(PythonOptimizer, IsRejectedIfItsNamesDiffer) {
  const torch::nn::Sequential model = small_tanh_net();
  const auto parameters = model->parameters();
  AdamW renamed({{.parameters = parameters, .names = {"0.weight", "0.bias", "2.weight", "last"}}},
                {.betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true});
  const fs::path file = kTrainings / "torch_2.13.0/named.pt";
  EXPECT_EQ(
      error_text<CheckpointError>([&] { load_python_optimizer(renamed, file, "optimizer"); }),
      file.string() +
          ", group 0: its \"param_names\" have \"2.bias\"; expected: the names of the parameters here, "
          "\"0.bias\", \"0.weight\", \"2.weight\", \"last\"; name them alike, or remove \"param_names\" "
          "from each of \"param_groups\" in Python to match them by their order; nothing was loaded");
  EXPECT_TRUE(renamed.state_dict().tensors.empty());
}

// Before the second iteration, L-BFGS has no history: Python has empty lists then.
TEST(PythonOptimizer, RoundTripsAShortHistoryOfLbfgs) {
  const Scratch scratch;
  torch::nn::Sequential model = small_tanh_net();
  const auto lbfgs_of = [&](const LbfgsOptions& options = {.max_iter = 1}) { return Lbfgs(*model, options); };
  Lbfgs first = lbfgs_of(), second = lbfgs_of();
  first.step_with([&] {
    first.zero_grad();
    const auto loss = model->forward(at::ones({1, 4})).square().sum();
    loss.backward();
    return loss;
  });
  save_python_optimizer(first, scratch / "x.pt");
  EXPECT_EQ(open_torch_optimizer(scratch / "x.pt").groups[0].options,
            (TorchOptions{{"lr", 1.0},
                          {"max_iter", std::int64_t{1}},
                          {"max_eval", std::int64_t{1}},
                          {"tolerance_grad", 1e-7},
                          {"tolerance_change", 1e-9},
                          {"history_size", std::int64_t{100}},
                          {"maximize", false}}));  // line_search_fn is None
  load_python_optimizer(second, scratch / "x.pt");
  const StateDict there = first.state_dict(), here = second.state_dict();
  EXPECT_EQ(there.find("0.weight.old_dirs"), nullptr);
  ASSERT_EQ(here.tensors.size(), there.tensors.size());
  for (const auto& [name, tensor] : there.tensors) EXPECT_TRUE(here.find(name)->equal(tensor)) << name;
  Lbfgs searching = lbfgs_of({.max_iter = 1, .line_search_fn = "strong_wolfe"});
  const std::string text =
      error_text<CheckpointError>([&] { load_python_optimizer(searching, scratch / "x.pt"); });
  EXPECT_NE(text.find("'line_search_fn' is missing in the file"), std::string::npos) << text;
  const torch::nn::Sequential wider{torch::nn::Linear(66, 1), torch::nn::Linear(2, 4)};
  Lbfgs of_other(*wider, {.max_iter = 1});
  EXPECT_NE(error_text<CheckpointError>([&] {
              load_python_optimizer(of_other, scratch / "x.pt");
            }).find("its \"d\" has 67 values; expected: 79, as the parameters have"),
            std::string::npos);
}

// As Python writes them: groups with a name and a tensor of their own, and damaged histories of L-BFGS.
TEST(PythonOptimizer, ReadsNamesOfGroupsAndRefusesDamagedHistories) {
  const std::string python = python_with_torch();
  if (python.empty()) GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  std::ofstream(scratch / "write.py") << R"(import torch
net = torch.nn.Linear(4, 3)
def train(optimizer):
    def closure():
        optimizer.zero_grad()
        loss = net(torch.randn(8, 4)).square().sum()
        loss.backward()
        return loss
    optimizer.step(closure)
    return optimizer
adam = train(torch.optim.AdamW([{"params": net.parameters(), "name": "head", "mask": torch.ones(4, dtype=torch.bool)}]))
torch.save(adam.state_dict(), "names.pt")
lbfgs = train(torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=5))
def save(name, change):
    saved = lbfgs.state_dict()
    saved["state"][0] = dict(saved["state"][0])
    change(saved["state"][0])
    torch.save(saved, name + ".pt")
save("whole", lambda state: None)
save("number", lambda state: state.update(d=0.5))
save("short", lambda state: state.update(old_stps=state["old_stps"][:-1]))
save("factors", lambda state: state.update(ro=state["ro"][:-1]))
save("ragged", lambda state: state.update(ro=[torch.zeros(3)] + state["ro"][1:]))
save("matrix", lambda state: state.update(d=state["d"].view(5, 3)))
save("gradient", lambda state: state.pop("prev_flat_grad"))
)";
  ASSERT_EQ(
      std::system(("cd '" + scratch.folder().string() + "' && " + python + " write.py >log 2>&1").c_str()),
      0);
  const torch::nn::Linear net(4, 3);
  AdamW adam(*net, {});
  load_python_optimizer(adam, scratch / "names.pt");
  EXPECT_FALSE(adam.state_dict().tensors.empty());
  const auto loaded = [&](const std::string& name) {
    Lbfgs lbfgs(*net, {.lr = 0.1, .max_iter = 5});
    const std::string error =
        error_text<CheckpointError>([&] { load_python_optimizer(lbfgs, scratch / (name + ".pt")); });
    if (name != "whole") {
      EXPECT_TRUE(lbfgs.state_dict().tensors.empty()) << name;
    }
    return error;
  };
  const std::pair<const char*, const char*> refusals[] = {
      {"number", "its \"d\" is a number; expected: a tensor"},
      {"short", "its \"old_stps\" has "},
      {"factors", "its \"ro\" has "},
      {"ragged", "its \"ro\" has a tensor of 1 dimensions; expected: scalars"},
      {"matrix", "its \"d\" has 2 dimensions; expected: one"},
      {"gradient", "its state has no \"prev_flat_grad\"; expected: a tensor"}};
  for (const auto& [name, text] : refusals)
    EXPECT_NE(loaded(name).find(text), std::string::npos) << name << ": " << loaded(name);
  EXPECT_EQ(loaded("whole").find("(no error)"), 0u) << loaded("whole");
}

TEST(PythonOptimizer, ComparesTheOptionsOfMuon) {
  const torch::nn::Sequential model = small_tanh_net();
  ParameterGroup matrices{.parameters = {model->parameters()[0], model->parameters()[2]}};
  Muon other({matrices},
             {.weight_decay = 0.05, .momentum = 0.9, .ns_steps = 4, .adjust_lr_fn = "match_rms_adamw"});
  const std::string text = error_text<CheckpointError>(
      [&] { load_python_optimizer(other, kTrainings / "torch_2.13.0/muon.pt", "optimizer"); });
  EXPECT_NE(text.find("'adjust_lr_fn' is missing in the file, 'ns_steps' is 5 in the file and 4 here"),
            std::string::npos)
      << text;
  Muon mixed(*model, {.adamw_lr = 0.1});
  EXPECT_TRUE(mixed.python_options().empty());
}

// Python adds to each parameter's count in place.
TEST(PythonOptimizer, WritesACountForEachParameter) {
  const Scratch scratch;
  Begun begun("adamw");
  load_python_optimizer(*begun.optimizer, begun.file, "optimizer");
  save_python_optimizer(*begun.optimizer, scratch / "x.pt");
  const TorchOptimizerFile file = open_torch_optimizer(scratch / "x.pt");
  std::set<std::size_t> storages;
  for (const TorchTensor& tensor : file.values.tensors()) storages.insert(tensor.storage);
  EXPECT_EQ(file.values.tensors().size(), 16u);
  EXPECT_EQ(storages.size(), 16u);
}

TEST(PythonOptimizer, TakesGroupsInTheirOrder) {
  const Scratch scratch;
  const torch::nn::Sequential model = small_tanh_net();
  const auto grouped = [&](std::vector<at::Tensor> first, std::vector<at::Tensor> second) {
    return Sgd({{.parameters = first, .lr = 0.5}, {.parameters = second, .weight_decay = 0.25}},
               {.lr = 0.1, .momentum = 0.5});
  };
  const auto all = model->parameters();
  Sgd sgd = grouped({all[3]}, {all[0], all[1]});
  for (const std::size_t i : {0, 1, 3}) all[i].mutable_grad() = at::full_like(all[i], static_cast<double>(i));
  sgd.step();
  sgd.set_lr(1, 0.05);
  save_python_optimizer(sgd, scratch / "x.pt");
  const TorchOptimizerFile file = open_torch_optimizer(scratch / "x.pt");
  ASSERT_EQ(file.groups.size(), 2u);
  EXPECT_EQ(file.groups[0].parameters, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(file.groups[1].parameters, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(file.groups[0].options, (TorchOptions{{"lr", 0.5},
                                                  {"momentum", 0.5},
                                                  {"dampening", 0.0},
                                                  {"nesterov", false},
                                                  {"weight_decay", 0.0},
                                                  {"maximize", false}}));
  EXPECT_EQ(file.groups[1].options.at("weight_decay"), TorchOptions::mapped_type(0.25));
  EXPECT_EQ(file.groups[1].options.at("lr"), TorchOptions::mapped_type(0.05));
  EXPECT_EQ(file.groups[1].options.at("initial_lr"), TorchOptions::mapped_type(0.1));

  Sgd other = grouped({all[3]}, {all[0], all[1]});
  load_python_optimizer(other, scratch / "x.pt");
  for (const auto& [name, tensor] : sgd.state_dict().tensors)
    EXPECT_TRUE(other.state_dict().find(name)->equal(tensor)) << name;
  EXPECT_EQ(other.lr(1), 0.1);  // its own

  Sgd split = grouped({all[3], all[0]}, {all[1]});
  EXPECT_EQ(error_text<CheckpointError>([&] { load_python_optimizer(split, scratch / "x.pt"); }),
            (scratch / "x.pt").string() +
                ": it has 2 groups of 1, 2 parameters; expected: 2 groups of 2, 1 parameters; create both "
                "optimizers with the same parameters; nothing was loaded");
  Sgd turned = grouped({all[2]}, {all[0], all[1]});
  const std::string text =
      error_text<CheckpointError>([&] { load_python_optimizer(turned, scratch / "x.pt"); });
  EXPECT_NE(text.find("'0.momentum_buffer' has the shape [3]"), std::string::npos) << text;
}

TEST(PythonOptimizer, IsRejectedIfKindOrOptionsDiffer) {
  const torch::nn::Sequential model = small_tanh_net();
  const auto refusal = [&](auto optimizer, const std::string& kind) {
    const std::string text = error_text<CheckpointError>(
        [&] { load_python_optimizer(optimizer, kTrainings / "torch_2.13.0" / (kind + ".pt"), "optimizer"); });
    EXPECT_EQ(optimizer.state_dict().tensors.size(), 0u);
    const std::string start = ".pt, group 0: ", end = "; expected: an optimizer of the same kind";
    return text.substr(text.find(start) + start.size(), text.find(end) - text.find(start) - start.size());
  };
  const AdamWOptions same{.betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true};
  AdamWOptions other = same;
  other.betas[1] = 0.999;
  other.amsgrad = false;
  EXPECT_EQ(refusal(AdamW(*model, other), "adamw"),
            "'amsgrad' is true in the file and false here, 'betas' is [0.8, 0.95] in the file and [0.8, "
            "0.999] here");
  EXPECT_EQ(refusal(Adam(*model, {.betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true}),
                    "adamw"),
            "'decoupled_weight_decay' is true in the file and false here");
  EXPECT_EQ(refusal(Sgd(*model, {.momentum = 0.9, .weight_decay = 0.1}), "adamw"),
            "'dampening' is missing in the file, 'momentum' is missing in the file, 'nesterov' is missing in "
            "the file, 'amsgrad' is true in the file, but not an option here, 'betas' is [0.8, 0.95] in the "
            "file, but not an option here, 'decoupled_weight_decay' is "
            "true in the file, but not an option here, 'eps' is 1e-06 in the file, but not an option here");
  EXPECT_EQ(refusal(Sgd(*model, {.momentum = 0.9}), "sgd"), "'weight_decay' is 0.001 in the file and 0 here");
}

}  // namespace
}  // namespace kindling
