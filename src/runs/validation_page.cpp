#include "runs/validation_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "formats/images/image_codecs.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/formats/image.h"
#include "runs/page_texts.h"

namespace kindling {
namespace {

constexpr std::size_t kMostClassesOnPage = 40, kMostClassesInText = 20, kMostWorstInText = 5,
                      kMostStepsInText = 5, kMostChannelsInText = 5, kMostColors = 20;
constexpr std::int64_t kGapOfPictures = 2;
constexpr std::size_t kMostTargetCharts = 4, kMostResidualPoints = 1000;
constexpr int kReportDigits = 6;

std::string weights_text(const RunFiles& files) {
  return (files.value("validation_report.weights") == "best" ? "of the best saved checkpoint"
                                                             : "at the end") +
         (" (step " + files.value("validation_report.step")) + ")";
}

PageNote source_of(const RunFiles& files) {
  return {"Computed after the fit on " + count_text(number_or_nan(files.value("validation_report.samples"))) +
          " validation samples, with the weights " + weights_text(files) + "."};
}

std::string ece_text(const RunFiles& files) {
  const double ece = number_or_nan(files.value("validation_report.ece"));
  return std::isnan(ece) ? "" : "The expected calibration error (ECE) is " + short_text(ece, 4) + ".";
}

// Returns the column with this title; the number of columns if there is none.
std::size_t column_of(const CsvRows& rows, const std::string& title) {
  return rows.empty() ? 0 : static_cast<std::size_t>(std::ranges::find(rows[0], title) - rows[0].begin());
}

bool has_column(const CsvRows& rows, const std::string& title) {
  return !rows.empty() && column_of(rows, title) < rows[0].size();
}

// The cells from `first` on are numbers of few digits; whole numbers keep theirs.
std::vector<std::string> shortened_cells(std::vector<std::string> cells, std::size_t first) {
  for (std::size_t i = first; i < cells.size(); ++i)
    if (const double number = number_or_nan(cells[i]); std::isfinite(number) && number != std::trunc(number))
      cells[i] = short_text(number, kReportDigits);
  return cells;
}

// Sample, its name, label and prediction are texts.
std::size_t num_texts_of_worst(const CsvRows& worst) {
  if (has_column(worst, "label")) return column_of(worst, "predicted") + 1;
  // Those of fields have no targets, those of pixels neither.
  return std::min({column_of(worst, "target"), column_of(worst, "target_0"), column_of(worst, "error_rate"),
                   column_of(worst, "loss")});
}

PageSection confusion_section(const RunFiles& files) {
  if (files.confusion.size() < 2 || files.confusion.size() > kMostClassesOnPage + 1) return {};
  PageMatrix matrix{.rows = "label", .columns = "prediction"};
  matrix.names.assign(files.confusion[0].begin() + 1, files.confusion[0].end());
  for (std::size_t row = 1; row < files.confusion.size(); ++row) {
    std::vector<double>& cells = matrix.cells.emplace_back();
    for (std::size_t i = 1; i < files.confusion[row].size(); ++i)
      cells.push_back(number_or_nan(files.confusion[row][i]));
  }
  return {.title = "Confusion matrix of the validation samples",
          .parts = {std::move(matrix), source_of(files)}};
}

bool has_scores(const RunFiles& files) {
  return files.class_scores.size() > 1 && has_column(files.class_scores, "f1");
}

// Of several labels per sample.
PageSection scores_section(const RunFiles& files) {
  if (!has_scores(files)) return {};
  PageTable table{.titles = files.class_scores[0]};
  for (std::size_t row = 1; row < files.class_scores.size(); ++row)
    table.rows.push_back(shortened_cells(files.class_scores[row], 1));
  return {.title = "Classes of the validation samples",
          .parts = {std::move(table),
                    PageNote{"A class is predicted where its probability is above 0.5; both: it is predicted "
                             "and a label."},
                    source_of(files)}};
}

Chart reliability_diagram(const CsvRows& bins) {
  const std::size_t confidence = column_of(bins, "mean_confidence"), accuracy = column_of(bins, "accuracy");
  Curve measured{.label = "accuracy"};
  for (std::size_t row = 1; row < bins.size(); ++row) {
    const double x = number_or_nan(bins[row][confidence]), y = number_or_nan(bins[row][accuracy]);
    if (!std::isfinite(x) || !std::isfinite(y)) continue;  // an empty bin
    measured.x.push_back(x);
    measured.y.push_back(y);
  }
  return {.title = "reliability diagram",
          .xlabel = "confidence",
          .ylabel = "accuracy",
          .xlim = {{0, 1}},
          .ylim = {{0, 1}},
          .curves = {std::move(measured),
                     {.label = "calibrated", .x = {0, 1}, .y = {0, 1}, .is_background = true}}};
}

bool has_calibration(const RunFiles& files) {
  return has_column(files.calibration, "mean_confidence") && has_column(files.calibration, "accuracy");
}

// Residuals against predictions, from the smallest prediction on.
Chart residual_chart(const CsvRows& rows, const std::string& end_of_name) {
  const std::size_t predicted = column_of(rows, "predicted" + end_of_name),
                    residual = column_of(rows, "residual" + end_of_name);
  const std::size_t stride = (rows.size() - 2) / kMostResidualPoints + 1;
  std::vector<std::pair<double, double>> points;
  for (std::size_t row = 1; row < rows.size(); row += stride)
    if (const double x = number_or_nan(rows[row][predicted]), y = number_or_nan(rows[row][residual]);
        std::isfinite(x) && std::isfinite(y))
      points.emplace_back(x, y);
  std::ranges::stable_sort(points, {}, [](const auto& point) { return point.first; });
  Curve scatter{.label = "residual" + end_of_name, .is_scatter = true};
  for (const auto& [x, y] : points) {
    scatter.x.push_back(x);
    scatter.y.push_back(y);
  }
  Chart chart{
      .title = "residual" + end_of_name, .xlabel = "predicted" + end_of_name, .curves = {std::move(scatter)}};
  if (!points.empty())
    chart.curves.push_back({.label = "no error",
                            .x = {points.front().first, points.back().first},
                            .y = {0, 0},
                            .is_background = true});
  return chart;
}

// The ends of the titles of the targets that are drawn: "", or "_0", "_1", …
std::vector<std::string> drawn_targets(const CsvRows& rows) {
  if (rows.size() < 2) return {};
  const auto has = [&](const std::string& end) {
    return has_column(rows, "predicted" + end) && has_column(rows, "residual" + end);
  };
  if (has("")) return {""};
  std::vector<std::string> ends;
  while (ends.size() < kMostTargetCharts && has("_" + std::to_string(ends.size())))
    ends.push_back("_" + std::to_string(ends.size()));
  return ends;
}

std::vector<Chart> sample_charts(const RunFiles& files) {
  std::vector<Chart> charts;
  if (has_calibration(files)) charts.push_back(reliability_diagram(files.calibration));
  for (const std::string& end_of_name : drawn_targets(files.residuals))
    charts.push_back(residual_chart(files.residuals, end_of_name));
  return charts;
}

PageSection calibration_section(const RunFiles& files) {
  if (!has_calibration(files)) return {};
  PageTable table{.titles = files.calibration[0]};
  for (std::size_t row = 1; row < files.calibration.size(); ++row)
    table.rows.push_back(shortened_cells(files.calibration[row], 1));
  return {.title = "Calibration on the validation samples",
          .parts = {PageCharts{sample_charts(files)}, PageNote{ece_text(files)}, std::move(table),
                    source_of(files)}};
}

PageSection residual_section(const RunFiles& files) {
  const std::vector<std::string> targets = drawn_targets(files.residuals);
  if (targets.empty()) return {};
  std::string text = "A residual is target - prediction.";
  if (has_column(files.residuals, "residual_" + std::to_string(targets.size())))
    text += " Of the first " + std::to_string(targets.size()) + " targets.";
  const std::size_t num_rows = files.residuals.size() - 1, stride = (num_rows - 1) / kMostResidualPoints + 1;
  const auto shown = static_cast<double>((num_rows + stride - 1) / stride),
             all = number_or_nan(files.value("validation_report.samples"));
  if (shown < all) text += " The chart shows " + count_text(shown) + " of " + count_text(all) + " samples.";
  return {.title = "Residuals of the validation samples",
          .parts = {PageCharts{sample_charts(files)}, PageNote{text}, source_of(files)}};
}

// The table of the channels.
CsvRows field_rows(const FieldErrors& errors) {
  CsvRows rows{{"channel", "smallest", "largest", "row of it", "column of it", "missing cells"}};
  const bool has_infinite = std::ranges::any_of(
      errors.channels, [](const ChannelErrors& channel) { return channel.num_infinite > 0; });
  if (has_infinite) rows[0].push_back("not finite");
  for (std::size_t i = 0; i < errors.channels.size(); ++i) {
    const ChannelErrors& channel = errors.channels[i];
    const bool has_numbers = std::isfinite(channel.highest);
    const auto shown = [&](const std::string& text) { return has_numbers ? text : ""; };
    rows.push_back({std::to_string(i), shown(short_text(channel.lowest, kReportDigits)),
                    shown(short_text(channel.highest, kReportDigits)),
                    shown(std::to_string(channel.highest_row)), shown(std::to_string(channel.highest_column)),
                    std::to_string(channel.num_missing)});
    if (has_infinite) rows.back().push_back(std::to_string(channel.num_infinite));
  }
  return rows;
}

PagePicture picture_of(const ChannelErrors& channel, const std::string& name) {
  const bool has_scale = std::isfinite(channel.map.high);
  const std::string low = has_scale ? short_text(channel.map.low, 4) : "",
                    high = has_scale ? short_text(channel.map.high, 4) : "",
                    size = std::to_string(channel.height) + " rows and " + std::to_string(channel.width) +
                           " columns";
  return {.title = name,
          .alt = "Map of the errors of " + name + ", " + size +
                 (has_scale ? ", from " + low + " to " + high : ""),
          .png = heat_map_png(channel.map),
          .aspect_ratio = static_cast<double>(channel.width) / static_cast<double>(channel.height),
          .low = low,
          .high = high};
}

bool is_one_row(const FieldErrors& errors) { return errors.channels.front().height == 1; }

Chart chart_of(const FieldErrors& errors) {
  Chart chart{.title = "RMSE of each cell", .xlabel = "cell", .has_whole_x = true, .marks_gaps = true};
  for (std::size_t i = 0; i < errors.channels.size(); ++i) {
    const ChannelErrors& channel = errors.channels[i];
    if (channel.map.values.empty()) continue;
    const std::size_t stride = (channel.width + channel.map.width - 1) / channel.map.width;
    Curve curve{.label = "channel " + std::to_string(i)};
    for (std::size_t column = 0; column < channel.map.width; ++column) {
      curve.x.push_back(static_cast<double>(column * stride));
      curve.y.push_back(channel.map.values[column]);
    }
    chart.curves.push_back(std::move(curve));
  }
  return chart;
}

std::string colors_text(const FieldErrors& errors) {
  const bool has_infinite = std::ranges::any_of(
      errors.channels, [](const ChannelErrors& channel) { return channel.num_infinite > 0; });
  return std::string(" Row 0 is at the top. Cells without a target are grey") +
         (has_infinite ? ", cells with an output that is not finite are red." : ".");
}

std::string field_note(const FieldErrors& errors) {
  const ChannelErrors& first = errors.channels.front();
  std::string text =
      "The root of the mean squared error (RMSE) of each cell over the validation samples, in the unit of "
      "the data.";
  text += is_one_row(errors) ? " A cross marks cells without a target and with an output that is not finite."
                             : colors_text(errors);
  const auto cells = [](std::size_t size, std::size_t shown) {
    return std::to_string((size + shown - 1) / shown);
  };
  if (first.map.height < first.height || first.map.width < first.width)
    text += std::string(is_one_row(errors) ? " A point" : " A pixel") + " is the root mean square of " +
            cells(first.height, first.map.height) + " x " + cells(first.width, first.map.width) + " cells.";
  return text + " field_errors.npy has all values of " +
         count_text(static_cast<double>(errors.num_channels)) +
         (errors.num_channels == 1 ? " channel." : " channels.");
}

PageSection field_section(const RunFiles& files) {
  const FieldErrors& errors = files.field_errors;
  if (errors.channels.empty()) return {};
  PageSection section{.title = "Errors of the validation fields"};
  PagePictures pictures;
  if (is_one_row(errors)) section.parts.push_back(PageCharts{{chart_of(errors)}});
  for (std::size_t i = 0; i < errors.channels.size() && !is_one_row(errors) && can_read_png(); ++i)
    if (!errors.channels[i].map.values.empty())
      pictures.pictures.push_back(picture_of(errors.channels[i], "channel " + std::to_string(i)));
  if (!pictures.pictures.empty()) section.parts.push_back(std::move(pictures));
  const CsvRows rows = field_rows(errors);
  section.parts.push_back(
      PageTable{.titles = rows[0], .rows = {rows.begin() + 1, rows.end()}, .num_text_columns = 1});
  section.parts.push_back(PageNote{field_note(errors)});
  if (!is_one_row(errors) && !can_read_png())
    section.parts.push_back(PageNote{"There are no pictures: Kindling was built without libpng."});
  section.parts.push_back(source_of(files));
  return section;
}

Chart rollout_chart(const CsvRows& rows, const std::string& column, const std::string& title) {
  Curve curve{.label = title};
  for (std::size_t row = 1; row < rows.size(); ++row) {
    curve.x.push_back(number_or_nan(rows[row][column_of(rows, "step")]));
    curve.y.push_back(number_or_nan(rows[row][column_of(rows, column)]));
  }
  return {.title = title, .xlabel = "step", .curves = {std::move(curve)}, .has_whole_x = true};
}

bool has_rollout(const RunFiles& files) {
  return files.rollout.size() > 1 && has_column(files.rollout, "step") && has_column(files.rollout, "rmse") &&
         has_column(files.rollout, "relative_error");
}

std::vector<Chart> rollout_charts(const RunFiles& files) {
  return {rollout_chart(files.rollout, "rmse", "rollout RMSE"),
          rollout_chart(files.rollout, "relative_error", "rollout relative error")};
}

PageSection rollout_section(const RunFiles& files) {
  if (!has_rollout(files)) return {};
  return {
      .title = "Errors of rollouts",
      .parts = {PageCharts{rollout_charts(files)},
                PageNote{"The model continues validation trajectories by itself: after the first step its "
                         "outputs are its inputs. The RMSE is in the unit of the data; the relative error "
                         "is divided by the size of the data. With the weights " +
                         weights_text(files) + "."}}};
}

// "sample 7: label cat, predicted dog, loss 2.08"; of several targets the loss only.
std::string title_of_worst(const CsvRows& rows, std::size_t row) {
  std::string text = "sample " + rows[row][0], mark = ": ";
  for (const auto& [name, shown] : {std::pair{"label", "label"},
                                    {"target", "target"},
                                    {"predicted", "predicted"},
                                    {"error_rate", "error rate"},
                                    {"loss", "loss"}})
    if (const std::size_t column = column_of(rows, name); column < rows[row].size()) {
      const std::string& cell = rows[row][column];
      const double number = number_or_nan(cell);
      text += mark + shown + " " +
              (std::isfinite(number) && number != std::trunc(number) ? short_text(number, 4) : cell);
      mark = ", ";
    }
  return text;
}

PagePicture picture_of(const Image& image, const std::string& title, const std::string& alt,
                       const std::vector<std::uint8_t>& palette = {}) {
  return {.title = title,
          .alt = alt,
          .png = encode_png(image, "a picture of the report", palette),
          .aspect_ratio = static_cast<double>(image.width) / static_cast<double>(image.height)};
}

// `colors`: red, green and blue of the values of an image with one channel.
Image in_color(const Image& image, const std::vector<std::uint8_t>& colors) {
  if (image.channels == 3) return image;
  Image colored{.width = image.width, .height = image.height, .channels = 3, .pixels = {}};
  for (const std::uint8_t value : image.pixels)
    for (std::size_t i = 0; i < 3; ++i) colored.pixels.push_back(colors[std::size_t{3} * value + i]);
  return colored;
}

// Images of three channels from left to right on a white ground.
Image side_by_side(const std::vector<Image>& parts) {
  Image all{.width = -kGapOfPictures, .height = 0, .channels = 3, .pixels = {}};
  for (const Image& part : parts) {
    all.width += part.width + kGapOfPictures;
    all.height = std::max(all.height, part.height);
  }
  all.pixels.assign(static_cast<std::size_t>(3 * all.width * all.height), 255);
  std::int64_t left = 0;
  for (const Image& part : parts) {
    for (std::int64_t row = 0; row < part.height; ++row)
      std::copy_n(part.pixels.begin() + 3 * row * part.width, 3 * part.width,
                  all.pixels.begin() + 3 * (row * all.width + left));
    left += part.width + kGapOfPictures;
  }
  return all;
}

std::vector<std::uint8_t> grey_palette() {
  std::vector<std::uint8_t> colors(std::size_t{3} * 256);
  for (std::size_t i = 0; i < colors.size(); ++i) colors[i] = static_cast<std::uint8_t>(i / 3);
  return colors;
}

// Of each sample its image, and of a segmentation its labels and prediction next to it.
PagePictures worst_pictures_of(const RunFiles& files) {
  PagePictures part{.are_small = files.worst_masks.empty()};
  if (!can_read_png()) return part;
  const std::vector<std::uint8_t> grey = grey_palette(), colors = voc_palette();
  for (std::size_t i = 0; i + 1 < files.worst.size(); ++i) {
    const bool has_image = i < files.worst_pictures.size(), has_masks = 2 * i + 1 < files.worst_masks.size();
    const std::string title = title_of_worst(files.worst, i + 1);
    if (!has_masks) {
      if (has_image) part.pictures.push_back(picture_of(files.worst_pictures[i], title, "Image of " + title));
      continue;
    }
    std::vector<Image> parts;
    if (has_image) parts.push_back(in_color(files.worst_pictures[i], grey));
    for (const std::size_t mask : {2 * i, 2 * i + 1})
      parts.push_back(in_color(files.worst_masks[mask], colors));
    part.pictures.push_back(
        picture_of(side_by_side(parts), title,
                   (has_image ? "Image, labels and prediction of " : "Labels and prediction of ") + title));
  }
  return part;
}

// The classes that occur in the masks.
PagePictures colors_of_masks(const RunFiles& files) {
  PagePictures part{.are_small = true};
  std::array<bool, 256> occurs{};
  for (const Image& mask : files.worst_masks)
    for (const std::uint8_t value : mask.pixels) occurs[value] = true;
  if (!can_read_png() || static_cast<std::size_t>(std::ranges::count(occurs, true)) > kMostColors)
    return part;
  const auto& names = files.confusion.empty() ? std::vector<std::string>{} : files.confusion[0];
  for (std::size_t value = 0; value < occurs.size(); ++value) {
    if (!occurs[value]) continue;
    const std::string name = value + 1 == occurs.size() ? "no class"
                             : value + 1 < names.size() ? names[value + 1]
                                                        : std::to_string(value);
    part.pictures.push_back(picture_of(
        {.width = 4, .height = 1, .channels = 1, .pixels = std::vector(4, static_cast<std::uint8_t>(value))},
        name, "Color of " + name, voc_palette()));
  }
  return part;
}

PageSection worst_section(const RunFiles& files) {
  if (files.worst.size() < 2) return {};
  PageTable table{.titles = files.worst[0], .num_text_columns = num_texts_of_worst(files.worst)};
  for (std::size_t row = 1; row < files.worst.size(); ++row)
    table.rows.push_back(shortened_cells(files.worst[row], table.num_text_columns));
  PageSection section{.title = "Worst predictions of the validation samples"};
  if (PagePictures pictures = worst_pictures_of(files); !pictures.pictures.empty())
    section.parts.push_back(std::move(pictures));
  if (PagePictures colors = colors_of_masks(files); !colors.pictures.empty()) {
    section.parts.push_back(PageNote{
        std::string(files.worst_pictures.empty() ? "Labels and prediction" : "Image, labels and prediction") +
        ", from left to right. The colors of the classes:"});
    section.parts.push_back(std::move(colors));
  }
  section.parts.push_back(std::move(table));
  section.parts.push_back(source_of(files));
  return section;
}

// The first rows of a table, of which the first `num_texts` columns are texts.
std::string text_of_rows(const CsvRows& rows, std::size_t num_rows, std::size_t num_texts) {
  std::vector<TextColumn> columns;
  for (std::size_t i = 0; i < rows[0].size(); ++i)
    columns.push_back({.title = one_line(rows[0][i]), .right = i >= num_texts});
  std::vector<std::vector<std::string>> lines;
  for (std::size_t row = 1; row < std::min(rows.size(), num_rows + 1); ++row) {
    lines.push_back(shortened_cells(rows[row], num_texts));
    for (std::string& cell : lines.back()) cell = one_line(cell);
  }
  return table_text(std::move(columns), lines, "  ");
}

// The first, the last and evenly spaced steps between them.
std::string text_of_steps(const CsvRows& rows) {
  const std::size_t count = rows.size() - 1, shown = std::min(count, kMostStepsInText);
  CsvRows chosen{rows[0]};
  for (std::size_t i = 0; i < shown; ++i)
    chosen.push_back(rows[shown == 1 ? 1 : 1 + i * (count - 1) / (shown - 1)]);
  return text_of_rows(chosen, shown, 1);
}

}  // namespace

std::vector<PageSection> validation_sections(const RunFiles& files) {
  return {confusion_section(files), scores_section(files), calibration_section(files),
          residual_section(files),  field_section(files),  rollout_section(files),
          worst_section(files)};
}

std::vector<Chart> validation_charts(const RunFiles& files) {
  std::vector<Chart> charts = sample_charts(files);
  if (has_rollout(files)) std::ranges::move(rollout_charts(files), std::back_inserter(charts));
  return charts;
}

std::string validation_text(const RunFiles& files) {
  std::string text;
  const std::string weights = "weights " + weights_text(files);
  if (files.confusion.size() > 1 && files.confusion.size() <= kMostClassesInText + 1)
    text += "\nConfusion matrix of the validation samples (rows: label, columns: prediction), " + weights +
            "\n" + text_of_rows(files.confusion, files.confusion.size(), 1);
  if (has_scores(files) && files.class_scores.size() <= kMostClassesInText + 1)
    text += "\nClasses of the validation samples, " + weights + "\n" +
            text_of_rows(files.class_scores, files.class_scores.size(), 1);
  if (const std::string ece = ece_text(files); !ece.empty()) text += "\n" + ece + "\n";
  if (!files.field_errors.channels.empty())
    text += "\nErrors of the validation fields (RMSE of a cell), " + weights +
            "; field_errors.npy has all\n" +
            text_of_rows(field_rows(files.field_errors), kMostChannelsInText, 1);
  if (has_rollout(files)) text += "\nErrors of rollouts, " + weights + "\n" + text_of_steps(files.rollout);
  if (files.worst.size() > 1)
    text += "\nWorst predictions of the validation samples, " + weights + "; worst_predictions.csv has " +
            std::to_string(files.worst.size() - 1) + "\n" +
            text_of_rows(files.worst, kMostWorstInText, num_texts_of_worst(files.worst));
  return text;
}

}  // namespace kindling
