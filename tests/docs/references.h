#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "cli/config/command_parser.h"
#include "cli/config/config_topics.h"
#include "kindling/config/printer.h"

// The generated pages docs/reference/commands.md and configuration.md, as Markdown. A test compares them.
namespace kindling {

// An option as shown in the reference.
struct OptionRow {
  std::string usage, doc;  // "--color WHEN", "when to use colors (auto); one of auto, always, never"
};

inline std::string with_space_after_commas(std::string text) {
  for (std::size_t at = 0; (at = text.find(',', at)) != std::string::npos;) text.insert(++at, " ");
  return text;
}

// The parser appends the checks of an option to its type: "N:INT in [1 - 1000]", "WHEN:{auto,always,never}".
inline OptionRow option_row(const kindling_cli11::Option& option) {
  std::string type = option.get_type_name(), choices;
  for (const std::string_view check : {":{", ":INT in [", ":UINT in [", ":FLOAT in ["}) {
    const std::size_t at = type.find(check);
    if (at == std::string::npos) continue;
    if (check == ":{") choices = type.substr(at + 2, type.rfind('}') - at - 2);
    type.erase(at);
  }
  OptionRow text{.usage = type, .doc = option.get_description()};
  if (!option.get_positional())
    text.usage = with_space_after_commas(option.get_name(false, true)) + (type.empty() ? "" : " " + type);
  if (!choices.empty()) text.doc += "; one of " + with_space_after_commas(choices);
  return text;
}

// The pipe that separates the columns of a Markdown table.
inline std::string with_escaped_pipes(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

inline std::string sentence_of(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with('.') ? text : text + ".";
}

// The sections of a command and of the commands below it.
inline void add_command_reference(std::string& page, const kindling_cli11::App& command,
                                  const std::string& name) {
  std::string words, rows;
  for (const kindling_cli11::Option* option : command.get_options()) {
    if (option->get_name() == "--help") continue;
    const OptionRow text = option_row(*option);
    if (option->get_positional())
      words += option->get_required() ? " " + text.usage : " [" + text.usage + "]";
    rows += "| `" + with_escaped_pipes(text.usage) + "` | " + with_escaped_pipes(text.doc) + " |\n";
  }
  const auto below = command.get_subcommands([](const kindling_cli11::App*) { return true; });
  page += "\n## `" + name + "`\n\n" + sentence_of(command.get_description()) + "\n\n```text\n" + name +
          (below.empty() ? "" : " COMMAND") + " [OPTIONS]" + words + "\n```\n";
  if (!rows.empty()) page += "\n| option | meaning |\n|---|---|\n" + rows;
  if (!command.get_footer().empty()) page += "\n" + command.get_footer() + "\n";
  for (const kindling_cli11::App* each : below)
    add_command_reference(page, *each, name + " " + each->get_name());
}

inline constexpr std::string_view kCommandIntroduction = R"(# Command reference

This page lists the commands of the program and their options. It is generated from the program.
`kindling --help` and `kindling COMMAND --help` print the same descriptions. A program of your own that
calls `kindling::run_program` has the same commands.

`kindling --version` prints the version. The keys of a config are in the
[configuration reference](configuration.md).
)";

// Returns a page that lists every command and its options.
inline std::string command_reference() {
  Request unused;
  kindling_cli11::App app;
  add_commands(app, unused);
  std::string page(kCommandIntroduction);
  for (const auto* command : app.get_subcommands([](const kindling_cli11::App*) { return true; }))
    add_command_reference(page, *command, "kindling " + command->get_name());
  return page;
}

inline constexpr std::string_view kConfigurationIntroduction = R"(# Configuration reference

This page lists every key of a config file: its type, its default, and its meaning. It is generated from the
program; `kindling help NAME` explains the models, data sets and other names that a program registers itself.

- A config file is [TOML](https://toml.io). `[trainer]` starts a table, and `[[optimizer.groups]]` starts an element of
  an array of tables.
- Several files are merged; later ones take precedence. Any key can also be set on the command line, as
  `trainer.max_epochs=3` or `--trainer.max_epochs 3`.
- A key whose default is *absent* has no value unless you set it.
- A path is relative to the directory of the file that contains it, or to the current directory on the command line.
- `kindling fit --print-config` prints the resolved config. `--print-config=all` adds the optional tables as comments.
- `kindling fit --check` reports what would keep a fit from starting, all findings at once, and trains nothing
  ([what it checks](errors_and_exit_codes.md#checks-before-a-fit)).

A resumed run must keep its config, because the values determine its results. The exceptions are keys marked
*may change on resume* and the tables `[distributed]`, `[checkpoint]`, `[early_stopping]`, `[lr_finder]`,
`[batch_finder]`, and `[run]`. `--allow-config-change` permits all changes.
)";

inline std::string sentence(std::string doc) {
  if (doc[0] >= 'a' && doc[0] <= 'z') doc[0] += 'A' - 'a';
  return doc + ".";
}

inline std::string reference_table(const OptionSet& options) {
  return "\n" + (options.refs().empty() ? "It has no options.\n" : options_table(options));
}

inline std::string reference_section(const ConfigTopic& topic) {
  std::string text = "\n## " + topic.title + "\n\n" + topic.description + "\n";
  if (!topic.options.refs().empty()) text += reference_table(topic.options);
  if (topic.entries.empty() && !topic.without_entries.empty()) text += "\n" + topic.without_entries + "\n";
  for (const ConfigTopic::Entry& entry : topic.entries)
    text += "\n### `" + entry.name + "`\n" + (entry.doc.empty() ? "" : "\n" + sentence(entry.doc) + "\n") +
            reference_table(entry.options);
  return text;
}

// Returns a page that lists every key of a config, table by table, and the options of everything that the
// registry knows.
inline std::string configuration_reference(const Registry& registry) {
  const ConfigTopics topics(registry);
  std::string page(kConfigurationIntroduction);
  for (const ConfigTopic& topic : topics.all()) page += reference_section(topic);
  return page;
}

}  // namespace kindling
