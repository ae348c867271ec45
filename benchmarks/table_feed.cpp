#include "table_feed.h"

#include <ATen/ops/empty.h>
#include <kindling/formats/table.h>

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "clock.h"
#include "report.h"

namespace kindling_bench {
namespace {

struct Columns {
  at::Tensor numbers;  // float32 [rows, columns of numbers]
  std::vector<std::vector<std::int32_t>> codes{};
};

Columns columns_of(kindling::Table table) {
  std::vector<const std::vector<double>*> numbers;
  Columns columns;
  for (kindling::TableColumn& column : table.columns)
    if (column.kind == kindling::ColumnKind::number)
      numbers.push_back(&column.numbers);
    else
      columns.codes.push_back(std::move(column.codes));
  const auto rows = static_cast<std::int64_t>(table.num_rows), width = std::ssize(numbers);
  columns.numbers = at::empty({rows, width}, at::kFloat);
  auto* out = columns.numbers.mutable_data_ptr<float>();
  for (std::size_t row = 0; row < table.num_rows; ++row)
    for (const std::vector<double>* column : numbers) *out++ = static_cast<float>((*column)[row]);
  return columns;
}

}  // namespace

void table_feed(const Options& options) {
  const std::filesystem::path file = std::filesystem::path(options.folder) / options.variant;
  Clock clock(options);
  double rows = 0;
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    const Columns columns = columns_of(kindling::read_table(file));
    clock.stop();
    rows = static_cast<double>(columns.numbers.size(0));
  }
  clock.tick();
  report_times(options, clock, "us/row", rows, {});
}

}  // namespace kindling_bench
