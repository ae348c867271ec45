#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "interop/onnx/onnx_graph.h"
#include "interop/onnx/write_onnx.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/interop/export_program.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::string said_by_onnx_script(const std::filesystem::path& folder, const std::string& arguments) {
  const std::string log = folder / "said";
  const int code = std::system((python_with_torch() + " " KINDLING_TESTS "/interop/onnx/onnx_programs.py " +
                                arguments + " >" + log + " 2>&1")
                                   .c_str());
  return (code == 0 ? "" : "failed\n") + read_file(log, 1 << 20);
}

TEST(Onnx, ModelsOfPythonComputeWhatPyTorchDoes) {
  const Scratch scratch;
  if (python_with_torch().empty()) GTEST_SKIP() << "there is no Python with PyTorch to export models";
  if (!said_by_onnx_script(scratch.folder(), "check .").empty())
    GTEST_SKIP() << "Python cannot import onnx and onnxruntime";
  const std::string folder = scratch.folder().string();
  std::istringstream said(said_by_onnx_script(scratch.folder(), "export " + folder));
  std::string names;
  for (std::string name; said >> name; names += " " + name) {
    ASSERT_NE(name, "failed") << said.str();
    convert_to_onnx(scratch / (name + ".pt2"), scratch / (name + ".onnx"));
  }
  EXPECT_NE(names.find("multihead"), std::string::npos) << said.str();  // the last one
  EXPECT_EQ(said_by_onnx_script(scratch.folder(), "check " + folder + names), "");
}

ProgramArgument onnx_value(const std::string& name) { return {TensorName{name}}; }

// "x", of 4 numbers, and a weight "w"; the calls are of one tensor each, which the next one gets.
struct SmallProgram {
  ExportedProgram program{};
  ProgramWeights weights{{"w", at::ones({4})}};

  SmallProgram() {
    program.inputs = {{ProgramInput::Kind::parameter, onnx_value("p_w"), "w"},
                      {ProgramInput::Kind::user, onnx_value("x")}};
    program.tensors["p_w"] = program.tensors["x"] = {.sizes = {{4}}, .strides = {{1}}};
  }
  void call(const std::string& name, const std::string& self, const std::string& result,
            std::vector<ProgramNode::Input> more = {}) {
    more.insert(more.begin(), {"self", onnx_value(self)});
    program.nodes.push_back({"torch.ops.aten." + name, std::move(more), {onnx_value(result)}, "net.3"});
    program.tensors[result] = program.tensors["x"];
  }
  std::string refusal(const std::string& result) {
    const Scratch scratch;
    program.outputs = {{ProgramOutput::Kind::user, onnx_value(result)}};
    try {
      write_onnx(program, weights, scratch / "a.onnx");
    } catch (const CheckpointError& error) {
      EXPECT_FALSE(std::filesystem::exists(scratch / "a.onnx"));
      return error.what();
    }
    return "";
  }
};

TEST(Onnx, RefusalsNameOperatorLayerAndSimilarOperators) {
  SmallProgram small;
  small.call("erfinv.default", "x", "y");
  const std::string refusal = small.refusal("y");
  EXPECT_NE(refusal.find("layer net.3, torch.ops.aten.erfinv.default"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("such as erf, "), std::string::npos) << refusal;
  const std::size_t begin = refusal.find("such as "), end = refusal.find("; write");
  EXPECT_EQ(std::ranges::count(refusal.substr(begin, end - begin), ','), 9) << refusal;
}

TEST(Onnx, RefusesTrainingMode) {
  SmallProgram small;
  small.call("dropout.default", "x", "y", {{"p", {0.5}}, {"train", {true}}});
  small.program.nodes[0].inputs[0].name = "input";
  EXPECT_NE(small.refusal("y").find("model.eval()"), std::string::npos);
}

TEST(Onnx, SuggestsAnotherExportOfAMixtureOfExperts) {
  SmallProgram small;
  small.call("neg.default", "x", "y");
  small.program.nodes[0].target = "torch.ops.transformers.grouped_mm_fallback.default";
  EXPECT_NE(small.refusal("y").find("config.experts_implementation = \"batched_mm\""), std::string::npos);
}

TEST(Onnx, RefusesWhatONNXCannotCompute) {
  SmallProgram norm;
  norm.call("linalg_norm.ord_str", "x", "y", {{"ord", {std::string("nuc")}}});
  EXPECT_NE(norm.refusal("y").find("it needs singular values, which ONNX cannot compute"), std::string::npos);
  SmallProgram product;
  product.program.tensors["x"].sizes = {{4, "Symbol('s0', positive=True, integer=True)"}};
  product.call("cumprod.default", "x", "y", {{"dim", {std::int64_t{0}}}});
  EXPECT_NE(product.refusal("y").find("a dimension whose size is not constant, or is above 1024"),
            std::string::npos);
}

TEST(Onnx, RefusesFloat64WhereOnnxruntimeHasNoKernel) {
  SmallProgram small;
  small.program.tensors["x"].type = ProgramType::float64;
  small.call("sin.default", "x", "y");
  EXPECT_EQ(small.refusal("y"), "");
  small.call("atan.default", "y", "z");
  EXPECT_NE(small.refusal("z").find(
                "onnxruntime has no kernel of Atan for float64; expected: float32; convert the model with "
                "model.float()"),
            std::string::npos)
      << small.refusal("z");
  small.program.tensors["x"].type = small.program.tensors["y"].type = small.program.tensors["z"].type =
      ProgramType::float32;
  EXPECT_EQ(small.refusal("z"), "");
}

const std::vector<ProgramNode::Input> kFirstHalf{{"dim", {std::int64_t{0}}}, {"end", {std::int64_t{2}}}};

// y = x * 1; z = view of y; z.relu_(): y would change, too.
TEST(Onnx, RefusesVisibleWritesThroughViews) {
  SmallProgram small;
  small.call("clone.default", "x", "y");
  small.call("squeeze.default", "y", "z");
  small.call("relu_.default", "z", "r");
  EXPECT_EQ(small.refusal("r"), "");  // y is not used any more
  small.call("neg.default", "y", "n");
  EXPECT_NE(small.refusal("n").find("a view of the memory of \"y\""), std::string::npos);
}

// The whole tensor gets the new values of a slice, but another slice of it does not.
TEST(Onnx, WritesThroughSlicesUnlessOthersOverlap) {
  SmallProgram small;
  small.call("clone.default", "x", "y");
  small.call("slice.Tensor", "y", "other", kFirstHalf);
  small.call("slice.Tensor", "y", "z", kFirstHalf);
  small.call("relu_.default", "z", "r");
  small.call("neg.default", "y", "n");
  EXPECT_EQ(small.refusal("n"), "");
  small.call("neg.default", "other", "m");
  EXPECT_NE(small.refusal("m").find("a view of the memory of \"other\""), std::string::npos);
}

// Rows of u overlap: u[0] is a part of u[1], too.
TEST(Onnx, RefusesWritesToPiecesWhoseElementsRepeat) {
  SmallProgram small;
  const auto number = [](std::int64_t value) { return ProgramArgument{value}; };
  small.call("clone.default", "x", "y");
  small.call("unfold.default", "y", "u",
             {{"dimension", number(0)}, {"size", number(2)}, {"step", number(1)}});
  small.program.tensors["u"].sizes = {{3}, {2}};
  small.call("select.int", "u", "z", {{"dim", number(0)}, {"index", number(0)}});
  small.call("relu_.default", "z", "r");
  small.program.tensors["z"].sizes = small.program.tensors["r"].sizes = {{2}};
  EXPECT_EQ(small.refusal("r"), "");
  small.call("neg.default", "u", "n");
  small.program.tensors["n"].sizes = {{3}, {2}};
  EXPECT_NE(small.refusal("n").find("a view of the memory of \"u\""), std::string::npos);
}

TEST(Onnx, RefusesComplexInputsAndUnknownOperatorsOfComplexNumbers) {
  SmallProgram input;
  input.program.tensors["x"].type = ProgramType::complex64;
  input.call("real.default", "x", "y");
  EXPECT_NE(input.refusal("y").find("the input \"x\": it is complex"), std::string::npos);
  SmallProgram inner;
  inner.call("fft_fft.default", "x", "y");
  inner.program.tensors["y"].type = ProgramType::complex64;
  EXPECT_NE(inner.refusal("y").find("the output \"output\": it is complex"), std::string::npos);
  inner.call("exp.default", "y", "z");
  inner.program.tensors["z"].type = ProgramType::complex64;
  EXPECT_NE(inner.refusal("z").find("does not support this operator for complex numbers"), std::string::npos);
  SmallProgram dynamic;
  dynamic.program.tensors["x"].sizes = {{4, "Symbol('s0', positive=True, integer=True)"}};
  dynamic.call("fft_fft.default", "x", "y");
  dynamic.program.tensors["y"].type = ProgramType::complex64;
  EXPECT_NE(dynamic.refusal("y").find("the size of the dimension that it transforms is not constant"),
            std::string::npos);
}

TEST(Onnx, RefusesWritesToWeights) {
  SmallProgram small;
  small.call("relu_.default", "p_w", "y");
  const std::string refusal = small.refusal("y");
  EXPECT_NE(refusal.find("it changes \"w\""), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("take the buffer's value as an input and return the new one as an output"),
            std::string::npos)
      << refusal;
  EXPECT_EQ(refusal.find("eval()"), std::string::npos) << refusal;  // such a buffer changes in any mode
}

TEST(Onnx, TellsBatchNormOfEvaluationMode) {
  SmallProgram small;
  small.program.inputs[0].target = "net.1.running_mean";
  small.weights = {{"net.1.running_mean", at::ones({4})}};
  small.call("relu_.default", "p_w", "y");
  EXPECT_NE(small.refusal("y").find("it changes \"net.1.running_mean\""), std::string::npos);
  EXPECT_NE(small.refusal("y").find("model.eval()"), std::string::npos);
}

TEST(Onnx, SuggestsNoOtherOperatorForACustomOne) {
  SmallProgram small;
  small.call("neg.default", "x", "y");
  small.program.nodes[0].target = "torch.ops.mine.twice.default";
  const std::string refusal = small.refusal("y");
  EXPECT_NE(refusal.find(
                "torch.ops.mine.twice.default: it is a custom operator, which ONNX does not have; expected: "
                "operators of torch.ops.aten; write the layer with those"),
            std::string::npos)
      << refusal;
}

// onnxruntime warns of others.
TEST(Onnx, HasNoConstantsThatNoNodeUses) {
  const Scratch scratch;
  OnnxGraph graph;
  const std::string x = graph.add_input("x", at::kFloat, {{.number = 2}});
  graph.constant(at::ones({2}), "not_used");
  graph.add_output("y", graph.add("Add", {x, graph.constant(at::ones({2}), "used")}), at::kFloat,
                   {{.number = 2}});
  graph.write(scratch / "a.onnx");
  const std::string bytes = read_file(scratch / "a.onnx", 10'000);
  EXPECT_EQ(bytes.find("not_used"), std::string::npos);
  const std::size_t first = bytes.find("used");
  EXPECT_NE(first, bytes.rfind("used"));  // of the node and of the constant
}

TEST(Onnx, RefusesMoreThanTheLimitOfProtobuf) {
  SmallProgram small;
  constexpr std::int64_t kValues = 600'000'000;  // of 4 bytes, in one that is there
  small.weights["w"] = at::zeros({1}).expand({kValues});
  small.program.tensors["p_w"].sizes = {{kValues}};
  small.call("add.Tensor", "p_w", "y", {{"other", onnx_value("x")}});
  EXPECT_NE(small.refusal("y").find("larger than 2 GB"), std::string::npos);
}

// Every name in the list of the page, and no other.
TEST(Onnx, OperatorsAreThoseOfThePage) {
  const std::string page = read_file(std::string(KINDLING_TESTS) + "/../docs/guides/onnx.md", 1 << 20);
  const std::size_t begin = page.find("<!-- operators of ONNX -->"), end = page.find("<!-- end", begin);
  ASSERT_NE(end, std::string::npos);
  std::vector<std::string> named;
  std::istringstream words(page.substr(begin + 26, end - begin - 26));
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '`' || c == ','; });
    named.push_back(word);
  }
  std::ranges::sort(named);
  std::vector<std::string> known;
  for (const std::string& name : operators_in_onnx())
    if (!name.starts_with("torch.") && !name.starts_with("math.") && !name.starts_with("_operator."))
      known.push_back(name);
  EXPECT_EQ(named, known);
}

}  // namespace
}  // namespace kindling
