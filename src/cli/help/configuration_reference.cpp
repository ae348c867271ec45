#include <string>
#include <string_view>

#include "cli/config/config_topics.h"
#include "cli/help/references.h"
#include "kindling/config/printer.h"

namespace kindling {
namespace {

constexpr std::string_view kIntroduction = R"(# Configuration reference

This page lists every key of a config file: its type, its default, and its meaning. It is generated from the program
by `kindling reference configuration`; a program that registers models or data sets prints a page that includes them.

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

std::string sentence(std::string doc) {
  if (doc[0] >= 'a' && doc[0] <= 'z') doc[0] += 'A' - 'a';
  return doc + ".";
}

std::string table_of(const OptionSet& options) {
  return "\n" + (options.refs().empty() ? "It has no options.\n" : options_table(options));
}

std::string section_of(const ConfigTopic& topic) {
  std::string text = "\n## " + topic.title + "\n\n" + topic.description + "\n";
  if (!topic.options.refs().empty()) text += table_of(topic.options);
  if (topic.entries.empty() && !topic.without_entries.empty()) text += "\n" + topic.without_entries + "\n";
  for (const ConfigTopic::Entry& entry : topic.entries)
    text += "\n### `" + entry.name + "`\n" + (entry.doc.empty() ? "" : "\n" + sentence(entry.doc) + "\n") +
            table_of(entry.options);
  return text;
}

}  // namespace

std::string configuration_reference(const Registry& registry) {
  const ConfigTopics topics(registry);
  std::string page(kIntroduction);
  for (const ConfigTopic& topic : topics.all()) page += section_of(topic);
  return page;
}

}  // namespace kindling
