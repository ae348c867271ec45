// A run on a table, from the config to predictions of another file and exported programs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numbers>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class TableRun : public testing::Test {
 protected:
  // 120 houses: some rooms are missing, cities have commas, every second house has a garden.
  void SetUp() override {
    std::string text = "row,rooms,city,garden,age,price,kind\n";
    const std::vector<std::string> cities{"\"Bern, old\"", "\"Bern, new\"", "Chur", ""};
    for (int i = 0; i < 120; ++i) {
      const int rooms = i * 7 % 5 + 1, age = i * 13 % 90, price = 3 * rooms + 10 * (i % 4 == 0) - age / 30;
      text += "h" + std::to_string(i) + "," + (i % 10 == 3 ? "NA" : std::to_string(rooms)) + "," +
              cities[static_cast<std::size_t>(i % 4)] + "," + (i % 2 == 0 ? "yes" : "no") + "," +
              std::to_string(age) + "," + std::to_string(price) + "," +
              (price > 12 ? "\"large, dear\"" : "small") + "\n";
    }
    write_text(scratch_ / "houses.csv", text);
    write_text(scratch_ / "new.csv",
               "garden,age,city,rooms,row\nyes,11,Chur,2,n1\nno,12,\"Bern, new\",,n2\nno,13,Zug,4,\"n,3\"\n");
    write_text(
        scratch_ / "houses.toml",
        "[model]\nname = \"mlp_regressor\"\nhidden = [8]\n[data]\nname = \"csv\"\nfile = \"houses.csv\"\n"
        "target = \"price\"\nfeatures = [\"rooms\", \"city\", \"garden\", \"age\"]\ncategories = \"city\"\n"
        "id = \"row\"\nfolds = 4\nfold = 1\nbatch_size = 16\n[trainer]\nmax_epochs = 4\nnum_threads = 1\n"
        "num_gpus = 0\n");
  }
  ProgramRun fit(const std::string& runs, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"fit", scratch_ / "houses.toml", "--quiet", "--progress=none",
                                   "run.dir=" + (scratch_ / runs).string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  ProgramRun fit_classes(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"data.target=[]", "data.label=kind", "data.stratify=true", "model.name=mlp",
                               "model.num_classes=2"});
    return fit("runs", more);
  }
  fs::path run(const std::string& runs = "runs") const { return scratch_ / runs / "houses/0001"; }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }
  std::string without_folder(std::string text) const {
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }

  Scratch scratch_;
};

TEST_F(TableRun, SavesTheTransformWithTheModel) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const StateDict weights = load_safetensors(run() / "weights.safetensors");
  EXPECT_EQ(weights.metadata.at("input_transform"),
            R"({"version":3,"features":[{"name":"rooms","kind":"number"},{"name":"city","kind":"category",)"
            R"("categories":["","Bern, new","Bern, old","Chur"],"declared":true},{"name":"garden",)"
            R"("kind":"category","categories":["no","yes"]},{"name":"age","kind":"number"}],)"
            R"("targets":["price"],"id":"row"})");
  ASSERT_NE(weights.find("input_transform.mean"), nullptr);
  ASSERT_NE(weights.find("net.1.weight"), nullptr);
  EXPECT_EQ(weights.find("net.1.weight")->size(1), 2 + 4 + 2);
}

TEST_F(TableRun, ResumesBitIdentically) {
  ASSERT_EQ(fit("straight").exit_code, 0);
  ASSERT_EQ(fit("stopped", {"checkpoint.every_n_steps=3", "checkpoint.keep_last=20"}).exit_code, 0);
  const std::string weights = text_of(run("straight") / "weights.safetensors");
  fs::remove(run("stopped") / "weights.safetensors");
  const fs::path middle = run("stopped") / "checkpoints/step-00000009.safetensors";  // of an epoch of 6 steps
  const ProgramRun resumed = run_program({"fit", "--resume", middle.string(), "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(text_of(run("stopped") / "weights.safetensors") == weights);
}

// From the file and the column to predict alone.
TEST_F(TableRun, ChoosesWhatTheConfigLeavesOpen) {
  const auto fit_file = [&](const std::string& key, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"fit",
                                   "--progress=none",
                                   "data.file=" + (scratch_ / "houses.csv").string(),
                                   key,
                                   "run.dir=" + (scratch_ / "runs").string(),
                                   "trainer.num_gpus=0"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const auto config_of = [&](int number) {
    return text_of(scratch_ / "runs/unnamed" / ("000" + std::to_string(number)) / "config.toml");
  };
  const ProgramRun classes = fit_file("data.label=kind", {"data.exclude=row"});
  ASSERT_EQ(classes.exit_code, 0) << classes.err;
  for (const char* const key : {"name = \"csv\"", "name = \"mlp\"", "num_classes = 2", "val_fraction = 0.2",
                                "max_epochs = 20", "batch_size = 16"})
    EXPECT_NE(config_of(1).find(key), std::string::npos) << key;
  EXPECT_NE(classes.out.find("chosen   data.name = \"csv\""), std::string::npos) << classes.out;
  EXPECT_NE(text_of(scratch_ / "runs/unnamed/0001/log.txt")
                .find("config: model.num_classes = 2, because the label has so many classes"),
            std::string::npos);
  const ProgramRun numbers =
      fit_file("data.target=price", {"data.exclude=row", "trainer.max_epochs=3", "optimizer.lr=0.01"});
  ASSERT_EQ(numbers.exit_code, 0) << numbers.err;
  for (const char* const key : {"name = \"mlp_regressor\"", "scale_target = true", "max_epochs = 3"})
    EXPECT_NE(config_of(2).find(key), std::string::npos) << key;
  EXPECT_EQ(config_of(2).find("batch_size = 16"), std::string::npos);  // it goes with the learning rate
  const ProgramRun plain = fit_file("data.target=price", {"data.exclude=row", "model.scale_target=false"});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_NE(config_of(3).find("scale_target = false"), std::string::npos);
  // Predictions have the unit of the file, and its config finds the same validation rows.
  const std::string second = (scratch_ / "runs/unnamed/0002").string(), out = (scratch_ / "p.csv").string();
  const ProgramRun predicted = run_program({"predict", second, "--out", out});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  double sum = 0;
  const std::vector<std::string> rows = lines_of(text_of(out));
  for (std::size_t i = 1; i < rows.size(); ++i) sum += std::stod(rows[i].substr(rows[i].rfind(',') + 1));
  EXPECT_EQ(rows.size(), 25u);
  EXPECT_GT(sum / 24, 4);  // the mean price is about 11
  std::vector<std::string> validate{"validate", "--weights", second + ":last"};
  for (const std::string& word :
       {"data.file=" + (scratch_ / "houses.csv").string(), std::string("data.target=price"),
        std::string("data.exclude=row"), std::string("trainer.num_gpus=0")})
    validate.push_back(word);
  const ProgramRun own = run_program({"validate", second + ":last"}), other = run_program(validate);
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(own.out, other.out);
}

// A run goes on as it began, and its config is complete.
// The data are read before the run has a directory.
TEST_F(TableRun, LogsWhatItsDataSayWhileTheyAreRead) {
  std::string text = "weight,price\n";
  for (int i = 0; i < 40; ++i) text += std::to_string(i % 9) + " kg," + std::to_string(i % 9 * 2) + "\n";
  write_text(scratch_ / "parcels.csv", text);
  const ProgramRun done =
      run_program({"fit", "--quiet", "--progress=none", "data.file=" + (scratch_ / "parcels.csv").string(),
                   "data.target=price", "data.units=true", "name=parcels", "trainer.max_epochs=1",
                   "trainer.num_gpus=0", "run.dir=" + (scratch_ / "runs").string()});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.err.find("read as numbers"), std::string::npos);
  const std::string log = text_of(scratch_ / "runs/parcels/0001/log.txt");
  EXPECT_NE(log.find("data.units: read as numbers: "), std::string::npos) << log;
}

TEST_F(TableRun, ChoosesNothingForARunThatExists) {
  const std::string file = scratch_ / "houses.csv", runs = "run.dir=" + (scratch_ / "runs").string();
  const std::vector<std::string> words{"fit",
                                       "--quiet",
                                       "--progress=none",
                                       "data.file=" + file,
                                       "data.target=price",
                                       "data.exclude=row",
                                       "trainer.num_gpus=0",
                                       runs,
                                       "checkpoint.resume=last"};
  std::vector<std::string> first = words;
  first.emplace_back("trainer.max_epochs=2");
  ASSERT_EQ(run_program(first).exit_code, 0);
  std::string rows = text_of(file);
  const std::string body = rows.substr(rows.find('\n') + 1);
  for (int i = 0; i < 5; ++i) rows += body;
  write_text(file, rows);  // now large enough for batches of 64
  std::vector<std::string> second = words;
  second.emplace_back("trainer.max_epochs=3");
  const ProgramRun resumed = run_program(second);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_FALSE(fs::exists(scratch_ / "runs/unnamed/0002"));

  // As a run of a version without the key.
  const fs::path config = scratch_ / "runs/unnamed/0001/config.toml";
  ASSERT_EQ(fit("old", {"model.scale_target=false", "trainer.precision=bf16-mixed"}).exit_code, 0);
  const fs::path old = run("old") / "config.toml";
  std::string text = text_of(old);
  const std::size_t key = text.find("scale_target = false");
  ASSERT_NE(key, std::string::npos);
  text.erase(key, std::string("scale_target = false").size());
  write_text(old, text);
  const ProgramRun validated = run_program({"validate", run("old").string()});
  EXPECT_EQ(validated.exit_code, 0) << validated.err;
}

TEST_F(TableRun, ChoosesTheSameForEachCommand) {
  const std::string file = "data.file=" + (scratch_ / "houses.csv").string(), label = "data.label=kind";
  EXPECT_NE(run_program({"fit", file, "data.target=price", "trainer.precision=32-true", "--print-config"})
                .out.find("scale_target = true"),
            std::string::npos);
  EXPECT_NE(run_program({"fit", file, "data.target=price", "trainer.precision=bf16-true", "--print-config"})
                .out.find("scale_target = false"),
            std::string::npos);
  const ProgramRun checked = run_program({"data", "check", file, label});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  const auto num_classes = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"fit", file, label, "--print-config"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string text = run_program(words).out;
    const std::size_t at = text.find("num_classes = ");
    return at == std::string::npos ? "none" : text.substr(at, text.find_first_of(" #\n", at + 14) - at);
  };
  EXPECT_EQ(num_classes({}), "num_classes = 2");
  EXPECT_EQ(num_classes({"data.categories=kind"}), "num_classes = 2");
  EXPECT_EQ(num_classes({"data.label=rooms", "data.numbers=rooms"}), "num_classes = 5");
  EXPECT_EQ(num_classes({"data.label=city", "data.categories=city"}),
            "num_classes = 4");  // the empty one, too
  EXPECT_EQ(num_classes({"data.label=city"}), "num_classes = 3");
}

TEST_F(TableRun, DoubtsFitsThatCannotBeRight) {
  const ProgramRun bad = fit("runs", {"optimizer.name=sgd", "optimizer.lr=1e-9", "model.scale_target=false"});
  ASSERT_EQ(bad.exit_code, 0) << bad.err;
  EXPECT_NE(text_of(run() / "log.txt").find("of predicting the mean of the validation targets"),
            std::string::npos);
  const ProgramRun good = fit("good", {"trainer.max_epochs=30", "optimizer.lr=0.01"});
  ASSERT_EQ(good.exit_code, 0) << good.err;
  EXPECT_EQ(text_of(run("good") / "log.txt").find("has learned nothing"), std::string::npos);
}

TEST_F(TableRun, RefusesToResumeOnOtherData) {
  ASSERT_EQ(fit("runs", {"trainer.max_steps=9"}).exit_code, 0);
  std::string text = text_of(scratch_ / "houses.csv");
  for (std::size_t at = 0; (at = text.find("Chur", at)) != std::string::npos;) text.replace(at, 4, "Zug");
  write_text(scratch_ / "houses.csv", text);
  const ProgramRun resumed =
      run_program({"fit", "--resume", run().string(), "trainer.max_steps=24", "--progress=none"});
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_NE(
      resumed.err.find("the saved model: the training data have other columns, kinds or categories than when "
                       "it was saved; expected: the same training data; restore the data and the keys of "
                       "[data], or start a new run"),
      std::string::npos)
      << resumed.err;
}

TEST_F(TableRun, TrainsAsWithoutItsBrokenRows) {
  ASSERT_EQ(fit("whole").exit_code, 0);
  const std::vector<std::string> lines = lines_of(text_of(scratch_ / "houses.csv"));
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += lines[i] + "\n";
    if (i % 30 == 1) text += "b" + std::to_string(i) + ",2,Chur\n";
    if (i % 30 == 2) text += "b" + std::to_string(i) + ",2,Chur,yes,old,5,small\n";
    if (i % 30 == 3) text += "b" + std::to_string(i) + ",2,Chur,yes,10,,small\n";
  }
  write_text(scratch_ / "houses.csv", text);
  ASSERT_EQ(fit("stop").exit_code, 3);
  EXPECT_FALSE(fs::exists(scratch_ / "stop"));
  const ProgramRun skipping = fit("runs", {"data.on_broken=skip"});
  ASSERT_EQ(skipping.exit_code, 0) << skipping.err;
  for (const auto& [name, tensor] : load_safetensors(run("whole") / "weights.safetensors").tensors)
    EXPECT_TRUE(tensor.equal(*load_safetensors(run() / "weights.safetensors").find(name))) << name;
  EXPECT_EQ(lines_of(text_of(run() / "skipped.txt")).size(), 12U);
  EXPECT_EQ(records_of(run()).back()["skipped_samples"], 12);
  const ProgramRun checked = run_program({"data", "check", scratch_ / "houses.toml", "data.on_broken=skip"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_NE(checked.out.find("skipped: "), std::string::npos) << checked.out;
}

TEST_F(TableRun, PredictsWithIds) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const ProgramRun validated = run_program({"validate", run().string(), "--quiet"});
  ASSERT_EQ(validated.exit_code, 0) << validated.err;
  const ProgramRun predicted = run_program({"predict", run().string(), "--quiet"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const auto lines = lines_of(predicted.out);
  ASSERT_EQ(lines.size(), 31U);  // a fold of 4 of 120 rows
  EXPECT_EQ(lines[0], "sample,row,output_0");
  EXPECT_EQ(lines[1].substr(0, 3), "0,h");
}

TEST_F(TableRun, PredictsAnotherFileWithoutItsTrainingFile) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  fs::remove(scratch_ / "houses.csv");
  const ProgramRun predicted = run_program({"predict", run().string(), (scratch_ / "new.csv").string()});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const auto lines = lines_of(predicted.out);
  ASSERT_EQ(lines.size(), 4U) << predicted.out;
  EXPECT_EQ(lines[0], "sample,row,output_0");
  EXPECT_EQ(lines[1].substr(0, 5), "0,n1,");
  EXPECT_EQ(lines[3].substr(0, 8), "2,\"n,3\",");
  const std::string warning =
      "new.csv, column 'city': 1 value is a category that the training rows do not have (such as 'Zug'); "
      "their "
      "columns of the encoding are all 0";
  const std::string err = without_folder(predicted.err);
  ASSERT_NE(err.find(warning), std::string::npos) << err;
  EXPECT_EQ(err.find(warning), err.rfind(warning));  // once
}

TEST_F(TableRun, PredictsJsonLinesAsTheCsvFileWithTheSameRows) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  write_text(scratch_ / "new.jsonl",
             "{\"row\": \"n1\", \"rooms\": 2, \"city\": \"Chur\", \"garden\": \"yes\", \"age\": 11}\n"
             "{\"row\": \"n2\", \"city\": \"Bern, new\", \"garden\": \"no\", \"age\": 12, \"note\": 1}\n"
             "{\"row\": \"n,3\", \"rooms\": 4, \"city\": \"Zug\", \"garden\": \"no\", \"age\": 13}\n");
  const ProgramRun csv = run_program({"predict", run().string(), (scratch_ / "new.csv").string()}),
                   lines = run_program({"predict", run().string(), (scratch_ / "new.jsonl").string()});
  ASSERT_EQ(lines.exit_code, 0) << lines.err;
  EXPECT_EQ(lines.out, csv.out);
  write_text(scratch_ / "new.jsonl", "{\"rooms\": 2, \"city\": [\"Chur\"]}\n");
  const ProgramRun nested = run_program({"predict", run().string(), (scratch_ / "new.jsonl").string()});
  EXPECT_EQ(nested.exit_code, 3);
  EXPECT_NE(without_folder(nested.err).find("new.jsonl, row 1 (line 1), column 'city': an array"),
            std::string::npos)
      << nested.err;
}

TEST_F(TableRun, TrainsOnJsonLines) {
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += "{\"row\": " + std::to_string(i) +
            ", \"rooms\": " + (i % 7 == 0 ? "null" : std::to_string(i % 5)) + ", \"city\": \"" +
            (i % 2 == 0 ? "Chur" : "Zug") + "\", \"garden\": " + (i % 3 == 0 ? "true" : "false") +
            ", \"age\": " + std::to_string(i % 11) + ", \"price\": " + std::to_string(i % 5) + ".5}\n";
  write_text(scratch_ / "houses.jsonl", text);
  write_text(scratch_ / "later.ndjson", text);
  const std::vector<std::string> files{"data.file=" + (scratch_ / "houses.jsonl").string(),
                                       "data.test_file=" + (scratch_ / "later.ndjson").string(),
                                       "data.val_files=" + (scratch_ / "later.ndjson").string()};
  const ProgramRun fitted = fit("runs", files);
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_NE(text_of(run() / "metrics.jsonl").find("\"val_loss/later\""), std::string::npos);
  const ProgramRun tested = run_program({"test", run().string(), "--quiet"});
  EXPECT_EQ(tested.exit_code, 0) << tested.err;
  std::vector<std::string> check{"data", "check", scratch_ / "houses.toml"},
      show{"data", "show", scratch_ / "houses.toml"};
  check.insert(check.end(), files.begin(), files.end());
  show.insert(show.end(), files.begin(), files.end());
  const ProgramRun checked = run_program(check), shown = run_program(show);
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_NE(checked.out.find("missing"), std::string::npos) << checked.out;
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
}

TEST_F(TableRun, NamesAColumnThatAnotherFileLacks) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  write_text(scratch_ / "new.csv", "garden,age,city\nyes,11,Chur\n");
  const ProgramRun predicted = run_program({"predict", run().string(), (scratch_ / "new.csv").string()});
  EXPECT_EQ(predicted.exit_code, 3);
  EXPECT_NE(
      without_folder(predicted.err)
          .find("new.csv: the column 'rooms' is missing; expected: the columns that the model was trained "
                "on: rooms, city, garden, age"),
      std::string::npos)
      << predicted.err;
}

TEST_F(TableRun, PredictsTheNamesOfClasses) {
  const ProgramRun fitted =
      fit_classes({"trainer.max_epochs=30", "optimizer.lr=0.02", "optimizer.name=adam"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const ProgramRun predicted = run_program(
      {"predict", run().string(), (scratch_ / "new.csv").string(), "--values", "labels", "--quiet"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  const auto lines = lines_of(predicted.out);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "sample,row,class");
  EXPECT_TRUE(lines[1] == "0,n1,small" || lines[1] == "0,n1,\"large, dear\"") << lines[1];
  const ProgramRun written = run_program({"predict", run().string(), (scratch_ / "new.csv").string(),
                                          "--values", "labels", "--out", (scratch_ / "p.jsonl").string()});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const std::string first = lines_of(text_of(scratch_ / "p.jsonl")).at(0);
  EXPECT_TRUE(first == R"({"sample":0,"row":"n1","class":"small"})" ||
              first == R"({"sample":0,"row":"n1","class":"large, dear"})")
      << first;
}

TEST_F(TableRun, ComparesTheClassesWithTheModel) {
  const ProgramRun fitted = fit_classes({"model.num_classes=1"});
  EXPECT_EQ(fitted.exit_code, 2);
  EXPECT_NE(fitted.err.find("num_classes"), std::string::npos) << fitted.err;
}

TEST_F(TableRun, StartsAModelOnOtherData) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const ProgramRun next = fit("next", {"model.init_weights=" + run().string(), "data.fold=2"});
  EXPECT_EQ(next.exit_code, 0) << next.err;
}

// The statistics of the weights would be lost, and others fitted.
TEST_F(TableRun, EvaluatesInitialWeightsOfATableOnlyWithTheirStatistics) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const ProgramRun refused = run_program({"validate", "-c", (scratch_ / "houses.toml").string(),
                                          "model.init_weights=" + (run() / "weights.safetensors").string()});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(
      refused.err,
      "model.init_weights: the weights belong to a table, whose columns and statistics are in the file; "
      "expected: kindling validate -c CONFIG --weights FILE, which uses them\n");
}

TEST_F(TableRun, LoadsWeightsConvertedForPython) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const std::string converted = (scratch_ / "weights.pt").string();
  ASSERT_EQ(run_program({"export", run().string() + ":last", converted}).exit_code, 0);
  const ProgramRun own = run_program({"predict", run().string() + ":last"});
  const ProgramRun other = run_program({"predict", run().string(), "--weights", converted});
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(own.out, other.out);
}

// The file for Python has the statistics of the columns, but not their names.
TEST_F(TableRun, RefusesWeightsWithoutColumnsForOtherColumns) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const std::string converted = (scratch_ / "weights.pt").string();
  ASSERT_EQ(run_program({"export", run().string() + ":last", converted}).exit_code, 0);
  const std::string config = (scratch_ / "houses.toml").string();
  const ProgramRun same = run_program({"validate", config, "--weights", converted});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  const ProgramRun other = run_program(
      {"validate", config, "--weights", converted, R"(data.features=["age", "city", "garden", "rooms"])"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_EQ(
      without_folder(other.err),
      "weights.pt: it does not name its columns, and its values of 'input_transform.fill' are not those "
      "of the training data; expected: the training data that the weights belong to; use the run or its "
      "weights.safetensors, which name the columns\n");
}

TEST_F(TableRun, StartsFromWeightsOfTheSameColumnsOnly) {
  ASSERT_EQ(fit("runs").exit_code, 0);
  const std::string start = "model.init_weights=" + run().string(),
                    features = R"(data.features=["age", "city", "garden", "rooms"])";
  const ProgramRun refused = fit("next", {start, features});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(
      refused.err.find("the weights were trained with column 'rooms' where the data has column 'age'; "
                       "expected: the same columns and categories in the same order; list them in "
                       "data.features, or set model.init_strict = false to load the weights nevertheless"),
      std::string::npos)
      << refused.err;
  EXPECT_FALSE(fs::exists(scratch_ / "next"));
  const ProgramRun loose = fit("next", {start, features, "model.init_strict=false"});
  EXPECT_EQ(loose.exit_code, 0) << loose.err;
}

TEST_F(TableRun, WarnsOfOtherRowsOnResume) {
  ASSERT_EQ(fit("runs", {"trainer.max_steps=9"}).exit_code, 0);
  std::string text = text_of(scratch_ / "houses.csv");
  const std::vector<std::string> resume{"fit", "--resume", run().string(), "trainer.max_steps=12",
                                        "--progress=none"};
  const std::string warning = "data: not the data that the run began with (";
  write_text(scratch_ / "houses.csv", text +
                                          "h120,2,Chur,no,7,5,small\nh121,2,Chur,no,7,5,small\n"
                                          "h122,3,Chur,no,7,5,small\nh123,2,Chur,no,7,5,small\n");
  const ProgramRun resumed = run_program(resume);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find(warning + "90 training samples before and 93 now)"), std::string::npos)
      << resumed.err;
}

// Files of the same names in the current directory are others.
TEST_F(TableRun, FindsItsValidationFilesNextToTheConfig) {
  const std::string rows = text_of(scratch_ / "houses.csv");
  fs::create_directory(scratch_ / "proj");
  for (const char* file : {"proj/houses.csv", "proj/near.csv", "proj/far.csv"})
    write_text(scratch_ / file, rows);
  std::string config = text_of(scratch_ / "houses.toml");
  const std::string folds = "folds = 4\nfold = 1\n";
  config.replace(config.find(folds), folds.size(), "val_files = [\"near.csv\", \"far.csv\"]\n");
  write_text(scratch_ / "proj/houses.toml", config);
  const ProgramRun fitted =
      run_program({"fit", (scratch_ / "proj/houses.toml").string(), "--quiet", "--progress=none",
                   "trainer.max_steps=9", "run.dir=" + (scratch_ / "runs").string()});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_NE(text_of(run() / "config.toml").find((scratch_ / "proj/far.csv").string()), std::string::npos);
  const auto record = records_of(run()).back();
  EXPECT_EQ(record["val_loss"], record["val_loss/far"]);
  const auto data = nlohmann::json::parse(text_of(run() / "run.json"))["data"];
  EXPECT_EQ(data["val/far"], 120);
  // They are part of the data of the run.
  write_text(scratch_ / "proj/far.csv", rows + "h120,2,Chur,no,7,5,small\n");
  const ProgramRun resumed =
      run_program({"fit", "--resume", run().string(), "trainer.max_steps=12", "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("120 samples of the validation set 'far' before and 121 now"), std::string::npos)
      << resumed.err;
}

TEST_F(TableRun, RefusesWeightsThatAreAllZero) {
  std::string text = text_of(scratch_ / "houses.csv");
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) text.insert(at, ",0");
  text.replace(text.find(",0\n"), 2, ",zero");
  write_text(scratch_ / "houses.csv", text);
  const ProgramRun zero = fit("runs", {"data.weights=zero"});
  EXPECT_EQ(zero.exit_code, 3);
  EXPECT_NE(without_folder(zero.err).find("houses.csv, column 'zero': all training rows have the weight 0"),
            std::string::npos)
      << zero.err;
}

TEST_F(TableRun, ResumesOnItsDataWithoutAWarning) {
  ASSERT_EQ(fit("runs", {"trainer.max_steps=9"}).exit_code, 0);
  const ProgramRun resumed =
      run_program({"fit", "--resume", run().string(), "trainer.max_steps=12", "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.err.find("not the data"), std::string::npos) << resumed.err;
}

TEST_F(TableRun, OtherDataHaveNoFilesToPredict) {
  const ProgramRun fitted =
      run_program({"fit", "data.name=digits", "model.name=mlp", "trainer.max_steps=2", "name=d", "--quiet",
                   "--progress=none", "run.dir=" + (scratch_ / "digits").string()});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  const ProgramRun predicted =
      run_program({"predict", (scratch_ / "digits/d/0001").string(), (scratch_ / "new.csv").string()});
  EXPECT_EQ(predicted.exit_code, 2);
  EXPECT_NE(
      without_folder(predicted.err)
          .find(
              "new.csv: the data set has no other files to predict; expected: a run on a table or arrays "
              "(data.name = \"csv\" or \"arrays\"); omit the file to predict the test or validation samples"),
      std::string::npos)
      << predicted.err;
}

// The program in Python reads new.csv by the description in weights.safetensors, and gives the same numbers
// as `kindling predict`.
TEST_F(TableRun, ExportsProgramsThatTakeRawRows) {
  const fs::path tests = fs::path(KINDLING_CONFIGS).parent_path() / "tests/cli/commands";
  const std::string script = KINDLING_VENV_PYTHON " " + (tests / "table_programs.py").string();
  if (std::system((script + " >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "Python cannot import torch, onnxruntime and numpy";
  ASSERT_EQ(fit("runs").exit_code, 0);
  const auto in = [&](const char* name) { return (scratch_ / name).string(); };
  for (const char* name : {"houses.pt2", "houses.onnx"}) {
    const ProgramRun exported = run_program({"export", run().string() + ":last", in(name)});
    ASSERT_EQ(exported.exit_code, 0) << exported.err;
  }
  // The transform of a table is always part of its program.
  ASSERT_EQ(run_program({"export", run().string() + ":last", in("same.onnx"), "--with-transforms"}).exit_code,
            0);
  EXPECT_TRUE(text_of(in("same.onnx")) == text_of(in("houses.onnx")));
  const ProgramRun predicted =
      run_program({"predict", run().string() + ":last", in("new.csv"), "--out", in("new.jsonl"), "--quiet"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  EXPECT_EQ(std::system((script + " " + scratch_.folder().string() + " " + run().string()).c_str()), 0);
}

// A column with more digits than float32 holds is the only one that tells the price, y = sin(2π t) over the
// range of the column. Its variance is 0.5.
class FineTable : public TableRun {
 protected:
  void write(double first, double step) {
    std::string text = "row,city,time,price\n", rows = "row,city,time\n";
    for (int i = 0; i < 400; ++i) {
      const int at = i * 147 % 400;  // another order
      const std::string row = "r" + std::to_string(i) + "," + (i % 3 == 0 ? "Bern" : "Chur") + "," +
                              number_text(first + step * at);
      text += row + "," + number_text(std::sin(at * std::numbers::pi / 200)) + "\n";
      rows += row + "\n";
    }
    write_text(scratch_ / "houses.csv", text);
    write_text(scratch_ / "new.csv", rows + "missing,Chur,NA\nunknown,Zug," + number_text(first) + "\n");
  }
  ProgramRun fit_fine(const std::string& runs, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"data.features=['city', 'time']", "model.hidden=[32, 32]",
                               "optimizer.name=adam", "optimizer.lr=0.01", "trainer.max_epochs=60"});
    return fit(runs, more);
  }
};

TEST_F(FineTable, LearnsFromColumnsThatFloat32WouldRound) {
  const fs::path tests = fs::path(KINDLING_CONFIGS).parent_path() / "tests/cli/commands";
  const std::string script = KINDLING_VENV_PYTHON " " + (tests / "table_programs.py").string();
  const bool has_python = KINDLING_HAS_INTEROP && std::system((script + " >/dev/null 2>&1").c_str()) == 0;
  struct Column {
    const char* name;
    double first = 0, step = 1;
  };
  // Seconds and milliseconds of Unix time, a northing in metres, an air pressure in pascals.
  for (const auto& [name, first, step] : {Column{"unix", 1.7e9, 1.5}, Column{"ms", 1.7e12, 1.5},
                                          Column{"utm", 5300000.12, 0.25}, Column{"pascal", 101320, 0.025}}) {
    write(first, step);
    const ProgramRun fitted = fit_fine(name);
    ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
    EXPECT_EQ(fitted.err.find("warning"), std::string::npos) << fitted.err;
    const std::string trained = run(name).string() + ":last";
    EXPECT_LT(records_of(run(name)).back()["val_loss"], 0.005) << name;  // 1 % of the variance
    const ProgramRun validated = run_program({"validate", trained, "--quiet"});
    EXPECT_NE(validated.out.find("val_loss " + number_text(records_of(run(name)).back()["val_loss"])),
              std::string::npos)
        << validated.out << validated.err;
    if (!has_python || name != std::string("unix")) continue;  // Python takes seconds to start
    for (const char* file : {"houses.pt2", "houses.onnx"}) {
      const ProgramRun exported = run_program({"export", trained, scratch_ / file});
      ASSERT_EQ(exported.exit_code, 0) << exported.err;
      EXPECT_NE(exported.out.find("its inputs are float64"), std::string::npos) << exported.out;
    }
    const ProgramRun predicted = run_program(
        {"predict", trained, scratch_ / "new.csv", "--out", (scratch_ / "new.jsonl").string(), "--quiet"});
    ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
    EXPECT_EQ(std::system((script + " " + scratch_.folder().string() + " " + run(name).string()).c_str()), 0)
        << name;
  }
}

TEST_F(FineTable, ResumesBitIdentically) {
  write(1.7e9, 1.5);
  ASSERT_EQ(fit_fine("straight", {"trainer.max_steps=20"}).exit_code, 0);
  ASSERT_EQ(
      fit_fine("stopped", {"trainer.max_steps=20", "checkpoint.every_n_steps=7", "checkpoint.keep_last=20"})
          .exit_code,
      0);
  fs::remove(run("stopped") / "weights.safetensors");
  const fs::path middle = run("stopped") / "checkpoints/step-00000007.safetensors";
  const ProgramRun resumed = run_program({"fit", "--resume", middle.string(), "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(text_of(run("stopped") / "weights.safetensors") ==
              text_of(run("straight") / "weights.safetensors"));
}

// The offsets are in the description, which a file for Python lacks.
TEST_F(FineTable, RefusesWeightsWithoutTheirOffsets) {
  write(1.7e9, 1.5);
  ASSERT_EQ(fit_fine("runs", {"trainer.max_steps=3"}).exit_code, 0);
  const std::string converted = (scratch_ / "weights.pt").string();
  ASSERT_EQ(run_program({"export", run().string() + ":last", converted}).exit_code, 0);
  const ProgramRun predicted = run_program({"predict", run().string(), "--weights", converted});
  EXPECT_EQ(predicted.exit_code, 1);
  EXPECT_EQ(without_folder(predicted.err),
            "weights.pt: it lacks the description of the columns, which has the offsets that are subtracted "
            "from numbers too large for float32; expected: a file with the description; use the run or its "
            "weights.safetensors\n");
}

// The table of category codes is empty then.
TEST_F(TableRun, ExportsATableOfNumbers) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  ASSERT_EQ(fit("runs", {"data.features=['rooms', 'age']", "data.categories=[]"}).exit_code, 0);
  for (const char* name : {"houses.pt2", "houses.onnx"}) {
    const ProgramRun exported = run_program({"export", run(), scratch_ / name});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
  }
}

// 6,000 rows, 10 % missing, quoted categories with commas, two of five folds, early stopping, best
// checkpoint.
TEST_F(TableRun, ReachesTheAccuracyOfATwinInPyTorch) {
  const fs::path tests = fs::path(KINDLING_CONFIGS).parent_path() / "tests/cli/commands";
  const std::string python = KINDLING_VENV_PYTHON " ";
  if (std::system((python + (tests / "table_programs.py").string() + " >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "Python cannot import torch and numpy";
  EXPECT_EQ(std::system((python + (tests / "table_twin.py").string() + " " KINDLING_PROGRAM " " +
                         scratch_.folder().string() + " 2")
                            .c_str()),
            0);
}

}  // namespace
}  // namespace kindling
