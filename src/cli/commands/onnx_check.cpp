#include "cli/commands/onnx_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/config/command_line.h"
#include "data/loading/first_batch.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/npz.h"
#include "kindling/interop/exported_module.h"
#include "tensors/scalar_types.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarker = "\ncompared ";

// Prints a line of the largest difference, the largest output, both of finite numbers, and the number of the
// output that differs most, for the model argv[1] and the arrays in0, in1, …, out0, … of argv[2]; labels may
// follow its inputs. The difference is inf if the shapes differ, or the places of NaN and infinite numbers.
constexpr const char* kScript = R"(
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
arrays = numpy.load(sys.argv[2])
given = {each.name: arrays[f"in{i}"] for i, each in enumerate(session.get_inputs())}
worst = (-1.0, 0.0, 0.0, 0)
for i, ours in enumerate(session.run(None, given)):
    wanted, ours = arrays[f"out{i}"].astype(numpy.float64), ours.astype(numpy.float64)
    finite = numpy.isfinite(wanted)
    apart, largest = float("inf"), float(numpy.max(numpy.abs(wanted[finite]), initial=0))
    if ours.shape == wanted.shape and numpy.array_equal(ours[~finite], wanted[~finite], equal_nan=True):
        if numpy.isfinite(ours[finite]).all():
            apart = float(numpy.max(numpy.abs(ours[finite] - wanted[finite]), initial=0))
    ratio = apart / largest if largest else float("inf") if apart else 0.0
    if ratio > worst[0]:
        worst = (ratio, apart, largest, i)
print("\ncompared", *worst[1:])
)";

struct Answer {
  int exit_code;
  std::string text;  // both streams
};

Answer ask_python(const std::vector<std::string>& arguments) {
  std::string command = "python3";
  for (const std::string& argument : arguments) command += " " + shell_word(argument);
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {.exit_code = -1, .text = "no shell"};
  Answer answer{.exit_code = 0, .text = ""};
  std::array<char, 4096> part{};
  for (std::size_t count; (count = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    answer.text.append(part.data(), count);
  answer.exit_code = ::pclose(pipe);
  return answer;
}

// Both streams are in one text, so that other lines may surround the one of the script.
std::string line_of_script(const std::string& text) {
  const std::size_t at = text.rfind(kMarker);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + kMarker.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

void write_arrays(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs,
                  const fs::path& file) {
  std::vector<TensorToWrite> arrays;
  std::vector<at::Tensor> kept;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    kept.push_back(tensor.detach().cpu().contiguous());
    arrays.push_back({.name = name,
                      .type = *tensor_type_of(kept.back().scalar_type()),
                      .shape = kept.back().sizes().vec(),
                      .data = kept.back().const_data_ptr(),
                      .size_bytes = kept.back().nbytes()});
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) add("in" + std::to_string(i), inputs[i]);
  for (std::size_t i = 0; i < outputs.size(); ++i) add("out" + std::to_string(i), outputs[i]);
  write_npz(file, arrays);
}

}  // namespace

void require_onnxruntime() {
  const Answer answer = ask_python({"-c", "import numpy, onnxruntime"});
  if (answer.exit_code == 0) return;
  throw ConfigError(
      {.place = "--verify",
       .found = "the python3 on the PATH cannot import onnxruntime (" + last_line(answer.text) + ")",
       .wanted = "the Python package onnxruntime",
       .remedy = "python3 -m pip install onnxruntime"});
}

void compare_with_onnxruntime(const fs::path& onnx, const fs::path& pt2, const Batch& samples,
                              double tolerance) {
  const at::NoGradGuard no_grad;
  ExportedModule program({.file = pt2});
  program.eval();
  const std::optional<std::int64_t> fixed = program.fixed_batch_size(/*train=*/false);
  const Batch batch = fixed ? with_samples(samples, *fixed) : samples;
  const fs::path arrays = pt2.parent_path() / "arrays.npz";
  write_arrays(batch.tensors(), program.predict_outputs(batch).tensors(), arrays);
  const Answer answer = ask_python({"-c", kScript, onnx.string(), arrays.string()});
  std::size_t output = 0;
  std::istringstream numbers(line_of_script(answer.text));
  std::string first, second;
  if (answer.exit_code != 0 || !(numbers >> first >> second >> output))
    throw Error({.place = onnx.string(),
                 .found = "onnxruntime cannot run it: " + last_line(answer.text),
                 .wanted = "a model that onnxruntime runs",
                 .remedy = "the model as .pt2 is not affected"});
  const double difference = std::stod(first), largest = std::stod(second);
  const std::string of_output = "output " + std::to_string(output) + " of onnxruntime ";
  if (!std::isfinite(difference))
    throw Error({.place = onnx.string(),
                 .found = of_output + "has another shape, or NaN or infinite numbers in other places",
                 .wanted = "the shape and the places of the model's output",
                 .remedy = "use the model as .pt2"});
  const std::string found = of_output + "differs by up to " + short_text(difference, 3) +
                            ", and its largest number is " + short_text(largest, 3);
  if (!(difference >= 0 && difference <= tolerance * largest))
    throw Error({.place = onnx.string(),
                 .found = found,
                 .wanted = "at most " + number_text(tolerance) + " of the largest output (--tolerance)",
                 .remedy = "use the model as .pt2, or a larger tolerance if the difference is acceptable"});
  std::cout << "verified on " << batch.num_samples() << " samples: " << found << "\n";
}

}  // namespace kindling
