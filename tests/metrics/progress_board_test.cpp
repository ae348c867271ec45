#include "kindling/metrics/progress_board.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/device/transfer_counts.h"
#include "support/device_under_test.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Numbers = std::vector<double>;

class Board : public OnDevice {
 protected:
  at::Tensor here(double value, at::ScalarType dtype = at::kFloat) const {
    return at::full({}, value, dtype).to(device_);
  }

  ProgressBoard board_;
};
KINDLING_RUN_ON_DEVICES(Board);

TEST_P(Board, DrawsTheMeansOfNPoints) {
  for (int i = 0; i < 7; ++i) board_.draw(i, here(i * i), "loss", 2);
  const Chart chart = board_.chart();
  ASSERT_EQ(chart.curves.size(), 1U);
  EXPECT_EQ(chart.curves[0].label, "loss");
  EXPECT_EQ(chart.curves[0].x, (Numbers{0.5, 2.5, 4.5}));
  EXPECT_EQ(chart.curves[0].y, (Numbers{0.5, 6.5, 20.5}));
  board_.draw(8, here(64), "loss", 2);  // makes a pair with the seventh
  EXPECT_EQ(board_.chart().curves[0].x, (Numbers{0.5, 2.5, 4.5, 7}));
  EXPECT_EQ(board_.chart().curves[0].y, (Numbers{0.5, 6.5, 20.5, 50}));
}

TEST_P(Board, KeepsCurvesApartAndInOrderOfTheirFirstPoints) {
  board_.draw(0, here(1), "train");
  board_.draw(0, 10., "val");
  board_.draw(1, here(2), "train");
  board_.draw(1, here(20), "val");
  board_.draw(2, 3., "train");
  const Chart chart = board_.chart();
  ASSERT_EQ(chart.curves.size(), 2U);
  EXPECT_EQ(chart.curves[0].label, "train");
  EXPECT_EQ(chart.curves[0].y, (Numbers{1, 2, 3}));
  EXPECT_EQ(chart.curves[1].label, "val");
  EXPECT_EQ(chart.curves[1].y, (Numbers{10, 20}));
}

// As in Dive into Deep Learning: points 0.2 apart, every 2 and every 10.
TEST_P(Board, DrawsTheSineOfD2l) {
  for (int i = 0; i < 100; ++i) {
    board_.draw(i / 10., here(std::sin(i / 10.)), "sin", 2);
    board_.draw(i / 10., here(std::cos(i / 10.)), "cos", 10);
  }
  const Chart chart = board_.chart();
  ASSERT_EQ(chart.curves[0].x.size(), 50U);
  ASSERT_EQ(chart.curves[1].x.size(), 10U);
  EXPECT_NEAR(chart.curves[0].y[7], (std::sin(1.4) + std::sin(1.5)) / 2, 1e-6);  // float32 on the way
  EXPECT_NEAR(chart.curves[1].x[9], 9.45, 1e-12);
}

TEST_P(Board, MovesInOneCopyAndOnlyWhatIsNew) {
  const bool is_cpu = device_.is_cpu();
  const TransferCounts start = transfer_counts();
  for (int i = 0; i < 4000; ++i) board_.draw(i, here(i), i % 2 == 0 ? "even" : "odd");
  EXPECT_EQ((transfer_counts() - start).device_to_host_copies, 0);
  EXPECT_EQ((transfer_counts() - start).host_waits, 0);
  board_.redraw();
  const TransferCounts drawn = transfer_counts() - start;
  EXPECT_EQ(drawn.device_to_host_copies, is_cpu ? 0 : 1);
  EXPECT_EQ(drawn.device_to_host_bytes, is_cpu ? 0 : 4000 * 4);
  EXPECT_EQ(drawn.host_waits, is_cpu ? 0 : 1);
  board_.redraw();
  EXPECT_EQ(transfer_counts() - start, drawn) << "nothing new, nothing moved";
  EXPECT_EQ(board_.chart().curves[1].y.back(), 3999);
}

TEST_P(Board, ValueIsTheOneAtTheTimeOfDrawing) {
  const at::Tensor loss = here(1);
  board_.draw(0, loss, "loss");
  loss.fill_(5);
  board_.draw(1, loss, "loss");
  EXPECT_EQ(board_.chart().curves[0].y, (Numbers{1, 5}));
}

TEST_P(Board, TakesAnyDtypeAndShapeOfOneElement) {
  board_.draw(0, here(3, at::kLong), "y");
  board_.draw(1, here(0.5, at::kDouble), "y");
  board_.draw(2, here(0.25, at::kBFloat16).view({1, 1}), "y");
  board_.draw(3, here(2).requires_grad_(), "y");
  EXPECT_EQ(board_.chart().curves[0].y, (Numbers{3, 0.5, 0.25, 2}));
}

TEST_P(Board, RejectsAnythingButOneNumberAndStaysUnchanged) {
  board_.draw(0, here(1), "y");
  EXPECT_NE(error_text<DataError>([&] {
              board_.draw(0, at::ones({2}).to(device_), "y");
            }).find("draw(\"y\"): 2 elements; expected: one number; draw its mean()"),
            std::string::npos);
  EXPECT_THROW(board_.draw(0, at::Tensor(), "y"), DataError);
  EXPECT_THROW(board_.draw(0, here(1), "y", 0), ConfigError);
  EXPECT_THROW(board_.draw(0, 1., "y", -1), ConfigError);
  EXPECT_EQ(board_.chart().curves[0].y, (Numbers{1}));
}

TEST_P(Board, ClearForgetsPointsAndKeepsOptions) {
  board_.options().xlabel = "epoch";
  board_.draw(0, here(1), "y", 2);
  board_.clear();
  board_.draw(4, here(7), "z");
  const Chart chart = board_.chart();
  ASSERT_EQ(chart.curves.size(), 1U);
  EXPECT_EQ(chart.curves[0].label, "z");
  EXPECT_EQ(chart.curves[0].y, (Numbers{7}));
  EXPECT_EQ(chart.xlabel, "epoch");
}

TEST(ProgressBoard, OptionsReachTheChart) {
  ProgressBoard board({.title = "t", .xlabel = "x", .ylabel = "y", .xlim = std::array{0., 10.}});
  board.options().yscale = AxisScale::log;
  board.options().ylim = {0.1, 10};
  const Chart chart = board.chart();
  EXPECT_EQ(chart.title + chart.xlabel + chart.ylabel, "txy");
  EXPECT_EQ(chart.xlim, (std::array{0., 10.}));
  EXPECT_EQ(chart.ylim, (std::array{0.1, 10.}));
  EXPECT_EQ(chart.xscale, AxisScale::linear);
  EXPECT_EQ(chart.yscale, AxisScale::log);
}

TEST(ProgressBoard, NumbersOfTheHostKeepTheirPrecision) {
  ProgressBoard board;
  board.draw(0.1, 1. / 3, "y");
  board.draw(0.2, at::full({}, 1. / 3, at::kDouble), "y");
  EXPECT_EQ(board.chart().curves[0].y, (Numbers{1. / 3, 1. / 3}));
}

TEST(ProgressBoard, MergesNeighboursOfAFullCurve) {
  ProgressBoard board;
  for (int i = 0; i < 2047; ++i) board.draw(i, 2. * i, "y");
  EXPECT_EQ(board.chart().curves[0].x.size(), 2047U);
  EXPECT_EQ(board.chart().curves[0].x.back(), 2046);
  board.draw(2047, 4094., "y");
  Curve curve = board.chart().curves[0];
  EXPECT_EQ(curve.x.size(), 1024U);
  EXPECT_EQ(curve.x.front(), 0.5);
  EXPECT_EQ(curve.y.front(), 1);
  EXPECT_EQ(curve.x.back(), 2046.5);
  board.draw(2048, 1., "y");
  EXPECT_EQ(board.chart().curves[0].x.size(), 1024U);
  board.draw(2049, 3., "y");
  curve = board.chart().curves[0];
  EXPECT_EQ(curve.x.back(), 2048.5);
  EXPECT_EQ(curve.y.back(), 2);
}

TEST(ProgressBoard, StaysSmallInALongRun) {
  ProgressBoard board;
  for (int i = 0; i < 200'000; ++i) {
    board.draw(i, 0.5 * i - 7, "every");
    board.draw(i, 0.5 * i - 7, "every third", 3);
  }
  for (const Curve& curve : board.chart().curves) {
    EXPECT_GE(curve.x.size(), 1024U);
    EXPECT_LT(curve.x.size(), ProgressBoard::kMaxPoints);
    EXPECT_LT(curve.x.front(), 200'000 / 1024);
    EXPECT_GT(curve.x.back(), 200'000 - 2 * 200'000 / 1024);
    for (std::size_t i = 0; i < curve.x.size(); ++i) EXPECT_EQ(curve.y[i], 0.5 * curve.x[i] - 7) << i;
  }
}

TEST(ProgressBoard, ShowsItselfAsTextAndAsAFile) {
  const Scratch scratch;
  ProgressBoard board({.title = "fit"});
  board.draw(0, 1., "loss");
  board.draw(1, 0.5, "loss");
  EXPECT_EQ(board.text(40, 5), to_text(board.chart(), 40, 5));
  EXPECT_NE(board.text().find("⠒⠒⠒⠒⠒⠒ loss"), std::string::npos);
  board.write_svg(scratch / "fit.svg");
  EXPECT_EQ(read_file(scratch / "fit.svg", 100'000), to_svg(board.chart()));
  EXPECT_THROW(board.write_svg(scratch / "nowhere/fit.svg"), Error);
}

}  // namespace
}  // namespace kindling
