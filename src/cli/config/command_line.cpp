#include "cli/config/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/version.h"

namespace kindling {
namespace {

// "trainer.max_epochs" of "--trainer.max_epochs=3" or "--trainer.max_epochs"; empty for other words.
std::string_view override_key(std::string_view word) {
  if (!word.starts_with("--")) return {};
  const std::string_view key = word.substr(2, word.find('=') - 2);
  const bool is_key = key.find('.') != std::string_view::npos || key == "seed" || key == "name";
  return is_key ? key : std::string_view{};
}

// Takes the overrides out of the words and leaves the rest for the parser.
std::vector<std::string> take_overrides(const std::vector<std::string>& words,
                                        std::vector<std::string>& overrides) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const std::string_view key = override_key(word);
    const bool is_value =
        i > 0 && (words[i - 1] == "-c" || words[i - 1] == "--config" || words[i - 1] == "--weights" ||
                  words[i - 1] == "--resume" || words[i - 1] == "--svg" || words[i - 1] == "--map" ||
                  words[i - 1] == "--key" || words[i - 1] == "--dynamic");
    if (is_value) {
      rest.push_back(word);
    } else if (!key.empty() && word.find('=') != std::string::npos) {
      overrides.push_back(word.substr(2));
    } else if (!key.empty()) {
      if (i + 1 == words.size())
        throw ConfigError(
            {.place = "command line", .found = "'" + word + "' has no value", .wanted = word + " VALUE"});
      overrides.push_back(std::string(key) + "=" + words[++i]);
    } else if (!word.starts_with("-") && word.find('=') != std::string::npos) {
      overrides.push_back(word);
    } else {
      rest.push_back(word);
    }
  }
  return rest;
}

template <class Number>
void add_number(CLI::App& command, const char* name, Number& value, const char* doc, double min, double max,
                const char* unit = "N") {
  command.add_option(name, value, doc)->check(CLI::Range(Number(min), Number(max)))->type_name(unit);
}

void add_config(CLI::App& command, Request& request) {
  command.add_option("-c,--config", request.configs, "TOML config file; repeatable, later ones win")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.footer("Any key of the config can be given as table.key=value or --table.key value.");
}

void add_run_options(CLI::App& command, Request& request) {
  add_config(command, request);
  command.add_flag("--print-config", request.print_config, "print the resolved config and stop");
  command.add_flag("--check", request.check, "check the config and stop");
  command.add_flag("--quiet", request.quiet, "print errors and results only");
  command.add_option("--color", request.color)
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  command.add_option("--progress", request.progress)
      ->check(CLI::IsMember({"auto", "bar", "plain", "none"}))
      ->type_name("HOW");
}

CLI::App& add_measurement(CLI::App& bench, Request& request, const char* name, const char* doc) {
  CLI::App& command = *bench.add_subcommand(name, doc);
  command.add_flag("--json", request.json, "as JSON, one object per line");
  command.add_option("--svg", request.bench.svg, "draw a picture, too")->type_name("FILE");
  add_number(command, "--repeats", request.bench.timing.repeats, "measured repeats of each (5)", 1, 1000);
  add_number(command, "--threads", request.bench.threads, "threads of operators on the CPU", 1, 1024);
  return command;
}

void add_bench(CLI::App& app, Request& request) {
  CLI::App& bench = *app.add_subcommand("bench", "what devices, transfers and steps cost");
  bench.require_subcommand(1);
  BenchRequest& options = request.bench;
  CLI::App& matmul = add_measurement(bench, request, "matmul", "matrix products from small to large");
  add_number(matmul, "--time-budget", options.matmul.time_budget_s, "for all of it, about (6)", 0.1, 86400,
             "SECONDS");
  add_number(matmul, "--max-n", options.matmul.max_n, "the largest matrix (16384)", 16, 1 << 17);
  add_measurement(bench, request, "log", "1,000 numbers read one at a time, kept and moved once, batched");
  CLI::App& pair = add_measurement(bench, request, "pair",
                                   "two products on two devices at once, against in sequence on one");
  add_number(pair, "--n", options.n, "of the matrices (8192 on cards, 1024 on the CPU)", 1, 1 << 17);
  CLI::App& transfer = add_measurement(bench, request, "transfer", "one large copy against many small ones");
  add_number(transfer, "--mib", options.transfer.mebibytes, "MiB in all (64)", 1, 1 << 16);
  add_number(transfer, "--pieces", options.transfer.pieces, "small copies, a power of two (16384)", 2,
             1 << 20);
  CLI::App& step = add_measurement(bench, request, "step",
                                   "the steps of a config's training, with and without a step graph");
  add_config(step, request);
  constexpr double kMostSteps = 1e9;
  add_number(step, "--steps", options.steps.steps, "measured steps of a repeat (300)", 1, kMostSteps);
  add_number(step, "--warm-up", options.steps.warm_up_steps, "steps before them (50)", 1, kMostSteps);
}

void add_conversions(CLI::App& app, Request& request) {
  ConversionRequest& options = request.conversion;
  CLI::App& out = *app.add_subcommand(
      "export", "write a model's weights to OUT.safetensors or OUT.pt, or the model to OUT.pt2 or OUT.onnx");
  out.add_option("run", options.in,
                 "a run (its best saved checkpoint), RUN:last, RUN:STEP, a checkpoint or a file of weights; "
                 "for OUT.onnx also a .pt2")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  CLI::Option* optimizer =
      out.add_flag("--optimizer", options.optimizer,
                   "its optimizer's state instead, for optimizer.load_state_dict in Python");
  out.add_flag("--train", options.train,
               "of OUT.pt2: the forward of training mode, to be trained on in Python");
  out.add_option(
         "--dynamic", options.dynamic,
         "of OUT.pt2 and OUT.onnx: a size beside the batch's that may change, by its name and where it "
         "stands (sequence=0:1,max=1024); repeatable")
      ->type_name("NAME=TENSOR:DIM,...")
      ->allow_extra_args(false)
      ->excludes(optimizer);
  CLI::App& in = *app.add_subcommand("import", "convert Python's weights, .pt or .safetensors");
  in.add_option("in", options.in, "a state dict that torch.save or safetensors wrote")
      ->required()
      ->type_name("IN");
  in.add_option("--key", options.key, "the entry of a dict that is the state dict")->type_name("NAME");
  for (CLI::App* command : {&out, &in}) {
    command
        ->add_option("out", options.out,
                     command == &out ? "by its ending: .safetensors, .pt or .pt2"
                                     : "by its ending: .safetensors or .pt")
        ->required()
        ->type_name("OUT");
    command
        ->add_option("--map", options.map,
                     "rename what begins with FROM; repeatable, the first that fits counts")
        ->type_name("FROM=TO")
        ->allow_extra_args(false);
  }
}

void add_diff(CLI::App& app, Request& request) {
  CLI::App& diff =
      *app.add_subcommand("diff", "the first step and the first tensor in which two runs differ");
  DiffRequest& options = request.diff;
  for (auto [name, path] : {std::pair{"a", &options.a}, std::pair{"b", &options.b}})
    diff.add_option(name, *path, "a run's folder, a checkpoint or a file of weights")
        ->required()
        ->type_name("RUN|FILE");
  constexpr double kLargest = std::numeric_limits<double>::max();
  add_number(diff, "--rtol", options.tolerance.relative, "relative difference that counts as equal (0)", 0,
             kLargest, "SHARE");
  add_number(diff, "--atol", options.tolerance.absolute, "absolute difference that counts as equal (0)", 0,
             kLargest, "NUMBER");
  diff.footer("Exit code 0: equal, 1: they differ, 2: they cannot be compared.");
}

void add_commands(CLI::App& app, Request& request) {
  CLI::App& fit = *app.add_subcommand("fit", "train a model");
  add_run_options(fit, request);
  fit.add_option("--resume", request.resume, "go on with a run, from its latest checkpoint or from this one")
      ->type_name("RUN|FILE");
  fit.add_flag("--allow-config-change", request.allow_config_change,
               "resume with a config that may change the run's numbers");
  for (const auto& [name, doc] : {std::pair{"validate", "evaluate a model on the validation data"},
                                  std::pair{"test", "evaluate a model on the test data"},
                                  std::pair{"predict", "print a model's outputs as CSV"}}) {
    CLI::App* command = app.add_subcommand(name, doc);
    add_run_options(*command, request);
    command
        ->add_option("--weights", request.weights,
                     "weights of a file, or of a run: its best saved checkpoint, or RUN:last or RUN:STEP")
        ->type_name("RUN|FILE");
  }
  add_conversions(app, request);
  add_diff(app, request);
  app.add_subcommand("devices", "the cards and the CPU")->add_flag("--json", request.json, "as JSON");
  add_bench(app, request);
  app.add_subcommand("doctor", "versions, build, devices, threads, paths: for a bug report");
  app.add_subcommand("list", "what a config can name")
      ->add_option("what", request.listed)
      ->required()
      ->check(CLI::IsMember(
          {"models", "datasets", "optimizers", "schedules", "metrics", "callbacks", "loggers"}));
}

// A wrong word where a subcommand is wanted, said with the nearest one.
void check_subcommand(const CLI::App& app, std::span<const std::string> words) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!words.empty() && command->get_name() == words[0])
      return check_subcommand(*command, words.subspan(1));
    names.push_back(command->get_name());
  }
  if (names.empty() || words.empty() || words[0].starts_with("-")) return;
  const std::string close = nearest(words[0], names);
  throw ConfigError({.place = app.get_name(),
                     .found = "there is no command '" + words[0] + "'",
                     .wanted = "one of " + list_names(names),
                     .remedy = close.empty() ? "" : "did you mean '" + close + "'?"});
}

}  // namespace

ParsedCommandLine parse_command_line(int argc, char** argv) {
  ParsedCommandLine parsed;
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  words = take_overrides(words, parsed.request.overrides);

  CLI::App app("Kindling trains models described by a config file.", "kindling");
  app.set_version_flag("--version", std::string("kindling ") + version());
  app.require_subcommand(1);
  add_commands(app, parsed.request);
  check_subcommand(app, words);
  try {
    std::reverse(words.begin(), words.end());  // the parser takes them from the back
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    parsed.exit_code = code == 0 ? 0 : 2;
    return parsed;
  }
  const CLI::App& command = *app.get_subcommands().front();
  parsed.request.command = command.get_name();
  if (!command.get_subcommands().empty())
    parsed.request.bench.what = command.get_subcommands().front()->get_name();
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

}  // namespace kindling
