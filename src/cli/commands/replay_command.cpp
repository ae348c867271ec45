#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/commands/commands.h"
#include "cli/run/early_messages.h"
#include "cli/run/fit_processes.h"
#include "cli/run/run_again.h"
#include "cli/run/run_branch.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/launch/launch_environment.h"
#include "kindling/training/replay.h"
#include "loggers/metric_text.h"
#include "runs/blame_page.h"
#include "tensors/shape_text.h"
#include "training/loop/sample_pictures.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::size_t kMostListed = 32, kMostBlamed = 20;  // samples in a text; JSON has all

// A replay, with what is known about the samples.
struct ReplayOfRun {
  fs::path run;
  ReplayResult result;
  std::vector<std::string> doubts;
  SampleIds ids;
  double clip = 0;
  std::shared_ptr<DataModule> data;
  fs::path branch{};  // the run that began after the last step; empty: none
};

void print_start(const fs::path& checkpoint, std::int64_t start, std::int64_t step) {
  const std::int64_t steps = step - start;
  std::cerr << "start   "
            << (checkpoint.empty() ? "the seed, because there is no earlier checkpoint"
                                   : checkpoint.filename().string())
            << ", " << counted(steps, "step") << " to step " << step << "\n";
}

ReplayOfRun replay_of(const CommandContext& context, const Group& group) {
  const ReplayRequest& request = context.request.replay;
  RunAgain again = make_run_again(context, request.run, request.step, group);
  if (is_first(group))
    for (const std::string& doubt : again.doubts) log_warning("the replay may differ from the run: " + doubt);
  ReplayOptions options{.run = again.run, .step = request.step};
  if (request.until > 0) options.until = request.until;
  if (is_first(group) && !context.request.quiet && !context.request.json)
    options.on_start = [&](const fs::path& checkpoint, std::int64_t start) {
      print_start(checkpoint, start, request.step);
    };
  options.keep_state = !request.branch.empty();
  ReplayResult result = replay(again.options, again.model, *again.data, options);
  fs::path branch;
  if (options.keep_state && is_first(group))
    branch = begin_branch(again, request.branch, result.progress, std::exchange(result.state, {}));
  return {.run = again.run,
          .result = std::move(result),
          .doubts = std::move(again.doubts),
          .ids = again.data->train_ids(),
          .clip = again.options.gradient_clip_val,
          .data = again.data,
          .branch = std::move(branch)};
}

// Calls `show` on rank 0 with the replay of the run that the request names. Without a launcher, a run of
// several ranks has as many processes started.
int with_replay(const CommandContext& context, const std::function<void(const ReplayOfRun&)>& show) {
  const LaunchPlace place = launch_environment();
  const std::int64_t num_ranks = num_ranks_of(named_run(context.request.replay.run));
  const DistributedOptions options;
  if (!place && num_ranks > 1) return launch_ranks(context, num_ranks, options.timeout_s);
  const EarlyMessages early(place && place->rank > 0 ? LogLevel::error : LogLevel::warning);  // as a fit
  const Group group = place && num_ranks > 1 ? join_ranks(*place, options) : nullptr;
  try {
    const ReplayOfRun replayed = replay_of(context, group);
    if (is_first(group)) show(replayed);
  } catch (const std::exception& error) {
    if (group) group->leave(error.what());
    throw;
  }
  return 0;
}

std::string id_title(const SampleIds& ids) { return ids.values.empty() ? "sample" : ids.name; }

// The name of a sample, else its position in the training set.
std::string id_of(std::int64_t index, const SampleIds& ids) {
  const auto at = static_cast<std::size_t>(index);
  return at < ids.values.size() ? one_line(ids.values[at]) : std::to_string(index);
}

std::vector<std::int64_t> indices_of(const ReplayedBatch& batch) {
  if (!batch.indices.defined()) return {};
  const auto* const first = batch.indices.const_data_ptr<std::int64_t>();
  return {first, first + batch.indices.numel()};
}

// --- Statistics of the batch ---

struct TensorStatistics {
  double min, max, mean, deviation;
  std::int64_t num_not_finite;
};

TensorStatistics statistics_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.reshape({-1}).to(at::kDouble), finite = values.isfinite();
  const at::Tensor counted = values.masked_select(finite);
  const auto num_not_finite = values.numel() - counted.numel();
  if (counted.numel() == 0) return {NAN, NAN, NAN, NAN, num_not_finite};
  return {counted.min().item<double>(), counted.max().item<double>(), counted.mean().item<double>(),
          counted.std(/*unbiased=*/false).item<double>(), num_not_finite};
}

std::string name_of_tensor(std::size_t i, std::size_t count) {
  return i > 0 && i + 1 == count ? "labels" : count <= 2 ? "inputs" : "inputs " + std::to_string(i);
}

void print_tensors(const Batch& batch) {
  std::vector<std::vector<std::string>> rows;
  const std::size_t count = batch.tensors().size();
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor& tensor = batch.tensors()[i];
    if (tensor.is_complex() || tensor.layout() != at::kStrided) continue;
    const TensorStatistics of = statistics_of(tensor);
    rows.push_back({name_of_tensor(i, count), shape_text(tensor.sizes()), c10::toString(tensor.scalar_type()),
                    metric_text(of.min), metric_text(of.max), metric_text(of.mean), metric_text(of.deviation),
                    std::to_string(of.num_not_finite)});
  }
  std::cout << table_text({{.title = "tensor"},
                           {.title = "shape"},
                           {.title = "dtype"},
                           {.title = "min", .right = true},
                           {.title = "max", .right = true},
                           {.title = "mean", .right = true},
                           {.title = "std", .right = true},
                           {.title = "not finite", .right = true}},
                          rows);
}

// --- Gradients ---

// By layer, in the order of the model: the 2-norm over its parameters.
std::vector<std::pair<std::string, double>> norms_of_layers(const ReplayedStep& step) {
  std::vector<std::pair<std::string, double>> layers;
  for (const auto& [name, norm] : step.gradient_norms) {
    const std::size_t dot = name.rfind('.');
    const std::string layer = dot == std::string::npos ? name : name.substr(0, dot);
    const auto known = std::ranges::find(layers, layer, &std::pair<std::string, double>::first);
    if (known == layers.end())
      layers.emplace_back(layer, norm);
    else
      known->second = std::hypot(known->second, norm);
  }
  return layers;
}

void print_layers(const ReplayedStep& step) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [layer, norm] : norms_of_layers(step))
    rows.push_back({one_line(layer), metric_text(norm)});
  if (!rows.empty())
    std::cout << table_text({{.title = "layer"}, {.title = "gradient norm", .right = true}}, rows);
}

// --- The step ---

void print_samples(const ReplayedBatch& batch, const SampleIds& ids) {
  const std::vector<std::int64_t> indices = indices_of(batch);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(indices.size(), kMostListed); ++i)
    names.push_back(id_of(indices[i], ids));
  std::cout << id_title(ids) << (batch.rank > 0 ? " (rank " + std::to_string(batch.rank) + ")" : "") << "   "
            << joined(names, ", ");
  if (indices.size() > kMostListed) std::cout << " and " << indices.size() - kMostListed << " more";
  std::cout << "\n";
}

std::string step_line(const ReplayedStep& step, double clip) {
  std::string line = "step " + std::to_string(step.global_step) + "   epoch " + std::to_string(step.epoch) +
                     ", batch " + std::to_string(step.batch) + " (from 0)   loss " + metric_text(step.loss) +
                     "   lr " + short_text(step.lr, 4) + "   gradient norm " + metric_text(step.grad_norm);
  if (clip > 0 && step.grad_norm > clip) line += ", clipped at " + number_text(clip);
  return line + "\n";
}

std::string confirmation_text(const ReplayResult& result) {
  std::vector<std::string> compared;
  for (const auto& [count, what] : {std::pair(result.num_records, "record"),
                                    {result.num_digests, "log digest"},
                                    {result.num_checkpoints, "checkpoint"}})
    if (count > 0) compared.push_back(counted(count, what));
  std::string text;
  if (result.confirmed_step > result.start_step)
    text = "confirmed up to step " + std::to_string(result.confirmed_step) + " by " + joined(compared, ", ") +
           "\n";
  if (result.confirmed_step >= result.steps.back().global_step) return text;
  text += "not checked from step " + std::to_string(result.confirmed_step + 1) + " on";
  if (result.next_check) text += "; --until " + std::to_string(*result.next_check) + " compares them";
  return text + "\n";
}

void save(const ReplayedStep& step, const fs::path& folder, bool quiet) {
  fs::create_directories(folder);
  std::string number = std::to_string(step.global_step);
  number.insert(0, number.size() < 8 ? 8 - number.size() : 0, '0');
  const fs::path file = folder / ("step-" + number + ".safetensors");
  save_step(step, file);
  if (!quiet) std::cout << "saved in " << file.string() << "\n";
}

void print_text(const ReplayOfRun& replayed) {
  for (const ReplayedStep& step : replayed.result.steps) {
    std::cout << step_line(step, replayed.clip);
    for (const ReplayedBatch& batch : step.batches) {
      print_samples(batch, replayed.ids);
      print_tensors(batch.batch);
    }
    print_layers(step);
  }
  std::cout << confirmation_text(replayed.result);
  if (!replayed.branch.empty())
    std::cout << "branch   " << replayed.branch.string() << "\ncontinue: kindling fit --resume "
              << shell_word(replayed.branch.string())
              << ", with --allow-config-change for keys that change its numbers\n";
}

// JSON has no such numbers, and null could be one that is missing.
ordered_json number_json(double number) {
  if (std::isfinite(number)) return number;
  return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
}

ordered_json json_of_batch(const ReplayedBatch& batch, const SampleIds& ids) {
  ordered_json samples = ordered_json::array(), tensors = ordered_json::array();
  for (const std::int64_t index : indices_of(batch)) samples.push_back(id_of(index, ids));
  for (const at::Tensor& tensor : batch.batch.tensors()) {
    if (tensor.is_complex() || tensor.layout() != at::kStrided) continue;
    const TensorStatistics of = statistics_of(tensor);
    tensors.push_back({{"shape", tensor.sizes().vec()},
                       {"dtype", c10::toString(tensor.scalar_type())},
                       {"min", number_json(of.min)},
                       {"max", number_json(of.max)},
                       {"mean", number_json(of.mean)},
                       {"std", number_json(of.deviation)},
                       {"num_not_finite", of.num_not_finite}});
  }
  ordered_json json{{id_title(ids), std::move(samples)}, {"tensors", std::move(tensors)}};
  if (batch.rank > 0) json["rank"] = batch.rank;
  return json;
}

ordered_json json_of_step(const ReplayedStep& step, const SampleIds& ids) {
  ordered_json json{{"global_step", step.global_step},
                    {"epoch", step.epoch},
                    {"batch", step.batch},
                    {"loss", number_json(step.loss)},
                    {"lr", number_json(step.lr)},
                    {"grad_norm", number_json(step.grad_norm)}};
  if (step.batches.empty()) return json;
  for (const ReplayedBatch& batch : step.batches) json["batches"].push_back(json_of_batch(batch, ids));
  for (const auto& [name, norm] : step.gradient_norms) json["gradient_norms"][name] = number_json(norm);
  return json;
}

ordered_json json_of_check(const ReplayOfRun& replayed) {
  const ReplayResult& result = replayed.result;
  ordered_json json{{"run", replayed.run.string()},
                    {"checkpoint", result.checkpoint.string()},
                    {"start_step", result.start_step},
                    {"confirmed_step", result.confirmed_step},
                    {"doubts", replayed.doubts}};
  if (result.next_check) json["next_check"] = *result.next_check;
  if (!replayed.branch.empty()) json["branch"] = replayed.branch.string();
  return json;
}

// --- blame ---

struct BlamedSample {
  std::int64_t index = 0;
  std::int64_t label = -1;  // of a class, one per sample; else -1
  double loss = 0;
  double part = 0;  // of the loss of the step: the loss with its weight

  bool counts() const { return !std::isinf(loss) || loss > 0; }
};

// int64 [samples] on the CPU, if the labels are one whole number per sample; else undefined.
at::Tensor classes_of(const Batch& batch) {
  if (batch.tensors().size() < 2) return {};
  const at::Tensor& labels = batch.tensors().back();
  if (labels.dim() != 1 || !at::isIntegralType(labels.scalar_type(), /*includeBool=*/true)) return {};
  return labels.to(at::kCPU, at::kLong).contiguous();
}

// The largest part first; one that is not a number counts as the largest. Throws Error if the samples of a
// batch have no losses.
std::vector<BlamedSample> blamed_samples(const ReplayedStep& step, const fs::path& run) {
  std::vector<BlamedSample> samples;
  double weights = 0;
  for (const ReplayedBatch& batch : step.batches)
    if (batch.weights.defined()) weights += batch.weights.sum().item<double>();
  for (const ReplayedBatch& batch : step.batches) {
    if (!batch.losses.defined())
      throw Error({.place = run.string() + ", step " + std::to_string(step.global_step),
                   .found = "its samples have no losses of their own: " + batch.no_losses,
                   .wanted = "a training_step() that minimises the mean of loss() over the samples",
                   .remedy = "kindling replay shows the samples and their statistics"});
    const std::vector<std::int64_t> indices = indices_of(batch);
    const at::Tensor classes = classes_of(batch.batch);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      BlamedSample sample{.index = indices[i],
                          .label = classes.defined() ? classes.const_data_ptr<std::int64_t>()[i] : -1,
                          .loss = batch.losses.const_data_ptr<double>()[i]};
      sample.part =
          sample.counts() ? sample.loss * batch.weights.const_data_ptr<double>()[i] / weights : sample.loss;
      samples.push_back(sample);
    }
  }
  std::ranges::stable_sort(samples, [](const BlamedSample& a, const BlamedSample& b) {
    return std::isnan(a.part) ? !std::isnan(b.part) : a.part > b.part;
  });
  return samples;
}

double sum_of(const std::vector<BlamedSample>& samples) {
  double sum = 0;
  for (const BlamedSample& sample : samples)
    if (std::isfinite(sample.part)) sum += sample.part;
  return sum;
}

// Sample, loss, part of the sum.
std::vector<std::vector<std::string>> blame_rows(const ReplayOfRun& replayed,
                                                 const std::vector<BlamedSample>& samples) {
  const double sum = sum_of(samples);
  std::vector<std::vector<std::string>> rows;
  for (const BlamedSample& sample : samples)
    rows.push_back(
        {id_of(sample.index, replayed.ids), sample.counts() ? metric_text(sample.loss) : "ignored",
         std::isfinite(sample.part) && sum > 0 ? fixed_text(100 * sample.part / sum, 1) + " %" : ""});
  return rows;
}

// Empty for one that is no class, such as ignore_index.
std::string class_label(std::int64_t label, const std::vector<std::string>& class_names) {
  if (label < 0) return "";
  const auto i = static_cast<std::size_t>(label);
  return i < class_names.size() ? class_names[i] : std::to_string(label);
}

// `pictures`: uint8 [samples, height, width, channels], contiguous, or undefined.
std::vector<Image> images_of(const at::Tensor& pictures) {
  std::vector<Image> images;
  for (std::int64_t i = 0; pictures.defined() && i < pictures.size(0); ++i) {
    const at::Tensor one = pictures[i];
    const auto* const first = one.const_data_ptr<std::uint8_t>();
    images.push_back({.width = one.size(1),
                      .height = one.size(0),
                      .channels = one.size(2),
                      .pixels = {first, first + one.numel()}});
  }
  return images;
}

void write_page(const ReplayOfRun& replayed, const std::vector<BlamedSample>& samples, const fs::path& file) {
  BlamePage page{.run = replayed.run.string(),
                 .step = step_line(replayed.result.steps.front(), replayed.clip),
                 .id_title = id_title(replayed.ids),
                 .rows = blame_rows(replayed, samples),
                 .notes = replayed.doubts};
  page.notes.push_back(confirmation_text(replayed.result));
  const std::vector<std::string> names = replayed.data->class_names();
  std::vector<std::int64_t> shown;
  bool has_labels = false;
  for (const BlamedSample& sample : samples) {
    if (shown.size() < kMostBlamed) shown.push_back(sample.index);
    has_labels |= sample.label >= 0;
    page.labels.push_back(class_label(sample.label, names));
  }
  if (!has_labels) page.labels.clear();
  page.pictures = images_of(sample_pictures(replayed.data->train_dataloader(), shown));
  write_file_atomically(file, html_of(page));
}

void print_blame(const ReplayOfRun& replayed, const std::vector<BlamedSample>& samples) {
  std::cout << step_line(replayed.result.steps.front(), replayed.clip);
  std::vector<std::vector<std::string>> rows = blame_rows(replayed, samples);
  rows.resize(std::min(rows.size(), kMostBlamed));
  std::cout << table_text({{.title = id_title(replayed.ids)},
                           {.title = "loss", .right = true},
                           {.title = "of the sum", .right = true}},
                          rows);
  if (samples.size() > kMostBlamed)
    std::cout << "and " << samples.size() - kMostBlamed << " more; --json lists all\n";
  std::cout << confirmation_text(replayed.result);
}

ordered_json json_of_blame(const ReplayOfRun& replayed, const std::vector<BlamedSample>& samples) {
  ordered_json json = json_of_check(replayed);
  json["step"] = json_of_step(replayed.result.steps.front(), replayed.ids);
  json["samples"] = ordered_json::array();
  const double sum = sum_of(samples);
  for (const BlamedSample& sample : samples) {
    ordered_json one{{id_title(replayed.ids), id_of(sample.index, replayed.ids)}};
    if (sample.counts()) {
      one["loss"] = number_json(sample.loss);
      one["part"] = number_json(sample.part / sum);
    } else {
      one["ignored"] = true;
    }
    json["samples"].push_back(std::move(one));
  }
  return json;
}

}  // namespace

int replay_command(const CommandContext& context) {
  return with_replay(context, [&](const ReplayOfRun& replayed) {
    const Request& request = context.request;
    if (request.json) {
      ordered_json json = json_of_check(replayed);
      for (const ReplayedStep& step : replayed.result.steps)
        json["steps"].push_back(json_of_step(step, replayed.ids));
      std::cout << json.dump(2) << "\n";
    } else {
      print_text(replayed);
    }
    if (!request.replay.save.empty())
      save(replayed.result.steps.front(), request.replay.save, request.quiet || request.json);
  });
}

int blame_command(const CommandContext& context) {
  return with_replay(context, [&](const ReplayOfRun& replayed) {
    const std::vector<BlamedSample> samples = blamed_samples(replayed.result.steps.front(), replayed.run);
    if (const fs::path& file = context.request.replay.html; !file.empty())
      write_page(replayed, samples, file);
    else if (context.request.json)
      std::cout << json_of_blame(replayed, samples).dump(2) << "\n";
    else
      print_blame(replayed, samples);
  });
}

}  // namespace kindling
