#include "cli/config/command_line.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/joined.h"
#include "cli/config/command_parser.h"
#include "cli/config/config_topics.h"
#include "cli/config/config_words.h"
#include "cli/config/exit_codes.h"
#include "cli/config/other_names.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/base/version.h"
#include "kindling/config/printer.h"

namespace kindling {
namespace {

namespace CLI = kindling_cli11;

// "trainer.max_epochs" of "--trainer.max_epochs=3" or "--trainer.max_epochs"; empty for other words.
std::string_view override_key(std::string_view word) {
  if (!word.starts_with("--")) return {};
  const std::string_view key = word.substr(2, word.find('=') - 2);
  const bool is_key = key.find('.') != std::string_view::npos || key == "seed" || key == "name";
  return is_key ? key : std::string_view{};
}

// True for a word that has a '=' but names a file or a run: Lightning's epoch=3-val_loss=0.25.ckpt, a run in
// lr=0.1/. A key has no '/'.
bool is_path_with_sign(const std::string& word, bool may_be_run) {
  if (word.substr(0, word.find('=')).find('/') != std::string::npos) return true;
  std::error_code ignored;
  const auto exists = [&](const std::filesystem::path& path) {
    return !path.empty() && (std::filesystem::exists(path, ignored) ||
                             (may_be_run && std::filesystem::exists("runs" / path, ignored)));
  };
  return exists(word) || exists(word.substr(0, word.rfind(':')));  // RUN:last
}

// Removes the overrides from the words and leaves the rest for the parser.
std::vector<std::string> take_overrides(const std::vector<std::string>& words,
                                        std::vector<std::string>& overrides) {
  // These take no config, and the names of their files, runs and projects may contain a '='.
  constexpr std::array<std::string_view, 9> kWithoutConfig{"plot",       "runs",   "new",    "list", "help",
                                                           "completion", "export", "import", "diff"};
  if (!words.empty() &&
      std::find(kWithoutConfig.begin(), kWithoutConfig.end(), words[0]) != kWithoutConfig.end())
    return words;
  const bool takes_run = !words.empty() && words[0] != "fit" && words[0] != "sweep";
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    if (i > 0 && word.starts_with('=') && !words[i - 1].starts_with('-')) {
      const std::string key = words[i - 1], value = word.size() > 1        ? word.substr(1)
                                                    : i + 1 < words.size() ? words[i + 1]
                                                                           : "VALUE";
      throw ConfigError({.place = "command line",
                         .found = "spaces around '=' after '" + key + "'",
                         .wanted = key + "=" + shell_word(value) + ", without spaces"});
    }
    const std::string_view key = override_key(word);
    const bool is_value =
        i > 0 && (words[i - 1] == "-c" || words[i - 1] == "--config" || words[i - 1] == "--weights" ||
                  words[i - 1] == "--resume" || words[i - 1] == "--svg" || words[i - 1] == "--map" ||
                  words[i - 1] == "--key" || words[i - 1] == "--dynamic" || words[i - 1] == "--sweep" ||
                  words[i - 1] == "--filter" || words[i - 1] == "--out" || words[i - 1] == "--png" ||
                  words[i - 1] == "--target" || words[i - 1] == "--save" || words[i - 1] == "--branch");
    if (is_value) {
      rest.push_back(word);
    } else if (!key.empty() && word.find('=') != std::string::npos) {
      overrides.push_back(word.substr(2));
    } else if (!key.empty()) {
      if (i + 1 == words.size())
        throw ConfigError(
            {.place = "command line", .found = "'" + word + "' has no value", .wanted = word + " VALUE"});
      overrides.push_back(std::string(key) + "=" + words[++i]);
    } else if (!word.starts_with("-") && word.find('=') != std::string::npos &&
               !is_path_with_sign(word, takes_run)) {
      overrides.push_back(word);
    } else {
      rest.push_back(word);
    }
  }
  return rest;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// "kindling", "kindling bench matmul"
std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return (parent == nullptr ? "" : full_name(*parent) + " ") + command.get_name();
}

// "did you mean 'fit'?"; empty without a guess.
std::string question(const std::string& guess) {
  return guess.empty() ? "" : "did you mean '" + guess + "'?";
}

// Returns the command that a word of another program stands for; else the nearest one.
std::string guess_command(const std::string& word, const std::vector<std::string>& names) {
  if (word.ends_with(".toml") && std::find(names.begin(), names.end(), "fit") != names.end())
    return "kindling fit " + shell_word(word);
  constexpr std::pair<std::string_view, std::string_view> kOther[] = {
      {"train", "fit"},       {"run", "fit"},           {"resume", "fit --resume"}, {"eval", "validate"},
      {"val", "validate"},    {"evaluate", "validate"}, {"infer", "predict"},       {"inference", "predict"},
      {"convert", "export"},  {"save", "export"},       {"load", "import"},         {"init", "new"},
      {"create", "new"},      {"ls", "runs"},           {"compare", "diff"},        {"tune", "sweep"},
      {"search", "sweep"},    {"info", "doctor"},       {"env", "doctor"},          {"gpus", "devices"},
      {"benchmark", "bench"}, {"show", "plot"}};
  for (const auto& [other, ours] : kOther)
    if (word == other && std::find(names.begin(), names.end(), ours.substr(0, ours.find(' '))) != names.end())
      return std::string(ours);
  return nearest(word, names);
}

// Throws ConfigError for a command that earlier versions had. Kept for two releases.
void refuse_removed(const std::string& command) {
  if (command == "kindling data fetch")
    throw ConfigError({.place = command,
                       .found = "the command was removed",
                       .remedy = "docs/reference/data_files.md says where to download the files, and "
                                 "`kindling data check NAME` compares them with their checksums"});
  if (command == "kindling reference")
    throw ConfigError({.place = command,
                       .found = "the command was removed",
                       .remedy = "docs/reference/ has the pages of the shipped program, and `kindling help "
                                 "TOPIC` explains every key, table and name of this one"});
}

// Returns the command that the words name, and removes its words. Throws ConfigError for an unknown one.
const CLI::App& find_command(const CLI::App& app, std::span<const std::string>& words) {
  const std::vector<std::string> names = names_of_commands(app);
  if (names.empty() || words.empty() || words[0].starts_with("-")) return app;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == words[0]) {
      words = words.subspan(1);
      return find_command(*command, words);
    }
  refuse_removed(full_name(app) + " " + words[0]);
  throw ConfigError({.place = full_name(app),
                     .found = "there is no command '" + words[0] + "'",
                     .wanted = "one of " + list_names(names),
                     .remedy = question(guess_command(words[0], names))});
}

bool takes_config(const CLI::App& command) { return command.get_option_no_throw("--config") != nullptr; }

// Returns the option of the command, or the config key as an option, that an unknown option stands for.
std::string guess_option(const std::string& name, const CLI::App& command, const Registry& registry) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& each : option->get_lnames()) options.push_back(each);
  const std::string bare = name.substr(name.find_first_not_of('-'));
  if (!takes_config(command)) {
    const std::string guess = nearest(bare, options);
    return guess.empty() ? "" : "--" + guess;
  }
  std::string guess = key_for_other_name(bare);
  const std::vector<std::string> keys = config_key_names(registry);
  const auto last_part = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> parts;
  for (const std::string& key : keys) parts.push_back(last_part(key));
  const auto key_of = [&](const std::string& part) {
    const auto found = std::find(parts.begin(), parts.end(), part);
    return found == parts.end() ? std::string() : keys[static_cast<std::size_t>(found - parts.begin())];
  };
  if (guess.empty()) guess = key_of(bare);
  if (guess.empty()) guess = nearest(bare, options);
  if (guess.empty()) guess = key_of(nearest(bare, parts));
  return guess.empty() ? "" : "--" + guess;
}

// Returns "did you mean '--trainer.max_epochs'?"; for keys whose value is a text without choices with an
// example of its format: "did you mean '--trainer.max_time', for example --trainer.max_time 00:12:00:00?".
std::string question_of_option(const std::string& option, const Registry& registry) {
  const ConfigTopics topics(registry);
  for (const ConfigKey& key : config_keys(topics)) {
    const FieldNotes& notes = key.option->notes;
    const bool is_text =
        std::holds_alternative<std::string*>(key.option->value) && std::string_view(notes.choices).empty();
    const std::string example = notes.example;
    if ("--" + key.path == option && is_text && !example.empty())
      return "did you mean '" + option + "', for example " + option + " " + shell_word(unquoted(example)) +
             "?";
  }
  return question(option);
}

std::string option_list(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_positional()) names.push_back("--" + option->get_lnames().front());
  return "one of " + list_names(names) +
         (takes_config(command) ? ", or --table.key VALUE for a config key" : "");
}

// "A", without the choices that the parser appends
std::string type_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

[[noreturn]] void refuse_missing_value(const CLI::App& command, const CLI::Option& option,
                                       const std::string& name) {
  throw ConfigError({.place = full_name(command),
                     .found = "'" + name + "' has no value",
                     .wanted = name + " " + type_name(option),
                     .remedy = "see `" + full_name(command) + " --help`"});
}

// Throws ConfigError for the first option that the command does not have, or that lacks its value.
void check_options(const CLI::App& command, std::span<const std::string> words, const Registry& registry) {
  bool is_value = false;
  for (const std::string& word : words) {
    if (word == "--") return;
    const bool is_option = !is_value && word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
    is_value = false;
    if (!is_option) continue;
    const bool is_long = word.starts_with("--");
    const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
    if (const CLI::Option* option = command.get_option_no_throw(name)) {
      const bool is_complete = is_long ? name.size() < word.size() : word.size() > 2;
      is_value = option->get_items_expected_min() > 0 && !is_complete;
      if (is_value && &word == &words.back()) refuse_missing_value(command, *option, name);
      continue;
    }
    const std::string shown = word.substr(0, word.find('='));
    const std::string guess = guess_option(shown, command, registry);
    throw ConfigError({.place = full_name(command),
                       .found = "there is no option '" + shown + "'",
                       .wanted = guess.empty() ? option_list(command) : "",
                       .remedy = question_of_option(guess, registry)});
  }
}

// "kindling diff [OPTIONS] A B"
std::string usage_of(const CLI::App& command) {
  std::string usage =
      full_name(command) + (names_of_commands(command).empty() ? "" : " COMMAND") + " [OPTIONS]";
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional())
      usage += " " + (option->get_required() ? type_name(*option) : "[" + type_name(*option) + "]");
  return usage;
}

// "a whole number from 1 to 1024" of "N:INT in [1 - 1024]"; numbers without a range there have no upper
// limit.
std::string range_text(const std::string& type) {
  constexpr std::string_view kIn = " in [", kTo = " - ";
  const std::size_t in = type.find(kIn), to = type.find(kTo, in);
  if (in == std::string::npos || to == std::string::npos) return "a number that is at least 0";
  const std::size_t low = in + kIn.size(), high = to + kTo.size();
  return std::string(type.ends_with("]") && type.find("INT in") != std::string::npos ? "a whole number"
                                                                                     : "a number") +
         " from " + type.substr(low, to - low) + " to " + type.substr(high, type.find(']', high) - high);
}

// Throws ConfigError if the parser has refused the value of an option.
void refuse_value(const CLI::App& command, const CLI::ParseError& error) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name(), type = option->get_type_name();
    if (!std::string_view(error.what()).starts_with(name + ": ") || option->results().empty()) continue;
    const std::string& value = option->results().back();
    const std::vector<std::string> choices = choices_of(*option);
    throw ConfigError({.place = full_name(command),
                       .found = name + " is '" + value + "'",
                       .wanted = name == "--print-config" ? "all, or no value"
                                 : choices.empty()        ? range_text(type)
                                                          : "one of " + list_names(choices),
                       .remedy = choices.empty() ? "see `" + full_name(command) + " --help`"
                                                 : question(nearest(value, choices))});
  }
}

// Throws ConfigError for an option without a value, or with more than one.
void refuse_number_of_values(const CLI::App& command, const CLI::ParseError& error) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (!std::string_view(error.what()).starts_with(name + ":")) continue;
    if (option->results().size() < 2) refuse_missing_value(command, *option, name);
    throw ConfigError(
        {.place = full_name(command), .found = "'" + name + "' is given twice", .wanted = "one value"});
  }
}

// Throws ConfigError for what the parser has refused.
[[noreturn]] void refuse(const CLI::App& command, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) refuse_value(command, error);
  std::string found = error.what();
  std::string wanted = usage_of(command), remedy = "for example: " + command_example(command.get_name());
  const CLI::Option* missing = nullptr;
  for (const CLI::Option* option : command.get_options())
    if (missing == nullptr && option->get_required() && option->count() == 0) missing = option;
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> words = command.remaining();
    found = "unexpected argument '" + (words.empty() ? std::string() : words.front()) + "'";
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    refuse_number_of_values(command, error);
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && missing != nullptr) {
    found = type_name(*missing) + " is missing";
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    found = "a command is missing";
    wanted = "one of " + list_names(names_of_commands(command));
  } else {
    wanted.clear();
    remedy = "see `" + full_name(command) + " --help`";
  }
  throw ConfigError({.place = full_name(command), .found = found, .wanted = wanted, .remedy = remedy});
}

// The keys that `fit --help` shows.
std::string frequent_keys(const Registry& registry) {
  constexpr std::array<std::string_view, 10> kFrequent{
      "model.name",    "data.name",          "data.batch_size",  "optimizer.name",    "optimizer.lr",
      "schedule.name", "trainer.max_epochs", "trainer.num_gpus", "trainer.precision", "seed"};
  const ConfigTopics topics(registry);
  std::string text = "Frequent keys:\n";
  for (const std::string_view path : kFrequent)
    if (const std::vector<ConfigKey> keys = config_keys(topics, path); !keys.empty())
      text += "  " + padded(keys[0].path, 20) + describe(*keys[0].option).description + "\n";
  return text + "All keys: kindling help model, kindling help trainer, …\n";
}

// `help COMMAND` is `COMMAND --help`, and `version` is `--version`.
std::vector<std::string> without_help_command(std::vector<std::string> words, const CLI::App& app) {
  if (words.empty()) return words;
  if (words[0] == "version" && words.size() == 1) return {"--version"};
  if (words[0] != "help") return words;
  const std::vector<std::string> names = names_of_commands(app);
  const bool is_command = words.size() > 1 && std::find(names.begin(), names.end(), words[1]) != names.end();
  if (words.size() > 1 && !is_command) return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, char** argv, const Registry& registry) {
  ParsedCommandLine parsed;
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  words = take_overrides(words, parsed.request.overrides);

  CLI::App app("Kindling trains models described by a config file.", "kindling");
  app.set_version_flag("--version", std::string("kindling ") + version());
  app.require_subcommand(1);
  add_commands(app, parsed.request);
  app.footer(  // after the commands, which would inherit it
      "Examples:\n  kindling fit configs/digits.toml\n  kindling help fit\n  kindling help "
      "trainer.precision");
  app.get_subcommand("fit")->footer([&] { return frequent_keys(registry); });  // before its other footer
  words = without_help_command(std::move(words), app);
  if (words.empty() && parsed.request.overrides.empty()) {
    std::cerr << app.help();
    parsed.exit_code = kConfigErrorCode;
    return parsed;
  }
  std::span<const std::string> rest = words;
  const CLI::App& command = find_command(app, rest);
  check_options(command, rest, registry);
  try {
    std::vector<std::string> reversed(words.rbegin(), words.rend());  // the parser takes them from the back
    app.parse(reversed);
  } catch (const CLI::Success& help_or_version) {
    parsed.exit_code = app.exit(help_or_version);
    return parsed;
  } catch (const CLI::ParseError& error) {
    refuse(command, error);
  }
  parsed.request.command = app.get_subcommands().front()->get_name();
  if (parsed.request.command == "bench") parsed.request.bench.what = command.get_name();
  if (parsed.request.command == "data") parsed.request.data.what = command.get_name();
  move_config_words(parsed.request, registry);
  return parsed;
}

std::string shell_word(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") ==
          std::string::npos)
    return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string command_line_of(const CommandContext& command) {
  return joined(std::span(command.argv, static_cast<std::size_t>(command.argc)), " ", shell_word);
}

std::string unquoted(const std::string& value) {
  const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace kindling
