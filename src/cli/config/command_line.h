#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "kindling/cli/registry.h"
#include "kindling/tensors/state_comparison.h"
#include "measurements/measurements.h"

namespace kindling {

// The request of `kindling bench`.
struct BenchRequest {
  std::string what{};           // matmul, log, pair, transfer, step
  std::filesystem::path svg{};  // empty: no chart
  std::int64_t threads = 0;     // of operators; 0: LibTorch's number, one for log, that of a fit for step
  TimingOptions timing{};
  MatmulOptions matmul{};
  std::int64_t n = 0;  // of pair; 0: by the devices
  TransferOptions transfer{};
  StepTimesOptions steps{};
};

// The request of `kindling export` and `kindling import`.
struct ConversionRequest {
  std::filesystem::path in{}, out{};
  std::string key{};                   // of import: the entry of a dict
  std::vector<std::string> map{};      // "FROM=TO"
  bool optimizer = false;              // of export: the optimizer's state instead of the weights
  bool train = false;                  // of export to a .pt2: the forward of training mode
  std::vector<std::string> dynamic{};  // of export to a program: "sequence=0:1,max=1024"
  bool with_transforms = false;        // of export to a program: with what the data do to a batch
  std::string values = "outputs";      // of export to a program: outputs, probabilities, labels
  bool verify = false;                 // of export to a .onnx: run it in onnxruntime
  double tolerance = 1e-4;             // of that, relative to the largest output
};

// The request of `kindling validate`, `test` and `predict`.
struct EvaluationRequest {
  std::string run{};               // as --weights: a run, whose config counts; empty: the config of -c
  std::filesystem::path input{};   // of predict: the file to predict; empty: the data of the config
  std::filesystem::path out{};     // of predict: the file to write; empty: CSV on stdout
  std::string values = "outputs";  // of predict: outputs, probabilities, labels
};

// The request of `kindling data`.
struct DataRequest {
  std::string what{};            // check, show
  std::int64_t num_samples = 4;  // of show
  std::filesystem::path png{};   // of show: the file to write; empty: none
};

// The request of `kindling diff`.
struct DiffRequest {
  std::filesystem::path a{}, b{};
  Tolerance tolerance{};
};

// The request of `kindling replay` and `kindling blame`.
struct ReplayRequest {
  std::filesystem::path run{};
  std::int64_t step = 0;
  std::int64_t until = 0;        // of replay: the last step; 0: `step`
  std::string branch{};          // of replay: the name of a run that begins after the last step; empty: none
  std::filesystem::path save{};  // of replay: the directory for the step; empty: it is not saved
  std::filesystem::path html{};  // of blame: the file for a page; empty: none
};

// The request of `kindling plot`.
struct PlotRequest {
  std::vector<std::filesystem::path> runs{};
  std::vector<std::string> metrics{};   // empty: a selection
  std::filesystem::path svg{}, html{};  // empty: no such file
};

// The request of `kindling runs`.
struct RunsRequest {
  std::filesystem::path dir = "runs";
  std::string sort = "time";
  std::string mode{};    // max, min; empty: by the name of the value
  std::string filter{};  // part of the name
};

// The request of `kindling sweep` and `kindling fit --sweep`.
struct SweepRequest {
  std::filesystem::path path{};           // of sweep: a sweep file or the directory of a sweep
  std::vector<std::string> parameters{};  // of fit --sweep: "seed=0..4"
  std::int64_t jobs = 0;                  // 0: as the sweep file says
};

// The request of the command line.
struct Request {
  // fit, config, validate, test, predict, export, import, plot, diff, replay, blame, runs, sweep, data, new,
  // devices, bench, doctor, list, help, completion
  std::string command{};
  std::vector<std::filesystem::path> configs{};
  std::vector<std::filesystem::path> config_words{};  // given without -c; parsing moves them to `configs`
  // Words that name data instead of a config: a table, or a directory of images. See parse_command_line().
  std::filesystem::path table{}, images{};
  std::string target{};         // of fit and config: the column to predict; empty: as the config says
  std::size_t num_derived = 0;  // overrides that stand for these words
  // The overrides among them that the table has decided, by key, with the reason.
  std::map<std::string, std::string> table_choices{};
  std::vector<std::string> overrides{};  // "trainer.max_epochs=3", in their order
  std::string weights{};                 // of --weights: RUN, RUN:best, RUN:last, RUN:STEP or a file
  std::filesystem::path resume{};        // of fit --resume: a run directory or a checkpoint of a run
  bool allow_config_change = false;
  std::string listed{};  // models, datasets, optimizers, schedules, metrics, callbacks, loggers; empty: all
  std::vector<std::string> help_topic{};  // of help: words that are not a command
  std::string shell{};                    // of completion: bash, zsh
  std::string project{};                  // of new: the name
  std::string color = "auto";
  std::string progress = "auto";
  bool quiet = false;
  std::string print_config{};  // "true", or "all" with the optional tables; empty: not requested
  bool check = false;
  bool json = false;
  double stress_s = 0;  // of doctor; 0: no test
  BenchRequest bench{};
  DataRequest data{};
  EvaluationRequest evaluation{};
  ConversionRequest conversion{};
  DiffRequest diff{};
  ReplayRequest replay{};
  PlotRequest plot{};
  RunsRequest runs{};
  SweepRequest sweep{};
};

// The arguments of a subcommand. Both references outlive the call.
struct CommandContext {
  const Request& request;
  const Registry& registry;
  int argc;
  char** argv;
};

struct ParsedCommandLine {
  Request request{};
  // The exit code if there is nothing left to do (--help, a usage error); its output has been printed.
  int exit_code = -1;
};

// Parses a command line. Throws ConfigError with a suggestion for words that it does not know; the registry
// provides the config keys. Overrides are words with a '=' that do not start with '-', and options whose name
// contains a '.' (`--trainer.max_epochs 3`) or is `seed` or `name`, before or after the subcommand. A word
// that names a table becomes the first override, data.file, and one that names a directory data.root.
ParsedCommandLine parse_command_line(int argc, char** argv, const Registry& registry);

// Returns a word quoted for a shell.
std::string shell_word(const std::string& word);
// Returns all words of a command for a shell.
std::string command_line_of(const CommandContext& command);

// Returns a value of ConfigTables::values() as people write it outside of TOML: mlp for "mlp".
std::string unquoted(const std::string& value);

}  // namespace kindling
