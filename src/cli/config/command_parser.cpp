#include "cli/config/command_parser.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace kindling {
namespace {

namespace CLI = kindling_cli11;

constexpr const char* kAnyKey = "Any key of the config can be set as table.key=value or --table.key value.";

// NaN passes CLI11's ranges.
CLI::Validator no_nan() {
  return {[](std::string& text) -> std::string {
            double value = 0;
            const bool is_nan = CLI::detail::lexical_cast(text, value) && std::isnan(value);
            return is_nan ? text + " is not a number" : "";
          },
          ""};
}

template <class Number>
void add_number(CLI::App& command, const char* name, Number& value, const char* doc, double min, double max,
                const char* unit = "N") {
  CLI::Validator range = CLI::Range(Number(min), Number(max));
  if (max == std::numeric_limits<double>::max()) range.description("");
  command.add_option(name, value, doc)->check(range)->check(no_nan())->type_name(unit);
}

void add_config(CLI::App& command, Request& request) {
  command.footer(kAnyKey);
  command
      .add_option("-c,--config", request.configs,
                  "TOML config file; can be repeated, later files take precedence")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

// fit and bench step also take config files without -c. From version 2.4 on, CLI11 refuses a positional
// argument with the name of an option.
void add_config_words(CLI::App& command, Request& request) {
  command
      .add_option("configs", request.config_words,
                  "config files, as with --config, a table of data, or a directory of images")
      ->type_name("CONFIG|TABLE");
}

void add_target(CLI::App& command, Request& request, const char* doc) {
  command.add_option("--target", request.target, doc)->type_name("COLUMN");
}

void add_run_options(CLI::App& command, Request& request) {
  add_config(command, request);
  command
      .add_flag("--print-config", request.print_config,
                "print the resolved config and exit; --print-config=all adds optional tables as comments")
      ->check(CLI::IsMember({"true", "all"}).description(""));  // not shown in the help
  command.add_flag("--check", request.check,
                   "check that the fit can start: config, data, and one batch; then exit");
  command.add_flag("--quiet", request.quiet, "print only errors and results");
  command.add_option("--color", request.color, "when to use colors (auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  command.add_option("--progress", request.progress, "how to show progress (auto)")
      ->check(CLI::IsMember({"auto", "bar", "plain", "none"}))
      ->type_name("HOW");
}

CLI::App& add_measurement(CLI::App& bench, Request& request, const char* name, const char* doc) {
  CLI::App& command = *bench.add_subcommand(name, doc);
  command.add_flag("--json", request.json, "print JSON, one object per line");
  command.add_option("--svg", request.bench.svg, "also write a chart to this SVG file")->type_name("FILE");
  add_number(command, "--repeats", request.bench.timing.repeats, "repetitions of each measurement (5)", 1,
             1000);
  add_number(command, "--threads", request.bench.threads, "CPU threads of operators", 1, 1024);
  return command;
}

void add_bench(CLI::App& app, Request& request) {
  CLI::App& bench = *app.add_subcommand("bench", "measure devices, transfers, and training steps");
  bench.require_subcommand(1);
  BenchRequest& options = request.bench;
  CLI::App& matmul =
      add_measurement(bench, request, "matmul", "measure matrix multiplications of increasing size");
  add_number(matmul, "--time-budget", options.matmul.time_budget_s, "approximate time for all sizes (6)", 0.1,
             86400, "SECONDS");
  add_number(matmul, "--max-n", options.matmul.max_n, "largest matrix size (16384)", 16, 1 << 17);
  add_measurement(bench, request, "log",
                  "compare reading 1,000 logged values one at a time, at once, and batched");
  CLI::App& pair = add_measurement(
      bench, request, "pair",
      "compare two multiplications at once on two devices with two in sequence on one device");
  add_number(pair, "--n", options.n, "matrix size (8192 on GPUs, 1024 on the CPU)", 1, 1 << 17);
  CLI::App& transfer =
      add_measurement(bench, request, "transfer", "compare one large copy with many small ones");
  add_number(transfer, "--mib", options.transfer.mebibytes, "total size in MiB (64)", 1, 1 << 16);
  add_number(transfer, "--pieces", options.transfer.pieces, "number of small copies, a power of two (16384)",
             2, 1 << 20);
  CLI::App& step = add_measurement(bench, request, "step",
                                   "measure the training steps of a config, with and without step capture");
  add_config_words(step, request);
  add_config(step, request);
  constexpr double kMostSteps = 1e9;
  add_number(step, "--steps", options.steps.steps, "measured steps per repetition (300)", 1, kMostSteps);
  add_number(step, "--warm-up", options.steps.warm_up_steps, "steps before the measurement (50)", 1,
             kMostSteps);
}

void add_conversions(CLI::App& app, Request& request) {
  ConversionRequest& options = request.conversion;
  CLI::App& out = *app.add_subcommand(
      "export", "export weights to OUT.safetensors or OUT.pt, or the model to OUT.pt2 or OUT.onnx");
  out.add_option("run", options.in,
                 "a run (its best saved checkpoint), RUN:last, RUN:STEP, a checkpoint, or a weights file; "
                 "for OUT.onnx also a .pt2 file")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  CLI::Option* optimizer =
      out.add_flag("--optimizer", options.optimizer,
                   "export the optimizer state instead, for optimizer.load_state_dict in Python");
  out.add_flag("--train", options.train,
               "with OUT.pt2: export the forward pass of training mode, to continue training in Python");
  out.add_option(
         "--dynamic", options.dynamic,
         "with OUT.pt2 and OUT.onnx: a dimension other than the batch that may vary, by name and position "
         "(sequence=0:1,max=1024); can be repeated")
      ->type_name("NAME=TENSOR:DIM,...")
      ->allow_extra_args(false)
      ->excludes(optimizer);
  out.add_flag("--with-transforms", options.with_transforms,
               "with OUT.pt2 and OUT.onnx: begin with the scaling and the validation transforms of the data, "
               "so that the model takes raw samples, such as uint8 images")
      ->excludes(optimizer);
  out.add_option("--values", options.values,
                 "with OUT.pt2 and OUT.onnx: what the model returns (outputs); probabilities and labels are "
                 "those of a classifier")
      ->check(CLI::IsMember({"outputs", "probabilities", "labels"}))
      ->type_name("WHAT")
      ->excludes(optimizer);
  CLI::Option* verify = out.add_flag(
      "--verify", options.verify,
      "with OUT.onnx: run the file on the first validation batch in the onnxruntime of the python3 on the "
      "PATH, and print the largest difference from the model");
  verify->excludes(optimizer);
  out.add_option("--tolerance", options.tolerance,
                 "with --verify: the largest difference, relative to the largest output; above it, the exit "
                 "code is 1")
      ->check(CLI::NonNegativeNumber)
      ->check(no_nan())
      ->type_name("NUMBER")
      ->needs(verify);
  CLI::App& in = *app.add_subcommand("import", "convert weights from Python, .pt or .safetensors");
  in.add_option("in", options.in, "weights written by torch.save, torch.jit.save or safetensors")
      ->required()
      ->type_name("IN");
  in.add_option("--key", options.key, "entry that is the state dict, such as model or model.state_dict")
      ->type_name("NAME");
  for (CLI::App* command : {&out, &in}) {
    command
        ->add_option("out", options.out,
                     command == &out
                         ? "output file; the extension selects the format: .safetensors, .pt, .pt2, or .onnx"
                         : "output file; the extension selects the format: .safetensors or .pt")
        ->required()
        ->type_name("OUT");
    command
        ->add_option("--map", options.map,
                     "rename tensors that begin with FROM; can be repeated, the first match applies")
        ->type_name("FROM=TO")
        ->allow_extra_args(false);
  }
}

void add_diff(CLI::App& app, Request& request) {
  CLI::App& diff =
      *app.add_subcommand("diff", "find the first step and the first tensor in which two runs differ");
  DiffRequest& options = request.diff;
  for (auto [name, path] : {std::pair{"a", &options.a}, std::pair{"b", &options.b}})
    diff.add_option(name, *path, "a run directory, a checkpoint, or a weights file")
        ->required()
        ->type_name(name == std::string_view("a") ? "A" : "B");
  constexpr double kLargest = std::numeric_limits<double>::max();
  add_number(diff, "--rtol", options.tolerance.relative, "relative difference that counts as equal (0)", 0,
             kLargest, "FRACTION");
  add_number(diff, "--atol", options.tolerance.absolute, "absolute difference that counts as equal (0)", 0,
             kLargest, "NUMBER");
  diff.footer("Exit code 0: equal, 1: different, 2: cannot be compared.");
}

void add_replays(CLI::App& app, Request& request) {
  ReplayRequest& options = request.replay;
  constexpr double kMostSteps = 1e15;
  for (const auto& [name, doc] :
       {std::pair{"replay", "repeat a step of a run, show it, and compare it with what the run recorded"},
        std::pair{"blame", "list the samples of a step of a run by their losses"}}) {
    CLI::App& command = *app.add_subcommand(name, doc);
    command.add_option("run", options.run, "a run, or the directory of several runs (the newest)")
        ->required()
        ->type_name("RUN");
    add_number(command, "--step", options.step, "the optimizer step, counted from 1", 1, kMostSteps);
    command.get_option("--step")->required();
    command.add_flag("--json", request.json, "print JSON");
    command.add_flag("--quiet", request.quiet, "print only errors and results");
    command.footer(std::string(kAnyKey) + "\nRUN is only read. Exit code 1: the replay differs from it.");
  }
  CLI::App& replay = *app.get_subcommand("replay");
  add_number(replay, "--until", options.until, "the last step to repeat; all are listed and compared", 1,
             kMostSteps);
  replay
      .add_option(
          "--save", options.save,
          "directory to write the batch, outputs, gradients, and weights before and after the step to")
      ->type_name("DIR");
  replay
      .add_option("--branch", options.branch,
                  "begin a new run of this name with the state after the last step, next to RUN's directory")
      ->type_name("NAME");
  app.get_subcommand("blame")
      ->add_option("--html", options.html,
                   "write a page with all samples, and pictures of images, to this HTML file instead")
      ->type_name("FILE");
}

void add_plot(CLI::App& app, Request& request) {
  CLI::App& plot = *app.add_subcommand("plot", "draw the curves of one or more runs");
  PlotRequest& options = request.plot;
  plot.add_option("runs", options.runs, "run directories; of a directory of runs, the newest")
      ->required()
      ->type_name("RUN...");
  plot.add_option(
          "--metric", options.metrics,
          "metric to draw, such as val_loss; can be repeated; without it, the losses and the monitored "
          "metric, in files all metrics")
      ->type_name("NAME")
      ->allow_extra_args(false);
  plot.add_option("--svg", options.svg, "write the charts to this SVG file instead")->type_name("FILE");
  plot.add_option("--html", options.html,
                  "write a page to this HTML file instead: the report of a run, or a comparison of several")
      ->type_name("FILE");
  plot.add_option("--color", request.color, "when to use colors (auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
}

void add_jobs(CLI::App& command, Request& request) {
  add_number(command, "--jobs", request.sweep.jobs, "runs of the sweep at the same time (1)", 1, 1024);
}

void add_sweep(CLI::App& app, Request& request) {
  CLI::App& sweep = *app.add_subcommand("sweep", "train many runs with different values of config keys");
  sweep.add_option("sweep", request.sweep.path, "a sweep file, or the directory of a sweep to resume")
      ->required()
      ->type_name("FILE|DIR");
  add_jobs(sweep, request);
  sweep.add_flag("--check", request.check, "check and list the runs, and exit");
  sweep.add_flag("--json", request.json, "print the table as JSON, and nothing else");
  sweep.add_flag("--quiet", request.quiet, "print only the table");
  sweep.footer(
      "The same command resumes an interrupted sweep. Exit code 0: a run has finished or is trained by "
      "another "
      "process, 1: none.");
}

void add_runs(CLI::App& app, Request& request) {
  CLI::App& runs = *app.add_subcommand("runs", "list runs, their results, and the config keys that differ");
  RunsRequest& options = request.runs;
  runs.add_option("dir", options.dir, "the directory of the runs (runs)")->type_name("DIR");
  runs.add_option("--sort", options.sort, "the order; the newest, best or largest is last (time)")
      ->check(CLI::IsMember({"time", "name", "best", "status", "steps", "seconds"}))
      ->type_name("ORDER");
  runs.add_option("--mode", options.mode,
                  "with --sort best: whether the largest or the smallest value is best")
      ->check(CLI::IsMember({"max", "min"}))
      ->type_name("MODE");
  runs.add_option("--filter", options.filter, "only runs whose name contains this text")->type_name("TEXT");
  runs.add_flag("--json", request.json, "print JSON");
}

void add_evaluations(CLI::App& app, Request& request) {
  for (const auto& [name, doc] :
       {std::pair{"validate", "evaluate a model on the validation data"},
        std::pair{"test", "evaluate a model on the test data"},
        std::pair{"predict", "print the outputs of a model as CSV, or write them to a file"}}) {
    CLI::App& command = *app.add_subcommand(name, doc);
    command
        .add_option("run", request.evaluation.run,
                    "a run (its config and its best saved checkpoint), RUN:last, RUN:STEP, a checkpoint of a "
                    "run, or the directory of several runs (the newest)")
        ->type_name("RUN");
    add_run_options(command, request);
    command
        .add_option("--weights", request.weights,
                    "weights file (.safetensors or .pt), or a run: RUN (its best saved checkpoint), "
                    "RUN:last, RUN:STEP; with -c, or instead of those of the run")
        ->type_name("RUN|FILE");
  }
  CLI::App& predict = *app.get_subcommand("predict");
  predict
      .add_option("file", request.evaluation.input,
                  "file to predict instead of the test or validation data, such as new.csv for a run on a "
                  "table, or a directory of images for a segmentation")
      ->type_name("FILE");
  predict
      .add_option("--out", request.evaluation.out,
                  "file to write instead; the extension selects the format: .csv, .jsonl, .npz, .npy, "
                  ".safetensors, HDF5 (.h5, .hdf5), or NetCDF (.nc, .nc4, .cdf); or a directory such as "
                  "masks/, for the class of each pixel as PNG files")
      ->type_name("FILE");
  predict
      .add_option("--values", request.evaluation.values,
                  "what to predict (outputs); probabilities and labels are those of a classifier")
      ->check(CLI::IsMember({"outputs", "probabilities", "labels"}))
      ->type_name("WHAT");
}

void add_fit(CLI::App& app, Request& request) {
  CLI::App& fit = *app.add_subcommand("fit", "train a model");
  add_config_words(fit, request);
  add_run_options(fit, request);
  add_target(fit, request,
             "the column of the table to predict: numbers as data.target, texts or two values as data.label");
  fit.add_option("--resume", request.resume,
                 "resume a run from its latest checkpoint, or from a given checkpoint")
      ->type_name("RUN|FILE");
  fit.add_flag("--allow-config-change", request.allow_config_change,
               "resume even if the config changes the results of the run");
  fit.add_option(
         "--sweep", request.sweep.parameters,
         "train a run for each of several values (optimizer.lr=1e-4,3e-4 or seed=0..4); can be repeated, "
         "for every combination")
      ->type_name("KEY=VALUES")
      ->allow_extra_args(false);
  add_jobs(fit, request);
}

void add_config_command(CLI::App& app, Request& request) {
  CLI::App& config = *app.add_subcommand("config",
                                         "write a config for a table or a directory of images to the "
                                         "standard output, with the reason for each value");
  config.add_option("table", request.table, "a table (CSV or JSON lines), or a directory of images")
      ->required()
      ->type_name("FILE|DIR");
  add_target(config, request,
             "the column to predict (one named target, label, class or y, or the last one that varies)");
  config.footer(kAnyKey);
}

void add_data(CLI::App& app, Request& request) {
  CLI::App& data = *app.add_subcommand("data", "inspect data before training on them");
  data.require_subcommand(1);
  for (const auto& [name, doc] :
       {std::pair{"check",
                  "compare downloaded files with their checksums, and read all samples: counts, classes, "
                  "ranges, missing values, broken samples"},
        std::pair{"show", "print a few training samples; images are drawn on terminals with colors"}}) {
    CLI::App& command = *data.add_subcommand(name, doc);
    command
        .add_option(
            "data", request.config_words,
            "a data set that `kindling list datasets` names, config files, a table, or a directory of images")
        ->type_name("NAME|CONFIG|TABLE");
    add_config(command, request);
    command.add_flag("--json", request.json, "print JSON, one object per line");
  }
  CLI::App& show = *data.get_subcommand("show");
  add_number(show, "--samples", request.data.num_samples, "number of samples (4)", 1, 1000);
  show.add_option(
          "--png", request.data.png,
          "write images to a PNG file, the samples after the train transforms below the others; random "
          "transforms draw what a fit draws for them in epoch 0")
      ->type_name("FILE");
  show.add_option("--color", request.color, "when to draw images instead of printing values (auto)")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
}

void add_help(CLI::App& app, Request& request) {
  app.add_subcommand("list", "list the names that a config can use")
      ->add_option(
          "what", request.listed,
          "the kind of names; without it, all kinds; one of models, datasets, transforms, optimizers, "
          "schedules, metrics, callbacks, loggers")
      ->type_name("KIND");
  app.add_subcommand("help", "explain a command, a config key, a table, or a name that a config can use")
      ->add_option("topic", request.help_topic, "such as fit, trainer.precision, optimizer, or adamw")
      ->type_name("TOPIC");
  app.add_subcommand("version", "print the version");
  app.add_subcommand("completion", "print a script that completes command lines")
      ->add_option("shell", request.shell, "the shell that reads the script")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}))
      ->type_name("SHELL");
}

// Assigns the commands from `first` on to a group of the help.
void set_group(CLI::App& app, std::size_t& first, const char* group) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  for (; first < commands.size(); ++first) commands[first]->group(group);
}

constexpr std::pair<const char*, const char*> kExamples[] = {
    {"fit", "kindling fit configs/digits.toml trainer.max_epochs=3"},
    {"config", "kindling config houses.csv --target price > houses.toml"},
    {"sweep", "kindling sweep configs/sweep.toml --jobs 2"},
    {"new", "kindling new my_project"},
    {"data", "kindling data check digits"},
    {"check", "kindling data check configs/digits.toml"},
    {"show", "kindling data show digits"},
    {"validate", "kindling validate runs/digits/0001"},
    {"test", "kindling test runs/digits/0001"},
    {"predict", "kindling predict runs/digits/0001 --out predictions.csv"},
    {"export", "kindling export runs/digits/0001 digits.pt2"},
    {"import", "kindling import weights.pt weights.safetensors"},
    {"runs", "kindling runs runs/digits --sort best"},
    {"plot", "kindling plot runs/digits/0001 runs/digits/0002 --metric val_loss"},
    {"diff", "kindling diff runs/digits/0001 runs/digits/0002"},
    {"replay", "kindling replay runs/digits/0001 --step 300"},
    {"blame", "kindling blame runs/digits/0001 --step 300"},
    {"devices", "kindling devices --json"},
    {"bench", "kindling bench step configs/digits.toml"},
    {"matmul", "kindling bench matmul --max-n 4096"},
    {"log", "kindling bench log"},
    {"pair", "kindling bench pair"},
    {"transfer", "kindling bench transfer --mib 64"},
    {"step", "kindling bench step configs/digits.toml"},
    {"doctor", "kindling doctor"},
    {"list", "kindling list models"},
    {"help", "kindling help trainer.precision"},
    {"version", "kindling version"},
    {"completion", "source <(kindling completion bash)"},
};

void add_examples(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string example = "Example: " + command_example(command->get_name()),
                      text = command->get_footer();
    command->footer(text.empty() ? example : text + "\n" + example);
    add_examples(*command);
  }
}

}  // namespace

std::string command_example(std::string_view command) {
  for (const auto& [name, example] : kExamples)
    if (name == command) return example;
  return {};
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find(":{"), close = type.rfind('}');
  std::vector<std::string> choices;
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::string_view rest(type);
  rest = rest.substr(open + 2, close - open - 2);
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    choices.emplace_back(rest.substr(0, comma));
    if (comma == rest.size()) return choices;
    rest.remove_prefix(comma + 1);
  }
}

void add_commands(CLI::App& app, Request& request) {
  std::size_t first = 0;
  add_fit(app, request);
  add_config_command(app, request);
  add_sweep(app, request);
  app.add_subcommand("new", "write a C++ project with a custom model and data into ./NAME")
      ->add_option("name", request.project, "a letter, then letters, digits, '_' or '-'")
      ->required()
      ->type_name("NAME");
  add_data(app, request);
  set_group(app, first, "Train");
  add_evaluations(app, request);
  add_conversions(app, request);
  set_group(app, first, "Use a trained model");
  add_runs(app, request);
  add_plot(app, request);
  add_diff(app, request);
  set_group(app, first, "Compare runs");
  add_replays(app, request);
  set_group(app, first, "Examine a run");
  app.add_subcommand("devices", "show GPUs and CPU")->add_flag("--json", request.json, "print JSON");
  add_bench(app, request);
  CLI::App& doctor = *app.add_subcommand(
      "doctor", "print versions, build, devices, threads, and paths for a bug report, or test the machine");
  add_number(doctor, "--stress", request.stress_s,
             "repeat training steps on each device for this time, and compare their bits", 0.1, 86400,
             "SECONDS");
  set_group(app, first, "Examine the machine");
  add_help(app, request);
  set_group(app, first, "Get help");
  add_examples(app);
}

}  // namespace kindling
