#include "formats/pt2/pt2_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "formats/pt2/pt2_file.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

ProgramArgument list_of(ProgramList::Element element, std::vector<ProgramArgument> items) {
  return {ProgramList{.element = element, .items = std::move(items)}};
}

// An argument of every kind, and of every kind of list.
ProgramNode node_of_all_kinds() {
  using Element = ProgramList::Element;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const NumberName size{.kind = NumberName::Kind::integer, .name = "sym_size_int"};
  const std::vector<ProgramArgument> arguments{
      {},
      {TensorName{"x"}},
      {size},
      {true},
      {std::int64_t{-3}},
      {0.1},
      {kInfinity},
      {-kInfinity},
      {std::string("tanh \u00fc")},
      {ProgramType::bfloat16},
      {ProgramMemoryFormat::channels_last},
      {StridedLayout{}},
      {ProgramDevice{.type = "cpu"}},
      {ProgramDevice{.type = "cuda", .index = 1}},
      list_of(Element::tensors, {{TensorName{"x"}}, {TensorName{"p_w"}}}),
      list_of(Element::optional_tensors, {{TensorName{"x"}}, {}}),
      list_of(Element::integers, {{std::int64_t{1}}, {std::int64_t{-1}}}),
      list_of(Element::symbolic_integers, {{size}, {std::int64_t{4}}}),
      list_of(Element::floats, {{0.5}, {kInfinity}}),
      list_of(Element::booleans, {{true}, {false}}),
      list_of(Element::integers, {}),
  };
  ProgramNode node{.target = "torch.ops.aten.all_kinds.default", .inputs = {}, .outputs = {}};
  for (std::size_t i = 0; i < arguments.size(); ++i)
    node.inputs.push_back(
        {.name = "a" + std::to_string(i), .argument = arguments[i], .is_keyword = i % 2 == 1});
  node.outputs = {{TensorName{"y"}}, list_of(Element::tensors, {{TensorName{"z"}}})};
  return node;
}

ExportedProgram program_of_all_kinds() {
  using In = ProgramInput::Kind;
  using Out = ProgramOutput::Kind;
  using Tree = ProgramTree::Kind;
  const std::string batch = "Symbol('s0', positive=True, integer=True)";
  const ProgramTensor fixed{
      .type = ProgramType::float32, .sizes = {{2}, {3}}, .strides = {{3}, {1}}, .requires_grad = true};
  const ProgramTensor dynamic{.type = ProgramType::int64,
                              .sizes = {{.number = 5, .expression = batch}, {3}},
                              .strides = {{3}, {1}},
                              .offset = {2},
                              .device = {.type = "cuda", .index = 0}};
  ExportedProgram program{
      .inputs = {{In::parameter, {TensorName{"p_w"}}, "net.w"},
                 {In::parameter, {TensorName{"p_tied"}}, "tied"},
                 {In::buffer, {TensorName{"b_mask"}}, "mask", /*is_persistent=*/false},
                 {In::buffer, {TensorName{"b_mean"}}, "mean"},
                 {In::constant, {TensorName{"c_one"}}, "one"},
                 {.kind = In::user, .argument = {TensorName{"x"}}}},
      .outputs = {{Out::buffer_mutation, {TensorName{"y"}}, "mean"},
                  {Out::user_input_mutation, {TensorName{"y"}}, "x"},
                  {Out::loss, {TensorName{"y"}}},
                  {Out::user, {TensorName{"z"}}}},
      .nodes = {node_of_all_kinds()},
      .numbers = {{"sym_size_int", {.number = 5, .expression = batch}}},
      .ranges = {{"s0", {1, std::nullopt}}, {"s1", {2, 64}}},
      .arguments = {.kind = Tree::tuple,
                    .parts = {{.kind = Tree::tuple, .parts = {{}}}, {.kind = Tree::dict}}},
      .results = {.kind = Tree::dict,
                  .names = {"a \"b\"", "c"},
                  .parts = {{}, {.kind = Tree::list, .parts = {{}}}}},
      .input_names = {"x"},
      .torch_version = "2.13.0"};
  for (const char* name : {"p_w", "p_tied", "b_mask", "b_mean", "c_one"}) program.tensors[name] = fixed;
  for (const char* name : {"x", "y", "z"}) program.tensors[name] = dynamic;
  return program;
}

std::vector<ProgramWeight> weights_of_all_kinds(const ExportedProgram& program) {
  const ProgramTensor& tensor = program.tensors.at("p_w");
  return {{"net.w", tensor, true, 0},
          {"tied", tensor, true, 0},
          {"mask", tensor, false, 1},
          {"mean", tensor, false, 2},
          {"one", tensor, false, 3}};
}

TEST(Pt2Writer, RoundTripsThroughTheReader) {
  const Scratch scratch;
  const ExportedProgram program = program_of_all_kinds();
  const std::vector<ProgramWeight> weights = weights_of_all_kinds(program);
  const std::vector<std::string> bytes{std::string(24, 'a'), std::string(24, 'b'), std::string(24, 'c'),
                                       std::string(24, 'd')};
  const std::vector<std::string_view> storages(bytes.begin(), bytes.end());
  const Pt2Writer writer(
      {.program = program, .weights = weights, .storages = storages, .examples = "examples"});
  writer.write(scratch / "x.pt2");
  const Pt2File file(scratch / "x.pt2");
  // The reader has used everything in the JSON.
  EXPECT_EQ(json_of(file.program()), json_of(program));
  ASSERT_EQ(file.weights().size(), 3u);
  ASSERT_EQ(file.constants().size(), 2u);  // the buffer that is not persistent among them
  EXPECT_EQ(file.num_storages(), 4u);
  for (const auto* read : {&file.weights(), &file.constants()})
    for (const ProgramWeight& weight : *read) {
      const auto written = std::find_if(weights.begin(), weights.end(),
                                        [&](const ProgramWeight& one) { return one.name == weight.name; });
      ASSERT_NE(written, weights.end()) << weight.name;
      std::string found(24, '\0');
      file.read_storage(weight.storage, found.data());
      EXPECT_EQ(found, bytes[written->storage]) << weight.name;
      EXPECT_EQ(weight.is_parameter, written->is_parameter) << weight.name;
      EXPECT_TRUE(weight.tensor.requires_grad) << weight.name;
    }
  const auto storage_of = [&](std::string_view name) {
    return std::ranges::find(file.weights(), name, &ProgramWeight::name)->storage;
  };
  EXPECT_EQ(storage_of("net.w"), storage_of("tied"));
  const std::string all = read_file(scratch / "x.pt2", 1'000'000);
  EXPECT_EQ(all.find(bytes[0]), all.rfind(bytes[0]));  // and is there once
  EXPECT_NE(storage_of("net.w"), storage_of("mean"));
}

TEST(Pt2Writer, RefusesAMissingDirectory) {
  const Scratch scratch;
  const ExportedProgram program;
  const Pt2Writer writer({.program = program, .weights = {}, .storages = {}, .examples = ""});
  const std::string text =
      error_text<CheckpointError>([&] { writer.write(scratch / "no_folder" / "x.pt2"); });
  EXPECT_NE(text.find("no_folder"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
