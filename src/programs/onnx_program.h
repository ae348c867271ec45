#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/program_weight.h"
#include "programs/onnx_graph.h"
#include "programs/onnx_values.h"
#include "programs/shared_memory.h"
#include "programs/write_onnx.h"

namespace kindling {

// A program on its way into a graph, call by call. What works in place gets a new value of the graph, which
// takes the old one's place wherever the program means the same tensor.
class OnnxProgram {
 public:
  // `size_names`: of symbols; others get their own.
  OnnxProgram(const ExportedProgram& program, const ProgramWeights& weights,
              const std::map<std::string, std::string>& size_names, OnnxGraph& graph);

 private:
  void add_inputs(const ProgramWeights& weights);
  void add_call(std::size_t number);
  void add_operator(std::size_t number, const std::string& name, const c10::FunctionSchema& schema);
  bool add_as_constants(const ProgramNode& node, const c10::FunctionSchema& schema);
  void check_write(std::size_t number, const std::string& written) const;
  void add_outputs();

  const ExportedProgram& program_;
  OnnxGraph& graph_;
  std::map<std::string, std::size_t> last_uses_;  // by value: of a call, or of the outputs behind all calls
  OnnxValues values_;
  SharedMemory memory_;
  std::map<std::string, std::string> size_names_;  // of symbols
};

}  // namespace kindling
