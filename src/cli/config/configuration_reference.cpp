#include <initializer_list>
#include <string_view>
#include <tuple>
#include <utility>

#include "cli/config/references.h"
#include "cli/config/run_options.h"
#include "kindling/config/printer.h"
#include "kindling/distributed/process_group.h"
#include "kindling/training/batch_size_finder.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/lr_finder.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/stochastic_weight_averaging.h"
#include "kindling/training/trainer_options.h"

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
- `kindling fit --check` reports every error in a config and does not run anything.

A resumed run must keep its config, because the values determine its results. The exceptions are keys marked
*may change on resume* and the tables `[distributed]`, `[checkpoint]`, `[early_stopping]`, `[lr_finder]`,
`[batch_finder]`, and `[run]`. `--allow-config-change` permits all changes.
)";

// A page that grows section by section.
class ReferencePage {
 public:
  explicit ReferencePage(std::string_view introduction) : text_(introduction) {}

  void section(const std::string& title, const std::string& description) {
    text_ += "\n## " + title + "\n\n" + description + "\n";
  }
  // A table of options that come from one struct or several.
  void options(std::initializer_list<OptionSet> sets) {
    OptionSet all;
    for (const OptionSet& set : sets) all.append(set);
    text_ += "\n" + (all.refs().empty() ? "It has no options.\n" : options_table(all));
  }
  // Everything that a catalog knows.
  template <class Product>
  void entries(const Catalog<Product>& catalog, const std::string& nothing = "") {
    if (catalog.names().empty()) text_ += "\n" + nothing + "\n";
    for (const std::string& name : catalog.names()) {
      const std::string& doc = catalog.doc(name);
      text_ += "\n### `" + name + "`\n" + (doc.empty() ? "" : "\n" + sentence(doc) + "\n");
      options({catalog.maker(name).options()});
    }
  }
  std::string text() && { return std::move(text_); }

 private:
  static std::string sentence(std::string doc) {
    if (doc[0] >= 'a' && doc[0] <= 'z') doc[0] += 'A' - 'a';
    return doc + ".";
  }

  std::string text_;
};

// A fresh option struct, to show its defaults.
template <class Options>
struct Defaults {
  Options options{};
  OptionSet set() { return OptionSet::of(options); }
};

template <class... Options>
void add_options(ReferencePage& page) {
  std::tuple<Defaults<Options>...> defaults;
  std::apply([&](auto&... each) { page.options({each.set()...}); }, defaults);
}

void add_products(ReferencePage& page, const Registry& registry) {
  page.section("Models", "`[model]` names the model. These keys exist for every model:");
  add_options<ModelOptions>(page);
  page.entries(registry.models);
  page.section(
      "Metrics",
      "`model.metrics` lists metrics, and a table `[metrics.NAME]` sets the options of one of them. "
      "An entry\n"
      "of the list may also be a name of your choice, if the key `name` in its table names the metric.");
  page.entries(registry.metrics);
  page.section("Data sets", "`[data]` names the data set. These keys exist for every data set:");
  add_options<NameOption, DataOptions>(page);
  page.entries(registry.data_modules);
}

void add_optimization(ReferencePage& page, const Registry& registry) {
  page.section(
      "Optimizers",
      "`[optimizer]` names the optimizer. Without this table, the model chooses it. These keys exist for "
      "every optimizer:");
  NameOption name{"adam"};
  OptimizerStartOptions start;
  page.options({OptionSet::of(name), OptionSet::of(start)});
  page.entries(registry.optimizers);
  page.section("Parameter groups",
               "Each `[[optimizer.groups]]` sets values for the parameters that match its pattern.");
  add_options<GroupPattern>(page);
  page.section(
      "Schedules",
      "`[schedule]` names the learning rate schedule. Each `[[schedule.parts]]` of a `sequence` has a\n"
      "`name` and the options of its schedule. These keys exist for every schedule:");
  add_options<ScheduleOptions, WarmupOptions>(page);
  page.entries(registry.schedules);
}

void add_training(ReferencePage& page) {
  page.section("Trainer", "`[trainer]` controls the run. In C++, these are the members of `TrainerOptions`.");
  add_options<TrainerOptions>(page);
  page.section("Distributed training", "`[distributed]` controls data-parallel training.");
  add_options<DistributedOptions, RestartOptions>(page);
  page.section("Checkpoints", "`[checkpoint]` controls when checkpoints are saved and which are kept.");
  add_options<ModelCheckpointOptions, ResumeOptions>(page);
  page.section("Early stopping", "`[early_stopping]` turns early stopping on.");
  add_options<EarlyStoppingOptions>(page);
  page.section("Exponential moving average", "`[ema]` turns weight averaging by EMA on.");
  add_options<ExponentialMovingAverageOptions>(page);
  page.section("Stochastic weight averaging", "`[swa]` turns weight averaging by SWA on.");
  add_options<StochasticWeightAveragingOptions>(page);
  page.section("Learning-rate finder", "`[lr_finder]` searches for a learning rate before the run.");
  add_options<LrFinderOptions, LrFinderUse>(page);
  page.section("Batch-size finder", "`[batch_finder]` searches for the largest batch size before the run.");
  add_options<BatchSizeFinderOptions>(page);
}

}  // namespace

std::string configuration_reference(const Registry& registry) {
  ReferencePage page(kIntroduction);
  page.section("Top-level keys", "These keys come before the first table of a file.");
  add_options<RunOptions>(page);
  add_products(page, registry);
  add_optimization(page, registry);
  add_training(page);
  page.section("Callbacks", "A table `[callbacks.NAME]` adds a callback that the program has registered.");
  page.entries(registry.callbacks, "This program registers no callbacks.");
  page.section("Loggers", "A table `[loggers.NAME]` adds a logger that the program has registered.");
  page.entries(registry.loggers, "This program registers no loggers.");
  page.section("Run directory and process", "`[run]` controls the output files and settings of the process.");
  add_options<RunFolderOptions, ProcessOptions>(page);
  return std::move(page).text();
}

}  // namespace kindling
