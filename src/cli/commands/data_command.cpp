#include <ATen/core/Tensor.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/data/data_check.h"
#include "cli/data/image_samples.h"
#include "cli/data/image_text.h"
#include "cli/data/label_text.h"
#include "cli/data/published_files.h"
#include "cli/run/loaded_config.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "kindling/formats/image.h"
#include "kindling/loggers/terminal.h"

namespace kindling {
namespace {

// A word that is not a file is the name of a data set.
Request with_name_of_data(Request request) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& word : request.configs)
    if (std::filesystem::is_regular_file(word) || !word.extension().empty())
      files.push_back(word);
    else
      request.overrides.insert(request.overrides.begin(), "data.name=" + word.string());
  request.configs = std::move(files);
  return request;
}

using nlohmann::ordered_json;

std::vector<double> values_in(const at::Tensor& sample) {
  const at::Tensor values = sample.reshape({-1}).to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

constexpr std::size_t kMostShownValues = 8;

std::string values_of(const at::Tensor& sample) {
  const std::vector<double> values = values_in(sample);
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), kMostShownValues); ++i)
    text += (i == 0 ? "" : " ") + short_text(values[i], 5);
  if (values.size() > kMostShownValues) text += " … (" + std::to_string(values.size()) + " values)";
  return text;
}

// Several labels of a sample, and masks, are shown in words, a class as its number.
std::string label_or_values_of(const at::Tensor& label, const std::vector<std::string>& classes) {
  const std::string text = label.dim() == 0 ? "" : label_text(label, classes);
  return text.empty() ? values_of(label) : text;
}

void print_values(DataModule& data, const Request& request) {
  const auto loader = data.train_dataloader();
  if (!loader) throw DataError({.place = "data", .found = "the data has no train_dataloader()"});
  const Dataset& dataset = loader->dataset();
  const Batch batch = dataset.slice(0, std::min(request.data.num_samples, dataset.size()));
  const std::vector<std::string> classes = data.class_names();
  const std::size_t num_tensors = batch.tensors().size();
  std::vector<std::vector<std::string>> rows;
  for (std::int64_t i = 0; i < batch.num_samples(); ++i)
    for (std::size_t j = 0; j < num_tensors; ++j) {
      const at::Tensor sample = batch.tensors()[j][i];
      const bool is_label = j > 0 && j + 1 == num_tensors;
      if (request.json)
        std::cout << ordered_json{{"sample", i},
                                  {"tensor", j},
                                  {"shape", sample.sizes().vec()},
                                  {"values", values_in(sample)}}
                         .dump()
                  << "\n";
      else
        rows.push_back({j == 0 ? std::to_string(i) : "", std::to_string(j),
                        is_label ? label_or_values_of(sample, classes) : values_of(sample)});
    }
  if (!request.json)
    std::cout << table_text(
        {{.title = "sample", .right = true}, {.title = "tensor", .right = true}, {.title = "values"}}, rows);
}

void print_images(const ImageSamples& samples) {
  std::cout << samples_text(samples, terminal_width(STDOUT_FILENO));
  if (!samples.after.empty())
    std::cout << "above: as loaded; below: after the train transforms, with the random numbers of epoch 0\n";
  for (const std::string& note : samples.notes) std::cout << note << "\n";
}

bool draws(const Request& request) {
  if (request.json) return false;
  return request.color == "always" || (request.color == "auto" && wants_color(STDOUT_FILENO));
}

// Prints the first training samples of the config's data. Returns the exit code.
int show_data(const RunConfig& config, const Request& request) {
  const std::filesystem::path& png = request.data.png;
  if (!png.empty() && png.extension() != ".png")
    throw ConfigError({.place = "--png " + png.string(),
                       .found = "the extension is '" + png.extension().string() + "'",
                       .wanted = "a file that ends with .png"});
  std::optional<ImageSamples> samples;
  if (draws(request) || !png.empty()) samples = image_samples(config, request.data.num_samples);
  if (!png.empty() && !samples)
    throw DataError({.place = "kindling data show --png",
                     .found = "the samples are not images",
                     .wanted = "images [samples, 1 or 3, height, width]"});
  if (!png.empty()) write_png(png, image_grid(*samples));
  if (draws(request) && samples)
    print_images(*samples);
  else
    print_values(*config.make_data(), request);
  if (!png.empty() && !request.json) std::cout << "wrote " << png.string() << "\n";
  return 0;
}

}  // namespace

int data_command(const CommandContext& context) {
  const Request request = with_column_to_predict(with_name_of_data(context.request), TableGuess::column);
  const LoadedConfig loaded = load_config(request, context.registry, ConfigUse::data);
  if (request.data.what == "show") return show_data(*loaded.config, request);
  const int of_files = check_published_files(*loaded.config, request.json);
  return std::max(of_files, check_data(*loaded.config->make_data(), request.json));
}

}  // namespace kindling
