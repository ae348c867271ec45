#include "protocol.h"

#include <kindling/base/error.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace kindling_bench {
namespace {

int positive(const std::string& option, const std::string& text) {
  int value = 0;
  const auto* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < 1)
    throw kindling::ConfigError(
        {.place = option, .found = "the value '" + text + "'", .wanted = "a positive integer"});
  return value;
}

void require_one_of(const std::vector<std::string>& known, const std::string& option,
                    const std::string& text) {
  if (std::ranges::find(known, text) != known.end()) return;
  std::string wanted;
  for (const std::string& each : known) wanted += (wanted.empty() ? "" : ", ") + each;
  throw kindling::ConfigError({.place = option, .found = "'" + text + "'", .wanted = "one of " + wanted});
}

void set(Options& options, const std::string& option, const std::string& value) {
  if (option == "--case")
    options.case_name = value;
  else if (option == "--threads")
    options.threads = positive(option, value);
  else if (option == "--repeats")
    options.repeats = positive(option, value);
  else if (option == "--precision")
    options.precision = value;
  else if (option == "--device")
    options.device = value;
  else if (option == "--peer")
    options.peer = value;
  else if (option == "--variant")
    options.variant = value;
  else if (option == "--folder")
    options.folder = value;
  else
    throw kindling::ConfigError(
        {.place = "command line",
         .found = "the unknown option " + option,
         .wanted =
             "--case, --threads, --repeats, --precision, --device, --gate, --peer, --variant or --folder"});
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    if (option == "--gate") {
      options.gate = true;
    } else if (option == "--first-step") {
      options.first_step = true;
    } else if (i + 1 < arguments.size()) {
      set(options, option, arguments[++i]);
    } else {
      throw kindling::ConfigError({.place = "command line", .found = option + " has no value"});
    }
  }
  require_one_of(
      {"kindling", "kindling_mkl", "kindling_eager", "kindling_exported", "kindling_exported_eager", "plain"},
      "--peer", options.peer);
  require_one_of({"cpu", "cuda"}, "--device", options.device);
  const std::set<std::string> in_both{"cnn_mnist", "card_cifar", "card_gpt2"};
  if (in_both.contains(options.case_name))
    require_one_of({"fp32", "bf16"}, "--precision", options.precision);
  else
    require_one_of({"fp32"}, "--precision", options.precision);
  return options;
}

}  // namespace kindling_bench
