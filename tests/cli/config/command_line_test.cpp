#include "cli/config/command_line.h"

#include <gtest/gtest.h>

#include "cli/config/command_parser.h"
#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

Request parse(std::vector<std::string> words) {
  words.insert(words.begin(), "kindling");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  Registry registry;
  register_builtin(registry);
  const ParsedCommandLine parsed = parse_command_line(static_cast<int>(argv.size()), argv.data(), registry);
  EXPECT_EQ(parsed.exit_code, -1);
  return parsed.request;
}

std::vector<std::string> shared_names(const kindling_cli11::App& command) {
  std::vector<std::string> shared;
  for (const auto* argument : command.get_options())
    if (const std::string name = argument->get_name(/*positional=*/true); argument->get_positional())
      for (const auto* option : command.get_options())
        if (option->check_lname(name)) shared.push_back(command.get_name() + " " + name);
  for (const auto* part : command.get_subcommands({}))
    for (std::string& name : shared_names(*part)) shared.push_back(std::move(name));
  return shared;
}

// Lightning's default name of a checkpoint, a folder of a sweep.
TEST(CommandLine, TakesPathsWithASignForPaths) {
  const Scratch scratch;
  const std::string file = scratch / "epoch=3-val_loss=0.25.ckpt";
  write_text(file, "");
  const std::filesystem::path former = std::filesystem::current_path();
  std::filesystem::current_path(scratch.folder());
  std::filesystem::create_directories("lr=0.1/0001");
  for (const std::string& word :
       std::vector<std::string>{"epoch=3-val_loss=0.25.ckpt", "./epoch=3-val_loss=0.25.ckpt", file,
                                "lr=0.1/0001", "lr=0.1/0001:last"}) {
    EXPECT_EQ(parse({"predict", word, "data.batch_size=3"}).evaluation.run, word);
    EXPECT_EQ(parse({"predict", word, "data.batch_size=3"}).overrides,
              std::vector<std::string>{"data.batch_size=3"});
    EXPECT_EQ(parse({"import", word, "a=b.pt"}).conversion.in, word);
    EXPECT_EQ(parse({"export", word, "a=b.pt"}).conversion.out, "a=b.pt");
    EXPECT_EQ(parse({"diff", word, "x=y"}).diff.b, "x=y");
  }
  EXPECT_EQ(parse({"predict", "--", "trainer.x=1"}).evaluation.run, "trainer.x=1");
  EXPECT_EQ(parse({"fit", "lr=0.2"}).overrides, std::vector<std::string>{"lr=0.2"});  // there is no such path
  std::filesystem::current_path(former);
}

TEST(CommandLine, TakesATableInsteadOfAConfig) {
  const Request request = parse({"fit", "a.toml", "houses.CSV.gz", "--target", "a=b", "seed=3"});
  EXPECT_EQ(request.configs, std::vector<std::filesystem::path>{"a.toml"});
  EXPECT_EQ(request.table, "houses.CSV.gz");
  EXPECT_EQ(request.target, "a=b");
  EXPECT_EQ(request.overrides, (std::vector<std::string>{"data.file=\"houses.CSV.gz\"", "seed=3"}));
  EXPECT_EQ(parse({"data", "check", "t.parquet"}).table, "t.parquet");  // which is refused by its name
  EXPECT_EQ(parse({"data", "check", "digits"}).table, "");
}

// CLI11 refuses it from version 2.4 on; Debian 12 has 2.1.
TEST(CommandLine, NamesNoArgumentAsAnOption) {
  kindling_cli11::App app;
  Request request;
  add_commands(app, request);
  EXPECT_EQ(shared_names(app), std::vector<std::string>());
}

TEST(CommandLine, AcceptsOverridesInEveryFormAndPosition) {
  const Request request =
      parse({"seed=3", "--trainer.max_epochs", "5", "fit", "--model.name=mlp", "-c", "a=b.toml",
             "data.val=[0, 10]", "--name", "mine", "--trainer.num_gpus", "-1", "--config", "c.toml"});
  EXPECT_EQ(request.command, "fit");
  EXPECT_EQ(request.configs, (std::vector<std::filesystem::path>{"a=b.toml", "c.toml"}));
  EXPECT_EQ(request.overrides,
            (std::vector<std::string>{"seed=3", "trainer.max_epochs=5", "model.name=mlp", "data.val=[0, 10]",
                                      "name=mine", "trainer.num_gpus=-1"}));
}

TEST(CommandLine, KeepsTheOptionsOfACommand) {
  const Request request = parse({"validate", "--weights", "runs/digits/0001", "--progress=none", "--quiet"});
  EXPECT_EQ(request.command, "validate");
  EXPECT_EQ(request.weights, "runs/digits/0001");
  EXPECT_EQ(request.progress, "none");
  EXPECT_TRUE(request.quiet);
}

std::string answer(std::vector<std::string> words) {
  return error_text<ConfigError>([&] { parse(std::move(words)); });
}

TEST(CommandLine, NamesAnUnknownCommandAndTheNearestOne) {
  const std::string commands =
      "expected: one of fit, config, sweep, new, data, validate, test, predict, export, import, runs, plot, "
      "diff, replay, blame, devices, bench, doctor, list, help, version, completion";
  EXPECT_EQ(answer({"predcit", "-c", "a.toml"}),
            "kindling: there is no command 'predcit'; " + commands + "; did you mean 'predict'?");
  EXPECT_EQ(answer({"seed=3", "transmogrify"}), "kindling: there is no command 'transmogrify'; " + commands);
  EXPECT_EQ(answer({"train"}),
            "kindling: there is no command 'train'; " + commands + "; did you mean 'fit'?");
  EXPECT_EQ(
      answer({"bench", "matmull", "--json"}),
      "kindling bench: there is no command 'matmull'; expected: one of matmul, log, pair, transfer, step; "
      "did you mean 'matmul'?");
}

TEST(CommandLine, SuggestsTheOptionOrTheKeyForAnUnknownOption) {
  EXPECT_EQ(answer({"fit", "--max_epochs", "3"}),
            "kindling fit: there is no option '--max_epochs'; did you mean '--trainer.max_epochs'?");
  EXPECT_EQ(answer({"fit", "-lr", "3"}),
            "kindling fit: there is no option '-lr'; did you mean '--optimizer.lr'?");
  EXPECT_EQ(answer({"fit", "--chek"}), "kindling fit: there is no option '--chek'; did you mean '--check'?");
  EXPECT_EQ(answer({"devices", "--jsn"}),
            "kindling devices: there is no option '--jsn'; did you mean '--json'?");
  EXPECT_EQ(answer({"devices", "--epochs"}),
            "kindling devices: there is no option '--epochs'; expected: one of --help, --json");
}

TEST(CommandLine, DoesNotTakeTheValueOfAnOptionForAnOption) {
  const Request request = parse({"export", "--dynamic", "--odd", "runs/a", "out.pt2"});
  EXPECT_EQ(request.conversion.dynamic, std::vector<std::string>{"--odd"});
}

TEST(CommandLine, TakesConfigFilesAsWords) {
  EXPECT_EQ(parse({"fit", "a.toml", "seed=3", "-c", "b.toml"}).configs,
            (std::vector<std::filesystem::path>{"a.toml", "b.toml"}));
  const Request evaluation = parse({"validate", "a.toml", "--weights", "w.pt"});
  EXPECT_EQ(evaluation.configs, std::vector<std::filesystem::path>{"a.toml"});
  EXPECT_EQ(evaluation.evaluation.run, "");
  EXPECT_EQ(parse({"validate", "runs/a"}).evaluation.run, "runs/a");
}

TEST(CommandLine, SuggestsResumeForAFolder) {
  const Scratch scratch;
  const std::string folder = scratch.folder().string();
  write_text(scratch / "config.toml", "");  // as a run has it; others may have images
  EXPECT_EQ(answer({"fit", folder}),
            "kindling fit: " + folder +
                " is a folder; expected: a config file; to resume a run: kindling fit "
                "--resume " +
                folder);
}

TEST(CommandLine, RefusesAnOverrideWithoutValue) {
  EXPECT_EQ(error_text<ConfigError>([] {
              parse({"fit", "--trainer.max_epochs"});
            }),
            "command line: '--trainer.max_epochs' has no value; expected: --trainer.max_epochs VALUE");
}

}  // namespace
}  // namespace kindling
