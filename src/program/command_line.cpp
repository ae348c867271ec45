#include "program/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "kindling/base/error.h"
#include "kindling/base/version.h"

namespace kindling {
namespace {

// "trainer.max_epochs" of "--trainer.max_epochs=3" or "--trainer.max_epochs"; empty for other words.
std::string_view override_key(std::string_view word) {
  if (!word.starts_with("--")) return {};
  const std::string_view key = word.substr(2, word.find('=') - 2);
  const bool is_key = key.find('.') != std::string_view::npos || key == "seed" || key == "name";
  return is_key ? key : std::string_view{};
}

// Takes the overrides out of the words and leaves the rest for the parser.
std::vector<std::string> take_overrides(const std::vector<std::string>& words,
                                        std::vector<std::string>& overrides) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string_view key = override_key(word);
    const bool is_value =
        i > 0 && (words[i - 1] == "-c" || words[i - 1] == "--config" || words[i - 1] == "--weights");
    if (is_value) {
      rest.push_back(word);
    } else if (!key.empty() && word.find('=') != std::string::npos) {
      overrides.push_back(word.substr(2));
    } else if (!key.empty()) {
      if (i + 1 == words.size())
        throw ConfigError(
            {.place = "command line", .found = "'" + word + "' has no value", .wanted = word + " VALUE"});
      overrides.push_back(std::string(key) + "=" + words[++i]);
    } else if (!word.starts_with("-") && word.find('=') != std::string::npos) {
      overrides.push_back(word);
    } else {
      rest.push_back(word);
    }
  }
  return rest;
}

void add_run_options(CLI::App& command, Request& request) {
  command.add_option("-c,--config", request.configs, "TOML config file; repeatable, later ones win")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_flag("--print-config", request.print_config, "print the resolved config and stop");
  command.add_flag("--check", request.check, "check the config and stop");
  command.add_flag("--quiet", request.quiet, "print errors and results only");
  command.add_option("--color", request.color)
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  command.add_option("--progress", request.progress)
      ->check(CLI::IsMember({"auto", "bar", "plain", "none"}))
      ->type_name("HOW");
  command.footer("Any key of the config can be given as table.key=value or --table.key value.");
}

void add_commands(CLI::App& app, Request& request) {
  add_run_options(*app.add_subcommand("fit", "train a model"), request);
  for (const auto& [name, doc] : {std::pair{"validate", "evaluate a model on the validation data"},
                                  std::pair{"test", "evaluate a model on the test data"},
                                  std::pair{"predict", "print a model's outputs as CSV"}}) {
    CLI::App* command = app.add_subcommand(name, doc);
    add_run_options(*command, request);
    command->add_option("--weights", request.weights, "a run's folder or a safetensors file")
        ->type_name("RUN|FILE");
  }
  app.add_subcommand("devices", "the cards and the CPU")->add_flag("--json", request.json, "as JSON");
  app.add_subcommand("doctor", "versions, build, devices, threads, paths: for a bug report");
  app.add_subcommand("list", "what a config can name")
      ->add_option("what", request.listed)
      ->required()
      ->check(CLI::IsMember({"models", "datasets", "optimizers", "schedules"}));
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, char** argv) {
  ParsedCommandLine parsed;
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  words = take_overrides(words, parsed.request.overrides);

  CLI::App app("Kindling trains models described by a config file.", "kindling");
  app.set_version_flag("--version", std::string("kindling ") + version());
  app.require_subcommand(1);
  add_commands(app, parsed.request);
  try {
    std::reverse(words.begin(), words.end());  // the parser takes them from the back
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    parsed.exit_code = code == 0 ? 0 : 2;
    return parsed;
  }
  parsed.request.command = app.get_subcommands().front()->get_name();
  return parsed;
}

}  // namespace kindling
