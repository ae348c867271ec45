#include <cctype>
#include <string>
#include <string_view>

#include "cli/config/command_parser.h"
#include "cli/help/references.h"

namespace kindling {
namespace {

namespace CLI = kindling_cli11;

// An option as shown in the reference.
struct OptionRow {
  std::string usage, doc;  // "--color WHEN", "when to use colors (auto); one of auto, always, never"
};

std::string with_space_after_commas(std::string text) {
  for (std::size_t at = 0; (at = text.find(',', at)) != std::string::npos;) text.insert(++at, " ");
  return text;
}

// The parser appends the checks of an option to its type: "N:INT in [1 - 1000]", "WHEN:{auto,always,never}".
OptionRow text_of(const CLI::Option& option) {
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
std::string with_escaped_pipes(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string sentence_of(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with('.') ? text : text + ".";
}

// The sections of a command and of the commands below it.
void add_command_reference(std::string& page, const CLI::App& command, const std::string& name) {
  std::string words, rows;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_name() == "--help") continue;
    const OptionRow text = text_of(*option);
    if (option->get_positional())
      words += option->get_required() ? " " + text.usage : " [" + text.usage + "]";
    rows += "| `" + with_escaped_pipes(text.usage) + "` | " + with_escaped_pipes(text.doc) + " |\n";
  }
  const auto below = command.get_subcommands([](const CLI::App*) { return true; });
  page += "\n## `" + name + "`\n\n" + sentence_of(command.get_description()) + "\n\n```text\n" + name +
          (below.empty() ? "" : " COMMAND") + " [OPTIONS]" + words + "\n```\n";
  if (!rows.empty()) page += "\n| option | meaning |\n|---|---|\n" + rows;
  if (!command.get_footer().empty()) page += "\n" + command.get_footer() + "\n";
  for (const CLI::App* each : below) add_command_reference(page, *each, name + " " + each->get_name());
}

constexpr std::string_view kReferenceIntroduction = R"(# Command reference

This page lists the commands of the program and their options. It is generated from the program by
`kindling reference commands`. `kindling --help` and `kindling COMMAND --help` print the same descriptions.
A program of your own that calls `kindling::run_program` has the same commands.

`kindling --version` prints the version. The keys of a config are in the
[configuration reference](configuration.md).
)";

}  // namespace

std::string command_reference() {
  Request unused;
  CLI::App app;
  add_commands(app, unused);
  std::string page(kReferenceIntroduction);
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    add_command_reference(page, *command, "kindling " + command->get_name());
  return page;
}

}  // namespace kindling
