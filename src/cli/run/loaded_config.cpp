#include "cli/run/loaded_config.h"

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/config/image_facts.h"
#include "cli/config/predicted_column.h"
#include "cli/run/resume_plan.h"
#include "cli/run/weights.h"
#include "config/toml_text.h"
#include "kindling/base/error.h"
#include "kindling/config/reader.h"
#include "kindling/data/table_data.h"
#include "kindling/formats/table_schema.h"

namespace kindling {
namespace {

// A new user may type no config at all: then the errors end with an example.
std::unique_ptr<RunConfig> run_config(const ConfigDocument& document, const Registry& registry,
                                      const std::string& name, ConfigUse use, bool is_empty) {
  try {
    return std::make_unique<RunConfig>(document, registry, name, use);
  } catch (const ConfigError& error) {
    if (!is_empty) throw;
    throw ConfigError(
        {.found = std::string(error.what()) +
                  "\nfor example: kindling fit configs/digits.toml, or kindling fit model.name=mlp "
                  "data.name=digits trainer.max_epochs=3"});
  }
}

// Throws ConfigError with the errors of all files.
std::vector<ConfigDocument> load_all(const std::vector<std::filesystem::path>& files) {
  std::vector<ConfigDocument> documents;
  std::vector<std::string> errors;
  for (const auto& file : files) try {
      documents.push_back(ConfigDocument::load(file));
    } catch (const ConfigError& error) {
      errors.emplace_back(error.what());
    }
  if (!errors.empty()) throw ConfigError({.found = joined(errors, "\n")});
  return documents;
}

// Of the weights that a config starts from, or that are evaluated. Nothing if they cannot be read, which is
// reported later.
void add_choices_of_weights(const Request& request, ConfigReader& reader, FormerChoices& former) try {
  const std::string weights =
      request.weights.empty() ? reader.read_name("model.init_weights").value_or("") : request.weights;
  if (weights.empty()) return;
  const std::filesystem::path file = find_weights(weights).file;
  const std::vector<std::string> names = names_in(file, reader.read_name("model.init_key").value_or(""));
  former.has_target_scale = std::ranges::find(names, "target_mean") != names.end();
  // Other classes than those of the model are what --weights evaluates; init_weights may get a new head.
  if (const std::string transform = transform_in(file); !transform.empty() && !request.weights.empty())
    former.num_classes = TableSchema::parse(transform, file.string()).classes.size();
} catch (const Error&) {
}

// Of the run that `checkpoint.resume` finds by its name.
void add_choices_of_run(ConfigReader& reader, const Registry& registry, const std::string& default_name,
                        FormerChoices& former) try {
  const std::string resume = reader.read_name("checkpoint.resume").value_or("");
  if (resume != "last" && resume != "best") return;
  const std::string name = reader.read_name("name").value_or(default_name);
  const auto run = last_run(reader.read_name("run.dir").value_or(RunFolderOptions().dir), name);
  if (!run || !std::filesystem::exists(*run / "config.toml")) return;
  former.values = RunConfig(ConfigDocument::load(*run / "config.toml"), registry, name).values();
} catch (const Error&) {
}

FormerChoices former_choices(const Request& request, const ConfigDocument& document, const Registry& registry,
                             const std::string& default_name, ConfigUse use) {
  FormerChoices former;
  ConfigReader reader(document);
  add_choices_of_weights(request, reader, former);
  if (use == ConfigUse::fit) add_choices_of_run(reader, registry, default_name, former);
  return former;
}

}  // namespace

void print_valid(const LoadedConfig& loaded) {
  std::cout << loaded.description << ": no errors, nothing was run\n";
}

namespace {

// "houses" for "data/houses.csv.gz"
std::string name_of_table(const std::filesystem::path& table) {
  const std::filesystem::path stem = table.stem();
  return (lower_case(table.extension().string()) == ".gz" ? stem.stem() : stem).string();
}

// "pets" for "data/pets/", and for "." in that directory
std::string name_of_images(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::canonical(folder, ignored);
  return whole.filename().empty() ? "images" : whole.filename().string();
}

bool has_override(const Request& request, const std::string& key) {
  return std::ranges::any_of(request.overrides,
                             [&](const std::string& one) { return one.starts_with(key + "="); });
}

// Refuses --target if something else decides what is predicted.
void check_target(const Request& request) {
  if (request.target.empty()) return;
  const bool has_label = has_override(request, "data.label");
  if (!has_label && !has_override(request, "data.target") && request.resume.empty()) return;
  throw ConfigError({.place = "--target",
                     .found = std::string(!request.resume.empty() ? "--resume"
                                          : has_label             ? "data.label"
                                                                  : "data.target") +
                              " is given, too",
                     .wanted = "one of them"});
}

// Adds an override that stands for other words, with the reason if the table has decided.
void derive(Request& request, const std::string& key, const std::string& value,
            const std::string& reason = {}) {
  request.overrides.push_back(key + "=" + value);
  ++request.num_derived;
  if (!reason.empty()) request.table_choices[key] = reason;
}

// Returns the options of the table in the request. Throws ConfigError with their errors: without the options,
// a config lacks all keys that the table decides. Nothing for other data, whose errors are reported when the
// config is read.
std::optional<TableDataOptions> table_options(const Request& request) {
  ConfigDocument document;
  for (ConfigDocument& one : load_all(request.configs)) document.merge(std::move(one));
  for (const auto& assignment : request.overrides) document.set(assignment);
  ConfigReader reader(document);
  TableDataOptions options;
  const std::string name = reader.read_name("data.name").value_or("csv");
  reader.read("data", OptionSet::of(options));
  if (reader.num_errors() == 0) return options;
  if (name != "csv") return std::nullopt;
  reader.skip("");  // keys of other readers
  reader.finish();
  return std::nullopt;
}

}  // namespace

Request with_column_to_predict(Request request, TableGuess guess) {
  const bool guesses = guess != TableGuess::none;
  const bool has_words = !request.table.empty() || !request.images.empty();
  if (!has_words && request.target.empty()) return request;
  check_target(request);
  if (has_words && request.configs.empty() && request.resume.empty() && !guesses &&
      !has_override(request, "name"))
    derive(request, "name",
           config::toml_text(request.table.empty() ? name_of_images(request.images)
                                                   : name_of_table(request.table)));
  if (request.table.empty() && request.target.empty()) return request;
  std::optional<TableDataOptions> options = table_options(request);
  if (!options) return request;
  if (guess == TableGuess::column_and_reading)
    if (const auto keys = guess_reading(*options); !keys.empty()) {
      for (const auto& [key, value, reason] : keys) derive(request, key, value, reason);
      options = table_options(request);
    }
  const bool has_column = !options->label.empty() || !options->target.empty();
  if (request.target.empty() && (has_column || !request.resume.empty())) return request;
  if (request.target.empty() && !guesses)
    refuse_without_target(*options, request.command, request.table.string());
  options->label.clear(), options->target.clear();
  const PredictedColumn column = predicted_column(*options, request.target);
  if (has_column)
    derive(request, column.is_label ? "data.target" : "data.label", column.is_label ? "[]" : "\"\"");
  derive(request, column.is_label ? "data.label" : "data.target", config::toml_text(column.name),
         column.reason);
  return request;
}

namespace {

// The directory has decided what the data are, unless the config does.
void require_images(const std::filesystem::path& folder, const ConfigDocument& document) {
  if (ConfigReader(document).has("data.name")) return;
  throw ConfigError(
      {.place = folder.string(),
       .found = "there are no directories in it",
       .wanted = "a config file, or a directory of images: one directory per class, or images and masks",
       .remedy = "to resume a run: kindling fit --resume RUN"});
}

// The other keys of such a config were not written for the directory.
void refuse_images_with(const ConfigDocument& config, const Request& request) {
  if (request.images.empty() || !request.resume.empty() || !ConfigReader(config).has("data.name")) return;
  throw ConfigError({.place = "kindling " + request.command,
                     .found = "the directory " + request.images.string() + ", and data.name in the config",
                     .wanted = "a directory of images, or a config that names its data",
                     .remedy = "for another directory of the same layout: " +
                               shell_word("data.root=" + request.images.string())});
}

// The override that stands for the directory of images.
std::string root_override(const Request& request) { return "data.root=" + config::toml_text(request.images); }

// The same for a run that is resumed: the word names the same directory as when it began.
std::string resumed_root(const ConfigDocument& config, const Request& request) {
  const std::filesystem::path root = training_root(request.images),
                              former = ConfigReader(config).read_name("data.root").value_or("");
  std::error_code ignored;
  return "data.root=" + config::toml_text(std::filesystem::equivalent(root, former, ignored) ? former : root);
}

}  // namespace

void remove_images(Request& request) {
  if (request.images.empty()) return;
  const auto word = std::ranges::find(request.overrides, root_override(request));
  if (word != request.overrides.end()) {
    request.overrides.erase(word);
    --request.num_derived;
  }
  request.images.clear();
}

LoadedConfig load_config(const Request& request, const Registry& registry, ConfigUse use) {
  std::vector<std::filesystem::path> files = request.configs;
  if (!request.resume.empty()) files.insert(files.begin(), run_of(request.resume) / "config.toml");
  LoadedConfig loaded;
  for (ConfigDocument& document : load_all(files)) loaded.document.merge(std::move(document));
  refuse_images_with(loaded.document, request);
  const bool resumes_images = !request.images.empty() && !request.resume.empty();
  for (const auto& assignment : request.overrides)
    loaded.document.set(resumes_images && assignment == root_override(request)
                            ? resumed_root(loaded.document, request)
                            : assignment);
  const std::string stem = files.empty() ? "unnamed" : files.back().stem().string();
  const bool is_empty = files.empty() && request.overrides.empty();
  if (request.resume.empty())
    loaded.chosen = choose_keys(loaded.document, registry, use,
                                former_choices(request, loaded.document, registry, stem, use));
  if (!request.images.empty()) require_images(request.images, loaded.document);
  std::vector<ChosenKey> by_table;
  for (const std::string& one : request.overrides) {
    const std::string key = one.substr(0, one.find('='));
    if (const auto found = request.table_choices.find(key); found != request.table_choices.end())
      by_table.push_back({key, one.substr(key.size() + 1), found->second});
  }
  loaded.chosen.insert(loaded.chosen.begin(), by_table.begin(), by_table.end());
  loaded.config = run_config(loaded.document, registry, stem, use, is_empty);
  const std::size_t count = request.overrides.size() - request.num_derived;
  const auto name_of = [](const std::filesystem::path& file) { return file.filename().string(); };
  loaded.description = !files.empty()           ? joined(files, ", ", name_of)
                       : !request.table.empty() ? name_of(request.table)
                       : request.images.empty() ? "no file"
                                                : name_of_images(request.images);
  if (count > 0)
    loaded.description += " + " + std::to_string(count) + (count == 1 ? " override" : " overrides");
  loaded.is_query = request.check || !request.print_config.empty();
  if (request.print_config == "all")
    std::cout << loaded.config->text_with_optional_tables(registry);
  else if (!request.print_config.empty())
    std::cout << loaded.config->text();
  else if (request.check && use != ConfigUse::fit)
    print_valid(loaded);
  return loaded;
}

}  // namespace kindling
