// Reads a document into the tables of a config.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "cli/config/other_names.h"
#include "cli/config/run_config.h"
#include "device/operator_threads.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/config/printer.h"
#include "kindling/config/reader.h"

namespace kindling {
namespace {

// One table of an array of tables.
std::string item(const std::string& array, std::size_t i) { return array + "[" + std::to_string(i) + "]"; }

// Reports keys that would have no effect. The config of a run lists all keys, so defaults do not count.
void check_model(const ModelOptions& model, ConfigReader& reader) {
  const std::pair<const char*, bool> init_keys[] = {{"model.init_prefix", !model.init_prefix.empty()},
                                                    {"model.init_map", !model.init_map.empty()},
                                                    {"model.init_strict", !model.init_strict}};
  for (const auto& [key, is_set] : init_keys)
    if (is_set && !model.init_weights)
      reader.error(key, "'" + std::string(key) + "' has no effect without 'model.init_weights'");
  if (model.freeze_epochs > 0 && model.freeze.empty())
    reader.error("model.freeze_epochs",
                 "'model.freeze_epochs' has no effect without 'model.freeze', which says what to freeze");
  if (model.balanced_class_weights && !model.class_weights.empty())
    reader.error("model.class_weights",
                 "'model.class_weights' and 'model.balanced_class_weights' are both set: remove one of them");
}

constexpr std::array kModelsOfOneInput{
    "linear_regression", "softmax_regression", "mlp",  "mlp_regressor", "lenet",
    "small_cnn",         "resnet18",           "unet", "unet_regressor"};

// These models would ignore all inputs but the first.
void check_inputs(const std::string& model, const OptionSet& data, ConfigReader& reader) {
  if (std::ranges::find(kModelsOfOneInput, model) == kModelsOfOneInput.end()) return;
  for (const auto& [name, text] : value_texts(data))
    if (name == "more_inputs" && !text.empty())
      reader.error("data.more_inputs", "'data.more_inputs' names " + text + ", but the model " + model +
                                           " takes one input; use the model exported, or remove the key");
}

constexpr const char* kIgnoreMissing = "ignore_missing";

bool ignores_missing(const OptionSet& model) {
  for (const OptionRef& option : model.refs())
    if (bool* const* flag = std::get_if<bool*>(&option.value);
        flag != nullptr && option.name == kIgnoreMissing)
      return **flag;
  return false;
}

// A metric counts the labels as the loss does, unless its table says otherwise. Returns false if it cannot
// skip the labels that the loss skips.
bool give_loss_options(const OptionSet& metric, const ClassLossOptions& loss, bool ignores_missing) {
  bool skips = !loss.ignore_index;
  for (const OptionRef& option : metric.refs()) {
    if (bool* const* flag = std::get_if<bool*>(&option.value); flag != nullptr) {
      if (option.name == "multi_label") **flag = loss.multi_label;
      if (option.name == kIgnoreMissing) **flag = ignores_missing;
    }
    if (option.name != "ignore_index" || !loss.ignore_index) continue;
    skips = true;
    if (std::int64_t* const* number = std::get_if<std::int64_t*>(&option.value))
      **number = *loss.ignore_index;
    using Optional = std::optional<std::int64_t>*;
    if (const Optional* number = std::get_if<Optional>(&option.value)) **number = loss.ignore_index;
  }
  return skips;
}

std::string without_digits(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

constexpr const char* kValTransforms = "data.val_transforms";

// For a name that the catalog lacks: has the options of the nearest one, or else those that all products
// have, so that errors in the rest of the table are reported, too. Other options of the products are skipped.
template <class Product>
Maker<Product> maker_near(ConfigReader& reader, const std::string& table, const Catalog<Product>& catalog,
                          const std::string& name) {
  const auto names = catalog.names();
  const std::string guess = nearest(name, names);
  std::map<std::string, std::size_t> num_products;  // by option
  std::vector<Maker<Product>> makers;
  for (const std::string& one : names) {
    const OptionSet options = makers.emplace_back(catalog.maker(one)).options();
    for (const OptionRef& option : options.refs()) ++num_products[option.name];
  }
  if (makers.empty()) return {.options = [] { return OptionSet(); }, .make = {}};
  const Maker<Product> owner = guess.empty() ? makers.front() : catalog.maker(guess);
  const OptionSet all = owner.options();
  OptionSet shared;
  for (const OptionRef& option : all.refs())
    if (!guess.empty() || num_products[option.name] == names.size()) {
      shared.add(option);
      num_products.erase(option.name);
    }
  for (const auto& [option, number] : num_products) reader.skip(table + "." + option);
  return {.options = [owner, shared] { return shared; }, .make = owner.make};
}

// Hints for options that only other products have: "an option of rmsprop and sgd, not of adamw".
template <class Product>
void name_other_owners(ConfigReader& reader, const std::string& table, const Catalog<Product>& catalog,
                       const std::string& chosen) {
  std::map<std::string, std::vector<std::string>> owners;  // by option
  for (const std::string& name : catalog.names()) {
    const Maker<Product> maker = catalog.maker(name);
    const OptionSet options = maker.options();
    for (const OptionRef& option : options.refs()) owners[option.name].push_back(name);
  }
  for (const auto& [option, names] : owners)
    if (std::find(names.begin(), names.end(), chosen) == names.end())
      reader.add_unknown_hint(table + "." + option,
                              "an option of " + list_names(names) + ", not of " + chosen);
}

// False for schedules that define their own rates, such as one_cycle with its max_lr.
bool heeds_optimizer_lr(const Schedule& schedule) {
  constexpr std::array<std::int64_t, 5> steps{0, 250, 500, 750, 999};
  for (const std::int64_t step : steps) {
    const SchedulePoint one{.step = step, .total_steps = 1000, .base_lr = 1};
    SchedulePoint two = one;
    two.base_lr = 2;
    if (schedule(one) != schedule(two)) return true;
  }
  return false;
}

class TablesReader {
 public:
  TablesReader(ConfigTables& tables, const ConfigDocument& document, const Registry& registry, ConfigUse use)
      : tables_(tables), registry_(registry), use_(use), reader_(document) {
    add_other_names(reader_);
  }

  void read(const std::string& default_name) {
    table("", {OptionSet::of(tables_.run)});
    if (tables_.run.name.empty()) tables_.run.name = default_name;
    check_name();
    read_model();
    read_data();
    read_transforms("data.train_transforms", tables_.train_transforms);
    read_transforms(kValTransforms, tables_.val_transforms);
    read_optimizer();
    read_schedule();
    read_trainer();
    table("distributed", {OptionSet::of(tables_.distributed), OptionSet::of(tables_.restarts)});
    table("checkpoint", {OptionSet::of(tables_.checkpoint), OptionSet::of(tables_.resume)});
    read_techniques();
    read_finders();
    tables_.callback_makers = choose_all("callbacks", registry_.callbacks);
    tables_.logger_makers = choose_all("loggers", registry_.loggers);
    table("run", {OptionSet::of(tables_.folder), OptionSet::of(tables_.process)});
    reader_.finish();
  }

 private:
  // Reads a table, which text() prints from then on.
  void table(const std::string& name, std::initializer_list<OptionSet> options) {
    ConfigSection& section = tables_.sections.emplace_back(ConfigSection{.table = name});
    for (const OptionSet& set : options) {
      reader_.read(name, set);
      section.options.append(set);
    }
  }

  // Reads a table without which something is off.
  template <class Options>
  void optional_table(const std::string& name, OptionalTable<Options>& optional) {
    if ((optional.is_on = reader_.has(name))) table(name, {OptionSet::of(optional.options)});
  }

  template <class Product>
  std::optional<Maker<Product>> choose(const std::string& table, const Catalog<Product>& catalog,
                                       const std::string& default_name) {
    const std::string key = table + ".name";
    const std::string name = reader_.read_name(key).value_or(default_name);
    const auto names = catalog.names();
    if (catalog.has(name)) {
      name_other_owners(reader_, table, catalog, name);
      return catalog.maker(name);
    }
    std::string text =
        name.empty() ? "'" + key + "' is missing" : "unknown name '" + name + "' in '" + key + "'";
    if (table == "model" && !name.empty() && catalog.has("exported")) {
      const std::string guess = nearest(name, names);
      const std::string remedy = "a model exported from Python as .pt2 is trained with the name exported";
      if (guess.empty())
        text += " (" + remedy + ")";
      else if (without_digits(guess) == without_digits(name))  // resnet50 is not a typo of resnet18
        text += "; available: " + list_names(names) + "; " + remedy;
    }
    reader_.error(key, text, names);
    return maker_near(reader_, table, catalog, name);
  }

  // Chooses what has a table PREFIX.NAME.
  template <class Product>
  std::vector<Maker<Product>> choose_all(const std::string& prefix, const Catalog<Product>& catalog) {
    std::vector<Maker<Product>> chosen;
    for (const std::string& name : catalog.names()) {
      if (!reader_.has(prefix + "." + name)) continue;
      table(prefix + "." + name, {chosen.emplace_back(catalog.maker(name)).options()});
    }
    return chosen;
  }

  void read_data() {
    if (use_ == ConfigUse::custom_loop && !reader_.has("data")) return;
    if (!(tables_.data.maker = choose("data", registry_.data_modules, ""))) return;
    table("data", {OptionSet::of(tables_.data.name), OptionSet::of(tables_.data_options),
                   tables_.data.maker->options()});
    check_inputs(tables_.model.name, tables_.data.maker->options(), reader_);
  }

  // The name becomes a directory.
  void check_name() {
    const std::string& name = tables_.run.name;
    const bool is_path =
        name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos || one_line(name) != name;
    if (is_path || name == "." || name == ".." || name.size() > 200)
      reader_.error("name",
                    "'name' becomes a directory: expected at most 200 characters, without '/', '\\' and "
                    "control characters");
  }

  void read_model() {
    if (use_ == ConfigUse::data && !reader_.has("model")) return;
    if (!(tables_.model_maker = choose("model", registry_.models, ""))) return;
    table("model",
          {OptionSet::of(tables_.model), OptionSet::of(tables_.class_loss), tables_.model_maker->options()});
    check_model(tables_.model, reader_);
    read_metrics();
  }

  void read_metrics() {
    const std::vector<std::string>& all = tables_.model.metrics;
    const auto names = registry_.metrics.names();
    tables_.metrics.resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto& [name, maker] = tables_.metrics[i];
      const std::string &listed = all[i], path = "metrics." + listed;
      if (std::count(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i), listed) > 0)
        reader_.error("model.metrics", "'" + listed + "' is listed twice in 'model.metrics'");
      else if (reader_.has(path) || registry_.metrics.has(listed))
        maker = choose(path, registry_.metrics, listed);
      else
        reader_.error("model.metrics[" + std::to_string(i) + "]",
                      "unknown name '" + listed + "' in 'model.metrics'", names);
      name.name = listed;
      if (!maker) continue;
      if (!give_loss_options(maker->options(), tables_.class_loss,
                             ignores_missing(tables_.model_maker->options())))
        reader_.error(
            "model.metrics[" + std::to_string(i) + "]",
            "'model.metrics': '" + listed +
                "' would count the labels that 'model.ignore_index' skips: " + "remove one of them");
      table(path, {OptionSet::of(name), maker->options()});
    }
  }

  void read_transforms(const std::string& array, std::vector<TransformChoice>& transforms) {
    transforms.resize(reader_.num_tables(array));
    for (std::size_t i = 0; i < transforms.size(); ++i) {
      const std::string path = item(array, i);
      const std::size_t num_errors = reader_.num_errors();
      transforms[i].maker = choose(path, registry_.transforms, "");
      table(path, {OptionSet::of(transforms[i].name), transforms[i].maker->options()});
      if (reader_.num_errors() == num_errors) make(transforms[i], path, array != kValTransforms);
    }
  }

  void make(TransformChoice& transform, const std::string& path, bool may_be_random) try {
    transform.made = transform.maker->make();
    if (!may_be_random && transform.made->num_random() > 0)
      reader_.error(path + ".name",
                    "'" + path + ".name': '" + transform.name.name +
                        "' is random, but validation and prediction must not be; it belongs in "
                        "[[data.train_transforms]]");
  } catch (const ConfigError& error) {
    reader_.error(path, "'" + path + "': " + error.what());
  }

  void read_optimizer() {
    if (!reader_.has("optimizer")) return;
    auto& [name, maker] = tables_.optimizer;
    maker = choose("optimizer", registry_.optimizers, name.name);
    if (!maker) return;
    table("optimizer", {OptionSet::of(name), maker->options(), OptionSet::of(tables_.optimizer_start)});
    std::vector<GroupPattern>& groups = tables_.groups;
    groups.resize(reader_.num_tables("optimizer.groups"));
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::string path = item("optimizer.groups", i);
      table(path, {OptionSet::of(groups[i])});
      if (!reader_.has(path + ".match")) reader_.error(path, "'" + path + ".match' is missing");
    }
    if (groups.empty())
      tables_.sections.push_back({.table = item("optimizer.groups", 0),
                                  .doc = "values for the parameters that match; can be repeated",
                                  .options = OptionSet::of(tables_.example_group),
                                  .enabled = false});
  }

  void read_schedule() {
    if (!reader_.has("schedule")) return;
    const std::size_t num_errors = reader_.num_errors();
    auto& maker = tables_.schedule_maker;
    maker = choose("schedule", registry_.schedules, tables_.schedule.name);
    if (!maker) return;
    table("schedule", {OptionSet::of(tables_.schedule), OptionSet::of(tables_.warmup), maker->options()});
    auto& parts = tables_.schedule_parts;
    parts.resize(reader_.num_tables("schedule.parts"));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string path = item("schedule.parts", i);
      if ((parts[i].maker = choose(path, registry_.schedules, "")))
        table(path, {OptionSet::of(parts[i].name), parts[i].maker->options()});
    }
    if (reader_.num_errors() > num_errors) return;
    try {
      make_schedule(tables_);
    } catch (const ConfigError& error) {
      reader_.error("schedule", error.what());
    }
  }

  void read_trainer() {
    table("trainer", {tables_.trainer.set()});
    const TrainerOptions& options = tables_.trainer.options;
    if (const auto& threads = options.num_threads; threads && *threads > kMaxOperatorThreads)
      reader_.error("trainer.num_threads", "'trainer.num_threads': expected an integer from 1 to " +
                                               std::to_string(kMaxOperatorThreads) + ", found " +
                                               std::to_string(*threads));
    if (use_ == ConfigUse::fit && !options.max_epochs && !options.max_steps &&
        !reader_.has("trainer.max_epochs") && !reader_.has("trainer.max_steps"))
      reader_.error("trainer", "'trainer.max_epochs' or 'trainer.max_steps' is missing");
  }

  // [on_spike], [early_stopping], [ema] and [swa].
  void read_techniques() {
    optional_table("on_spike", tables_.on_spike);
    optional_table("early_stopping", tables_.early_stopping);
    optional_table("ema", tables_.ema);
    optional_table("swa", tables_.swa);
    const ExponentialMovingAverageOptions& ema = tables_.ema.options;
    const StochasticWeightAveragingOptions& swa = tables_.swa.options;
    if (tables_.swa.is_on && swa.swa_lrs.empty() && !reader_.has("swa.swa_lrs"))
      reader_.error("swa", "'swa.swa_lrs' is missing: the final learning rate, such as [0.01]");
    if (!tables_.ema.is_on || !tables_.swa.is_on) return;
    constexpr const char* kOne =
        "the model can have one average at a time: set it to false in [ema] or in [swa]";
    if (ema.evaluate && swa.evaluate) reader_.error("swa.evaluate", std::string("'evaluate': ") + kOne);
    if (ema.apply_at_end && swa.apply_at_end)
      reader_.error("swa.apply_at_end", std::string("'apply_at_end': ") + kOne);
  }

  // Optimizers that the model creates are checked later.
  void require_one_lr() {
    if (!tables_.optimizer.maker) return;
    const at::Tensor stand_in = at::zeros({2, 2});
    const double* const lr = tables_.optimizer_lr();
    if (tables_.optimizer.maker->make()(ParameterGroups{stand_in})->needs_closure())
      reader_.error("lr_finder", "'lr_finder' requires steps with one loss and one learning rate, but '" +
                                     tables_.optimizer.name.name +
                                     "' evaluates the loss of a batch several times");
    else if (lr != nullptr && *lr == 0)
      reader_.error("optimizer.lr",
                    "'lr_finder' requires an 'optimizer.lr' above 0: groups keep their ratio to it");
  }

  void read_finders() {
    optional_table("batch_finder", tables_.batch_finder);
    LrFinderTable& finder = tables_.lr_finder;
    if (!(finder.is_on = reader_.has("lr_finder"))) return;
    table("lr_finder", {OptionSet::of(finder.options), OptionSet::of(finder.use)});
    if (finder.options.min_lr >= finder.options.max_lr)
      reader_.error("lr_finder", "'lr_finder.min_lr' is not below 'lr_finder.max_lr'");
    if (reader_.num_errors() > 0) return;
    require_one_lr();
    if (!finder.use.update_attr) return;
    if (tables_.optimizer_lr() == nullptr)
      reader_.error("lr_finder",
                    "'lr_finder' has no 'optimizer.lr' to set: name the optimizer in [optimizer], or set "
                    "'lr_finder.update_attr' to false to get only the plot");
    else if (tables_.schedule_maker && !heeds_optimizer_lr(make_schedule(tables_)))
      reader_.error("lr_finder",
                    "'lr_finder' sets 'optimizer.lr', but the schedule defines its own rates: set "
                    "'lr_finder.update_attr' to false, and choose the schedule's rates from the plot");
  }

  ConfigTables& tables_;
  const Registry& registry_;
  const ConfigUse use_;
  ConfigReader reader_;
};

}  // namespace

void read_tables(ConfigTables& tables, const ConfigDocument& document, const Registry& registry,
                 const std::string& default_name, ConfigUse use) {
  TablesReader(tables, document, registry, use).read(default_name);
}

}  // namespace kindling
