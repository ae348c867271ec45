#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "cli/commands/commands.h"
#include "cli/commands/program_run.h"
#include "kindling/base/error.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_module.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(DynamicSizeWord, NamesASizeItsPlacesAndItsBounds) {
  const DynamicSize size = dynamic_size_of("sequence=0:1,2:-1,min=2,max=1024,multiple_of=8");
  EXPECT_EQ(size.name, "sequence");
  ASSERT_EQ(size.places.size(), 2u);
  EXPECT_EQ(size.places[0].tensor, 0u);
  EXPECT_EQ(size.places[0].dim, 1);
  EXPECT_EQ(size.places[1].tensor, 2u);
  EXPECT_EQ(size.places[1].dim, -1);
  EXPECT_EQ(size.min, 2);
  EXPECT_EQ(size.max, 1024);
  EXPECT_EQ(size.multiple_of, 8);
  const DynamicSize plain = dynamic_size_of("height=0:2");
  EXPECT_FALSE(plain.min || plain.max);
  EXPECT_EQ(plain.multiple_of, 1);
}

TEST(DynamicSizeWord, RefusesInvalidWords) {
  for (const auto& [word, part] : {std::pair{"sequence", "sequence"},
                                   {"=0:1", "=0:1"},
                                   {"sequence=", ""},
                                   {"sequence=0", "0"},
                                   {"sequence=0:1,", ""},
                                   {"sequence=0:x", "0:x"},
                                   {"sequence=-1:1", "-1:1"},
                                   {"sequence=0:1,max=9a", "max=9a"},
                                   {"sequence=0:1,most=9", "most=9"}})
    EXPECT_EQ(error_text<ConfigError>([word = word] {
                dynamic_size_of(word);
              }).find("--dynamic " + std::string(word) + ": '" + part + "' is not valid in a dynamic size"),
              0u)
        << word;
}

// Takes images of any size.
struct AnyImages : Module {
  AnyImages() {
    register_module("conv", conv);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& images) override { return head(conv(images).relu().mean({2, 3})); }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3)};
  torch::nn::Linear head{4, 10};
};

TEST(DynamicSizeWord, IsUsedByTheExportCommand) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  const Scratch scratch;
  AnyImages model;
  const DynamicSize height{.name = "height", .places = {{0, 2}}, .min = 3},
      width{.name = "width", .places = {{0, 3}}, .min = 3};
  export_program(model, {at::randn({6, 1, 8, 8})},
                 {.path = scratch / "model.pt2", .train = true, .dynamic_sizes = {height, width}});
  write_text(scratch / "any.toml",
             "[model]\nname = \"exported\"\nfile = \"model.pt2\"\n[data]\nname = \"digits\"\n");
  const ProgramRun fit = run_program({"fit", "-c", scratch / "any.toml", "--trainer.max_epochs=1",
                                      "--run.dir=" + (scratch / "runs").string(), "--quiet", "name=a"});
  ASSERT_EQ(fit.exit_code, 0) << fit.err;
  const std::string run = scratch / "runs/a/0001", out = scratch / "out.pt2";
  const ProgramRun exported =
      run_program({"export", run, out, "--dynamic", "height=0:2,min=3", "--dynamic=width=0:3,min=3"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  ExportedModule both({.file = out});
  EXPECT_EQ(both.forward(at::randn({2, 1, 9, 31})).sizes(), (std::vector<std::int64_t>{2, 10}));
  EXPECT_EQ(run_program({"export", run, scratch / "out.onnx", "--dynamic", "width=0:3,min=3"}).exit_code, 0);
  const auto expect_refused = [&](std::vector<std::string> words, const std::string& text) {
    words.insert(words.begin(), "export");
    const ProgramRun refused = run_program(std::move(words));
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_NE(refused.err.find(text), std::string::npos) << refused.err;
  };
  expect_refused({run, out, "--dynamic", "width=0:4"}, "there is no dimension 4 of tensor 0");
  expect_refused({run, scratch / "w.pt", "--dynamic", "width=0:3"}, "has neither modes nor inputs");
  expect_refused({run, scratch / "o.pt", "--optimizer", "--dynamic", "width=0:3"}, "--dynamic");
  expect_refused({out, scratch / "w.onnx", "--dynamic", "width=0:3"},
                 "an exported program is converted unchanged");
}

}  // namespace
}  // namespace kindling
