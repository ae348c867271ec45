#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/file.h"
#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/tensors/state_dict.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {

// Runs a script of this directory and returns its output, which is empty only on success.
inline std::string said_by_script(const Scratch& scratch, const std::string& arguments) {
  const std::string command = python_with_torch() + " " KINDLING_TESTS "/interop/run/" + arguments + " >" +
                              (scratch / "log").string() + " 2>&1";
  const int code = std::system(command.c_str());
  const std::string log = read_file(scratch / "log", 1'000'000);
  return (code == 0 ? "" : "failed\n") + log;
}

// Exported models with inputs and outputs, which Python must reproduce.
struct InPython {
  Scratch scratch{};
  bool with_onnx = false;  // ONNX does not support writes through views, which one model makes
  std::vector<std::string> names{};

  // The inputs of each case, and the model's outputs, for check_exported.py and onnx_programs.py.
  void add_cases(const std::string& name, const BatchFunction& forward, const std::vector<Batch>& cases) {
    StateDict state;
    for (std::size_t each = 0; each < cases.size(); ++each) {
      const Batch out = forward(cases[each]);
      const std::string number = std::to_string(each) + ".";
      for (std::size_t i = 0; i < cases[each].tensors().size(); ++i)
        state.tensors.emplace_back("in." + number + std::to_string(i), cases[each].tensors()[i]);
      for (std::size_t i = 0; i < out.tensors().size(); ++i)
        state.tensors.emplace_back("out." + number + std::to_string(i), out.tensors()[i]);
    }
    save_torch(state, scratch / (name + ".pt"));
    names.push_back(name);
  }

  void add(const std::string& name, torch::nn::Module& model, const BatchFunction& forward,
           const Batch& example, const std::vector<Batch>& cases, ExportOptions options = {}) {
    options.path = scratch / (name + ".pt2");
    export_program(model, forward, example, options);
    options.path = scratch / (name + ".onnx");
    if (with_onnx) export_program(model, forward, example, options);
    const EvaluationGuard evaluation(model);
    add_cases(name, forward, cases);
  }

  // The same for the forward() of a module; labels may follow the inputs of the example.
  void add(const std::string& name, const std::shared_ptr<Module>& model, const Batch& example,
           const std::vector<Batch>& cases, ExportOptions options = {}) {
    options.path = scratch / (name + ".pt2");
    export_program(*model, example, options);
    options.path = scratch / (name + ".onnx");
    if (with_onnx) export_program(*model, example, options);
    const EvaluationGuard evaluation(*model);
    add_cases(
        name, [&](const Batch& batch) { return Batch::leaf(model->forward_inputs(batch)); }, cases);
  }

  // The output of Python if its results are the same.
  std::string expect_same() {
    const std::string folder = scratch.folder().string();
    const std::string log = said_by_script(scratch, "check_exported.py " + folder);
    EXPECT_EQ(log.find("FAILED"), std::string::npos) << log;
    std::string all;
    for (const std::string& name : names) {
      EXPECT_NE(("\n" + log).find("\n" + name + " ok "), std::string::npos) << name << " of " << log;
      all += " " + name;
    }
    // Where onnx and onnxruntime are.
    const std::string check = "onnx_programs.py check ";
    if (with_onnx && said_by_script(scratch, check + ".").empty()) {
      EXPECT_EQ(said_by_script(scratch, check + folder + all), "");
    }
    return log;
  }
};

}  // namespace kindling
