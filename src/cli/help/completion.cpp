#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/config/command_parser.h"
#include "cli/config/config_topics.h"
#include "cli/help/help.h"
#include "kindling/config/printer.h"

namespace kindling {
namespace {

namespace CLI = kindling_cli11;

// A command with the words that can follow it.
struct CommandWords {
  std::string name;  // "fit", "bench step"
  std::string doc;
  std::vector<std::string> options{};  // "--config"
  std::vector<std::string> words{};    // subcommands, and choices of a positional argument
  std::map<std::string, std::vector<std::string>> values{};  // of an option: "--color" → auto, always, never
  bool takes_config = false;
  bool takes_files = false;
};

// True for a type such as FILE, RUN|CHECKPOINT, or NAME|CONFIG.
bool is_path(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  for (const char* path : {"FILE", "CONFIG", "RUN", "DIR", "IN", "OUT", "A", "B"})
    for (std::size_t at = type.find(path); at != std::string::npos; at = type.find(path, at + 1)) {
      const std::size_t end = at + std::string_view(path).size();
      const bool begins = at == 0 || type[at - 1] == '|';
      if (begins && (end == type.size() || type[end] == '|' || type[end] == '.')) return true;
    }
  return false;
}

void add_command_words(std::vector<CommandWords>& all, const CLI::App& command, const std::string& name) {
  CommandWords words{.name = name, .doc = command.get_description()};
  words.takes_config = command.get_option_no_throw("--config") != nullptr;
  for (const CLI::Option* option : command.get_options()) {
    words.takes_files = words.takes_files || is_path(*option);
    const std::vector<std::string> choices = choices_of(*option);
    if (option->get_positional()) {
      words.words.insert(words.words.end(), choices.begin(), choices.end());
      continue;
    }
    words.options.push_back("--" + option->get_lnames().front());
    if (!choices.empty()) words.values[words.options.back()] = choices;
  }
  const auto below = command.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* each : below) words.words.push_back(each->get_name());
  all.push_back(std::move(words));
  for (const CLI::App* each : below) add_command_words(all, *each, name + " " + each->get_name());
}

// What `help` explains: commands, tables, names, and keys.
std::vector<std::string> help_topics(const CLI::App& app, const Registry& registry) {
  std::set<std::string> topics;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    topics.insert(command->get_name());
  const ConfigTopics all(registry);
  for (const ConfigTopic& topic : all.all()) {
    if (!topic.table.empty()) topics.insert(topic.table);
    for (const ConfigTopic::Entry& entry : topic.entries) topics.insert(entry.name);
  }
  for (const std::string& key : config_key_names(registry)) topics.insert(key);
  return {topics.begin(), topics.end()};
}

// The losses, and the metrics of the registry in both stages.
std::vector<std::string> metric_names(const Registry& registry) {
  std::vector<std::string> names;
  for (const char* stage : {"train_", "val_"}) {
    for (const char* metric : {"loss", "acc"}) names.push_back(std::string(stage) + metric);
    for (const std::string& metric : registry.metrics.names()) names.push_back(stage + metric);
  }
  return names;
}

std::vector<CommandWords> all_commands(const Registry& registry) {
  Request unused;
  CLI::App app;
  add_commands(app, unused);
  std::vector<CommandWords> all;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    add_command_words(all, *command, command->get_name());
  for (CommandWords& command : all) {
    if (command.name == "list")
      command.words = {"models",    "datasets", "transforms", "optimizers",
                       "schedules", "metrics",  "callbacks",  "loggers"};
    if (command.name == "help") command.words = help_topics(app, registry);
    if (command.name == "data check" || command.name == "data show")
      command.words = registry.data_modules.names();
    if (command.name == "plot") command.values["--metric"] = metric_names(registry);
  }
  return all;
}

// Without the quotes of TOML, which a shell does not need.
std::vector<std::string> values_of(const ConfigKey& key) {
  std::vector<std::string> values;
  const bool is_name = key.owner.empty() && key.option->name == "name" && !key.topic->entries.empty();
  if (is_name)
    for (const ConfigTopic::Entry& entry : key.topic->entries) values.push_back(entry.name);
  const OptionText text = describe(*key.option);
  if (text.default_value == "true" || text.default_value == "false") return {"true", "false"};
  values.insert(values.end(), text.choices.begin(), text.choices.end());
  return values;
}

// The values of keys whose values are known, by key.
std::map<std::string, std::vector<std::string>> values_by_key(const Registry& registry) {
  const ConfigTopics topics(registry);
  std::map<std::string, std::vector<std::string>> values;
  for (const ConfigKey& key : config_keys(topics))
    if (std::vector<std::string> known = values_of(key); !known.empty())
      values.emplace(key.path, std::move(known));
  return values;
}

std::string in_single_quotes(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string words_text(const std::vector<std::string>& words) { return in_single_quotes(joined(words, " ")); }

// "my-program" → "my_program": a part of the names of shell functions.
std::string identifier(std::string program) {
  for (char& c : program) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_letter) c = '_';
  }
  return program;
}

std::string replaced(std::string text, std::string_view from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Branches of `case` in the syntax that both shells share: what can follow a command, an option, and a key.
struct Branches {
  std::string commands, options, values;
};

Branches branches_of(const Registry& registry) {
  Branches branches;
  for (const CommandWords& command : all_commands(registry)) {
    branches.commands +=
        "    " + in_single_quotes(command.name) + ") following=" + words_text(command.words) +
        " options=" + words_text(command.options) + " takes_config=" + (command.takes_config ? "1" : "''") +
        " takes_files=" + (command.takes_files ? "1" : "''") + " ;;\n";
    for (const auto& [option, values] : command.values)
      branches.options +=
          "    " + in_single_quotes(command.name + " " + option) + ") values=" + words_text(values) + " ;;\n";
  }
  for (const auto& [key, values] : values_by_key(registry))
    branches.values += "    " + in_single_quotes(key) + ") values=" + words_text(values) + " ;;\n";
  return branches;
}

constexpr std::string_view kBash = R"(# Completion of PROGRAM for bash: source <(PROGRAM completion bash)
_FUNCTION_complete() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} key='' values=''
  local command='' following='' options='' takes_config='' takes_files='' word i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    case "$command" in
      '') case "$word" in COMMANDS_PATTERN) command=$word ;; esac ;;
SUBCOMMANDS    esac
  done
  # bash splits words at '='.
  if [[ $current == '=' ]]; then
    key=$previous current=''
  elif [[ $previous == '=' && $COMP_CWORD -ge 2 ]]; then
    key=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $previous == --*.* ]]; then
    key=$previous
  fi
  case "${key#--}" in
VALUES  esac
  case "$command $previous" in
OPTIONS  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    return
  fi
  if [[ -n $key ]]; then
    COMPREPLY=($(compgen -f -- "$current"))
    return
  fi
  case "$command" in
    '') following='ALL_COMMANDS' options='--help --version' ;;
COMMANDS  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
    [[ -z $takes_config ]] || COMPREPLY+=($(compgen -W 'DASHED_KEYS' -- "$current"))
    return
  fi
  COMPREPLY=($(compgen -W "$following" -- "$current"))
  [[ -z $takes_files ]] || COMPREPLY+=($(compgen -f -- "$current"))
  if [[ -n $takes_config && -n $current ]]; then
    COMPREPLY+=($(compgen -S = -W 'KEYS' -- "$current"))
    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
  fi
}
complete -o filenames -F _FUNCTION_complete PROGRAM
)";

constexpr std::string_view kZsh = R"(#compdef PROGRAM
# Completion of PROGRAM for zsh: source <(PROGRAM completion zsh), or a file named _PROGRAM in a folder of fpath.
_FUNCTION_complete() {
  local command='' following='' options='' takes_config='' takes_files='' values='' key='' previous=${words[CURRENT-1]} word i
  local -a commands
  for ((i = 2; i < CURRENT; ++i)); do
    word=${words[i]}
    case "$command" in
      '') case "$word" in COMMANDS_PATTERN) command=$word ;; esac ;;
SUBCOMMANDS    esac
  done
  if [[ $PREFIX == *=* ]]; then
    key=${PREFIX%%=*}
    compset -P '*='
  elif [[ $previous == --*.* && $previous != *=* ]]; then
    key=$previous
  fi
  case "${key#--}" in
VALUES  esac
  case "$command $previous" in
OPTIONS  esac
  if [[ -n $values ]]; then
    compadd -- ${=values}
    return
  fi
  if [[ -n $key ]]; then
    _files
    return
  fi
  case "$command" in
    '')
      commands=(
DESCRIBED      )
      _describe -t commands command commands
      compadd -- --help --version
      return ;;
COMMANDS  esac
  if [[ $PREFIX == -* ]]; then
    compadd -- ${=options}
    [[ -z $takes_config ]] || compadd -- ${=:-DASHED_KEYS}
    return
  fi
  [[ -z $following ]] || compadd -- ${=following}
  [[ -z $takes_config ]] || compadd -S = -- ${=:-KEYS}
  [[ -z $takes_files ]] || _files
}
if [[ $funcstack[1] == _PROGRAM ]]; then
  _FUNCTION_complete "$@"
else
  compdef _FUNCTION_complete PROGRAM
fi
)";

std::string filled(std::string_view script, const Registry& registry, const std::string& program) {
  const Branches branches = branches_of(registry);
  std::vector<std::string> commands;
  std::map<std::string, std::vector<std::string>> below;
  std::string described;
  for (const CommandWords& command : all_commands(registry)) {
    if (const std::size_t space = command.name.find(' '); space != std::string::npos) {
      below[command.name.substr(0, space)].push_back(command.name.substr(space + 1));
      continue;
    }
    commands.push_back(command.name);
    described += "        " + in_single_quotes(command.name + ":" + command.doc) + "\n";
  }
  std::string subcommands;
  for (const auto& [parent, names] : below)
    subcommands += "      " + parent + ") case \"$word\" in " + joined(names, "|") + ") command=\"" + parent +
                   " $word\" ;; esac ;;\n";
  const std::vector<std::string> keys = config_key_names(registry);
  const std::string dashed = joined(keys, " ", [](const std::string& key) { return "--" + key; });
  std::string text(script);
  for (const auto& [from, to] :
       {std::pair<const char*, std::string>{"COMMANDS_PATTERN", joined(commands, "|")},
        {"SUBCOMMANDS", subcommands},
        {"ALL_COMMANDS", joined(commands, " ")},
        {"DASHED_KEYS", dashed},
        {"KEYS", joined(keys, " ")},
        {"VALUES", branches.values},
        {"OPTIONS", branches.options},
        {"COMMANDS", branches.commands},
        {"DESCRIBED", described},
        {"FUNCTION", identifier(program)},
        {"PROGRAM", program}})
    text = replaced(std::move(text), from, to);
  return text;
}

}  // namespace

std::string bash_completion(const Registry& registry, const std::string& program) {
  return filled(kBash, registry, program);
}

std::string zsh_completion(const Registry& registry, const std::string& program) {
  return filled(kZsh, registry, program);
}

}  // namespace kindling
