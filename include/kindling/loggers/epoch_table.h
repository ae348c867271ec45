#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "kindling/base/text.h"
#include "kindling/loggers/best_so_far.h"
#include "kindling/loggers/logger.h"

namespace kindling {

struct EpochTableOptions {
  std::string monitor = {};       // the name whose best value is marked; empty: none
  bool higher_is_better = false;  // as for an accuracy
  bool color = false;             // prints rows with a new best value in green, NaN and infinity in red
  int max_width = 0;              // columns of the terminal; 0: unlimited
};

// Prints a table with a row per epoch record and flushes it. The first record determines the columns: losses,
// accuracies, time, learning rate, then user-defined names. Bookkeeping values (samples_per_s, host_waits, …)
// and single numbers of large metrics (val_confusion_matrix[2][3]) are not shown.
//   epoch  train loss     acc  val loss  val acc   time       lr
//       1      0.3412  0.8970    0.0921   0.9710  11.2s     1e-3   * best
// In a narrow terminal, the less important columns are omitted, starting with the learning rate. A number
// takes at most the width of its column, with fewer digits if need be, so that columns stay aligned. Plain
// text, with escape sequences only if options.color is set. Clear a progress line on the same terminal before
// write().
class KINDLING_API EpochTable : public Logger {
 public:
  explicit EpochTable(std::ostream& out, EpochTableOptions options = {});  // does not own `out`
  void write(const Record& record) override;
  // The best value among rows that another process has written; later values are compared with it.
  void set_best(double value) { best_.update(value); }

 private:
  void choose_columns(const Record& first);
  void omit_columns();
  std::string colored(const std::string& row, const std::vector<std::string>& cells, bool best) const;

  std::ostream& out_;
  EpochTableOptions options_;
  std::vector<TextColumn> columns_;  // the epoch, each name, "* best"
  std::vector<std::string> names_;
  BestSoFar best_;
};

}  // namespace kindling
