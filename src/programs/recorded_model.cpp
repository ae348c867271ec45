#include "programs/recorded_model.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <set>

#include "kindling/base/error.h"
#include "programs/forward_recorder.h"
#include "programs/merged_recordings.h"
#include "programs/no_program.h"
#include "programs/python_program.h"
#include "programs/recorded_argument.h"
#include "programs/recording_passes.h"

namespace kindling {
namespace {

struct NamedWeight {
  std::string name;
  at::Tensor tensor;
  bool is_parameter;
};

std::vector<NamedWeight> weights_of_model(const torch::nn::Module& model) {
  std::vector<NamedWeight> weights;
  for (const auto& item : model.named_parameters()) weights.push_back({item.key(), item.value(), true});
  for (const auto& item : model.named_buffers()) weights.push_back({item.key(), item.value(), false});
  return weights;
}

NamedTensors named_tensors(const std::vector<NamedWeight>& weights) {
  NamedTensors named;
  for (const NamedWeight& weight : weights) named.emplace_back(weight.name, weight.tensor);
  return named;
}

struct RecordedRun {
  ForwardRecording recording;
  Batch inputs, outputs;
};

RecordedRun recorded_run(const BatchFunction& forward, const NamedTensors& weights, const Batch& inputs,
                         const DynamicSizes& dynamic, const DynamicSizes::Sizes& sizes) {
  RecordedRun run{.recording = {}, .inputs = inputs, .outputs = {}};
  try {
    ForwardRecorder recorder(run.recording, weights, inputs);
    try {
      run.outputs = forward(inputs);
    } catch (const c10::Error& error) {
      recorder.require_program();
      dynamic.refuse_forward(sizes, error.what_without_backtrace());
    }
    recorder.finish(run.outputs);
  } catch (const NoProgram& reason) {
    throw Error({.place = "export of a model", .found = reason.found, .remedy = reason.remedy});
  }
  give_back_linear(run.recording);
  remove_dead_calls(run.recording);
  return run;
}

// Which inputs a call or an output hangs on.
std::vector<std::size_t> used_inputs(const ForwardRecording& recording) {
  std::set<std::string> used(recording.outputs.begin(), recording.outputs.end());
  for (const RecordedCall& call : recording.calls)
    for (const ProgramNode::Input& input : call.node.inputs)
      for_each_value(input.argument, [&](const std::string& value) { used.insert(value); });
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < recording.inputs.size(); ++i)
    if (used.contains(recording.inputs[i])) places.push_back(i);
  return places;
}

// How a batch is nested, and what its tensors are named; parts without any of `used` are left out.
class NestedBatch {
 public:
  NestedBatch(const BatchStructure& structure, std::vector<std::size_t> used) : used_(std::move(used)) {
    tree_ = tree_of(structure, "").value_or(ProgramTree{.kind = ProgramTree::Kind::list});
  }

  // The arguments of a function: the parts of a list, or the one thing that it is.
  ProgramTree arguments() {
    using Kind = ProgramTree::Kind;
    if (tree_.kind == Kind::list) return {.kind = Kind::tuple, .parts = tree_.parts};
    return {.kind = Kind::tuple, .parts = {tree_}};
  }
  const ProgramTree& tree() const { return tree_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::optional<ProgramTree> tree_of(const BatchStructure& structure, const std::string& name) {
    using Kind = BatchStructure::Kind;
    if (structure.kind == Kind::leaf) {
      if (std::ranges::find(used_, leaf_++) == used_.end()) return std::nullopt;
      names_.push_back("input" + name);
      return ProgramTree{};
    }
    const bool is_map = structure.kind == Kind::map;
    ProgramTree tree{.kind = is_map ? ProgramTree::Kind::dict : ProgramTree::Kind::list};
    for (std::size_t i = 0; i < structure.parts.size(); ++i) {
      const std::string part = is_map ? structure.names[i] : std::to_string(i);
      std::optional<ProgramTree> found = tree_of(*structure.parts[i], name + "_" + part);
      if (!found) continue;
      tree.parts.push_back(std::move(*found));
      if (is_map) tree.names.push_back(part);
    }
    if (tree.parts.empty()) return std::nullopt;
    return tree;
  }

  std::vector<std::size_t> used_;
  std::size_t leaf_ = 0;
  std::vector<std::string> names_;
  ProgramTree tree_;
};

std::vector<std::size_t> all_places(std::size_t count) {
  std::vector<std::size_t> places(count);
  for (std::size_t i = 0; i < count; ++i) places[i] = i;
  return places;
}

void keep_inputs(ForwardRecording& recording, const std::vector<std::size_t>& used) {
  std::vector<std::string> inputs;
  for (const std::size_t place : used) inputs.push_back(recording.inputs[place]);
  recording.inputs = std::move(inputs);
}

ProgramFrame frame_of(const std::vector<NamedWeight>& weights, const RecordedRun& run,
                      const std::vector<std::size_t>& used) {
  ProgramFrame frame;
  for (const NamedWeight& weight : weights)
    frame.weights.push_back(
        {.kind = weight.is_parameter ? ProgramInput::Kind::parameter : ProgramInput::Kind::buffer,
         .argument = {},
         .target = weight.name});
  NestedBatch in(*run.inputs.structure(), used);
  NestedBatch out(*run.outputs.structure(), all_places(run.outputs.tensors().size()));
  frame.input_names = in.names();
  frame.in = {.kind = ProgramTree::Kind::tuple, .parts = {in.arguments(), {.kind = ProgramTree::Kind::dict}}};
  const std::size_t count = frame.in.parts[0].parts.size();
  for (std::size_t i = 0; i < count; ++i)
    frame.arguments.push_back(count == 1 ? "input" : "input_" + std::to_string(i));
  frame.out = out.tree();
  if (frame.out.kind == ProgramTree::Kind::list) frame.out.kind = ProgramTree::Kind::tuple;
  return frame;
}

void add_weight(RecordedModel& model, const std::string& name, const at::Tensor& tensor, bool is_parameter) {
  const void* storage = tensor.storage().unsafeGetStorageImpl();
  ProgramWeight weight{.name = name,
                       .tensor = recorded_tensor(tensor),
                       .is_parameter = is_parameter,
                       .storage = model.tensors.size()};
  for (std::size_t i = 0; i < model.tensors.size(); ++i)
    if (model.tensors[i].storage().unsafeGetStorageImpl() == storage) {
      weight.storage = model.weights[i].storage;
      break;
    }
  model.weights.push_back(std::move(weight));
  model.tensors.push_back(tensor.detach());
}

void require_on_host(const std::vector<NamedWeight>& weights, const Batch& example) {
  const auto require = [](const std::string& what, const at::Tensor& tensor) {
    if (!tensor.is_cpu())
      throw Error({.place = "export of a model",
                   .found = what + " is on " + tensor.device().str(),
                   .wanted = "a model and an example in host memory",
                   .remedy = "model->to(kd::cpu()), and back afterwards"});
  };
  for (const NamedWeight& weight : weights) require(weight.name, weight.tensor);
  for (const at::Tensor& tensor : example.tensors()) require("the example", tensor);
}

}  // namespace

RecordedModel recorded_model(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                             const ModelAsItWas& state, const DynamicSizes& sizes, bool drops_unused_inputs) {
  const std::vector<NamedWeight> weights = weights_of_model(model);
  require_on_host(weights, example);
  const std::vector<DynamicSizes::Sizes>& all = sizes.recorded().all();
  std::vector<ForwardRecording> recordings;
  RecordedRun first;
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Each begins at another sample: what depends on values differs, too.
    RecordedRun run =
        recorded_run(forward, named_tensors(weights),
                     sizes.resized(example, all[i], static_cast<std::int64_t>(i)), sizes, all[i]);
    state.put_back();
    recordings.push_back(std::move(run.recording));
    if (i == 0) first = {.recording = {}, .inputs = run.inputs, .outputs = run.outputs};
  }
  ForwardRecording merged = merged_recordings(recordings, sizes);
  RecordedModel recorded;
  recorded.used = drops_unused_inputs ? used_inputs(merged) : all_places(merged.inputs.size());
  keep_inputs(merged, recorded.used);
  recorded.program = python_program(merged, frame_of(weights, first, recorded.used), sizes);
  for (const NamedWeight& weight : weights)
    add_weight(recorded, weight.name, weight.tensor, weight.is_parameter);
  std::size_t constant = weights.size();
  for (const auto& [name, tensor] : merged.constants)
    add_weight(recorded, recorded.program.inputs[constant++].target, tensor, /*is_parameter=*/false);
  recorded.example = sizes.resized(example, all[0], 0);
  return recorded;
}

}  // namespace kindling
