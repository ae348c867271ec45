#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "interop/onnx/onnx_graph.h"

namespace c10 {
struct FunctionSchema;
}

namespace kindling {

// A size or an index: a constant, or a value of the graph, int64 [1].
struct OnnxNumber {
  OnnxNumber(std::int64_t number) : constant(number) {}  // NOLINT(google-explicit-constructor)
  explicit OnnxNumber(std::string of_graph) : value(std::move(of_graph)) {}

  std::optional<std::int64_t> constant{};
  std::string value{};
};

// Complex tensors are pairs of real tensors in the graph.
enum class OnnxPart : std::uint8_t { real, imaginary };

// Maps the values of a program to those of a graph. Constants, including weights, are added on first use.
class OnnxValues {
 public:
  // `last_uses`: the last use of each value of the program, by name.
  OnnxValues(const ExportedProgram& program, const std::map<std::string, std::size_t>& last_uses,
             OnnxGraph& graph)
      : program_(program), last_uses_(last_uses), graph_(graph) {}

  // Sets a real tensor, or a part of a complex one: the real part first.
  void set(const std::string& name, std::string value, OnnxPart part = OnnxPart::real) {
    if (part == OnnxPart::real) tensors_[name] = {};
    tensors_[name].names[static_cast<std::size_t>(part)] = std::move(value);
  }
  void set_constant(const std::string& name, at::Tensor tensor, const std::string& wanted_name = "constant") {
    tensors_[name] = {{}, std::move(tensor), wanted_name};
  }
  void copy(const std::string& name, const std::string& from) { tensors_[name] = tensors_.at(from); }
  void set_number(const std::string& name, std::string value) { numbers_[name] = std::move(value); }

  // Each throws CheckpointError for an undefined name.
  std::string tensor(const std::string& name, OnnxPart part = OnnxPart::real);
  std::string number(const std::string& name) const;          // [1], of int64, double or bool
  const at::Tensor* constant(const std::string& name) const;  // nullptr: it depends on inputs
  bool is_in_graph(const std::string& name) const;            // or, for a constant, its tensor is
  const ProgramTensor& meta(const std::string& name) const;
  bool is_complex(const std::string& name) const;
  bool is_used(const std::string& name) const { return last_uses_.contains(name); }

 private:
  struct Value {
    std::array<std::string, 2> names;  // in the graph, by part; empty: not yet added
    at::Tensor constant;
    std::string wanted_name;
  };

  const ExportedProgram& program_;
  const std::map<std::string, std::size_t>& last_uses_;
  OnnxGraph& graph_;
  std::map<std::string, Value> tensors_;
  std::map<std::string, std::string> numbers_;
  // Constants in the graph, with the numbers of their parts: tied weights are one.
  std::map<std::pair<const void*, std::size_t>, std::string> known_;
  std::vector<at::Tensor> kept_;  // these constants, so that no other tensor gets their address
};

// Which values of a program share memory, as far as that is known without running it: writes through one of
// them are visible through the others.
class SharedMemory {
 public:
  // Adds the results of a call, whose operator has this schema.
  void note(const ProgramNode& node, const c10::FunctionSchema& schema);
  void note_input(const std::string& name, const std::string& memory) { places_[name] = {memory, name}; }

  // Returns the values that are this same tensor, including itself.
  std::vector<std::string> same_as(const std::string& name) const;
  // Returns the values that may share its memory as another view.
  std::vector<std::string> other_views_of(const std::string& name) const;
  // Remembers the results of a call that have several elements in one place of the memory, such as expanded
  // tensors: these are views with more elements than the tensor that they show, and their views.
  void note_repeated(const ProgramNode& node, const std::map<std::string, ProgramTensor>& tensors);
  bool is_repeated(const std::string& name) const { return repeated_.contains(name); }

 private:
  struct Place {
    std::string memory;  // the name of a value in this memory
    std::string view;    // the name of a value that is the same tensor
  };
  void add(const std::string& name, const ProgramNode& node, const c10::FunctionSchema& schema);

  bool may_share(const std::string& one, const std::string& other) const;

  std::map<std::string, Place> places_;
  std::set<std::string> repeated_;
};

std::int64_t num_elements_of(const ProgramTensor& tensor);

// Returns the names of the program's tensors in an argument.
std::vector<std::string> tensor_names_in(const ProgramArgument& argument);
// Returns the argument that the call writes to; nullptr if there is none. Throws CheckpointError for a call
// that writes to several arguments, or to another than the first.
const std::string* written_tensor(const ProgramNode& node, const c10::FunctionSchema& schema);

}  // namespace kindling
