#include <ATen/core/Tensor.h>

#include <algorithm>
#include <iostream>

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "program/commands.h"
#include "program/weights.h"

namespace kindling {
namespace {

LoadOptions name_map(const ConversionRequest& request) {
  LoadOptions options;
  for (const std::string& rule : request.map) {
    const std::size_t at = rule.find('=');
    if (at == std::string::npos)
      throw ConfigError({.place = "--map " + rule, .found = "there is no '='", .wanted = "--map FROM=TO"});
    options.map.emplace_back(rule.substr(0, at), rule.substr(at + 1));
  }
  return options;
}

// A rule that takes no name is a mistake in it.
void check_map(const LoadOptions& options, const StateDict& state) {
  for (const auto& [from, to] : options.map) {
    const auto fits = [&from = from](const auto& one) { return one.first.starts_with(from); };
    if (std::ranges::any_of(state.tensors, fits)) continue;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : state.tensors) names.push_back(name);
    const std::string close = nearest(from, names);
    throw ConfigError({.place = "--map " + from + "=" + to,
                       .found = "no name begins with '" + from + "'",
                       .wanted = "the beginning of one of the names",
                       .remedy = close.empty() ? "" : "did you mean '" + close + "'?"});
  }
}

void save_by_ending(StateDict state, const std::filesystem::path& out) {
  if (out.extension() == ".pt") return save_torch(state, out);
  state.metadata = {{"format", "pt"}};  // as Python's libraries mark theirs
  save_safetensors(state, out);
}

void check_ending(const std::filesystem::path& out) {
  if (out.extension() != ".pt" && out.extension() != ".safetensors")
    throw ConfigError({.place = out.string(),
                       .found = "its ending '" + out.extension().string() + "' is none of weights",
                       .wanted = ".safetensors or .pt"});
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text.empty() ? "one value" : text;
}

// What has been written, a line per tensor.
void print_written(const StateDict& read, const StateDict& written, const std::filesystem::path& out) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < written.tensors.size(); ++i) {
    const auto& [name, tensor] = written.tensors[i];
    const std::string& before = read.tensors[i].first;
    rows.push_back({one_line(name), c10::toString(tensor.scalar_type()), shape_of(tensor),
                    before == name ? "" : "was " + one_line(before)});
  }
  std::cout << table_text({{.title = "tensor"}, {.title = "type"}, {.title = "shape"}, {.title = ""}}, rows)
            << written.tensors.size() << " tensors written to " << out.string() << "\n";
}

int convert(const ConversionRequest& request, const StateDict& read) {
  const LoadOptions options = name_map(request);
  check_map(options, read);
  const StateDict written = renamed(read, options, request.in.string());
  save_by_ending(written, request.out);
  print_written(read, written, request.out);
  return 0;
}

}  // namespace

int export_command(const CommandContext& context) {
  const ConversionRequest& request = context.request.conversion;
  check_ending(request.out);
  return convert(request, weights_from(request.in));
}

int import_command(const CommandContext& context) {
  const ConversionRequest& request = context.request.conversion;
  check_ending(request.out);
  return convert(request, load_state_file(request.in, request.key));
}

}  // namespace kindling
