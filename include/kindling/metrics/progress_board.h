#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/charts/chart.h"
#include "kindling/metrics/epoch_log.h"

namespace kindling {

struct ProgressBoardOptions {
  std::string title{}, xlabel{}, ylabel{};
  std::optional<std::array<double, 2>> xlim{}, ylim{};  // {low, high}; absent: fitted to the curves
  AxisScale xscale = AxisScale::linear, yscale = AxisScale::linear;
};

// The ProgressBoard of Dive into Deep Learning (d2l): curves that grow while a model trains. A point on a
// device stays there, copied within its memory, until the board is redrawn, so the host does not wait before.
// A curve that reaches kMaxPoints points is thinned: neighbours are merged into their means, and from then on
// each point takes twice as many draws. Used from one thread.
class KINDLING_API ProgressBoard {
 public:
  static constexpr std::size_t kMaxPoints = 2048;  // more than a screen can show; a curve has fewer

  explicit ProgressBoard(ProgressBoardOptions options = {});

  // Adds a point to the curve `label`. Draws the mean of both coordinates of every_n consecutive points; an
  // incomplete group waits for more points. A tensor has one element of any dtype and counts as float32 on a
  // device. Throws DataError for another size and ConfigError for every_n < 1.
  void draw(double x, double y, std::string_view label, std::int64_t every_n = 1);
  void draw(double x, const at::Tensor& y, std::string_view label, std::int64_t every_n = 1);

  // Copies the points that are still on devices to the host: one copy and one wait per device with points.
  void redraw();
  // Drops all points, keeps the options.
  void clear();

  // These redraw first; curves are in the order of their first points.
  Chart chart();
  std::string text(int columns = 72, int rows = 16);  // for a terminal, see to_text()
  // atomic: writes the whole file or nothing; throws Error
  void write_svg(const std::filesystem::path& path);

  // May be read and changed at any time; changes apply from the next drawing on.
  ProgressBoardOptions& options() noexcept { return options_; }

 private:
  struct Line {
    Curve curve{};
    std::int64_t num_gathered = 0;  // towards the next mean
    double sum_x = 0, sum_y = 0;
    std::int64_t num_merged = 1;  // points as they were drawn, in each of the curve's
  };
  struct Point {
    std::size_t line = 0;
    double x = 0, y = 0;
    std::int64_t every_n = 1;
    EpochLog* log = nullptr;  // where y still is, in this row; nullptr: y is on the host
    std::int64_t row = 0;
  };

  Point point_of(double x, std::string_view label, std::int64_t every_n);
  EpochLog& log_on(Device device);
  void place(const Point& point);
  static void thin(Line& line);

  ProgressBoardOptions options_;
  std::vector<Line> lines_;
  std::vector<Point> waiting_;                   // all points after the first one on a device
  std::vector<std::unique_ptr<EpochLog>> logs_;  // one per device that was drawn from
};

}  // namespace kindling
