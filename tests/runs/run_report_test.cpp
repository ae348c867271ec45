#include "runs/run_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "formats/arrays/npy_header.h"
#include "kindling/formats/image.h"
#include "kindling/loggers/jsonl_logger.h"
#include "runs/field_errors.h"
#include "runs/run_files.h"
#include "runs/run_page.h"
#include "runs/validation_page.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::string contents_of(const fs::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void put_file(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Record epoch_of(std::int64_t number, double loss) {
  return {.kind = Record::Kind::epoch,
          .global_step = 10 * number,
          .epoch = number,
          .values = {{"train_loss", loss}, {"val_loss", 2 * loss}, {"epoch_time_s", 0.5}, {"host_waits", 3}}};
}

TEST(RunFiles, ReadsSummaryCommandsLayersAndEvents) {
  const Scratch scratch;
  put_file(scratch / "run.json",
           R"({"status": "finished", "seed": 3, "best": {"name": "val_acc"}, "list": [1]})");
  put_file(scratch / "command.txt", "kindling fit\nkindling fit --resume runs/a\n");
  write_layers(scratch.folder(), {{"net.0", "Linear", "[4, 2]", "", "6"}});
  put_file(scratch / "log.txt",
           "2026-03-01 12:00:00.123 info: kindling: 1\n"
           "2026-03-01 12:00:01.123 warning: a: b\n"
           "second line\n"
           "2026-03-01 12:00:02.123 info: resume: after step 4\n");
  const RunFiles files = read_run_files(scratch.folder());
  EXPECT_EQ(files.value("status"), "finished");
  EXPECT_EQ(files.value("best.name"), "val_acc");
  EXPECT_EQ(files.value("seed"), "3");
  EXPECT_EQ(files.value("list"), "[1]");
  EXPECT_EQ(files.commands.size(), 2U);
  EXPECT_EQ(files.layers, (std::vector<std::vector<std::string>>{{"net.0", "Linear", "[4, 2]", "", "6"}}));
  ASSERT_EQ(files.events.size(), 2U);
  EXPECT_EQ(files.events[0].text, "a: b");
  EXPECT_EQ(files.events[1].level, "start");
}

TEST(RunFiles, FindsTheOverridesOfACommand) {
  using Overrides = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(overrides_of("kindling fit -c a=b.toml trainer.max_epochs=3 --seed 1 --optimizer.lr=0.1 --quiet"),
            (Overrides{{"trainer.max_epochs", "3"}, {"seed", "1"}, {"optimizer.lr", "0.1"}}));
  EXPECT_EQ(overrides_of("kindling fit 'name=it'\\''s one' --progress=none"),
            (Overrides{{"name", "it's one"}}));
  EXPECT_EQ(overrides_of("kindling fit --trainer.max_epochs"), Overrides{});
  EXPECT_EQ(overrides_of("'"), Overrides{});
}

TEST(RunFiles, SurvivesForeignContents) {
  const Scratch scratch;
  put_file(scratch / "run.json", std::string(500000, '['));
  put_file(scratch / "model.csv", "a,b\n1,2\n");
  put_file(scratch / "log.txt", std::string("\0\xff\n: \n2026", 10));
  fs::create_directory(scratch / "config.toml");
  const RunFiles files = read_run_files(scratch.folder());
  EXPECT_TRUE(files.summary.empty() && files.layers.empty() && files.events.empty() && files.config.empty());
  std::string nested = "1";
  for (int i = 0; i < 1000; ++i) nested = R"({"a": )" + nested + "}";
  put_file(scratch / "run.json", nested);
  EXPECT_LE(read_run_files(scratch.folder()).summary.size(), 1U);
  EXPECT_TRUE(read_run_files(scratch / "none").summary.empty());
}

TEST(RunPage, ShowsWhatTheDirectoryHas) {
  const Scratch scratch;
  put_file(scratch / "run.json", R"({"status": "diverged", "kindling": "9.9", "device": "cpu"})");
  put_file(scratch / "config.toml", "name = \"<b>\"\n");
  RunMetrics metrics;
  metrics.add(epoch_of(1, 0.25));
  Record last = epoch_of(2, std::nan(""));
  for (const auto& [name, value] : {std::pair("val_confusion_matrix[0][0]", 5.0),
                                    {"skipped_steps", 4.0},
                                    {"time_share/forward", 0.5},
                                    {"step_time_s/rank0", 0.00125},
                                    {"step_time_s/rank1", 0.5}})
    last.values.emplace_back(name, value);
  metrics.add(last);
  const std::string html = to_html(page_of_run(read_run_files(scratch.folder()), metrics));
  EXPECT_TRUE(contains(html, "class=\"status bad\">diverged<"));
  EXPECT_TRUE(contains(html, "<dt>skipped steps</dt><dd>4</dd>"));
  EXPECT_TRUE(contains(html, "<dt>not finite</dt><dd>train_loss (1), val_loss (1)</dd>"));
  EXPECT_TRUE(contains(html, "<h2>val_confusion_matrix, epoch 2</h2>"));
  EXPECT_TRUE(contains(html, "<td class=\"text\">host_waits</td><td>3</td><td>3</td><td>6</td>"));
  EXPECT_TRUE(contains(html, "<td>forward</td><td>50.0 %</td>"));
  EXPECT_TRUE(
      contains(html, "<td class=\"text\">step_time_s/rank0</td><td>1.25 ms</td><td>1.25 ms</td><td></td>"));
  EXPECT_TRUE(contains(html, "\"title\":\"step_time_s\""));
  EXPECT_TRUE(contains(html, "name = &quot;&lt;b&gt;&quot;"));
  EXPECT_TRUE(contains(html, "<dt>kindling</dt><dd>9.9</dd>"));
}

// Returns the first part of a section of the page that has this type and title.
template <class Part>
Part part_of(const RunMetrics& metrics, const std::string& title) {
  for (const PageSection& section : page_of_run(RunFiles{.folder = "run"}, metrics).sections)
    for (const PagePart& part : section.parts)
      if (section.title == title && std::holds_alternative<Part>(part)) return std::get<Part>(part);
  ADD_FAILURE() << "no such part in " << title;
  return {};
}

TEST(RunPage, CollectsTheCellsOfMatricesByName) {
  RunMetrics metrics;
  metrics.add({.epoch = 1,
               .values = {{"val_loss", 1},
                          {"m[0][0]", 3},
                          {"m[1][0]", 4},
                          {"m[0][1]", 9},
                          {"k[7]", 1},
                          {"m[99999999999][0]", 1},
                          {"m[x][0]", 1}}});
  EXPECT_EQ(part_of<PageMatrix>(metrics, "m, epoch 1").cells,
            (std::vector<std::vector<double>>{{3, 9}, {4}}));
}

TEST(RunPage, ShowsTheLargestCellsOffTheDiagonalOfALargeMatrix) {
  RunMetrics metrics;
  metrics.add({.epoch = 1, .values = {{"m[40][40]", 20}, {"m[40][1]", 7}, {"m[0][1]", 9}, {"m[2][1]", 0}}});
  EXPECT_EQ(part_of<PageTable>(metrics, "m, epoch 1").rows,
            (std::vector<std::vector<std::string>>{{"0", "1", "9"}, {"40", "1", "7"}}));
}

TEST(RunPage, ShowsTheValidationReport) {
  const Scratch scratch;
  put_file(scratch / "run.json",
           R"({"validation_report": {"weights": "best", "step": 270, "samples": 1359, "ece": 0.0812},
               "metrics": {}})");
  put_file(scratch / "confusion_matrix.csv", "label,<ant>,\"b,c\"\n<ant>,5,1\n\"b,c\",0,7\ntorn,1\n");
  put_file(scratch / "calibration.csv",
           "bin,from,to,samples,mean_confidence,accuracy\n1,0,0.5,0,,\n2,0.5,1,1359,0.75,0.5\n");
  put_file(scratch / "worst_predictions.csv",
           "sample,row,label,predicted,probability,confidence,loss\n7,12,<ant>,\"b,c\",0.125000001,0.5,2."
           "0794415\n");
  RunMetrics metrics;
  metrics.add(epoch_of(1, 0.25));
  const std::string html = to_html(page_of_run(read_run_files(scratch.folder()), metrics));
  EXPECT_TRUE(contains(html, "<th>&lt;ant&gt;</th><td style=\"--f:0.833\" class=\"full\">5</td>"));
  EXPECT_TRUE(contains(html, "<td class=\"text\">b,c</td><td>0.125</td><td>0.5</td><td>2.07944</td>"));
  EXPECT_TRUE(contains(html,
                       "Computed after the fit on 1,359 validation samples, with the weights of the best "
                       "saved checkpoint (step 270)."));
  EXPECT_FALSE(contains(html, "torn"));
  EXPECT_TRUE(contains(html, "The expected calibration error (ECE) is 0.0812."));
  EXPECT_TRUE(contains(html, "\"title\":\"reliability diagram\""));
  EXPECT_TRUE(contains(html, "{\"label\":\"accuracy\",\"x\":[0.75],\"y\":[0.5]}"));
  EXPECT_FALSE(contains(html, "validation report"));  // among the versions
  const std::string text = validation_text(read_run_files(scratch.folder()));
  EXPECT_TRUE(contains(text, "label  <ant>  b,c\n<ant>      5    1\nb,c        0    7\n")) << text;
  EXPECT_TRUE(contains(text, "7       12   <ant>  b,c              0.125         0.5  2.07944\n")) << text;
  // A run that continues has files of its earlier end, perhaps.
  put_file(scratch / "run.json", R"({"status": "running"})");
  EXPECT_FALSE(contains(to_html(page_of_run(read_run_files(scratch.folder()), metrics)), "Confusion"));
}

std::string npy_of(const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
  return npy_header("<f4", shape)
      .append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST(RunPage, ShowsTheErrorsOfFields) {
  const Scratch scratch;
  put_file(scratch / "run.json", R"({"validation_report": {"weights": "last", "step": 9, "samples": 4}})");
  put_file(scratch / "worst_predictions.csv", "sample,time,loss\n2,1998-01-03,0.1234567891\n");
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  put_file(scratch / "field_errors.npy",
           npy_of({2, 2, 3}, {nan, 0.5F, 2, 3, nan, 1, inf, nan, nan, nan, nan, nan}));
  RunMetrics metrics;
  metrics.add(epoch_of(1, 0.25));
  const std::string html = to_html(page_of_run(read_run_files(scratch.folder()), metrics));
  EXPECT_TRUE(contains(html, "<h2>Errors of the validation fields</h2>"));
  if (can_read_png()) {
    EXPECT_TRUE(contains(
        html,
        "<figcaption>channel 0</figcaption><img alt=\"Map of the errors of channel 0, 2 rows and 3 "
        "columns, from 0.5 to 3\" style=\"aspect-ratio:1.500\" src=\"data:image/png;base64,iVBORw0KGgo"));
    EXPECT_TRUE(contains(html, "<img alt=\"Map of the errors of channel 1, 2 rows and 3 columns\" "));
    EXPECT_TRUE(contains(html, "</i><span>3</span></div>"));
  }
  EXPECT_TRUE(contains(
      html, "<td class=\"text\">0</td><td>0.5</td><td>3</td><td>1</td><td>0</td><td>2</td><td>0</td>"));
  EXPECT_TRUE(
      contains(html, "<td class=\"text\">1</td><td></td><td></td><td></td><td></td><td>5</td><td>1</td>"));
  EXPECT_TRUE(contains(html, "<td class=\"text\">1998-01-03</td><td>0.123457</td>"));
  put_file(scratch / "field_errors.npy", npy_of({2, 1, 3}, {nan, 0.5F, 2, 3, nan, 1}));
  const std::string line = to_html(page_of_run(read_run_files(scratch.folder()), metrics));
  EXPECT_TRUE(contains(line, "RMSE of each cell"));
  EXPECT_TRUE(contains(line, "channel 1"));
  EXPECT_FALSE(contains(line, "Map of the errors"));
  EXPECT_FALSE(contains(line, "Row 0 is at the top"));
  put_file(scratch / "field_errors.npy",
           npy_of({2, 2, 3}, {nan, 0.5F, 2, 3, nan, 1, inf, nan, nan, nan, nan, nan}));
  const std::string text = validation_text(read_run_files(scratch.folder()));
  EXPECT_TRUE(contains(text, "channel  smallest  largest  row of it")) << text;
  EXPECT_TRUE(contains(text, "0             0.5        3")) << text;
  put_file(scratch / "run.json", R"({"status": "running"})");
  EXPECT_TRUE(read_run_files(scratch.folder()).field_errors.channels.empty());
}

TEST(RunPage, ShowsThePicturesOfTheWorstPredictions) {
  const Scratch scratch;
  const auto page_with_report = [&] {
    RunMetrics metrics;
    metrics.add(epoch_of(1, 0.25));
    return to_html(page_of_run(read_run_files(scratch.folder()), metrics));
  };
  put_file(scratch / "run.json", R"({"validation_report": {"weights": "last", "step": 9, "samples": 4}})");
  put_file(scratch / "worst_predictions.csv",
           "sample,file,label,predicted,probability,confidence,loss\n7,a.png,<ant>,bee,0.1,0.9,2.3025851\n");
  // Of two pictures, the table has one.
  put_file(scratch / "worst_pictures.npy", npy_header("|u1", std::vector<std::int64_t>{2, 1, 2, 3}) +
                                               std::string("\xff\x00\x00\x00\xff\x00......", 12));
  const auto pictures = read_run_files(scratch.folder()).worst_pictures;
  ASSERT_EQ(pictures.size(), 2U);
  EXPECT_EQ(pictures[0].pixels, (std::vector<std::uint8_t>{255, 0, 0, 0, 255, 0}));
  if (can_read_png()) {
    const std::string html = page_with_report();
    const std::string title = "sample 7: label &lt;ant&gt;, predicted bee, loss 2.303";
    EXPECT_TRUE(contains(html, "<div class=\"charts small\">\n<figure class=\"picture\"><figcaption>" +
                                   title + "</figcaption><img alt=\"Image of " + title +
                                   "\" style=\"aspect-ratio:2.000\" "
                                   "src=\"data:image/png;base64,iVBORw0KGgo"));
    EXPECT_EQ(html.find("<img"), html.rfind("<img"));
  }
  for (const std::string& bytes :
       {std::string("torn"), npy_header("|u1", std::vector<std::int64_t>{1, 1, 1, 2}) + "ab",
        npy_header("|u1", std::vector<std::int64_t>{0, 1, 1, 1})}) {
    put_file(scratch / "worst_pictures.npy", bytes);
    EXPECT_TRUE(read_run_files(scratch.folder()).worst_pictures.empty());
    EXPECT_FALSE(contains(page_with_report(), "<img"));
  }
}

// The bytes that base64 text stands for, up to the first other character.
std::string bytes_of_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned value = 0;
  int num_bits = 0;
  for (const char character : text) {
    const std::size_t digit = kDigits.find(character);
    if (digit == std::string_view::npos) break;
    value = value << 6 | static_cast<unsigned>(digit);
    if ((num_bits += 6) >= 8) bytes.push_back(static_cast<char>(value >> (num_bits -= 8) & 255));
  }
  return bytes;
}

TEST(RunPage, ShowsTheMasksOfTheWorstPredictions) {
  const Scratch scratch;
  put_file(scratch / "run.json", R"({"validation_report": {"weights": "last", "step": 9, "samples": 4}})");
  put_file(scratch / "confusion_matrix.csv", "label,sky,<cell>\nsky,1,0\n<cell>,0,1\n");
  put_file(scratch / "worst_predictions.csv", "sample,file,error_rate,loss\n7,a.png,0.123456,0.5\n");
  put_file(scratch / "worst_masks.npy", npy_header("|u1", std::vector<std::int64_t>{1, 2, 1, 3}) +
                                            std::string("\x01\x00\xff\x01\x00\x00", 6));
  put_file(scratch / "worst_pictures.npy",
           npy_header("|u1", std::vector<std::int64_t>{1, 2, 2, 1}) + "\x09\x08\x07\x06");
  const RunFiles files = read_run_files(scratch.folder());
  ASSERT_EQ(files.worst_masks.size(), 2U);
  EXPECT_EQ(files.worst_masks[0].pixels, (std::vector<std::uint8_t>{1, 0, 255}));
  EXPECT_EQ(files.worst_masks[1].width, 3);
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  RunMetrics metrics;
  metrics.add(epoch_of(1, 0.25));
  const std::string html = to_html(page_of_run(files, metrics));
  std::size_t at = 0;
  for (const char* const title :
       {"sample 7: error rate 0.1235, loss 0.5", "sky", "&lt;cell&gt;", "no class"}) {
    at = html.find("<figcaption>" + std::string(title) + "</figcaption><img alt=\"", at);
    EXPECT_NE(at, std::string::npos) << title;
  }
  // Image, labels and prediction, two white pixels apart, in the colors of PASCAL VOC.
  constexpr std::string_view kStart = "base64,";
  const Image picture = parse_image(
      bytes_of_base64(std::string_view(html).substr(html.find(kStart) + kStart.size())), "picture");
  ASSERT_EQ(picture.width, 12);
  ASSERT_EQ(picture.height, 2);
  const auto row = [&](std::int64_t y) {
    std::vector<int> row(picture.pixels.begin() + y * 36, picture.pixels.begin() + (y + 1) * 36);
    return row;
  };
  EXPECT_EQ(row(0), (std::vector<int>{9,   9,   9,   8,   8, 8, 255, 255, 255, 255, 255, 255,
                                      128, 0,   0,   0,   0, 0, 224, 224, 192, 255, 255, 255,
                                      255, 255, 255, 128, 0, 0, 0,   0,   0,   0,   0,   0}));
  EXPECT_EQ(row(1), (std::vector<int>{7,   7,   7,   6,   6,   6,   255, 255, 255, 255, 255, 255,
                                      255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                      255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}));
  put_file(scratch / "worst_masks.npy", npy_header("|u1", std::vector<std::int64_t>{1, 3, 1, 2}) + "abcdef");
  EXPECT_TRUE(read_run_files(scratch.folder()).worst_masks.empty());
}

// A pixel is the root mean square of the cells that are not missing: of 1, 7 and of 5, NaN, of NaN, NaN, ….
TEST(FieldErrors, ReducesLargeFields) {
  const Scratch scratch;
  const float nan = std::nanf("");
  std::vector<float> values(1025, nan);
  values[0] = 1, values[1] = 7, values[2] = 5, values[3] = 5, values[1023] = 8, values[1024] = 2;
  put_file(scratch / "field_errors.npy", npy_of({1, 1, 1025}, values));
  const FieldErrors errors = read_field_errors(scratch / "field_errors.npy");
  ASSERT_EQ(errors.channels.size(), 1U);
  const ChannelErrors& channel = errors.channels[0];
  EXPECT_EQ(channel.width, 1025U);
  EXPECT_EQ(channel.num_missing, 1025U - 6);
  EXPECT_EQ(channel.lowest, 1);
  EXPECT_EQ(channel.highest, 8);
  EXPECT_EQ(channel.highest_column, 1023U);
  ASSERT_EQ(channel.map.width, 342U);  // blocks of three
  EXPECT_EQ(channel.map.height, 1U);
  ASSERT_EQ(channel.map.values.size(), 342U);
  EXPECT_FLOAT_EQ(channel.map.values[0], 5);  // (1 + 49 + 25) / 3 = 25
  EXPECT_FLOAT_EQ(channel.map.values[1], 5);
  EXPECT_TRUE(std::isnan(channel.map.values[2]));
  EXPECT_FLOAT_EQ(channel.map.values[341], std::sqrt(34.F));  // (64 + 4) / 2
  EXPECT_FLOAT_EQ(static_cast<float>(channel.map.low), 5);
  EXPECT_FLOAT_EQ(static_cast<float>(channel.map.high), std::sqrt(34.F));
}

TEST(FieldErrors, LimitsTheChannelsAndSkipsOtherFiles) {
  const Scratch scratch;
  const fs::path file = scratch / "field_errors.npy";
  put_file(file, npy_of({30, 1, 2}, std::vector<float>(60, 1)));
  const FieldErrors errors = read_field_errors(file);
  EXPECT_EQ(errors.num_channels, 30U);
  ASSERT_EQ(errors.channels.size(), 20U);
  EXPECT_FALSE(errors.channels[3].map.values.empty());
  EXPECT_TRUE(errors.channels[4].map.values.empty());
  for (const std::string& bytes :
       {std::string(), std::string("torn"), npy_of({2, 2}, std::vector<float>(4)), npy_of({0, 2, 2}, {}),
        npy_of({1, 0, 2}, {}), npy_of({1, 2, 2}, std::vector<float>(3)),
        npy_header("<f8", std::vector<std::int64_t>{1, 1, 1}) + "12345678"}) {
    put_file(file, bytes);
    EXPECT_TRUE(read_field_errors(file).channels.empty());
  }
  fs::remove(file);
  EXPECT_TRUE(read_field_errors(file).channels.empty());
}

// Ids are texts, whatever their column is called, and whole numbers keep all digits.
TEST(RunPage, ShortensOnlyFractionsOfReports) {
  RunFiles files{.folder = "runs/job/0001"};
  files.worst = {{"sample", "target_id", "target", "predicted", "loss"},
                 {"3", "12345678.5", "1234567", "2.000000001", "1524149677489"}};
  files.confusion = {{"label", "a", "b"}, {"a", "1234567", "0"}, {"b", "2", "3"}};
  RunMetrics metrics;
  metrics.add(epoch_of(1, 0.25));
  const std::string html = to_html(page_of_run(files, metrics));
  EXPECT_TRUE(contains(html,
                       "<td class=\"text\">12345678.5</td><td>1234567</td><td>2</td>"
                       "<td>1524149677489</td>"));
  EXPECT_TRUE(contains(html, ">1234567</td><td style=\"--f:0.000\" class=\"none\">"));
  EXPECT_TRUE(contains(validation_text(files), "12345678.5")) << validation_text(files);
}

TEST(RunPage, ThinsResidualsAndDrawsThemFromTheSmallestPredictionOn) {
  RunFiles files{.folder = "runs/job/0001", .summary = {{"validation_report.samples", "4000"}}};
  files.residuals = {{"sample", "target", "predicted", "residual"}};
  for (int i = 0; i < 2000; ++i)
    files.residuals.push_back({std::to_string(2 * i), "0", std::to_string(-i), std::to_string(i)});
  const std::vector<Chart> charts = validation_charts(files);
  ASSERT_EQ(charts.size(), 1U);
  const Curve& points = charts[0].curves.at(0);
  EXPECT_TRUE(points.is_scatter);
  ASSERT_EQ(points.x.size(), 1000U);  // every second row
  EXPECT_EQ(points.x.front(), -1998);
  EXPECT_EQ(points.y.front(), 1998);
  EXPECT_EQ(points.x.back(), 0);
  RunMetrics metrics;
  metrics.add(epoch_of(1, 0.25));
  EXPECT_TRUE(contains(to_html(page_of_run(files, metrics)), "The chart shows 1,000 of 4,000 samples"));
}

TEST(RunPage, ShowsDataHostAndCommit) {
  const Scratch scratch;
  put_file(scratch / "run.json", R"({"host": "node7",
      "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "branch": "main"},
      "data": {"name": "digits", "train": 1438, "val": 359, "checksum": "0123456789abcdef"}})");
  const auto html = [&] { return to_html(page_of_run(read_run_files(scratch.folder()), {})); };
  EXPECT_TRUE(contains(html(), "<dt>data</dt><dd>digits: 1,438 training, 359 validation samples</dd>"));
  EXPECT_TRUE(contains(html(), "<dt>git commit</dt><dd>0123456789ab (main)</dd>"));
  EXPECT_TRUE(contains(html(), "<dt>git commit</dt><dd>0123456789abcdef0123456789abcdef01234567</dd>"));
  EXPECT_TRUE(contains(html(), "<dt>host</dt><dd>node7</dd>"));
  EXPECT_TRUE(contains(html(), "<dt>data checksum</dt><dd>0123456789abcdef</dd>"));
  EXPECT_FALSE(contains(html(), "<dt>data train</dt>"));
  put_file(scratch / "run.json", R"({"git": {"branch": "main"}, "data": {"train": 5}})");
  EXPECT_TRUE(contains(html(), "<dt>data</dt><dd>5 training samples</dd>"));
  EXPECT_TRUE(contains(html(), "<dt>git commit</dt><dd>(main)</dd>"));
}

TEST(RunPage, ShowsARunWithoutRecords) {
  const Scratch scratch;
  EXPECT_TRUE(
      contains(to_html(page_of_run(read_run_files(scratch.folder()), {})), "The run has no records yet."));
}

TEST(RunPage, ComparesRuns) {
  const Scratch scratch;
  const RunFiles files = read_run_files(scratch.folder());
  RunMetrics metrics;
  metrics.add(epoch_of(1, 0.25));
  const std::vector<std::string> names{"val_loss"};
  const std::vector<ComparedRun> runs{{files, metrics}, {files, metrics}};
  const std::string html = to_html(page_of_runs(runs, names));
  EXPECT_TRUE(contains(html, "<h1>2 runs</h1>"));
  EXPECT_TRUE(contains(html, "\"title\":\"val_loss\""));
}

struct Reported {
  Scratch scratch;
  double now = 100;
  int num_layer_calls = 0;
  RunReport report{scratch.folder(),
                   {.monitor = "val_loss",
                    .layers =
                        [this] {
                          ++num_layer_calls;
                          return std::vector<std::vector<std::string>>{{"net", "Linear", "", "", "6"}};
                        },
                    .clock = [this] { return now; }}};

  bool is_drawn() {
    const bool is_there = fs::exists(scratch / "report.html");
    fs::remove(scratch / "report.html");
    return is_there;
  }
};

TEST(RunReport, DrawsRarelyAndReloadsUntilTheEnd) {
  Reported run;
  run.report.write(epoch_of(1, 1));
  EXPECT_FALSE(run.is_drawn()) << "in the first two seconds";
  run.now += 2;
  run.report.write(epoch_of(2, 0.5));
  EXPECT_TRUE(contains(contents_of(run.scratch / "report.html"), "http-equiv=\"refresh\""));
  EXPECT_TRUE(contains(contents_of(run.scratch / "report.html"), "<dd>val_loss 1.0000, epoch 2</dd>"));
  EXPECT_TRUE(run.is_drawn());
  run.now += 4.9;
  run.report.write(epoch_of(3, 0.25));
  EXPECT_FALSE(run.is_drawn());
  run.now += 0.1;
  run.report.write(
      {.kind = Record::Kind::step, .global_step = 31, .epoch = 4, .values = {{"train_loss_step", 1}}});
  EXPECT_FALSE(run.is_drawn()) << "within an epoch";
  run.report.write(epoch_of(4, 0.25));
  EXPECT_TRUE(run.is_drawn());
  run.report.write_final();
  EXPECT_FALSE(contains(contents_of(run.scratch / "report.html"), "http-equiv=\"refresh\""));
  EXPECT_TRUE(contains(contents_of(run.scratch / "curves.svg"), "train_loss"));
  EXPECT_EQ(run.num_layer_calls, 1);
}

TEST(RunReport, ReloadsForTenMinutesAndFiveEpochs) {
  Reported run;
  run.now += 2;
  Record epoch = epoch_of(1, 1);
  epoch.values.emplace_back("epoch_time_s", 100.0);
  run.report.write(epoch);
  EXPECT_TRUE(contains(contents_of(run.scratch / "report.html"), "data-max-age=\"1100\""));
}

TEST(RunReport, ContinuesTheCurvesOfAResumedRun) {
  Reported run;
  {
    JsonlLogger records(run.scratch / "metrics.jsonl");
    records.write(epoch_of(1, 1));
    records.write(epoch_of(2, 1));
    records.resume_at({.epoch = 1, .global_step = 10});
  }
  run.report.resume_at({.epoch = 1, .global_step = 10});
  EXPECT_EQ(run.report.metrics().num_epochs(), 1);
  run.report.write(epoch_of(2, 0.5));
  EXPECT_EQ(run.report.metrics().find("train_loss")->num_values(), 2);
  EXPECT_EQ(run.report.metrics().find("train_loss")->last().value, 0.5);
}

TEST(RunReport, DoesNotStopARunWhoseFilesCannotBeWritten) {
  Reported run;
  fs::create_directory(run.scratch / "curves.svg");
  run.now += 10;
  run.report.write(epoch_of(1, 1));
  run.report.write_final();
  EXPECT_EQ(run.report.metrics().num_epochs(), 1);
}

}  // namespace
}  // namespace kindling
