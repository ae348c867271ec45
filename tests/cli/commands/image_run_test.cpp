// Runs on image files with augmentation, from a config alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "cli/run/same_run.h"
#include "kindling/formats/image.h"
#include "support/image_files.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr const char* kAugmentation =
    "[[data.train_transforms]]\nname = \"random_crop\"\nsize = [8, 8]\npadding = 1\n"
    "[[data.train_transforms]]\nname = \"random_horizontal_flip\"\n"
    "[[data.train_transforms]]\nname = \"normalize\"\nmean = [0.3]\nstd = [0.3]\n"
    "[[data.val_transforms]]\nname = \"normalize\"\nmean = [0.3]\nstd = [0.3]\n";

class ImageRun : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_png()) GTEST_SKIP() << "built without libpng";
    write_day_and_night(scratch_ / "images", 20);
    write_config(kAugmentation);
  }
  void write_config(const std::string& tables) {
    write_text(scratch_ / "images.toml",
               "[model]\nname = \"mlp\"\nhidden = [8]\nnum_classes = 2\n[data]\nname = \"image_folder\"\n"
               "root = \"images\"\nval_fraction = 0.2\nstratify = true\nbatch_size = 5\n" +
                   tables +
                   "[optimizer]\nname = \"adam\"\nlr = 0.01\n[trainer]\nmax_epochs = 3\nnum_threads = "
                   "1\nnum_gpus = 0\n");
  }
  ProgramRun fit(const std::string& runs, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"fit", scratch_ / "images.toml", "--quiet", "--progress=none",
                                   "run.dir=" + (scratch_ / runs).string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  // What `fit` refuses, without the directory of the test.
  std::string refusal(const std::vector<std::string>& more = {}) {
    const ProgramRun run = fit("refused", more);
    EXPECT_NE(run.exit_code, 0);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "refused"));
    std::string text = run.err;
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  std::filesystem::path run(const std::string& runs) const { return scratch_ / runs / "images/0001"; }
  std::string weights(const std::string& runs) const { return text_of(run(runs) / "weights.safetensors"); }

  Scratch scratch_;
};

TEST_F(ImageRun, LearnsFromAConfigAlone) {
  const ProgramRun fitted = fit("runs", {"trainer.max_epochs=10"});
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_EQ(records_of(run("runs")).back()["val_acc"], 1.0);
  const ProgramRun predicted = run_program({"predict", run("runs").string(), "--quiet"});
  ASSERT_EQ(predicted.exit_code, 0) << predicted.err;
  std::istringstream lines(predicted.out);
  std::string header, first;
  std::getline(lines, header);
  std::getline(lines, first);
  EXPECT_TRUE(header.starts_with("sample,file,class,")) << header;
  EXPECT_TRUE(first.starts_with("0,day/1")) << first;
  EXPECT_NE(first.find(".png,day,"), std::string::npos) << first;
  const auto validate = [&] { return run_program({"validate", run("runs").string(), "--quiet"}).out; };
  EXPECT_NE(validate().find("val_acc 1\n"), std::string::npos) << validate();
  EXPECT_EQ(validate(), validate());
}

TEST_F(ImageRun, NeedsNoConfig) {
  const auto start = [&](const std::string& command, const std::filesystem::path& images) {
    std::vector<std::string> words{command, images.string(), "trainer.num_gpus=0"};
    if (command == "fit")
      words.insert(words.end(), {"run.dir=" + (scratch_ / "runs").string(), "--progress=none",
                                 "trainer.max_epochs=2", "trainer.num_threads=1"});
    ProgramRun run = run_program(words);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run;
  };
  const auto expect_in = [](const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  };
  expect_in(start("fit", scratch_ / "images/").out, {"model.name = \"small_cnn\"", "model.num_classes = 2",
                                                     "data.val_fraction = 0.2", "data.stratify = true"});
  // The directories train and val; images of two sizes, one of them with colors.
  write_png(scratch_ / "pets/train/cat/1.png", 70, 90, 1);
  write_png(scratch_ / "pets/train/dog/1.png", 66, 65, 3);
  write_png(scratch_ / "pets/train/dog/2.png", 70, 90, 1);
  write_png(scratch_ / "pets/valid/dog/1.png", 70, 90, 1);
  const std::string config = start("config", scratch_ / "pets").out;
  expect_in(config, {"# A config for pets.", "name = \"resnet18\"", "in_channels = 3", "num_classes = 2",
                     "val_root = \"" + (scratch_ / "pets/valid").string() + "\"",
                     "# train and valid are directories in it", "size = [64, 64]",
                     "# images of different sizes, such as 66 x 65 and 70 x 90", "channels = 3"});
  EXPECT_EQ(config.find("val_fraction"), std::string::npos) << config;
  write_text(scratch_ / "pets.toml", config);
  start("fit", scratch_ / "pets.toml");
  expect_in(run_program({"data", "check", (scratch_ / "pets").string()}).out, {"cat", "dog"});
}

TEST_F(ImageRun, ExplainsADirectoryThatItCannotUse) {
  ASSERT_EQ(fit("runs", {"trainer.max_epochs=1"}).exit_code, 0);
  const ProgramRun refused = run_program({"fit", run("runs").string()});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("to resume a run: kindling fit --resume"), std::string::npos) << refused.err;
  std::filesystem::create_directories(scratch_ / "empty");
  const ProgramRun empty = run_program({"fit", scratch_ / "empty"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_EQ(empty.err,
            (scratch_ / "empty").string() +
                ": there are no directories in it; expected: a config file, or a directory of images: one "
                "directory per class, or images and masks; to resume a run: kindling fit --resume RUN\n");
  const ProgramRun two = run_program({"fit", scratch_ / "images", scratch_ / "empty"});
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_NE(two.err.find("two directories, "), std::string::npos) << two.err;
}

TEST_F(ImageRun, ExplainsDirectoriesThatAreNoClasses) {
  const auto refused = [&](const char* folder) {
    const ProgramRun run = run_program({"config", scratch_ / folder});
    EXPECT_EQ(run.exit_code, 2) << run.out;
    return run.err;
  };
  const auto write = [&](const std::string& file) { write_png(scratch_ / file, 8, 8); };
  for (const char* part : {"flat/train", "flat/test", "sets/training_set/cat", "sets/training_set/dog",
                           "sets/test_set/cat", "pairs/Images2017", "pairs/train_masks"})
    write(std::string(part) + "/1.png");
  EXPECT_EQ(
      refused("flat"),
      (scratch_ / "flat").string() +
          ": the directories test, train, of which test, train are not classes by their names; expected: "
          "a directory per class, train and val with a directory per class each, or images and masks; "
          "if they are classes, or a table has the labels (data.list), write a config with data.name = "
          "\"image_folder\"\n");
  EXPECT_NE(refused("sets").find("of which test_set, training_set are not classes"), std::string::npos);
  EXPECT_NE(refused("pairs").find("of which Images2017, train_masks are not classes"), std::string::npos);
  // Names that only contain such a word, and the vehicle.
  for (const char* name : {"good/bus", "good/train", "good/test_tube", "good/set"})
    write(std::string(name) + "/1.png");
  const ProgramRun good = run_program({"config", scratch_ / "good"});
  EXPECT_NE(good.out.find("num_classes = 4"), std::string::npos) << good.out << good.err;
  // What an archive adds around the data; a single class.
  for (const char* name : {"outer/pets/cat", "outer/pets/dog", "one/cat"})
    write(std::string(name) + "/1.png");
  EXPECT_NE(refused("outer").find("one directory, pets; expected: at least two classes"), std::string::npos);
  EXPECT_NE(refused("outer").find("kindling fit " + (scratch_ / "outer/pets").string() + "\n"),
            std::string::npos);
  EXPECT_NE(refused("one").find("the images of each class need a directory of their own"), std::string::npos);
  // Boxes of YOLO.
  for (const char* name : {"yolo/train/images", "yolo/val/images"}) write(std::string(name) + "/1.png");
  std::filesystem::create_directories(scratch_ / "yolo/train/labels");
  write_text(scratch_ / "yolo/train/labels/1.txt", "0 0.5 0.5 1 1\n");
  EXPECT_NE(refused("yolo").find("Kindling has no detection"), std::string::npos) << refused("yolo");
}

TEST_F(ImageRun, RefusesADirectoryNextToItsConfig) {
  const ProgramRun run = run_program({"fit", scratch_ / "images.toml", scratch_ / "images"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err, "kindling fit: the directory " + (scratch_ / "images").string() +
                         ", and data.name in the config; expected: a directory of images, or a config that "
                         "names its data; for another directory of the same layout: data.root=" +
                         (scratch_ / "images").string() + "\n");
}

// The word, which stands for the directory train in it, is the same when the run is resumed. The runs are no
// class.
TEST_F(ImageRun, NeedsNoConfigToResumeOrRunInItsOwnDirectory) {
  std::filesystem::create_directories(scratch_ / "split");
  std::filesystem::rename(scratch_ / "images", scratch_ / "split/train");
  write_day_and_night(scratch_ / "split/val", 2);
  const auto fit_word = [&](const std::filesystem::path& folder, const std::vector<std::string>& more) {
    std::vector<std::string> words{"fit",
                                   folder.string(),
                                   "run.dir=" + (folder / "runs").string(),
                                   "--progress=none",
                                   "trainer.num_gpus=0",
                                   "trainer.num_threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    ProgramRun run = run_program(words);
    EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
    return run;
  };
  const std::filesystem::path split = scratch_ / "split", first = split / "runs/split/0001";
  fit_word(split, {"trainer.max_epochs=1"});
  fit_word(split, {"trainer.max_epochs=2", "--resume", first.string()});
  fit_word(split, {"trainer.max_epochs=3", "checkpoint.resume=last"});
  EXPECT_EQ(records_of(first).back()["epoch"], records_of(first).front()["epoch"].get<int>() + 2);
  EXPECT_FALSE(std::filesystem::exists(split / "runs/split/0002"));
  const std::filesystem::path train = split / "train";
  fit_word(train, {"trainer.max_epochs=1"});
  fit_word(train, {"trainer.max_epochs=1"});
  EXPECT_NE(text_of(train / "runs/train/0002/log.txt").find("directories of runs, not classes: runs"),
            std::string::npos);
  EXPECT_NE(text_of(train / "runs/train/0002/config.toml").find("num_classes = 2"), std::string::npos);
}

TEST_F(ImageRun, IsBitIdenticalForAnyNumberOfWorkers) {
  for (const char* workers : {"0", "1", "4"})
    ASSERT_EQ(fit(std::string("workers") + workers, {std::string("data.num_workers=") + workers}).exit_code,
              0);
  EXPECT_FALSE(weights("workers0").empty());
  EXPECT_TRUE(weights("workers1") == weights("workers0"));
  EXPECT_TRUE(weights("workers4") == weights("workers0"));
  write_config("");
  ASSERT_EQ(fit("plain").exit_code, 0);
  EXPECT_FALSE(weights("plain") == weights("workers0"));
}

// Epochs have 7 steps.
TEST_F(ImageRun, ResumesBitIdenticallyInTheMiddleOfAnEpoch) {
  ASSERT_EQ(fit("straight", {"checkpoint.every_n_steps=10", "checkpoint.keep_last=20"}).exit_code, 0);
  const std::string expected = weights("straight");
  std::filesystem::remove(run("straight") / "weights.safetensors");
  const auto checkpoint = run("straight") / "checkpoints/step-00000010.safetensors";
  const ProgramRun resumed =
      run_program({"fit", "--resume", checkpoint.string(), "data.num_workers=2", "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("step 10"), std::string::npos) << resumed.out << resumed.err;
  EXPECT_TRUE(weights("straight") == expected);
}

// 20 of 2,000 files, broken in different ways.
TEST_F(ImageRun, NamesEveryFileThatItSkips) {
  std::filesystem::remove_all(scratch_ / "images");
  write_day_and_night(scratch_ / "images", 1000);
  const std::string good = text_of(scratch_ / "images/day/100.png"),
                    jpeg = text_of(std::filesystem::path(KINDLING_FIXTURES) / "images/gradient.jpg");
  std::vector<std::string> broken;
  for (int i = 0; i < 20; ++i) {
    broken.push_back((scratch_ / "images" / (i % 2 == 0 ? "day" : "night")).string() + "/" +
                     std::to_string(150 + 40 * i) + ".png");
    std::string bytes = good;
    if (i % 6 == 0) bytes.clear();
    if (i % 6 == 1) bytes = "not an image";
    if (i % 6 == 2) bytes.resize(bytes.size() / 2);
    if (i % 6 == 3) bytes[good.size() / 2] = static_cast<char>(~bytes[good.size() / 2]);
    if (i % 6 == 4) bytes = "\xFF\xD8\xFF" + bytes;
    if (i % 6 == 5) bytes = jpeg.substr(0, jpeg.size() / 2);
    write_text(broken.back(), bytes);
  }
  const auto expect_all_named = [&](const std::string& text, const std::string& start) {
    EXPECT_EQ(std::ranges::count(text, '\n'), 20) << text;
    for (const std::string& file : broken)
      EXPECT_NE(text.find(start + file + ": "), std::string::npos) << file;
  };
  const std::vector<std::string> skip{"data.on_broken=skip", "trainer.max_epochs=1", "data.batch_size=100"};
  const ProgramRun fitted = fit("runs", skip);
  ASSERT_EQ(fitted.exit_code, 0) << fitted.err;
  EXPECT_NE(fitted.err.find("skipped 20 of 2000 images"), std::string::npos) << fitted.err;
  EXPECT_NE(fitted.err.find("and 15 more"), std::string::npos) << fitted.err;
  expect_all_named(text_of(run("runs") / "skipped.txt"), "");
  EXPECT_EQ(nlohmann::json::parse(text_of(run("runs") / "run.json"))["data"]["skipped"], 20);
  EXPECT_EQ(records_of(run("runs")).back()["skipped_samples"], 20);
  const std::string table = text_of(run("runs") / "metrics.csv");
  EXPECT_NE(table.substr(0, table.find('\n')).find(",skipped_samples"), std::string::npos) << table;
  const ProgramRun checked = run_program({"data", "check", scratch_ / "images.toml", skip[0]});
  EXPECT_EQ(checked.exit_code, 0);
  std::string listed;
  std::istringstream lines(checked.out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("skipped: ")) listed += line + "\n";
  expect_all_named(listed, "skipped: ");
  ASSERT_EQ(fit("whole").exit_code, 3);  // without it, the first broken file ends the run
  const ProgramRun again =
      run_program({"fit", "--resume", run("runs").string(), "trainer.max_epochs=2", "--progress=none"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const std::size_t said = again.err.find("skipped 20 of 2000 images");
  EXPECT_NE(said, std::string::npos) << again.err;
  EXPECT_EQ(again.err.find("skipped 20 of 2000 images", said + 1), std::string::npos) << again.err;
  for (const std::string& file : broken) write_text(file, good);
  const ProgramRun resumed =
      run_program({"fit", "--resume", run("runs").string(), "trainer.max_epochs=3", "--progress=none"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_FALSE(std::filesystem::exists(run("runs") / "skipped.txt"));
}

TEST_F(ImageRun, AugmentsOtherDataSets) {
  const auto fit_digits = [&](const std::string& name, const std::string& transforms) {
    write_text(scratch_ / (name + ".toml"),
               "[model]\nname = \"softmax_regression\"\n[data]\nname = \"digits\"\n" + transforms +
                   "[trainer]\nmax_epochs = 1\nnum_threads = 1\nnum_gpus = 0\n");
    const ProgramRun run = run_program({"fit", scratch_ / (name + ".toml"), "--quiet", "--progress=none",
                                        "run.dir=" + (scratch_ / "digits").string()});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return text_of(scratch_ / "digits" / name / "0001/weights.safetensors");
  };
  const std::string plain = fit_digits("plain", ""), augmented = fit_digits("augmented", kAugmentation);
  EXPECT_FALSE(plain.empty());
  EXPECT_FALSE(augmented.empty());
  EXPECT_FALSE(plain == augmented);
}

TEST_F(ImageRun, PrintsItsTransforms) {
  const ProgramRun printed = run_program({"fit", scratch_ / "images.toml", "--print-config"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  EXPECT_NE(printed.out.find("\n[[data.train_transforms]]\nname = \"random_crop\""), std::string::npos)
      << printed.out;
  EXPECT_NE(printed.out.find("\n[[data.val_transforms]]\nname = \"normalize\""), std::string::npos);
  write_text(scratch_ / "again.toml", printed.out);
  EXPECT_EQ(run_program({"fit", scratch_ / "again.toml", "--print-config"}).out, printed.out);
}

TEST_F(ImageRun, RefusesWrongTransforms) {
  write_config("[[data.train_transforms]]\nname = \"random_crp\"\n");
  EXPECT_NE(refusal().find("images.toml:12:8: error: unknown name 'random_crp' in "
                           "'data.train_transforms[0].name'"),
            std::string::npos)
      << refusal();
  write_config("[[data.train_transforms]]\nname = \"random_crop\"\n");
  EXPECT_NE(refusal().find("images.toml:11:1: error: 'data.train_transforms[0]': random_crop: size: it is "
                           "missing; expected: height and width in pixels; size = [32, 32]\n"),
            std::string::npos)
      << refusal();
  write_config("[[data.val_transforms]]\nname = \"random_horizontal_flip\"\n");
  EXPECT_NE(
      refusal().find("images.toml:12:8: error: 'data.val_transforms[0].name': 'random_horizontal_flip' is "
                     "random, but validation and prediction must not be; it belongs in "
                     "[[data.train_transforms]]\n"),
      std::string::npos)
      << refusal();
  write_config("train_transforms = [\"random_crop\"]\n");
  EXPECT_NE(refusal().find("'data.train_transforms': expected tables, [[data.train_transforms]], found "),
            std::string::npos)
      << refusal();
}

TEST_F(ImageRun, RefusesMoreClassesThanTheModelHas) {
  EXPECT_NE(refusal({"model.num_classes=1"})
                .find("'model.num_classes': the data has 2 classes (day, night), but num_classes = 1; "
                      "expected: at least 2; set num_classes to 2\n"),
            std::string::npos)
      << refusal({"model.num_classes=1"});
}

TEST_F(ImageRun, ExplainsTransforms) {
  EXPECT_EQ(run_program({"list", "transforms"}).out.find("color_jitter"), 0U);
  EXPECT_NE(
      run_program({"help", "random_crop"}).out.find("[[data.train_transforms]]\nname = \"random_crop\"\n"),
      std::string::npos);
  EXPECT_NE(run_program({"help", "transforms"}).out.find("random_horizontal_flip"), std::string::npos);
}

}  // namespace
}  // namespace kindling
